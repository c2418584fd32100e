-- Every step begins with this. KEYS[1] is the mark of the bucket: the epoch of the data
-- (16 digits), the highest revision that was given in the bucket (16), the server that may
-- write (16, see takeover.lua), and how many writes the bucket has seen. ARGV[1] is the epoch
-- that the caller knows, ARGV[2] how many writes the caller has seen acknowledged, ARGV[3]
-- the server that the caller is connected to, ARGV[4] is 1 if the step has to be replicated
-- even if it only reads.
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
-- wrote notes a write of the bucket, and the highest revision.
local function wrote(revision)
  redis.call('SET', KEYS[1], ARGV[1] .. string.format('%016.0f', revision) .. ARGV[3] .. string.format('%.0f', writes + 1))
end
-- found replies with a record as it is stored: m is its meta, h its head, c its checkpoint,
-- t its tail.
local function found(v)
  if ARGV[4] == '1' then redis.call('SET', KEYS[1], mark) end
  if v[1] and #v[1] == 155 then now = math.max(now, tonumber(string.sub(v[1], 49, 64)) or 0) end
  return {string.format('%.0f', now), v[1], v[2], v[3], v[4]}
end
local function missing()
  if ARGV[4] == '1' then redis.call('SET', KEYS[1], mark) end
  return 0
end
