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
  local request = ctx.prefix .. 'live:request:' .. token
  if not redis.call('GET', request) then
    local old = U.read(key, { 'version', 'create' })
    local version = U.int(tonumber(old.version or '0') + 1)
    local name = 'resources:' .. id .. ':' .. version
    U.emit(ctx, 'resources_updated',
      { 'resources', id, 'version', version, 'create', old.create or U.int(ctx.now) }, { name, args[4] })
    redis.call('SET', request, '1', 'EX', CLAIM_MEMORY_S)
  end
  local row = U.read(key, { 'version', 'create', 'update' })
  return { 'ok', id, row.version, row.create, row.update }
end
