-- renew.lua: prolong many grants.
--
-- KEYS     lock 1, lock 2, …
-- ARGV     owner 1, fence 1, TTL 1 in ms, owner 2, fence 2, TTL 2, …
-- returns  an array: 1 for each grant that the server still has, otherwise 0.
--          Error READONLY: a replica, whose data may be old.
--
-- Idempotent: it sets an expiry and creates nothing. PEXPIRE needs no memory. A master executes
-- GETEX without an option like GET, but a replica refuses it: a demoted master must not report a
-- loss. A foreign value must not fail the other grants: its answer is 0, because the grant is
-- gone. The fence is compared, too. After the grant was broken, a late acquire of the same owner
-- may have made another grant, and the lock may have had another holder between the two.

local answers = {}
for i, lock in ipairs(KEYS) do
  local owner, fence, ttl = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  local mine = 'dlock1\n' .. owner .. '\n' .. fence .. '\n'
  local value = redis.pcall('GETEX', lock)
  if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value
  end
  local held = type(value) == 'string' and string.sub(value, 1, #mine) == mine
  if held then
    redis.call('PEXPIRE', lock, ttl)
  end
  answers[i] = held and 1 or 0
end
return answers
