-- Dead letters: rollouts that were given up because every runner that had one was lost. The projection names the entry of
-- the stream `dead`, so exactly these rollouts have one. It is read apart from the rest: hardly any command needs it.

-- The id of a rollout's entry in the stream of dead ones, or false.
function S.dead(ctx, rollout_id)
  return redis.call('HGET', ctx.prefix .. 'rollout:' .. rollout_id, 'dead')
end

-- Opens the shard for a command on a dead letter. Returns its context, the rollout (nil where the request was carried out
-- before) and the entry; or nil and an outcome word.
function S.open_dead(keys, clock, rollout_id, token)
  local ctx, refusal = U.open(keys, clock)
  if not ctx then
    return nil, refusal
  end
  local rollout = S.rollout(ctx, rollout_id)
  if not rollout then
    return nil, 'not_found_rollout'
  end
  if U.recall(ctx, token) then
    return ctx, nil
  end
  local entry = S.dead(ctx, rollout_id)
  if not entry then
    return nil, 'not_dead'
  end
  return ctx, rollout, entry
end
