-- acquire.lua: one attempt to become a holder.
--
-- KEYS     see grant.lua
-- ARGV     1 owner  2 TTL in ms  3 tail: client, name and meta, each on its own line
--          4 0, or, if the attempt leaves or refreshes a queue entry when the lock is taken,
--          the number of the attempt, which its client never uses again
--          5 the kind, or nothing for an exclusive lock
-- returns  the fence, 16 digits, if owner is a holder now; otherwise {time in ms until there may
--          be room (-1 unknown), meta or owner of a holder}. Error CONFLICT or WRONGTYPE: the value
--          is not dlock's, or the lock is of another kind.
--
-- Idempotent by owner: a repeated attempt of a holder returns the fence that it has and grants a
-- full term, and a repeated attempt of a waiter keeps its place in the queue. A free lock with a
-- queue goes to the head of the queue, even if the caller does not wait. A free lock without a
-- queue is granted at once, because an entry would have the same effect.

local owner, ttl, tail, attempt, kind = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] or 'w'

if kind == 'w' and redis.call('EXISTS', KEYS[1], KEYS[3]) == 0 then
  return grant(owner, ttl, tail) or
    redis.error_reply("CONFLICT the value under the key is not dlock's")
end

-- queue.lua

-- enqueue leaves or refreshes the entry of owner. ZSCORE and HSET come first: if one of the two
-- values is foreign, the script ends before it has written.
local function enqueue()
  local place = redis.call('ZSCORE', KEYS[3], owner)
  local term = math.min(ttl, entry_term)
  redis.call('HSET', KEYS[4], owner, table.concat(
    {string.format('%.0f', now + term), attempt, kind, tail}, '\n'))
  if not place then
    local last = redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2] or 0
    redis.call('ZADD', KEYS[3], last + 1, owner)
  end
  for i = 3, 4 do
    if redis.call('PTTL', KEYS[i]) < term then
      redis.call('PEXPIRE', KEYS[i], term)
    end
  end
end

-- refuse.lua

local failure = read('GET')
if failure then
  return confirm(failure)
end
local other = conflicts(owner, tail, kind)
if other then
  return confirm(conflict(other))
end
local fence = own(owner, ttl)
if fence then
  return fence
end
if admits(kind) and redis.call('EXISTS', KEYS[3]) == 0 then
  return give(owner, ttl, tail, kind) or conflict("the value under the key is not dlock's")
end
if attempt ~= '0' then
  enqueue()
end
if not lock or lock.kind ~= 'w' then
  pass_on(owner)
  read('GET')
  fence = own(owner, ttl)
  if fence then
    return fence
  end
  -- A lock that pass_on has left free has no queue, or no fence: then give fails, too.
  if not lock or admits(kind) and redis.call('EXISTS', KEYS[3]) == 0 then
    unqueue(owner)
    return give(owner, ttl, tail, kind) or conflict("the value under the key is not dlock's")
  end
end
return confirm(refuse())
