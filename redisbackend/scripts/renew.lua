-- renew.lua: prove many grants again.
--
-- KEYS     lock 1, fence 1, lock 2, fence 2, …
-- ARGV     owner 1, TTL 1 in ms, owner 2, TTL 2, …
-- returns  an array: 1 for each that its owner still holds, else 0
--
-- Idempotent: it sets an expiry and creates nothing. PEXPIRE needs no memory. One
-- foreign value must not fail the others: pcall, and the answer is 0, as the
-- grant that was there is gone.

local function keep(ms) -- as in grant.lua
  return tonumber(ms) > 86400000 and string.format('%.0f', 2 * ms) or '172800000'
end

local answers = {}
for i = 1, #KEYS, 2 do
  local owner, ttl = ARGV[i], ARGV[i + 1]
  local mine = 'dlock1\n' .. owner .. '\n'
  local value = redis.pcall('GET', KEYS[i])
  local held = type(value) == 'string' and string.sub(value, 1, #mine) == mine
  if held then
    redis.call('PEXPIRE', KEYS[i], ttl)
    redis.call('PEXPIRE', KEYS[i + 1], keep(ttl))
  end
  answers[#answers + 1] = held and 1 or 0
end
return answers
