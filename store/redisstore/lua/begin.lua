-- Every step begins with this. A script runs the steps of one kind on one bucket, as many as
-- came together. KEYS: the mark of the bucket, the index of ids, the index of deadlines, and
-- then the key of the record of each step. The mark is the epoch of the data (16 digits), the
-- highest revision that was given in the bucket (16), the server that may write (16, see
-- takeover.lua), and how many writes the bucket has seen. ARGV[1] is the epoch that the caller
-- knows, ARGV[2] how many writes the caller has seen acknowledged, ARGV[3] the server that the
-- caller is connected to, ARGV[4] is 1 if the steps have to be replicated even if they only
-- read. From ARGV[5] on there is one argument for each step.
--
-- A script replies with the time, the number of writes if it has written, else 0, and one
-- reply for each step. A record as it is stored begins and ends with its meta: revision,
-- deadline, created, updated (8 bytes each) and state (1). Its sum is that it is there twice.
local mark = redis.call('GET', KEYS[1])
if not mark or string.sub(mark, 1, 16) ~= ARGV[1] then
  return redis.error_reply('RETRYSAFE gone')
end
if string.sub(mark, 33, 48) ~= ARGV[3] then
  return redis.error_reply('RETRYSAFE server')
end
local last, writes = tonumber(string.sub(mark, 17, 32)), tonumber(string.sub(mark, 49))
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
  redis.call('SET', KEYS[1], ARGV[1] .. string.format('%016.0f', last) .. ARGV[3] .. string.format('%.0f', writes))
end
-- ended replies to all steps.
local function ended()
  if reply[2] == 0 and ARGV[4] == '1' then redis.call('SET', KEYS[1], mark) end
  return reply
end
