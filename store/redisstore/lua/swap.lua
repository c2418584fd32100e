-- KEYS: mark, record, index of the record's new state, the other index
-- ARGV 5: id, expected revision, expected owner, state, term, tail, its sum,
--     12: 0 to continue the attempt, 1 to overwrite it, 2 to begin a new generation,
--     13: owner, head, its sum (the one that the caller has read, if it continues),
--     16: 1 to set the checkpoint, checkpoint, its sum (as with the head)
local v = redis.call('HMGET', KEYS[2], 'm', 'h', 'c')
local meta, head, checkpoint = v[1], v[2], v[3]
if not meta then
  if redis.call('EXISTS', KEYS[2]) == 0 then return missing() end
  return found(redis.call('HMGET', KEYS[2], 'm', 'h', 'c', 't'))
end
local function sum(text)
  if not text then return '0000000000000000' end
  return string.sub(redis.sha1hex(text), 1, 16)
end
local owner, headSum, checkpointSum = string.sub(meta, 65, 96), string.sub(meta, 100, 115), string.sub(meta, 116, 131)
if string.sub(meta, 1, 16) ~= ARGV[6] or owner ~= ARGV[7] or #meta ~= 155
  or string.sub(redis.sha1hex(string.sub(meta, 1, 147) .. ARGV[5]), 1, 8) ~= string.sub(meta, 148)
  or ARGV[12] == '0' and (sum(head) ~= headSum or ARGV[16] == '0' and sum(checkpoint) ~= checkpointSum) then
  return found(redis.call('HMGET', KEYS[2], 'm', 'h', 'c', 't'))
end
now = math.max(now, tonumber(string.sub(meta, 49, 64)))
local revision = math.max(now, last + 1, tonumber(string.sub(meta, 1, 16)) + 1)
local due = math.min(now + tonumber(ARGV[9]), 8e15)
local created = string.sub(meta, 33, 48)
if ARGV[12] ~= '0' then
  owner, headSum = ARGV[13], ARGV[15]
  if ARGV[12] == '2' then created = string.format('%016.0f', now) end
end
if ARGV[16] == '1' then checkpointSum = ARGV[18] end
meta = string.format('%016.0f%016.0f', revision, due) .. created .. string.format('%016.0f', now) .. owner .. ARGV[8] .. headSum .. checkpointSum .. ARGV[11]
meta = meta .. string.sub(redis.sha1hex(meta .. ARGV[5]), 1, 8)
wrote(revision)
redis.call('HSET', KEYS[2], 'm', meta, 't', ARGV[10])
if ARGV[12] ~= '0' then redis.call('HSET', KEYS[2], 'h', ARGV[14]) end
if ARGV[16] == '1' then
  if ARGV[17] == '' then redis.call('HDEL', KEYS[2], 'c') else redis.call('HSET', KEYS[2], 'c', ARGV[17]) end
end
if redis.call('ZADD', KEYS[3], due, ARGV[5]) == 1 then redis.call('ZREM', KEYS[4], ARGV[5]) end
local reply = meta .. string.format('%.0f', writes + 1)
if headSum == ARGV[15] and checkpointSum == ARGV[18] then return reply end
return {reply, head, checkpoint}
