-- name: resources
-- does: stores a version of a named bundle of resources, which becomes the latest of the namespace.
-- flags:
-- keys: meta
-- args: clock, resources id (escaped), token of this request, content
-- result: ok, resources id, version, create_us, update_us
-- events: resources_updated
function C.resources(keys, args)
  local ctx, refusal = U.open(keys, args[1])
  if not ctx then
    return { refusal }
  end
  local id, token = args[2], args[3]
  local key = ctx.prefix .. 'resources:' .. id
  local known = U.recall(ctx, token)
  if not known then
    local old = U.read(key, { 'version', 'create' })
    local version = U.int(tonumber(old.version or '0') + 1)
    local name = 'resources:' .. id .. ':' .. version
    U.emit(ctx, 'resources_updated',
      { 'resources', id, 'version', version, 'create', old.create or U.int(ctx.now) }, { name, args[4] })
    known = version .. ',' .. ctx.time
    U.remember(ctx, token, known)
  end
  -- What this request made, which may no longer be the newest version.
  local version, update = string.match(known, '^(%d+),(%d+)$')
  return { 'ok', id, version, redis.call('HGET', key, 'create'), update }
end
