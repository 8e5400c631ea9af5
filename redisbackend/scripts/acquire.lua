-- acquire.lua: one attempt to become the holder.
--
-- KEYS     see grant.lua
-- ARGV     1 owner  2 TTL in ms  3 tail: client, name and meta, one to a line
--          4 0, or to leave or refresh a place in the queue where the lock is taken: the
--          number of this attempt, which its client never uses again
-- returns  the fence, 16 digits, if owner holds now; else {ms that the holder has
--          left (-1 unknown), who holds}. Error CONFLICT or WRONGTYPE: a foreign value.
--
-- Idempotent by owner: asked again, a holder is answered with the fence it has and
-- a full term, a waiter keeps its place. A free lock that is queued for goes to
-- the head of the queue, whoever asks and whether it asked for fairness or not. A free
-- lock without a queue is granted at once: to queue for it first would end the same.

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

-- A replica must not answer for the master: it refuses GETEX, which is GET to a master, and the
-- first write of enqueue. GETEX before enqueue would lift the server's limit of memory from it.
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
