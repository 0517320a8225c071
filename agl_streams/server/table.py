"""The table of routes, and which of them a request is.

A path is matched segment by segment; a literal segment wins over a parameter, per method: ``GET attempts/latest`` is a
route of its own, ``POST attempts/latest`` is the one that updates an attempt, with ``latest`` as its id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import BaseModel, TypeAdapter

from agl_streams.server.asgi import Answer, Stream

if TYPE_CHECKING:
    from agl_streams.server.call import Call

Handler: TypeAlias = "Callable[[Call], Awaitable[bytes | Answer | Stream]]"
Tag: TypeAlias = Literal["rollouts", "attempts", "spans", "resources", "workers", "events", "service", "opentelemetry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One row of the table.

    Attributes:
        path: ``{name}`` stands for one segment.
        handler: gets the validated call; bytes that it returns are JSON.
        summary, answer, status: for the answer and its description; ``answer`` is a type, None for no JSON.
        query: model of the query parameters.
        body: type of the JSON body; None when the route reads none, or reads it by itself.
        body_required: whether the body may be absent or null.
        nan_is_null: NaN and infinity in the body are stored as null.
        prune: cuts a wrong body down before it is validated.
        ours: not in Agent-lightning's contract.
        adapter: validates the body.
    """

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    summary: str
    tag: Tag
    answer: Any = None
    status: int = 200
    query: type[BaseModel] | None = None
    body: Any = None
    body_required: bool = True
    nan_is_null: bool = False
    prune: Callable[[Any], None] | None = None
    ours: bool = False
    adapter: TypeAdapter[Any] | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "adapter", None if self.body is None else TypeAdapter(self.body))


@dataclass(slots=True)
class _Node:
    literal: dict[str, _Node] = field(default_factory=dict[str, "_Node"])
    parameter: _Node | None = None
    routes: dict[str, Route] = field(default_factory=dict[str, Route])


class Table:
    """All routes, in the order in which a wrong method is told of them."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._fixed = {(route.method, route.path): route for route in routes if "{" not in route.path}
        self._root = _Node()
        for route in routes:
            node = self._root
            for segment in route.path.split("/"):
                node = _descend(node, segment)
            node.routes[route.method] = route

    def find(self, method: str, raw_path: str, segments: list[str]) -> tuple[Route, list[str]] | None:
        """The route of a request and its path parameters, or None.

        Args:
            raw_path: as it came.
            segments: its parts, percent-decoded.
        """
        fixed = self._fixed.get((method, raw_path))  # most calls have no parameter in their path
        if fixed is not None:
            return fixed, []
        return _find(self._root, segments, 0, method, [])

    def allowed(self, segments: list[str]) -> str | None:
        """The method of the first route of a path, or None when there is none at all."""
        return next((route.method for route in self.routes if _fits(route.path, segments)), None)


def _descend(node: _Node, segment: str) -> _Node:
    if segment.startswith("{"):
        if node.parameter is None:
            node.parameter = _Node()
        return node.parameter
    return node.literal.setdefault(segment, _Node())


def _find(node: _Node, segments: list[str], at: int, method: str, found: list[str]) -> tuple[Route, list[str]] | None:
    if at == len(segments):
        route = node.routes.get(method)
        return None if route is None else (route, found)
    segment = segments[at]
    literal = node.literal.get(segment)
    if literal is not None:
        result = _find(literal, segments, at + 1, method, found)
        if result is not None:
            return result
    if node.parameter is not None and segment:
        return _find(node.parameter, segments, at + 1, method, [*found, segment])
    return None


def _fits(pattern: str, given: list[str]) -> bool:
    wanted = pattern.split("/")
    return len(wanted) == len(given) and all(
        w == g or (w.startswith("{") and g) for w, g in zip(wanted, given, strict=True)
    )
