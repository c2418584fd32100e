-- KEYS: mark, record
local v = redis.call('HMGET', KEYS[2], 'm', 'h', 'c', 't')
if v[1] or v[2] or v[3] or v[4] then return found(v) end
return missing()
