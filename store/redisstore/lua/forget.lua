-- Deletes records that are due and forgettable. The reply to a step: 1 if the record was
-- deleted, 0 if it was kept, -1 if an entry of the indexes had no record.
local stored = redis.call('MGET', unpack(KEYS, 4))
local gone, ids, heads, n = {}, {}, {}, 0
for i = 1, #stored do
  local key, v = KEYS[i + 3], stored[i]
  reply[i + 2] = 0
  if not v then
    if redis.call('EXISTS', key) == 0 then
      ids[#ids + 1] = sub(key, idFrom)
      reply[i + 2] = -1
    end
  elseif not damaged(v) then
    local revision, deadline, _, _, state = unpackMeta('>i8i8i8i8B', v)
    if deadline <= now and (state == 3 or state == 4 or state == 6) then
      last = math.max(last, revision)
      n = n + 1
      gone[n] = key
      if follows then heads[n] = 'd' .. sub(key, idFrom) .. sub(v, 54, 53 + unpackMeta('>I4', v, 50)) end
      ids[#ids + 1] = sub(key, idFrom)
      reply[i + 2] = 1
    end
  end
end
if n > 0 then
  wrote(n)
  redis.call('UNLINK', unpack(gone))
end
if #ids > 0 then
  redis.call('ZREM', KEYS[2], unpack(ids))
  redis.call('ZREM', KEYS[3], unpack(ids))
end
if follows and n > 0 then log(heads) end
return ended()
