-- renew.lua: prolong many grants.
--
-- KEYS     lock 1, lock 2, …
-- ARGV     owner 1, fence 1, TTL 1 in ms, owner 2, fence 2, TTL 2, …
-- returns  an array: 1 for each grant that the server still has, otherwise 0.
--          Error READONLY: a replica, whose data may be old.
--
-- Idempotent: it sets an expiry and creates nothing. PEXPIRE needs no memory, and after it HSET
-- needs none. A master executes GETEX without an option like GET, but a replica refuses it: a
-- demoted master must not report a loss. A foreign value must not fail the other grants: its answer
-- is 0, because the grant is gone. The fence is compared, too. After the grant was broken, a late
-- acquire of the same owner may have made another grant, and the lock may have had another holder
-- between the two.

-- lower makes the time in the field "dlock1" of a lock at most first: no term may end before it.
-- add has done so already, unless the clock was set back since.
local function lower(lock, first)
  local kind, former, name =
    string.match(redis.call('HGET', lock, 'dlock1') or '', '^(%l%d*\n)(%d+)(\n.*)$')
  if kind and first < tonumber(former) then
    redis.call('HSET', lock, 'dlock1', kind .. string.format('%.0f', first) .. name)
  end
end

-- share prolongs the grant of one of several holders, and reports whether the server still has it.
local function share(lock, owner, fence, ttl)
  local record = redis.pcall('HGET', lock, owner)
  local expiry, rest = string.match(type(record) == 'string' and record or '', '^(%d+)(\n.*)$')
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if not expiry or tonumber(expiry) <= now or
      string.sub(rest, 2, #fence + 2) ~= fence .. '\n' then
    return false
  end
  redis.call('PEXPIRE', lock, math.max(ttl, redis.call('PTTL', lock)))
  local ends = now + ttl + 1 -- now is rounded down
  redis.call('HSET', lock, owner, string.format('%.0f', ends) .. rest)
  if ends < tonumber(expiry) then
    lower(lock, ends)
  end
  return true
end

local answers = {}
for i, lock in ipairs(KEYS) do
  local owner, fence, ttl = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  local mine = 'dlock1\n' .. owner .. '\n' .. fence .. '\n'
  local value = redis.pcall('GETEX', lock)
  local held
  if type(value) == 'table' then
    if not string.find(value.err, 'WRONGTYPE', 1, true) then
      return value
    end
    held = share(lock, owner, fence, ttl)
  elseif value and string.sub(value, 1, #mine) == mine then
    redis.call('PEXPIRE', lock, ttl)
    held = true
  end
  answers[i] = held and 1 or 0
end
return answers
