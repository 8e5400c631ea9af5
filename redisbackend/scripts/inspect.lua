-- inspect.lua: read the state of many locks without a change.
--
-- KEYS     lock 1, waiters 1, lock 2, waiters 2, …
-- returns  an array of {value or 0, PTTL of the lock, number of live queue entries, a name from the
--          queue or "", its kind or ""}; for a foreign value {}. The value of a lock with several
--          holders is an array of the kind, record 1, remaining time 1 in ms, record 2, … The
--          records are like the value of an exclusive lock. Error READONLY: a replica, whose data
--          may be old.
--
-- A master executes GETEX without an option like GET, but a replica refuses it. A master that
-- permits no writes refuses it, too, but its data are not old.

local refused = redis.pcall('GETEX', KEYS[1])
if type(refused) == 'table' and string.find(refused.err, 'READONLY', 1, true) then
  return refused
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- queued returns the number of live queue entries, and the name and the kind of one of them. An
-- error about a foreign value is a table without elements, so it counts as no entry.
local function queued(waiters)
  local live, name, kind = 0, '', ''
  for _, entry in ipairs(redis.pcall('HVALS', waiters)) do
    local expiry, own_kind, own_name =
      string.match(entry, '^(%d+)\n%d+\n(%l%d*)\n%w+\n([^\n]*)\n')
    if expiry and tonumber(expiry) > now then
      live, name, kind = live + 1, own_name, own_kind
    end
  end
  return live, name, kind
end

-- group returns the value of a lock with several holders: nil if it is foreign, 0 if all terms are
-- over.
local function group(lock)
  local all = redis.pcall('HGETALL', lock)
  local holders, kind = {''}, nil
  for i = 1, #all, 2 do
    local expiry, rest = string.match(all[i + 1], '^(%d+)\n(.*)$')
    if all[i] == 'dlock1' then
      kind = string.match(all[i + 1], '^(%l%d*)\n')
    elseif expiry and tonumber(expiry) > now then
      holders[#holders + 1] = 'dlock1\n' .. all[i] .. '\n' .. rest
      holders[#holders + 1] = expiry - now
    end
  end
  holders[1] = kind
  return kind and (#holders > 1 and holders or 0)
end

local answers = {}
for i = 1, #KEYS, 2 do
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'table' then
    value = group(KEYS[i])
  else
    value = value or 0
  end
  if value then
    local live, name, kind = queued(KEYS[i + 1])
    answers[#answers + 1] = {value, redis.call('PTTL', KEYS[i]), live, name, kind}
  else
    answers[#answers + 1] = {}
  end
end
return answers
