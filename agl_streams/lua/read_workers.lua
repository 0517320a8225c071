-- name: read_workers
-- does: workers by id: what transitions say, and what heartbeats and polls say.
-- flags: no-writes
-- keys: meta
-- args: worker ids (escaped)
-- result: ok, then per id its view, or false
-- events:
function S.worker_view(prefix, id)
  local row = redis.call('HMGET', prefix .. 'worker:' .. id, unpack(WORKER))
  local live = redis.call('HMGET', prefix .. 'live:worker:' .. id, unpack(WORKER_LIVE))
  local known = row[1] or live[1] or live[2]
  return known and { id, row, live } or false
end

function C.read_workers(keys, args)
  local prefix, reply = string.sub(keys[1], 1, -5), { 'ok' }
  for _, id in ipairs(args) do
    reply[#reply + 1] = S.worker_view(prefix, id)
  end
  return reply
end
