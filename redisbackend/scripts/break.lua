-- break.lua: take the lock from its holder and notify the holder.
--
-- KEYS     see grant.lua
-- ARGV     1 owner, or "" for any holder
-- returns  1 if the lock was taken from its holder, 0 if it is free or another owner's.
--          Error CONFLICT or WRONGTYPE: the value is not dlock's.
--
-- Idempotent by owner. With "" a repetition would break the lock of the next holder, so the
-- driver never repeats it. Works without memory, as release.lua does. A master executes GETEX
-- without an option like GET, but a replica refuses it: a demoted master must not answer instead
-- of the present master.

-- queue.lua

local value = redis.call('GETEX', KEYS[1])
if not value then
  return 0
end
local holder, fence, client = string.match(value, '^dlock1\n([^\n]+)\n(%d+)\n%d+\n%d+\n(%w+)\n')
if not holder then
  return redis.error_reply("CONFLICT the value under the key is not dlock's")
end
if ARGV[1] ~= '' and ARGV[1] ~= holder then
  return 0
end
redis.call('DEL', KEYS[1])
-- The message contains the fence of the broken grant: a late message must not end a newer grant.
publish('dlock:client:' .. client, 'lost\n' .. holder .. '\n' .. fence)
vacate()
return 1
