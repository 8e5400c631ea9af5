-- grant.lua: how the server stores a lock and grants it. It precedes acquire, release, break and
-- downgrade.
--
-- KEYS  1 lock     the lock, expires with the leases; see below
--       2 fence    string, the last fence of all locks of the server, in a cluster of the locks
--                  in the same slot. It has no expiry.
--       3 queue    zset, owner -> place
--       4 waiters  hash, owner -> lines expiry (Unix ms), attempt, kind, tail
--
-- A kind is "w" for an exclusive lock, "r" for the lock of readers, and "p8" for permits of a
-- semaphore of 8. A tail is the lines client, name and meta, which the client sends as one
-- argument.
--
-- An exclusive lock is a string with the lines "dlock1", owner, fence, since (Unix s), since (µs)
-- and tail. The other kinds are a hash. Its field "dlock1" has the lines kind, a time (Unix ms)
-- before which no holder's term ends, and name. Every other field is an owner, with the lines
-- expiry (Unix ms), fence, since (Unix s), since (µs) and tail. The hash expires with the last
-- term.
--
-- All names share one fence, so a name that is never used again leaves nothing on the server. It
-- increases with each grant of any name, and so with each grant of one name.
--
-- Lock and fence are two keys: only a whole key can expire, and a whole key can be renewed and
-- removed on a server that has no memory left to write a value. All four keys are in one slot of
-- a cluster.
--
-- A fence has 16 digits. Here it is the Unix time in µs; the driver subtracts
-- backend.FenceEpoch. Fences are compared as text, because their conversion to numbers takes
-- longer than the rest of the script. Where numbers are necessary, they are below 2^53, so that
-- Lua's numbers are exact. They become text through %.0f, because ".." would write 1e+15.

-- draw returns the next fence and the time, and draws as many more fences as given, which follow
-- it. The fence is the maximum of the last fence plus one, the time, and backend.FenceEpoch plus
-- one.
--
-- draw does nothing and returns nil in two cases: the fence key has a foreign value, or a fence
-- would exceed FenceEpoch + MaxFence - 1. A wrong clock must not leave such a fence. Only a master
-- returns nil: on a replica GETEX and SET are errors.
local function draw(more)
  local last = redis.pcall('GET', KEYS[2])
  local time = redis.call('TIME')
  local fence = time[1] .. string.sub('00000' .. time[2], -6)
  if fence <= '1767225600000000' then
    fence = '1767225600000001'
  end
  if last and (#last ~= 16 or last >= fence) then
    if #last ~= 16 or not string.match(last, '^%d+$') then
      redis.call('GETEX', KEYS[2]) -- repeats the error of GET if there was one
      return nil
    end
    fence = string.format('%.0f', last + 1)
  end
  local newest = more and string.format('%.0f', fence + more) or fence
  if newest > '4019025413685247' then
    redis.call('GETEX', KEYS[2])
    return nil
  end
  redis.call('SET', KEYS[2], newest)
  return fence, time
end

-- record returns the lines of a holder after its owner.
local function record(fence, time, tail)
  return fence .. '\n' .. time[1] .. '\n' .. time[2] .. '\n' .. tail
end

-- grant makes owner a holder for ms milliseconds and returns its fence: the only holder, or, if
-- there is a function add, what this makes of it. It does nothing and returns nil if draw does.
local function grant(owner, ms, tail, add)
  local fence, time = draw()
  if not fence then
    return nil
  end
  local rest = record(fence, time, tail)
  if add then
    add(rest)
  else
    redis.call('SET', KEYS[1], 'dlock1\n' .. owner .. '\n' .. rest, 'PX', ms)
  end
  return fence
end
