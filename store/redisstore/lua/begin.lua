-- Every step begins with this. KEYS[1] is the mark of the bucket: the epoch of the data
-- (16 digits), the highest revision that was given in the bucket (16), and how many writes
-- the bucket has seen. ARGV[1] is the epoch that the caller knows, ARGV[2] how many writes
-- the caller has seen acknowledged, ARGV[3] is 1 if the step has to be replicated even if
-- it only reads.
local mark = redis.call('GET', KEYS[1])
if not mark or string.sub(mark, 1, 16) ~= ARGV[1] then
  return redis.error_reply('RETRYSAFE gone')
end
local last, writes = tonumber(string.sub(mark, 17, 32)), tonumber(string.sub(mark, 33))
if writes < tonumber(ARGV[2]) then
  return redis.error_reply('RETRYSAFE behind')
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- found replies with a record as it is stored: m is its meta, h its head, c its checkpoint,
-- t its tail.
local function found(v)
  if ARGV[3] == '1' then redis.call('SET', KEYS[1], mark) end
  if v[1] and #v[1] == 155 then now = math.max(now, tonumber(string.sub(v[1], 49, 64)) or 0) end
  return {string.format('%.0f', now), v[1], v[2], v[3], v[4]}
end
local function missing()
  if ARGV[3] == '1' then redis.call('SET', KEYS[1], mark) end
  return 0
end
