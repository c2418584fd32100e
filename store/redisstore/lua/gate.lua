-- Follows, closes and opens a bucket for a run of a move. ARGV: what to do, the number of the
-- run, and what else it needs. The reply: ok, or why nothing was done.
--   follow, run, end:   logs all ids that are written until a time
--   cut, run:           closes a bucket that the run follows
--   fill, run, id, id:  closes a bucket that has no records but those of these ids; the reply is
--                       again if a run before has closed it, and may have put records there
--   open, run:          opens a bucket that the run follows or has closed, and forgets the log
local what, by = ARGV[5], ARGV[6]
local closed, newer = head == 'closed by a move', run and tonumber(run) > tonumber(by)
local function set(newHead, newTail)
  head, tail = newHead, newTail
  wrote(1)
end
local function forgetLog() redis.call('ZREMRANGEBYSCORE', KEYS[3], logScore, logScore) end
local function behind(kind) return ' ' .. by .. ' ' .. kind .. ' ' .. ARGV[1] end
reply[3] = 'ok'
if what == 'open' then
  if run == by then
    if follows or word == 'cut' then forgetLog() end
    set(ARGV[1], '')
  end
elseif newer then
  reply[3] = 'overtaken'
elseif what == 'follow' then
  if closed and word == 'fill' then
    reply[3] = 'filling'
  else
    forgetLog()
    set('followed by move', behind(ARGV[7]))
  end
elseif what == 'cut' then
  if run ~= by or word == 'fill' then
    reply[3] = 'overtaken'
  elseif not closed then
    set('closed by a move', behind('cut'))
  end
elseif what == 'fill' then
  if closed and word == 'fill' then
    reply[3] = 'again'
    set(head, behind('fill'))
  elseif run then
    reply[3] = 'leaving'
  else
    local others = redis.call('ZCARD', KEYS[2])
    for i = 7, 8 do
      if redis.call('ZSCORE', KEYS[2], ARGV[i]) then others = others - 1 end
    end
    if others > 0 then
      reply[3] = 'not empty'
    else
      set('closed by a move', behind('fill'))
    end
  end
end
return ended()
