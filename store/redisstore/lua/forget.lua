-- Deletes a record that is due and forgettable. KEYS: mark, record, ids, index of final
-- records. ARGV 4: id. Replies how many records were deleted, or -1 if an entry of the
-- index had no record.
local meta = redis.call('HGET', KEYS[2], 'm')
if not meta then
  if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
  redis.call('ZREM', KEYS[3], ARGV[4])
  redis.call('ZREM', KEYS[4], ARGV[4])
  return -1
end
local state = string.sub(meta, 97, 99)
if #meta ~= 155 or string.sub(redis.sha1hex(string.sub(meta, 1, 147) .. ARGV[4]), 1, 8) ~= string.sub(meta, 148)
  or state ~= '003' and state ~= '004' and state ~= '006'
  or tonumber(string.sub(meta, 17, 32)) > now then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1] .. string.format('%016.0f%.0f', math.max(last, tonumber(string.sub(meta, 1, 16))), writes + 1))
redis.call('UNLINK', KEYS[2])
redis.call('ZREM', KEYS[3], ARGV[4])
redis.call('ZREM', KEYS[4], ARGV[4])
return 1
