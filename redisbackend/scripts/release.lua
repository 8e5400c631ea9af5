-- release.lua: remove the lock or the queue entry of owner.
--
-- KEYS     see grant.lua
-- ARGV     1 owner
-- returns  1 if it removed something, 0 if not. Error WRONGTYPE: a foreign value.
--
-- Idempotent by owner: the second time there is nothing to remove. The first write is a DEL or
-- ZREM, which a server without memory permits, and a script that has written may continue to
-- write: so a release works there, too. PUBLISH is not a write. Each path has a DEL or ZREM,
-- which a replica refuses: the answer is always the master's.

local owner = ARGV[1]
local mine = 'dlock1\n' .. owner .. '\n'
local value = redis.call('GET', KEYS[1])
local holds = value and string.sub(value, 1, #mine) == mine

if holds then
  redis.call('DEL', KEYS[1])
  if redis.call('EXISTS', KEYS[3]) == 0 then
    -- free.lua
    return 1
  end
end

-- queue.lua

if holds then
  vacate()
  return 1
end
if redis.call('ZREM', KEYS[3], owner) == 1 then
  redis.call('HDEL', KEYS[4], owner)
  if not value then
    vacate()
  end
  return 1
end
return 0
