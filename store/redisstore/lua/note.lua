-- Reads or replaces the note of a move. KEYS[4]: the note. The argument: how long the text is
-- that has to be there (4 bytes), that text, and the text to replace it, if any. The reply: the
-- note as it is now.
for i = 1, #KEYS - 3 do
  local key, arg = KEYS[i + 3], ARGV[i + 4]
  local stored = redis.call('GET', key) or ''
  local length = unpackMeta('>I4', arg)
  local expect, text = sub(arg, 5, 4 + length), sub(arg, 5 + length)
  if text ~= '' and stored == expect then
    redis.call('SET', key, text)
    wrote(1)
    stored = text
  end
  reply[i + 2] = stored
end
return ended()
