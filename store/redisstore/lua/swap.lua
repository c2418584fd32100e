-- Swaps records. The argument of a step: expected revision (8 bytes), expected owner (16),
-- term (8), how many bytes of the body have to be stored already (4), state (1), 1 to begin a
-- new generation (1), body. The reply to it: the meta of the record as it is now, or the record
-- if it is not what the caller expects, or 0 if there is none.
local stored = redis.call('MGET', unpack(KEYS, 4))
local made, set, due, changed, n = {}, {}, {}, {}, 0
for i = 1, #stored do
  local key = KEYS[i + 3]
  local v = made[key] or stored[i]
  local arg = ARGV[i + 4]
  local expect, term, keep, state, anew = unpackMeta('>i8xxxxxxxxxxxxxxxxi8I4BB', arg)
  if not v then
    reply[i + 2] = 0
    if redis.call('EXISTS', key) == 1 then reply[i + 2] = '' end -- a key of another type, which is no record
  elseif damaged(v) then
    reply[i + 2] = v
  else
    local revision, _, created, updated = unpackMeta('>i8i8i8i8', v)
    if revision ~= expect or sub(v, 34, 49) ~= sub(arg, 9, 24) or sub(v, 34, 33 + keep) ~= sub(arg, 39, 38 + keep) then
      reply[i + 2] = v
    else
      local at = math.max(now, updated)
      last = math.max(at, last + 1, revision + 1)
      local deadline = math.min(at + term, 8e15)
      if anew == 1 then created = at end
      local meta = pack('>i8i8i8i8B', last, deadline, created, at, state)
      v = meta .. sub(arg, 39) .. meta
      made[key] = v
      n = n + 1
      set[2 * n - 1], set[2 * n] = key, v
      due[2 * n - 1], due[2 * n] = score(state, deadline), sub(key, idFrom)
      if follows then changed[n] = 'w' .. sub(key, idFrom) end
      reply[i + 2] = meta
    end
  end
end
if n > 0 then
  wrote(n)
  redis.call('MSET', unpack(set))
  redis.call('ZADD', KEYS[3], unpack(due))
  if follows then log(changed) end
end
return ended()
