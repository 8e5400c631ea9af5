-- export.lua: prepare the grant of owner for another process.
--
-- KEYS     see grant.lua; 5 ticket, string, expires with the grant
-- ARGV     1 owner  2 fence  3 TTL in ms  4 secret
-- returns  1 if another process may adopt the grant, 0 if it is gone.
--          Error CONFLICT or WRONGTYPE: the value is not dlock's.

-- queue.lua

local owner, fence, ttl, secret = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local failure = read('GETEX')
if failure then
  return failure
end
if own(owner, ttl) ~= fence then
  return 0
end
redis.call('SET', KEYS[5], secret, 'PX', ttl)
return 1
