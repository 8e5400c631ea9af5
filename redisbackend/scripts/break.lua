-- break.lua: take the lock from its holder and tell it.
--
-- KEYS     see grant.lua
-- ARGV     1 owner, or "" for whoever holds
-- returns  1 if it was taken, 0 if the lock is free or another's.
--          Error CONFLICT or WRONGTYPE: a foreign value.
--
-- Idempotent by owner; with "" a repetition would break the next holder, so it is
-- never repeated. Works without memory, as release.lua does. GETEX without an option is GET to a
-- master, but a replica refuses it: a demoted master must not answer for the present one.

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
-- The message names the grant that was taken: one that comes late must not end a newer grant.
tell('dlock:client:' .. client, 'lost\n' .. holder .. '\n' .. fence)
vacate()
return 1
