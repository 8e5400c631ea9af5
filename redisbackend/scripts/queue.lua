-- queue.lua: the part of acquire, release, break and downgrade for locks with a queue or with
-- several holders. It replaces the line "-- queue.lua" in each of them, after the path of an
-- exclusive lock without a queue: functions cost time even if the script does not call them.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- entry_term is how long an entry of the queue lasts at most, in ms. So a waiter that has died
-- delays the others no longer. The driver refreshes an entry earlier, and has the same number.
local entry_term = 10000

-- lock is what read has found: nil for a free lock, else a table with the kind and the name. An
-- exclusive lock also has owner, fence, client and meta. Another lock has first, a time in ms
-- before which no holder's term ends.
local lock

-- publish sends a message. If the server refuses it, the effects of the script remain.
local function publish(channel, message)
  redis.pcall('PUBLISH', channel, message)
end

local function conflict(text)
  return redis.error_reply('CONFLICT ' .. text)
end

-- save writes the field "dlock1" of a lock with several holders. Without it, on a server that has
-- no memory left, the time in that field is earlier than necessary.
local function save()
  redis.pcall('HSET', KEYS[1], 'dlock1',
    lock.kind .. '\n' .. string.format('%.0f', lock.first) .. '\n' .. lock.name)
end

-- expire removes the holders whose terms are over. It reads all holders, but only once for each
-- term that ends: see lock.first.
local function expire()
  local all = redis.call('HGETALL', KEYS[1])
  local first
  for i = 1, #all, 2 do
    local expiry = tonumber(string.match(all[i + 1], '^%d+'))
    if all[i] == 'dlock1' then
      -- no holder
    elseif expiry and expiry > now then
      first = math.min(first or expiry, expiry)
    else
      redis.call('HDEL', KEYS[1], all[i])
    end
  end
  if first then
    lock.first = first
    save()
  else
    redis.call('DEL', KEYS[1])
    lock = nil
  end
end

-- read sets lock, by GET or by GETEX, which a replica refuses. It returns an error if the value is
-- not dlock's.
local function read(command)
  lock = nil
  local value = redis.pcall(command, KEYS[1])
  if not value then
    return nil
  end
  if type(value) == 'string' then
    local owner, fence, client, name, meta =
      string.match(value, '^dlock1\n([^\n]+)\n(%d+)\n%d+\n%d+\n(%w+)\n([^\n]*)\n(.*)$')
    if not owner then
      return conflict("the value under the key is not dlock's")
    end
    lock = {
      kind = 'w', name = name, owner = owner, fence = fence, client = client, meta = meta,
    }
    return nil
  end
  if not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value
  end
  local field = redis.pcall('HGET', KEYS[1], 'dlock1')
  if type(field) == 'table' then
    return field
  end
  local kind, first, name = string.match(field or '', '^(%l%d*)\n(%d+)\n(.*)$')
  if not kind then
    return conflict("the value under the key is not dlock's")
  end
  lock = {kind = kind, name = name, first = tonumber(first)}
  if lock.first <= now then
    expire()
  end
end

-- admits reports whether there is room for one more holder of a kind. HLEN counts the field
-- "dlock1", too.
local function admits(kind)
  if not lock then
    return true
  end
  if kind == 'w' or kind ~= lock.kind then
    return false
  end
  return kind == 'r' or redis.call('HLEN', KEYS[1]) <= tonumber(string.sub(kind, 2))
end

-- add makes owner one of the holders of a kind. rest is its fence and the lines after it. now is
-- rounded down, so the term needs one ms more.
local function add(owner, ms, kind, rest)
  local expiry = now + ms + 1
  if not lock then
    local name = string.match(rest, '^%d+\n%d+\n%d+\n%w+\n([^\n]*)')
    lock = {kind = kind, name = name, first = expiry + 1}
  end
  if expiry < lock.first then
    lock.first = expiry
    save()
  end
  redis.call('HSET', KEYS[1], owner, string.format('%.0f', expiry) .. '\n' .. rest)
  if redis.call('PTTL', KEYS[1]) < tonumber(ms) then
    redis.call('PEXPIRE', KEYS[1], ms)
  end
