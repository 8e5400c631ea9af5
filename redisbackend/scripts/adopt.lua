-- adopt.lua: make owner the holder of an exported grant, with the same fence.
--
-- KEYS     see export.lua
-- ARGV     1 owner  2 TTL in ms  3 tail: client, name and meta, each on its own line
--          4 the former owner  5 secret  6 the kind
-- returns  the fence, 16 digits, or 0 if the grant is gone or was adopted before.
--          Error CONFLICT or WRONGTYPE: the value is not dlock's.
--
-- Idempotent by owner: a repeated adoption returns the fence again.

-- queue.lua

local owner, ttl, tail, former, secret, kind = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local failure = read('GETEX')
if failure then
  return failure
end
local fence = own(owner, ttl)
if fence then
  return fence
end
if not lock or lock.kind ~= kind or redis.call('GET', KEYS[5]) ~= secret then
  return 0
end
local numbers -- fence and since of the record
if kind == 'w' then
  if lock.owner ~= former then
    return 0
  end
  numbers = string.match(redis.call('GET', KEYS[1]), '^dlock1\n[^\n]+\n(%d+\n%d+\n%d+\n)')
  redis.call('DEL', KEYS[5])
  redis.call('SET', KEYS[1], 'dlock1\n' .. owner .. '\n' .. numbers .. tail, 'PX', ttl)
else
  numbers = string.match(redis.call('HGET', KEYS[1], former) or '', '^%d+\n(%d+\n%d+\n%d+\n)')
  if not numbers then
    return 0
  end
  redis.call('DEL', KEYS[5])
  redis.call('HDEL', KEYS[1], former)
  add(owner, ttl, kind, numbers .. tail)
end
return string.match(numbers, '^%d+')
