-- name: heartbeat
-- does: stores a worker's heartbeat (live state) and renews the lease of the attempt that its row shows.
-- flags: allow-oom
-- keys: meta
-- args: clock, worker, stats ('' = unchanged), lease_us (for an attempt that has no lease yet)
-- result: ok, view of the worker
-- events:
function C.heartbeat(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local worker, live = args[2], ctx.prefix .. 'live:worker:' .. args[2]
  redis.call('HSET', live, 'heartbeat', U.int(ctx.now))
  if args[3] ~= '' then
    redis.call('HSET', live, 'stats', args[3])
  end
  redis.call('ZADD', ctx.prefix .. 'live:workers', U.int(ctx.now), worker)
  local row = U.read(ctx.prefix .. 'worker:' .. worker, { 'rollout', 'attempt' })
  local attempt = row.attempt and S.attempt(ctx, row.rollout, row.attempt)
  if attempt and attempt.worker == worker and S.open[attempt.status] then
    C.renew_one(ctx, row.rollout, row.attempt, attempt.lease or args[4])
  end
  return { 'ok', S.worker_view(ctx.prefix, worker) }
end
