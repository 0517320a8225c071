-- name: retire_workers
-- does: forgets workers that have been idle for long and show no attempt, and their consumers. One with entries in its hands stays: removing its consumer would lose them without a trace. One that comes back is simply there again.
-- flags: allow-oom
-- keys: meta
-- args: clock, idle_us, then worker ids (escaped, as their consumers are named), RETIRE_LIMIT at most
-- result: ok, then the ids of those retired
-- events: worker_retired

-- When a worker last began, ended, asked or was heard of, in microseconds; 0 where nothing tells.
function C.last_seen(prefix, worker)
  local row = redis.call('HMGET', prefix .. 'worker:' .. worker, 'busy', 'idle', 'dequeue')
  local live = redis.call('HMGET', prefix .. 'live:worker:' .. worker, 'heartbeat', 'dequeue')
  local seen = 0
  for _, times in ipairs({ row, live }) do
    for _, time in ipairs(times) do
      seen = math.max(seen, tonumber(time or '0'))
    end
  end
  return seen
end

-- Whether anything may be lost, or is still to come, with a worker.
function C.is_needed(ctx, worker, idle_us)
  if redis.call('HEXISTS', ctx.prefix .. 'worker:' .. worker, 'attempt') == 1 then
    return true
  end
  local tasks = ctx.prefix .. 'tasks'
  local pending = U.with_group(tasks, 'runners', '0', 'XPENDING', tasks, 'runners', '-', '+', '1', worker)
  return #pending > 0 or C.last_seen(ctx.prefix, worker) > ctx.now - idle_us
end

-- The consumers of the queue, as a set.
function C.consumers(ctx)
  local names = {}
  for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', ctx.prefix .. 'tasks', 'runners')) do
    names[U.map(flat).name] = true
  end
  return names
end

-- Returns whether there was anything of the worker to forget; if so, the log says it.
function C.retire_worker(ctx, worker, is_consumer)
  local row, live = redis.call('ZSCORE', ctx.prefix .. 'index:workers', worker), ctx.prefix .. 'live:worker:' .. worker
  if not (row or is_consumer or redis.call('EXISTS', live) == 1) then
    return false
  end
  U.emit(ctx, 'worker_retired', { 'worker', worker })
  redis.call('DEL', live)
  redis.call('ZREM', ctx.prefix .. 'live:workers', worker)
  redis.call('XGROUP', 'DELCONSUMER', ctx.prefix .. 'tasks', 'runners', worker)
  return true
end

function C.retire_workers(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local reply, consumers = { 'ok' }, nil
  -- After an absence silence proves nothing.
  for at = 3, L.grace(ctx) > ctx.now and 0 or #args do
    if not C.is_needed(ctx, args[at], tonumber(args[2])) then
      consumers = consumers or C.consumers(ctx)
      if C.retire_worker(ctx, args[at], consumers[args[at]]) then
        reply[#reply + 1] = args[at]
      end
    end
  end
  return reply
end
