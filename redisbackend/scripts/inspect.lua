-- inspect.lua: read the state of many locks without a change.
--
-- KEYS     lock 1, waiters 1, lock 2, waiters 2, …
-- returns  an array of {value or 0, PTTL of the lock, number of live queue entries,
--          listeners, a name from the queue or ""}; for a foreign value {}
--
-- Listeners is the number of clients that wait without a queue entry, or -1 if the server does
-- not permit the command.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function queued(waiters)
  local live, name = 0, ''
  for _, entry in ipairs(redis.call('HVALS', waiters)) do
    local expiry, own_name = string.match(entry, '^(%d+)\n%d+\n%w+\n([^\n]*)\n')
    if expiry and tonumber(expiry) > now then
      live, name = live + 1, own_name
    end
  end
  return live, name
end

local function listeners(lock)
  local count = -1
  for _, how in ipairs({'NUMSUB', 'SHARDNUMSUB'}) do -- the latter since Redis 7, for clusters
    local reply = redis.pcall('PUBSUB', how, lock .. ':free')
    if not reply.err then
      count = math.max(count, 0) + reply[2]
    end
  end
  return count
end

local answers = {}
for i = 1, #KEYS, 2 do
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then
    answers[#answers + 1] = {}
  else
    local live, name = queued(KEYS[i + 1])
    answers[#answers + 1] = {
      value or 0, redis.call('PTTL', KEYS[i]), live, listeners(KEYS[i]), name,
    }
  end
end
return answers
