"""Resources: named, versioned bundles (an LLM endpoint, a prompt template). The one updated last is the latest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agl_streams import bodies
from agl_streams.keys import escape, unescape
from agl_streams.models import NamedResources, Resource, ResourcesUpdate
from agl_streams.projections import US_PER_S, View
from agl_streams.store.base import StoreBase
from agl_streams.store.repeats import RequestKey
from agl_streams.values import check_resources_id, invalid

_RESOURCES: TypeAdapter[Any] = TypeAdapter(NamedResources)


class ResourcesMixin(StoreBase):
    """What rollouts run against. Resources live in shard 0."""

    async def add_resources(
        self, resources: Mapping[str, Resource], *, request_key: str | None = None
    ) -> ResourcesUpdate:
        """Store a new bundle, version 1, which becomes the latest.

        Args:
            request_key: a repeat of the call with the same key stores nothing more.

        Raises:
            InvalidRequest: not named resources; the message names the place.
        """
        resources_id = RequestKey.of(request_key).resources_id
        return await self.update_resources(resources_id, resources, request_key=request_key)

    async def update_resources(
        self, resources_id: str, resources: Mapping[str, Resource], *, request_key: str | None = None
    ) -> ResourcesUpdate:
        """Store the next version of a bundle, or the first one; it becomes the latest. Old versions stay.

        Args:
            request_key: a repeat of the call with the same key stores nothing more.

        Raises:
            InvalidRequest: a bad id, or not named resources; the message names the place.
        """
        content = _content(resources, self.settings.max_input_bytes)
        token = RequestKey.of(request_key).token
        view = await self._functions[0].resources(escape(check_resources_id(resources_id)), content, token)
        return decode_resources([*view, content])

    async def get_resources_by_id(self, resources_id: str) -> ResourcesUpdate | None:
        """The newest version of a bundle, or None."""
        view = (await self._functions[0].read_resources([escape(check_resources_id(resources_id))]))[0]
        return None if view is None else decode_resources(view)

    async def get_latest_resources(self) -> ResourcesUpdate | None:
        """The bundle updated last, or None."""
        view = await self._functions[0].read_latest_resources()
        return None if view is None else decode_resources(view)


def _content(resources: object, max_bytes: int) -> bytes:
    try:
        checked = _RESOURCES.validate_python(resources)
    except ValidationError as error:
        raise invalid(error, "resources") from error
    plain = {name: resource.model_dump() for name, resource in checked.items()}
    return bodies.encode_json(plain, "resources", max_bytes)


def decode_resources(view: View) -> ResourcesUpdate:
    """A bundle from ``id, version, create_us, update_us, content``."""
    resources_id, version, create, update, content = view
    return ResourcesUpdate(
        resources_id=unescape(resources_id.decode()),
        create_time=int(create) / US_PER_S,
        update_time=int(update) / US_PER_S,
        version=int(version),
        resources=bodies.decode_json(content),
    )
