-- releaseall.lua: remove the grants or the queue entries of several owners.
--
-- KEYS     for each lock the four of grant.lua
-- ARGV     the owner of each lock
-- returns  an array: 1 for each lock of which it removed something, otherwise 0. A foreign value
--          contains nothing of an owner.
--
-- Idempotent by owner, and works without memory, as release.lua does.

local locks, queues, answers, mine = {}, {}, {}, {}

for i = 1, #ARGV do
  locks[i], queues[i] = KEYS[4 * i - 3], KEYS[4 * i - 1]
end
local values = redis.call('MGET', unpack(locks))
for i, owner in ipairs(ARGV) do
  local value, prefix = values[i], 'dlock1\n' .. owner .. '\n'
  answers[i] = 0
  if value and string.sub(value, 1, #prefix) == prefix then
    answers[i], mine[#mine + 1] = 1, locks[i]
  end
end
if #mine > 0 then
  redis.call('DEL', unpack(mine))
end
if #mine == #ARGV and redis.call('EXISTS', unpack(queues)) == 0 then
  return answers
end

-- queue.lua

-- leave removes the owner from a lock with several holders, or from the queue of any lock. It
-- reports whether it was there.
local function leave(owner)
  local value = redis.pcall('GET', KEYS[1])
  if type(value) == 'table' and remove('HDEL', KEYS[1], owner) == 1 then
    if redis.call('HLEN', KEYS[1]) == 1 then -- the field "dlock1"
      redis.call('DEL', KEYS[1])
    end
    vacate()
    return true
  end
  if not unqueue(owner) then
    return false
  end
  if type(value) ~= 'string' then -- a lock with several holders may admit the next waiter
    vacate()
  end
  return true
end

local all = {unpack(KEYS)}
for i, owner in ipairs(ARGV) do
  for k = 1, 4 do
    KEYS[k] = all[4 * (i - 1) + k]
  end
  if answers[i] == 1 then
    vacate()
  elseif leave(owner) then
    answers[i] = 1
  end
end
return answers
