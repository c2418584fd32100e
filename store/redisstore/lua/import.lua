-- Stores records that come from another store, over any of the same keys, in a bucket that the
-- run of a move has closed to fill it. The argument of a step: state (1 byte), revision, how long
-- until the deadline, created, updated (8 each), the place in the index of ids (16 digits), body;
-- or nothing, to delete the record. The reply to it: 1.
if ARGV[4] ~= 'm' .. (run or '') or word ~= 'fill' then
  return redis.error_reply('RETRYSAFE overtaken')
end
for i = 1, #KEYS - 3 do
  local key, arg = KEYS[i + 3], ARGV[i + 4]
  local id = sub(key, idFrom)
  if arg == '' then
    redis.call('UNLINK', key)
    redis.call('ZREM', KEYS[2], id)
    redis.call('ZREM', KEYS[3], id)
  else
    local state, revision, left, created, updated = unpackMeta('>Bi8i8i8i8', arg)
    revision = math.min(revision, now)
    local deadline = math.min(now + left, 8e15)
    local meta = pack('>i8i8i8i8B', revision, deadline, created, math.min(updated, now), state)
    last = math.max(last, revision)
    redis.call('SET', key, meta .. sub(arg, 50) .. meta)
    redis.call('ZADD', KEYS[2], sub(arg, 34, 49), id)
    redis.call('ZADD', KEYS[3], score(state, deadline), id)
  end
  reply[i + 2] = 1
end
wrote(#KEYS - 3)
return ended()
