-- Deletes a record that is due and forgettable. KEYS: mark, record, ids, index of final
-- records. ARGV 5: id. Replies how many records were deleted, or -1 if an entry of the
-- index had no record.
local meta = redis.call('HGET', KEYS[2], 'm')
if not meta then
  if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
  redis.call('ZREM', KEYS[3], ARGV[5])
  redis.call('ZREM', KEYS[4], ARGV[5])
  return -1
end
local state = string.sub(meta, 97, 99)
if #meta ~= 155 or string.sub(redis.sha1hex(string.sub(meta, 1, 147) .. ARGV[5]), 1, 8) ~= string.sub(meta, 148)
  or state ~= '003' and state ~= '004' and state ~= '006'
  or tonumber(string.sub(meta, 17, 32)) > now then
  return 0
end
wrote(math.max(last, tonumber(string.sub(meta, 1, 16))))
redis.call('UNLINK', KEYS[2])
redis.call('ZREM', KEYS[3], ARGV[5])
redis.call('ZREM', KEYS[4], ARGV[5])
return 1
