-- break.lua: take the lock from its holders and notify them.
--
-- KEYS     see grant.lua
-- ARGV     1 owner, or "" for all holders
-- returns  1 if the lock was taken from a holder, 0 if it is free or another owner's.
--          Error CONFLICT or WRONGTYPE: the value is not dlock's.
--
-- Idempotent by owner. With "" a repetition would break the lock of the next holder, so the
-- driver never repeats it. Works without memory, as release.lua does. A master executes GETEX
-- without an option like GET, but a replica refuses it: a demoted master must not answer instead
-- of the present master.

-- queue.lua

local owner = ARGV[1]

-- tell notifies a holder. The message contains the fence of the broken grant: a late message must
-- not end a newer grant.
local function tell(holder, fence, client)
  publish('dlock:client:' .. client, 'lost\n' .. holder .. '\n' .. fence)
end

-- take removes one of several holders, and reports whether it was there.
local function take(holder)
  local record = redis.call('HGET', KEYS[1], holder)
  if not record then
    return false
  end
  redis.call('HDEL', KEYS[1], holder)
  if redis.call('HLEN', KEYS[1]) == 1 then -- the field "dlock1"
    redis.call('DEL', KEYS[1])
  end
  tell(holder, string.match(record, '^%d+\n(%d+)\n%d+\n%d+\n(%w+)'))
  return true
end

local failure = read('GETEX')
if failure then
  return failure
end
local taken = false
if not lock then
  return 0
elseif lock.kind ~= 'w' then
  local holders = owner == '' and redis.call('HKEYS', KEYS[1]) or {owner}
  for _, holder in ipairs(holders) do
    if holder ~= 'dlock1' then
      taken = take(holder) or taken
    end
  end
elseif owner == '' or owner == lock.owner then
  redis.call('DEL', KEYS[1])
  tell(lock.owner, lock.fence, lock.client)
  taken = true
end
if not taken then
  return 0
end
vacate()
return 1