end

-- own returns the fence of owner if it is a holder, after it has granted a full term.
local function own(owner, ttl)
  if not lock then
    return nil
  end
  if lock.kind == 'w' then
    if lock.owner ~= owner then
      return nil
    end
    redis.call('PEXPIRE', KEYS[1], ttl)
    return lock.fence
  end
  local rest = string.match(redis.call('HGET', KEYS[1], owner) or '', '^%d+\n(.*)$')
  if rest then
    redis.call('PEXPIRE', KEYS[1], math.max(ttl, redis.call('PTTL', KEYS[1])))
    add(owner, ttl, lock.kind, rest)
    return string.match(rest, '^%d+')
  end
end

-- give grants the lock, which must admit the kind, and returns the fence, or nil as grant does.
local function give(owner, ms, tail, kind)
  if kind == 'w' then
    local fence = grant(owner, ms, tail)
    lock = {kind = 'w'} -- nothing else is admitted
    return fence
  end
  return grant(owner, ms, tail, function(rest)
    add(owner, ms, kind, rest)
  end)
end

-- remove executes HDEL or ZREM for owner, and returns the number of elements that it has removed. A
-- foreign value has none of them. Any other error ends the script.
local function remove(command, key, owner)
  local n = redis.pcall(command, key, owner)
  if type(n) == 'number' then
    return n
  elseif string.find(n.err, 'WRONGTYPE', 1, true) then
    return 0
  end
  return redis.call(command, key, owner) -- ends the script
end

-- unqueue removes the entry of owner, and reports whether it was in the queue.
local function unqueue(owner)
  local queued = remove('ZREM', KEYS[3], owner) == 1
  remove('HDEL', KEYS[4], owner)
  return queued
end

-- head returns the first live entry of the queue as a table, and removes the expired entries before
-- it. The entry of caller is live. It returns nil if there is none. An entry from before the clock
-- was set back seems to last longer than it may.
local function head(caller)
  while true do
    local owner = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
    if not owner then
      return nil
    end
    local entry = redis.call('HGET', KEYS[4], owner) or ''
    local expiry, attempt, kind, tail, client, name =
      string.match(entry, '^(%d+)\n(%d+)\n(%l%d*)\n((%w+)\n([^\n]*)\n.*)$')
    local left = math.min((expiry or now) - now, entry_term)
    if expiry and (left > 0 or owner == caller) then
      return {
        owner = owner, left = math.max(left, 1), attempt = attempt, kind = kind, tail = tail,
        client = client, name = name,
      }
    end
    unqueue(owner)
  end
end

-- pass_on grants the lock, as read has found it, to the entries at the front of the queue, as far
-- as there is room: to each for the remaining time of its entry. It notifies the waiters, but not
-- the caller. It stops if a grant fails: the script has written already, so it must not fail
-- because of a foreign fence. A message contains the number of the attempt that left the entry, so
-- that a late message is not taken for a newer grant.
local function pass_on(caller)
  while true do
    local first = head(caller)
    if not first or not admits(first.kind) then
      return
    end
    unqueue(first.owner)
    local ok, fence = pcall(give, first.owner, first.left, first.tail, first.kind)
    if not (ok and fence) then
      return
    end
    if first.owner ~= caller then
      publish('dlock:client:' .. first.client,
        table.concat({'granted', first.owner, fence, first.attempt}, '\n'))
    end
  end
end

-- vacate is called when there may be room: a holder or a waiter has left, or a writer has become a
-- reader. The script has written already, so a foreign queue must not make it fail.
local function vacate()
  if not read('GET') then
    pcall(pass_on)
  end
end
