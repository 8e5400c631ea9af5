-- queue.lua: what acquire, release and break do where there is a queue. It is put
-- into each of them in place of the line "-- queue.lua", behind the path that
-- needs none of it: functions cost time even if nobody calls them.

-- tell publishes; a listener who may not be told must not undo what was done.
local function tell(channel, message)
  redis.pcall('PUBLISH', channel, message)
end

-- pass_on makes the first live waiter the holder of a free lock, for no longer
-- than its entry had left, tells it unless it is the caller itself, and returns
-- its fence; nil where nobody is left or grant refuses. The message names the attempt
-- that left the entry: one that comes late must not pass for a newer grant.
local function pass_on(caller)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  while true do
    local head = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
    if not head then
      return nil
    end
    local entry = redis.call('HGET', KEYS[4], head) or ''
    redis.call('ZREM', KEYS[3], head)
    redis.call('HDEL', KEYS[4], head)
    local expiry, attempt, tail, client = string.match(entry, '^(%d+)\n(%d+)\n((%w+)\n.*)$')
    local left = (expiry or now) - now
    if left > 0 then
      local fence = grant(head, left, tail)
      if fence and head ~= caller then
        local message = {'granted', head, fence, attempt}
        tell('dlock:client:' .. client, table.concat(message, '\n'))
      end
      return fence
    end
  end
end

-- vacate is for a lock that has just become free: the queue goes first, else
-- everybody who listens may try.
local function vacate()
  if not pass_on() then
    -- free.lua
  end
end
