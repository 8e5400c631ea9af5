-- acquire.lua: one attempt to become the holder.
--
-- KEYS     see grant.lua
-- ARGV     1 owner  2 TTL in ms  3 tail: client, name and meta, each on its own line
--          4 0, or, if the attempt leaves or refreshes a queue entry when the lock is taken,
--          the number of the attempt, which its client never uses again
-- returns  the fence, 16 digits, if owner is the holder now; otherwise {remaining time of the
--          holder in ms (-1 unknown), meta or owner of the holder}. Error CONFLICT or
--          WRONGTYPE: the value is not dlock's.
--
-- Idempotent by owner: a repeated attempt of the holder returns the fence that it has and
-- grants a full term, and a repeated attempt of a waiter keeps its place in the queue. A free
-- lock with a queue goes to the head of the queue, even if the caller did not request
-- fairness. A free lock without a queue is granted at once, because an entry would have the
-- same effect.

local owner, ttl, tail, attempt = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local CONFLICT = "CONFLICT the value under the key is not dlock's"

if redis.call('EXISTS', KEYS[1], KEYS[3]) == 0 then
  return grant(owner, ttl, tail) or redis.error_reply(CONFLICT)
end

-- queue.lua

local function enqueue()
  if not redis.call('ZSCORE', KEYS[3], owner) then
    local last = redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2] or 0
    redis.call('ZADD', KEYS[3], last + 1, owner)
  end
  local time = redis.call('TIME')
  local expiry = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ttl)
  redis.call('HSET', KEYS[4], owner, expiry .. '\n' .. attempt .. '\n' .. tail)
  for i = 3, 4 do
    if redis.call('PTTL', KEYS[i]) < tonumber(ttl) then
      redis.call('PEXPIRE', KEYS[i], ttl)
    end
  end
end

-- A replica must not answer instead of the master. It refuses GETEX, which a master executes like
-- GET, and the first write of enqueue. After a GETEX, the server's memory limit would not apply
-- to enqueue.
local value = redis.pcall(attempt == '0' and 'GETEX' or 'GET', KEYS[1])
if not value then
  if attempt ~= '0' then
    enqueue()
  end
  if not pass_on(owner) then
    grant(owner, ttl, tail)
  end
  value = redis.call('GET', KEYS[1])
end

local text = type(value) == 'string' and value or ''
local holder, fence, name, meta =
  string.match(text, '^dlock1\n([^\n]+)\n(%d+)\n%d+\n%d+\n%w+\n([^\n]*)\n(.*)$')
if not holder or name ~= string.match(tail, '\n([^\n]*)') then
  redis.call('GETEX', KEYS[1]) -- repeats the error of GET if there was one
  return redis.error_reply(CONFLICT)
end
if holder == owner then
  redis.call('PEXPIRE', KEYS[1], ttl)
  return fence
end
if attempt ~= '0' then
  enqueue()
end
return {redis.call('PTTL', KEYS[1]), meta ~= '' and meta or holder}
