-- Takes entries from the log of a bucket that the run of a move follows or has closed. ARGV: how
-- many. The reply: the entries. The word that says that the log has ended stays.
if ARGV[4] ~= 'm' .. (run or '') or word == 'fill' then
  return redis.error_reply('RETRYSAFE overtaken')
end
local some = redis.call('ZRANGEBYSCORE', KEYS[3], logScore, logScore, 'LIMIT', 0, ARGV[5])
if redis.call('ZSCORE', KEYS[3], 'missed') then
  some = {'missed'}
elseif #some > 0 then
  redis.call('ZREM', KEYS[3], unpack(some))
  wrote(1)
end
reply[3] = some
return ended()
