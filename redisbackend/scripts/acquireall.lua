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

local n, all = #KEYS / 4, KEYS

-- finish grants the locks with the given numbers, adds their fences to fences, and returns these.
local function finish(missing, fences)
  local first, time
  if #missing > 0 then
    first, time = draw(#missing - 1)
    if not first then
      return redis.error_reply("CONFLICT the value under the key is not dlock's")
    end
  end
  for k, i in ipairs(missing) do
    local owner, ttl, tail = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
    fences[i] = string.format('%.0f', first + k - 1)
    redis.call('SET', all[4 * i - 3],
      'dlock1\n' .. owner .. '\n' .. record(fences[i], time, tail), 'PX', ttl)
  end
  return fences
end

local names, missing = {}, {}
for i = 1, n do
  names[2 * i - 1], names[2 * i], missing[i] = all[4 * i - 3], all[4 * i - 1], i
end
if redis.call('EXISTS', unpack(names)) == 0 then
  return finish(missing, {})
end

-- queue.lua

-- refuse.lua

all = {unpack(KEYS)}

-- focus makes the keys of the i-th lock those of the other functions.
local function focus(i)
  for k = 1, 4 do
    KEYS[k] = all[4 * (i - 1) + k]
  end
end

-- The terms of the locks in held are prolonged only if all locks are granted.
local held = {}
missing = {}
for i = 1, n do
  focus(i)
  local owner, tail = ARGV[3 * i - 2], ARGV[3 * i]
  local failure = read('GET')
  if not failure and not lock then -- head reads the queue, and would end the script
    local queue = redis.pcall('ZRANGE', KEYS[3], 0, 0)
    failure = queue.err and queue
  end
  if failure and not string.find(failure.err, 'CONFLICT', 1, true) and
      not string.find(failure.err, 'WRONGTYPE', 1, true) then
    return failure
  end
  local text = failure and failure.err or conflicts(owner, tail, 'w')
  if text then
    local answer = confirm(false)
    return answer and answer.err and answer or {i - 1, text}
  end
  if not lock or lock.kind ~= 'w' then
    pass_on(owner)
    read('GET')
  end
  if lock and lock.kind == 'w' and lock.owner == owner then
    held[#held + 1] = i
  elseif not lock then -- no queue, or pass_on has no fence: then finish fails, too
    missing[#missing + 1] = i
  else
    local answer = confirm(refuse())
    return answer.err and answer or {i - 1, answer[1], answer[2]}
  end
end
local fences = {}
for _, i in ipairs(held) do
  focus(i)
  read('GET')
  fences[i] = own(ARGV[3 * i - 2], ARGV[3 * i - 1])
end
return finish(missing, fences)
