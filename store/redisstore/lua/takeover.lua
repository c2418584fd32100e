-- Lets a server write to a bucket that another server, or the same one before a restart or a
-- promotion, wrote to before. It is run by every client before its first step at that server,
-- and only the first run changes anything: it notes how many writes the bucket had at that
-- moment. So a client that has seen more acknowledged finds out, also if it comes late, and
-- other clients have written meanwhile.
--
-- While a move has marked the bucket the epoch is at the end of the mark: see begin.lua.
--
-- KEYS: mark, takeovers. ARGV: epoch, server. Replies with the takeovers of the bucket: for
-- each the server before, the server after (16 digits each), the number of writes, a comma.
local mark = redis.call('GET', KEYS[1])
if not mark or string.sub(mark, 1, 16) ~= ARGV[1] and string.sub(mark, -16) ~= ARGV[1] then
  return redis.error_reply('RETRYSAFE gone')
end
local takeovers = redis.call('GET', KEYS[2]) or ''
local before, writes = string.sub(mark, 33, 48), string.match(string.sub(mark, 49), '^%d+')
if before == ARGV[2] then return takeovers end
takeovers = takeovers .. before .. ARGV[2] .. writes .. ','
local count = select(2, string.gsub(takeovers, ',', ''))
if count > 32 then takeovers = string.gsub(takeovers, '^[^,]*,', '') end
redis.call('SET', KEYS[2], takeovers)
redis.call('SET', KEYS[1], string.sub(mark, 1, 32) .. ARGV[2] .. string.sub(mark, 49))
return takeovers
