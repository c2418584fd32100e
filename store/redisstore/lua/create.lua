-- KEYS: mark, record, ids, index of the record's state
-- ARGV 5: id, owner, state, term, head, its sum, checkpoint, its sum, tail, its sum
local v = redis.call('HMGET', KEYS[2], 'm', 'h', 'c', 't')
if v[1] or v[2] or v[3] or v[4] then return found(v) end
local revision = math.max(now, last + 1)
local due = math.min(now + tonumber(ARGV[8]), 8e15)
local meta = string.format('%016.0f%016.0f%016.0f%016.0f', revision, due, now, now) .. ARGV[6] .. ARGV[7] .. ARGV[10] .. ARGV[12] .. ARGV[14]
meta = meta .. string.sub(redis.sha1hex(meta .. ARGV[5]), 1, 8)
wrote(revision)
if ARGV[11] == '' then
  redis.call('HSET', KEYS[2], 'm', meta, 'h', ARGV[9], 't', ARGV[13])
else
  redis.call('HSET', KEYS[2], 'm', meta, 'h', ARGV[9], 'c', ARGV[11], 't', ARGV[13])
end
redis.call('ZADD', KEYS[3], 0, ARGV[5])
redis.call('ZADD', KEYS[4], due, ARGV[5])
return meta .. string.format('%.0f', writes + 1)
