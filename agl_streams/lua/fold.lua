-- name: fold
-- does: adds the sums of the next `spans` events to their attempts and rollouts, and moves the aggregator's position, in one step.
-- flags: allow-oom
-- keys: meta
-- args: clock, limit (events)
-- result: ok, events read, last event id ('' = none); or gap, the event id before which one is missing; or unknown_event, its type and id
-- events:

-- Adds one event's sums to the totals of one key. Only sums, minima, maxima and "last wins" in log order: what commutes.
function C.add_event(totals, key, e)
  local total = totals[key]
  if not total then
    total = { spans = 0 }
    totals[key] = total
  end
  total.spans = total.spans + tonumber(e.count)
  for _, name in ipairs(SUMS) do
    if name == 'reward' then
      total.reward = e.reward or total.reward
    elseif e[name] then
      total[name] = (total[name] or 0) + tonumber(e[name])
    end
  end
  local first, last, sequence = tonumber(e.first or ''), tonumber(e.last or ''), tonumber(e.sequence or '')
  total.first = math.min(total.first or first or math.huge, first or math.huge)
  total.last = math.max(total.last or last or 0, last or 0)
  total.sequence = math.max(total.sequence or sequence or 0, sequence or 0)
end

-- Writes the totals of one key; a key that was retired meanwhile stays away.
function C.write_totals(key, total)
  local old = U.read(key, { 'status', 'spans', 'first', 'last', 'sequence', unpack(SUMS) })
  if not old.status then
    return
  end
  local set = { 'spans', U.int(tonumber(old.spans or '0') + total.spans) }
  for _, name in ipairs(SUMS) do
    if name == 'reward' then
      U.put(set, name, total.reward)
    elseif total[name] then
      U.put(set, name, U.int(tonumber(old[name] or '0') + total[name]))
    end
  end
  local first = math.min(tonumber(old.first or '') or math.huge, total.first)
  U.put(set, 'first', first < math.huge and U.int(first))
  local last = math.max(tonumber(old.last or '') or 0, total.last)
  U.put(set, 'last', last > 0 and U.int(last))
  U.put(set, 'sequence', U.int(math.max(tonumber(old.sequence or '') or 0, total.sequence)))
  redis.call('HSET', key, unpack(set))
end

-- Reads on from the group's position. NOACK inside the function: reading and applying are one step, nothing is pending.
function C.read_log(prefix, meta, limit)
  local log = prefix .. 'log'
  local from = redis.call('HGET', meta, 'folded_id') or '0'
  local got = U.with_group(log, 'aggregator', from,
    'XREADGROUP', 'GROUP', 'aggregator', 'fold', 'COUNT', limit, 'NOACK', 'STREAMS', log, '>')
  return got and got[1][2] or {}
end

-- Sums up a batch. Returns totals by key, spans, the last good event, and a refusal where the log cannot be trusted.
function C.sum_events(prefix, events, n)
  local totals, spans, last = {}, 0, nil
  for _, event in ipairs(events) do
    local e = U.map(event[2])
    if tonumber(e.n) ~= n + 1 then
      return totals, spans, last, n, { 'gap', event[1] }
    end
    if not A.by_type[e.type] then
      return totals, spans, last, n, { 'unknown_event', e.type, event[1] }
    end
    if e.type == 'spans' then
      spans = spans + tonumber(e.count)
      C.add_event(totals, prefix .. 'rollout:' .. e.rollout, e)
      C.add_event(totals, prefix .. 'attempt:' .. e.rollout .. ':' .. e.attempt, e)
    end
    n, last = n + 1, event[1]
  end
  return totals, spans, last, n, nil
end
