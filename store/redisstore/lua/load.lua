-- Reads records. The reply to a step: the record, or 0 if there is none.
local stored = redis.call('MGET', unpack(KEYS, 4))
for i = 1, #stored do
  reply[i + 2] = stored[i] or 0
  if not stored[i] and redis.call('EXISTS', KEYS[i + 3]) == 1 then reply[i + 2] = '' end -- a key of another type, which is no record
end
return ended()
