-- Every step begins with this. A script runs the steps of one kind on one bucket, as many as
-- came together. KEYS: the mark of the bucket, the index of ids, the index of deadlines, and
-- then the key of the record of each step. The mark is the epoch of the data (16 digits), the
-- highest revision that was given in the bucket (16), the server that may write (16, see
-- takeover.lua), and how many writes the bucket has seen. ARGV[1] is the epoch that the caller
-- knows, ARGV[2] how many writes the caller has seen acknowledged, ARGV[3] the server that the
-- caller is connected to, ARGV[4] is 1 if the steps have to be replicated even if they only
-- read, or m and the number of a run of a move if they are steps of that run, or m alone for
-- steps of a move that any state of the bucket allows. From ARGV[5] on there is one argument
-- for each step.
--
-- A move marks a bucket that it follows or has closed: then other words stand in place of the
-- epoch, and behind the number of writes the number of the run, when the log of written ids
-- ends or why the bucket is closed, and the epoch. So a program that does not know of moves
-- writes nothing that the log would miss.
--
-- A script replies with the time, the number of writes if it has written, else 0, and one
-- reply for each step. A record as it is stored begins and ends with its meta: revision,
-- deadline, created, updated (8 bytes each) and state (1). Its sum is that it is there twice.
local mark = redis.call('GET', KEYS[1])
if not mark then
  return redis.error_reply('RETRYSAFE gone')
end
local head, tail, writes, run, word = string.sub(mark, 1, 16), '', nil, nil, nil
if head == ARGV[1] then
  writes = tonumber(string.sub(mark, 49))
else
  local count, epoch
  count, run, word, epoch = string.match(string.sub(mark, 49), '^(%d+) (%d+) (%w+) (%x+)$')
  if epoch ~= ARGV[1] then
    return redis.error_reply('RETRYSAFE gone')
  end
  if head == 'closed by a move' and ARGV[4] ~= 'm' and ARGV[4] ~= 'm' .. run then
    return redis.error_reply('RETRYSAFE closed ' .. run)
  end
  writes, tail = tonumber(count), string.sub(mark, 49 + #count)
end
if string.sub(mark, 33, 48) ~= ARGV[3] then
  return redis.error_reply('RETRYSAFE server')
end
local last = tonumber(string.sub(mark, 17, 32))
if writes < tonumber(ARGV[2]) then
  return redis.error_reply('RETRYSAFE behind')
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local pack, unpackMeta, sub = struct.pack, struct.unpack, string.sub
local idFrom = #KEYS[1] - 3 -- the name of a record is that of the mark with the id for its last word
local reply = {now, 0}
-- score is the place in the index of deadlines, in milliseconds: records in flight or
-- unknown have their deadline, and those that are forgettable 10^13 less. It is a text,
-- because the server is slow to make one of a number.
local function score(state, deadline)
  local ms = math.floor(deadline / 1000)
  if state == 3 or state == 4 or state == 6 then ms = ms - 1e13 end
  return string.format('%d', ms)
end
-- damaged reports whether a record is not one that a script has stored.
local function damaged(v) return #v < 99 or sub(v, 1, 33) ~= sub(v, -33) end
-- wrote notes writes of the bucket, and the highest revision.
local function wrote(n)
  writes = writes + n
  reply[2] = writes
  redis.call('SET', KEYS[1], head .. string.format('%016.0f', last) .. ARGV[3] .. string.format('%.0f', writes) .. tail)
end
-- While a move follows the bucket, what is written is logged in the index of deadlines, with a
-- score below all others: w and the id of a record that was written, d, the id and the head of
-- one that was deleted. After its end the log only has a word that says so.
local logScore = '-1000000000000000'
local follows = head == 'followed by move'
local function log(entries)
  if now > tonumber(word) then entries = {'missed'} end
  local scored = {}
  for i = 1, #entries do scored[2 * i - 1], scored[2 * i] = logScore, entries[i] end
  redis.call('ZADD', KEYS[3], unpack(scored))
end
-- ended replies to all steps.
local function ended()
  if reply[2] == 0 and ARGV[4] ~= '0' then redis.call('SET', KEYS[1], mark) end
  return reply
end
