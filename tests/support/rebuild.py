"""The durable content of a namespace in a canonical form, and how two of them differ.

Encodings, groups, consumers and live keys are not content. ``DUMP`` differs for reasons that do not matter.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias, cast

from agl_streams.events import Event
from agl_streams.fold import State
from agl_streams.keys import parse
from agl_streams.library import SCHEMA
from agl_streams.replay import Payloads
from tests.support.addresses import server_urls
from tests.support.leaks import all_keys
from tests.support.raw import Raw

Value: TypeAlias = dict[str, Any] | list[Any] | bytes
Content: TypeAlias = dict[str, Value]
"""Key name (behind the namespace, with its shard) -> hash as a dict, sorted set as a dict of scores, stream as a list
of (id, fields), string as bytes."""

_TOKEN: Final = re.compile(r"\|[0-9a-f]{16}(-\d+)?\|")
SHOWN_LINES = 40
SHOWN_CHARACTERS = 300


def durable_content(url: str, namespace: str) -> Content:
    """Every durable key of a namespace with what it holds, on whatever servers."""
    content: Content = {}
    for server in server_urls(url):
        content |= _content_of(server, namespace)
    return content


def _content_of(url: str, namespace: str) -> Content:
    content: Content = {}
    with Raw(url) as raw:
        keys = [(key, parse(key)) for key in sorted(all_keys(raw))]
        mine = [(key, parsed) for key, parsed in keys if parsed.namespace == namespace and parsed.kind.durable]
        kinds = raw.execute_many([("TYPE", key) for key, _ in mine])
        for (key, parsed), kind in zip(mine, kinds, strict=True):
            assert kind.decode() == parsed.kind.type, f"{key!r} is a {kind}, the key table says {parsed.kind.type}"
        replies = raw.execute_many([(*_READ[parsed.kind.type], key, *_ALL[parsed.kind.type]) for key, parsed in mine])
    for (_, parsed), reply in zip(mine, replies, strict=True):
        value = _decoded(parsed.kind.type, reply)
        if value:  # a stream stays as a key when its last entry has gone
            content[f"{parsed.shard}:{parsed.name}"] = value
    return content


def differences(left: Content, right: Content, names: tuple[str, str] = ("left", "right")) -> list[str]:
    """A line for each key, field, member or entry that the two do not share."""
    lines: list[str] = []
    for key in sorted(left.keys() | right.keys()):
        if key not in right:
            lines.append(f"{key}: only {names[0]}: {_shown(left[key])}")
        elif key not in left:
            lines.append(f"{key}: only {names[1]}: {_shown(right[key])}")
        elif left[key] != right[key]:
            lines += [f"{key}{place}: {_shown(a)} != {_shown(b)}" for place, a, b in _places(left[key], right[key])]
    return lines


def assert_equal_content(left: Content, right: Content, names: tuple[str, str] = ("left", "right")) -> None:
    """Fail with the differences, if there are any."""
    lines = differences(left, right, names)
    shown = "\n".join(lines[:SHOWN_LINES])
    assert not lines, f"{len(lines)} differences between {names[0]} and {names[1]}:\n{shown}"


def folded_content(history: list[tuple[Event, Payloads]], state: State, shard: int, shards: int) -> Content:
    """The durable content of one shard that the Python fold of its history asks for."""
    content: Content = {}

    def put(name: str, value: Value) -> None:
        if value:
            content[f"{shard}:{name}"] = value

    put("meta", _meta(state, shards))
    put("log", [(event.id, _pairs(event.flat())) for event, _ in history])
    put("tasks", [(entry, {"rollout": rollout}) for entry, rollout in state.queue.items()])
    put("finished", [(entry, {"rollout": of, "status": status}) for entry, (of, status) in state.finished.items()])
    put("dead", [(entry, {"rollout": of, "reason": reason}) for entry, (of, reason) in state.dead.items()])
    for rollout_id, row in state.rollouts.items():
        put(f"rollout:{rollout_id}", row)
    for (rollout_id, attempt_id), row in state.attempts.items():
        put(f"attempt:{rollout_id}:{attempt_id}", row)
    for worker, row in state.workers.items():
        put(f"worker:{worker}", row)
    for resources_id, row in state.resources.items():
        put(f"resources:{resources_id}", row)
    put("resources", _scores(state.resources_at))
    put("index:workers", _scores(state.workers_since))
    put("index:created", {rollout_id: float(row["n"]) for rollout_id, row in state.rollouts.items()})
    for status in {row["status"] for row in state.rollouts.values()}:
        rows = state.rollouts.items()
        put(f"index:status:{status}", {one: float(row["n"]) for one, row in rows if row["status"] == status})
    _put_payloads(content, history, shard)
    return content


def _put_payloads(content: Content, history: list[tuple[Event, Payloads]], shard: int) -> None:
    for event, payloads in history:
        if event.type != "spans":
            content.update({f"{shard}:{name}": value for name, value in payloads.items()})
            continue
        key = f"{shard}:spans:{event.fields['rollout']}:{event.fields['attempt']}"
        stored = content.setdefault(key, {})
        assert isinstance(stored, dict)
        stored.update({span_id: _text(value) for span_id, value in payloads.items()})


def _meta(state: State, shards: int) -> dict[str, Any]:
    meta = {"schema": str(SCHEMA), "shards": str(shards), "n": str(state.n), "time": str(state.time_us)}
    if state.n:
        meta |= {"folded": str(state.n), "folded_id": state.last_id, "spans": str(state.spans_stored)}
    if state.attempts_begun:
        meta["attempts"] = str(state.attempts_begun)
    return meta


def _scores(numbers: dict[str, int]) -> dict[str, Any]:
    return {name: float(number) for name, number in numbers.items()}


_READ = {"hash": ("HGETALL",), "zset": ("ZRANGE",), "stream": ("XRANGE",), "string": ("GET",)}
_ALL: dict[str, tuple[str | int, ...]] = {"hash": (), "zset": (0, -1, "WITHSCORES"), "stream": ("-", "+"), "string": ()}


def _decoded(kind: str, reply: Any) -> Value:
    if kind == "hash":
        return _pairs([_text(part) for part in reply])
    if kind == "zset":
        pairs = _pairs([_text(part) for part in reply])
        return {member: float(score) for member, score in pairs.items()}
    if kind == "stream":
        return [(_text(entry), _pairs([_text(part) for part in flat])) for entry, flat in reply]
    return reply


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


def _pairs(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _places(left: Value, right: Value) -> list[tuple[str, Any, Any]]:
    """Where two values of one key differ: place within it, and what each has there."""
    if isinstance(left, dict) and isinstance(right, dict):
        names = sorted(left.keys() | right.keys())
        return [(f"[{name}]", left.get(name), right.get(name)) for name in names if left.get(name) != right.get(name)]
    if isinstance(left, list) and isinstance(right, list):
        places = [(f"[{at}]", a, b) for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b]
        return places or [("[length]", len(left), len(right))]
    return [("", left, right)]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


def with_plain_ids(content: Content) -> Content:
    """The content with what differs between two tellings of one story made equal: the ids of events become their
    numbers, tokens of requests one word."""
    logs = [cast("list[Any]", value) for key, value in content.items() if key.endswith(":log")]
    ids = {entry: f"event {fields['n']}" for log in logs for entry, fields in log}
    places = re.compile("|".join(map(re.escape, ids)) or "$^")

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return value
        if isinstance(value, str):
            return _TOKEN.sub(r"|token|", places.sub(lambda match: ids[match[0]], value))
        if isinstance(value, dict):
            pairs = cast("dict[str, Any]", value).items()
            return {plain(name): plain(item) for name, item in pairs}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in cast("list[Any]", value)]
        return value

    return plain(content)
