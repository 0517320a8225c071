"""Opaque payloads: JSON, compressed one by one (zstd) above 2 KB. Functions never look inside."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final

from backports import zstd

from agl_streams.models import RolloutConfig
from agl_streams.values import check_json_value, read_json

COMPRESS_ABOVE_BYTES: Final = 2048
"""Below, zstd gains some hundred bytes, and takes as long as writing the JSON did, on every write and every read."""
COMPRESS_LEVEL: Final = 1
"""A recorded model call becomes no smaller at level 3, which takes a fifth longer."""
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"  # no JSON document begins with it, so the first bytes tell the two apart


class _Threads(threading.local):
    """A compressor per thread: making one takes three times as long as compressing a kilobyte with it."""

    def __init__(self) -> None:
        self.compressor = zstd.ZstdCompressor(level=COMPRESS_LEVEL)


_threads: Final = _Threads()


@dataclass(frozen=True, slots=True)
class RolloutBody:
    """What a user gave with a rollout; ``config`` is None where the defaults hold."""

    input: Any
    config: RolloutConfig | None
    metadata: dict[str, Any] | None


def pack(data: bytes) -> bytes:
    """The stored form of an encoded payload."""
    if len(data) <= COMPRESS_ABOVE_BYTES:
        return data
    return _threads.compressor.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


def unpack(data: bytes) -> bytes:
    """The payload that `pack` was given."""
    return zstd.ZstdDecompressor().decompress(data) if data.startswith(_ZSTD_MAGIC) else data


def encode_rollout(body: RolloutBody, max_bytes: int) -> bytes:
    """The stored form of a rollout's body.

    Args:
        max_bytes: limit of the input and of the metadata, each.

    Raises:
        InvalidRequest: input or metadata is not JSON; the message gives the path.
        TooLarge: one of them is above the limit.
    """
    parts = [b'{"input":', check_json_value(body.input, "input", max_bytes)]
    if body.config is not None:
        parts += [b',"config":', body.config.model_dump_json().encode()]
    if body.metadata is not None:
        parts += [b',"metadata":', check_json_value(body.metadata, "metadata", max_bytes)]
    return pack(b"".join([*parts, b"}"]))


def decode_rollout(data: bytes) -> RolloutBody:
    """The body that `encode_rollout` was given."""
    content = read_json(unpack(data))
    config = content.get("config")
    return RolloutBody(
        input=content["input"],
        config=None if config is None else RolloutConfig.model_validate(config),
        metadata=content.get("metadata"),
    )


def encode_json(value: Any, what: str, max_bytes: int) -> bytes:
    """The stored form of a JSON value. Errors as in `encode_rollout`."""
    return pack(check_json_value(value, what, max_bytes))


def decode_json(data: bytes) -> Any:
    """The value that `encode_json` was given."""
    return read_json(unpack(data))
