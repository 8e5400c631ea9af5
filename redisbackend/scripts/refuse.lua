-- refuse.lua: the part of acquire and of acquireall that refuses a lock. It replaces the line
-- "-- refuse.lua" in them, after queue.lua.

-- words describes a kind.
local function words(kind)
  local limit = string.match(kind, '%d+')
  return limit and 'a semaphore with the limit ' .. limit or 'a lock'
end

-- confirm returns an answer of the master. A replica must not answer instead: it refuses GETEX,
-- which a master executes like GET. After a GETEX the server's memory limit does not apply to the
-- script, so it must not precede a write.
local function confirm(answer)
  local value = redis.pcall('GETEX', KEYS[1])
  if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value
  end
  return answer
end

-- refuse returns the answer of a lock that is taken. There may be room when the first of several
-- terms ends; the key may last longer than all of them. HRANDFIELD may return the field "dlock1",
-- so the call requests two fields.
local function refuse()
  if lock.kind == 'w' then
    return {redis.call('PTTL', KEYS[1]), lock.meta ~= '' and lock.meta or lock.owner}
  end
  local fields = redis.call('HRANDFIELD', KEYS[1], 2)
  local holder = fields[1] == 'dlock1' and fields[2] or fields[1]
  local lines = '^%d+' .. string.rep('\n[^\n]*', 5) .. '\n(.*)$'
  local meta = string.match(redis.call('HGET', KEYS[1], holder), lines)
  return {lock.first - now, meta ~= '' and meta or holder}
end

-- conflicts returns why a request of owner does not fit the lock, as read has found it, or its
-- queue: the text of an error, or nil.
local function conflicts(owner, tail, kind)
  local present = lock or head(owner)
  if not present then
    return nil
  end
  if present.name ~= string.match(tail, '\n([^\n]*)') then
    return "the value under the key is not dlock's"
  end
  local one, other = words(present.kind), words(kind)
  if one ~= other then
    return 'the name is in use by ' .. one .. ', not by ' .. other
  end
end
