-- name: mark
-- does: changes something, so that WAIT behind it waits for all that was written before: a repeat that finds its work done writes nothing to wait for.
-- flags: allow-oom
-- keys: meta
-- args: none
-- result: ok
-- events:
function C.mark(keys, args)
  redis.call('SET', string.sub(keys[1], 1, -5) .. 'live:mark', '1')
  return { 'ok' }
end
