-- name: claimed
-- does: what a claim with this token and these attempt ids was given: its lost answer, without taking anything new.
-- flags: no-writes
-- keys: meta
-- args: token of the claim, then its attempt ids
-- result: ok, then one view per rollout that it was given
-- events:
function C.claimed(keys, args)
  local ctx, reply = { prefix = string.sub(keys[1], 1, -5) }, { 'ok' }
  for at = 2, #args do
    local known = C.claimed_before(ctx, args[1], args[at])
    if known then
      reply[#reply + 1] = S.view(ctx.prefix, known, args[at])
    end
  end
  return reply
end
