-- queue.lua: the part of acquire, release and break for locks with a queue. It replaces the
-- line "-- queue.lua" in each of them, after the path without a queue: functions cost time
-- even if the script does not call them.

-- publish sends a message. If the server refuses it, the effects of the script remain.
local function publish(channel, message)
  redis.pcall('PUBLISH', channel, message)
end

-- pass_on makes the first live waiter the holder of a free lock, for the remaining time of its
-- entry. It removes expired entries. It notifies the waiter unless that is the caller, and
-- returns the fence. It returns nil if the queue is empty or grant fails: the script has written
-- already, so it must not fail because of a foreign fence. The message contains the number of the
-- attempt that left the entry, so that a late message is not taken for a newer grant.
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
      local ok, fence = pcall(grant, head, left, tail)
      if not (ok and fence) then
        return nil
      end
      if head ~= caller then
        local message = {'granted', head, fence, attempt}
        publish('dlock:client:' .. client, table.concat(message, '\n'))
      end
      return fence
    end
  end
end

-- vacate is called when the lock has become free. The head of the queue becomes the holder; if
-- the queue is empty, all listeners may attempt.
local function vacate()
  if not pass_on() then
    -- free.lua
  end
end
