-- grant.lua: how a lock is kept and granted. It stands before acquire, release
-- and break.
--
-- KEYS  1 lock     string, expires with the lease; its lines are "dlock1", owner,
--                  fence, since (Unix s), since (µs), client, name, meta. The last
--                  three are the tail, which comes from the client as one
--       2 fence    string, the last fence of all locks of the server, in a cluster of those in the
--                  lock's slot. It has no expiry.
--       3 queue    zset, owner -> place; only of those who asked for fairness
--       4 waiters  hash, owner -> lines expiry (Unix ms), attempt, tail
--
-- One fence serves all names, so a name that is never used again leaves nothing behind. It grows
-- with each grant of any of them, and so with each grant of one.
--
-- Lock and fence are two keys, as only a whole key can expire, and can be renewed and removed on a
-- server that has no memory left to write a value. All four are in one slot of a cluster.
--
-- A fence is 16 digits, here the Unix time in µs, and is compared as text: to make
-- numbers of it costs more than all else together. The driver subtracts
-- backend.FenceEpoch. Where numbers are needed they stay below 2^53, up to where Lua's
-- are exact, and become text through %.0f, as ".." would make 1e+15 of them.

-- grant makes owner the holder for ms milliseconds and returns its fence, the
-- greater of the last one plus one and the time, and of backend.FenceEpoch plus one; nil,
-- and nothing is done, where the fence key holds something else, or where the fence would exceed
-- FenceEpoch + MaxFence - 1: a clock that is set wrong must leave no such fence behind. Only a
-- master returns nil: on a replica GETEX and SET are errors.
local function grant(owner, ms, tail)
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
  if fence > '4019025413685247' then
    redis.call('GETEX', KEYS[2])
    return nil
  end
  redis.call('SET', KEYS[2], fence)
  redis.call('SET', KEYS[1], 'dlock1\n' .. owner .. '\n' .. fence .. '\n' .. time[1] .. '\n' ..
    time[2] .. '\n' .. tail, 'PX', ms)
  return fence
end
