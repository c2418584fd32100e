-- KEYS: mark, record, ids, index of the record's state
-- ARGV 4: id, owner, state, term, head, its sum, checkpoint, its sum, tail, its sum
local v = redis.call('HMGET', KEYS[2], 'm', 'h', 'c', 't')
if v[1] or v[2] or v[3] or v[4] then return found(v) end
local revision = math.max(now, last + 1)
local due = math.min(now + tonumber(ARGV[7]), 8e15)
local meta = string.format('%016.0f%016.0f%016.0f%016.0f', revision, due, now, now) .. ARGV[5] .. ARGV[6] .. ARGV[9] .. ARGV[11] .. ARGV[13]
meta = meta .. string.sub(redis.sha1hex(meta .. ARGV[4]), 1, 8)
redis.call('SET', KEYS[1], ARGV[1] .. string.format('%016.0f%.0f', revision, writes + 1))
if ARGV[10] == '' then
  redis.call('HSET', KEYS[2], 'm', meta, 'h', ARGV[8], 't', ARGV[12])
else
  redis.call('HSET', KEYS[2], 'm', meta, 'h', ARGV[8], 'c', ARGV[10], 't', ARGV[12])
end
redis.call('ZADD', KEYS[3], 0, ARGV[4])
redis.call('ZADD', KEYS[4], due, ARGV[4])
return meta .. string.format('%.0f', writes + 1)
