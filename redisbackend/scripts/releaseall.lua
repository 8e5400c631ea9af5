-- releaseall.lua: remove the grants or the queue entries of several owners.
--
-- KEYS     for each lock the four of grant.lua
-- ARGV     the owner of each lock
-- returns  an array: 1 for each lock of which it removed something, otherwise 0.
--          Error WRONGTYPE: a foreign value; some of the locks may be released.
--
-- Idempotent by owner, and works without memory, as release.lua does.

local all = {unpack(KEYS)}
local values, answers, queues, gone = {}, {}, {}, true

for i, owner in ipairs(ARGV) do
  local mine = 'dlock1\n' .. owner .. '\n'
  local value = redis.pcall('GET', all[4 * i - 3])
  values[i], answers[i], queues[i] = value, 0, all[4 * i - 1]
  if type(value) == 'string' and string.sub(value, 1, #mine) == mine then
    redis.call('DEL', all[4 * i - 3])
    answers[i] = 1
  else
    gone = false
  end
end
if gone and redis.call('EXISTS', unpack(queues)) == 0 then
  return answers
end

-- queue.lua

-- remove removes the owner from a lock with several holders, or from the queue of any lock. It
-- reports whether it was there.
local function remove(owner, value)
  if type(value) == 'table' and redis.call('HDEL', KEYS[1], owner) == 1 then
    if redis.call('HLEN', KEYS[1]) == 1 then -- the field "dlock1"
      redis.call('DEL', KEYS[1])
    end
    vacate()
    return true
  end
  if redis.call('ZREM', KEYS[3], owner) == 0 then
    return false
  end
  redis.call('HDEL', KEYS[4], owner)
  if type(value) ~= 'string' then -- a lock with several holders may admit the next waiter
    vacate()
  end
  return true
end

for i, owner in ipairs(ARGV) do
  for k = 1, 4 do
    KEYS[k] = all[4 * (i - 1) + k]
  end
  if answers[i] == 1 then
    vacate()
  elseif remove(owner, values[i]) then
    answers[i] = 1
  end
end
return answers
