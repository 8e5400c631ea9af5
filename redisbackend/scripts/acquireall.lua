-- acquireall.lua: one attempt to become the holder of several exclusive locks.
--
-- KEYS     for each lock the four of grant.lua
-- ARGV     for each lock: owner, TTL in ms, tail: client, name and meta, each on its own line
-- returns  an array of the fences, 16 digits each, if each owner is the holder of its lock now;
--          otherwise about the first lock that is taken: {its index, time in ms until it may be
--          free (-1 unknown), meta or owner of a holder}, or {its index, text} if its value is not
--          dlock's or it is of another kind. Error CONFLICT: the value of the fence is not dlock's.
--
-- It grants all locks or none, and is idempotent by owners, as acquire.lua is. It leaves no entry
-- in a queue, and a free lock with a queue goes to the head of the queue. The first check is one
-- command, because most attempts find all locks free.

local all, n = {unpack(KEYS)}, #KEYS / 4
local fences = {}

-- focus makes the keys of the i-th lock those of the other functions.
local function focus(i)
  for k = 1, 4 do
    KEYS[k] = all[4 * (i - 1) + k]
  end
end

-- finish grants the locks whose fences are missing.
local function finish()
  local granted = {}
  for i = 1, n do
    if not fences[i] then
      focus(i)
      fences[i] = grant(ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i])
      if not fences[i] then
        for _, lock in ipairs(granted) do
          redis.call('DEL', lock)
        end
        return redis.error_reply("CONFLICT the value under the key is not dlock's")
      end
      granted[#granted + 1] = KEYS[1]
    end
  end
  return fences
end

local names = {}
for i = 1, n do
  names[2 * i - 1], names[2 * i] = all[4 * i - 3], all[4 * i - 1]
end
if redis.call('EXISTS', unpack(names)) == 0 then
  return finish()
end

-- queue.lua

-- refuse.lua

-- free reports whether no holder and no queue has the lock, as read has found it.
local function free()
  return not lock and redis.call('EXISTS', KEYS[3]) == 0
end

-- held lists the locks that their owners have already. Their terms are prolonged only if all locks
-- are granted.
local held = {}
for i = 1, n do
  focus(i)
  local owner, tail = ARGV[3 * i - 2], ARGV[3 * i]
  local failure = read('GET')
  if failure and not string.find(failure.err, 'CONFLICT', 1, true) and
      not string.find(failure.err, 'WRONGTYPE', 1, true) then
    return failure
  end
  local text = failure and failure.err or conflicts(owner, tail, 'w')
  if text then
    local answer = confirm(false)
    return answer and answer.err and answer or {i - 1, text}
  end
  if not (lock and lock.kind == 'w') and not free() then
    pass_on(owner)
    read('GET')
  end
  if lock and lock.kind == 'w' and lock.owner == owner then
    held[#held + 1] = i
  elseif not free() then
    local answer = confirm(refuse())
    return answer.err and answer or {i - 1, answer[1], answer[2]}
  end
end
for _, i in ipairs(held) do
  focus(i)
  read('GET')
  fences[i] = own(ARGV[3 * i - 2], ARGV[3 * i - 1])
end
return finish()
