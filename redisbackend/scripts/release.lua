-- release.lua: remove the grant or the queue entry of owner.
--
-- KEYS     see grant.lua
-- ARGV     1 owner
-- returns  1 if it removed something, 0 if not. A foreign value contains nothing of owner.
--
-- Idempotent by owner: the second time there is nothing to remove. The first write is a DEL, HDEL
-- or ZREM, which a server without memory permits, and a script that has written may continue to
-- write: so a release works there, too. Each path has such a write, which a replica refuses: the
-- answer is always the master's.

local owner = ARGV[1]
local mine = 'dlock1\n' .. owner .. '\n'
local value = redis.pcall('GET', KEYS[1])
local holds = type(value) == 'string' and string.sub(value, 1, #mine) == mine

if holds then
  redis.call('DEL', KEYS[1])
  if redis.call('EXISTS', KEYS[3]) == 0 then
    return 1
  end
end

-- queue.lua

if type(value) == 'table' and remove('HDEL', KEYS[1], owner) == 1 then
  holds = true
  if redis.call('HLEN', KEYS[1]) == 1 then -- the field "dlock1"
    redis.call('DEL', KEYS[1])
  end
end
if holds then
  vacate()
  return 1
end
if unqueue(owner) then
  if type(value) ~= 'string' then -- a lock with several holders may admit the next waiter
    vacate()
  end
  return 1
end
return 0
