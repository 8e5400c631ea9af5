-- downgrade.lua: make the holder of an exclusive lock a reader, with the same fence.
--
-- KEYS     see grant.lua
-- ARGV     1 owner  2 fence  3 TTL in ms
-- returns  1 if owner is a reader now, 0 if it does not hold the lock.
--          Error CONFLICT or WRONGTYPE: the value is not dlock's.
--
-- Idempotent by owner and fence. Works without memory, as release.lua does.

-- queue.lua

local owner, fence, ttl = ARGV[1], ARGV[2], ARGV[3]
local failure = read('GETEX')
if failure then
  return failure
end
if lock and lock.kind == 'r' then
  return own(owner, ttl) == fence and 1 or 0
end
if not lock or lock.owner ~= owner or lock.fence ~= fence then
  return 0
end
local value = redis.call('GET', KEYS[1])
redis.call('DEL', KEYS[1])
lock = nil
add(owner, ttl, 'r', string.match(value, '^dlock1\n[^\n]+\n(.*)$'))
vacate()
return 1
