"""Compressed bodies, within bounds: what a small body grows to is counted while it grows."""

from __future__ import annotations

import gzip
import zlib
from typing import Final

from agl_streams import clock
from agl_streams.errors import InvalidRequest
from agl_streams.server.bodies import BodyReader

STEP_BYTES: Final = 1024 * 1024
"""Decompressed in one go: some milliseconds, then others have their turn."""
GZIP: Final = 31
ZLIB: Final = 15
RAW: Final = -15
LEVEL: Final = 1


async def decompressed(data: bytes, encoding: str, reader: BodyReader) -> bytes:
    """A body of ``Content-Encoding`` gzip or deflate as it was; of any other encoding, as it is.

    Raises:
        InvalidRequest: the bytes are not so compressed.
        TooLong, Crowded: it grows above the limit of a request, or of all together.
    """
    if encoding == "gzip":
        return await _inflate(data, GZIP, reader)
    if encoding == "deflate":
        # By the standard that is zlib's format, but some clients send the bare stream.
        return await _inflate(data, ZLIB if _has_zlib_header(data) else RAW, reader)
    return data


def gzipped(data: bytes) -> bytes:
    """A small answer as gzip, without the time in its header."""
    return gzip.compress(data, LEVEL, mtime=0)


async def _inflate(data: bytes, window: int, reader: BodyReader) -> bytes:
    parts: list[bytes] = []
    size = 0
    while data:  # gzip files may be joined
        stream = zlib.decompressobj(window)
        while not stream.eof:
            try:
                part = stream.decompress(data, STEP_BYTES)
            except zlib.error as error:
                raise InvalidRequest(f"the body cannot be decompressed: {error}") from error
            data = stream.unconsumed_tail
            if not part and not data and not stream.eof:
                raise InvalidRequest("the body cannot be decompressed: it ends too early")
            parts.append(part)
            size += len(part)
            reader.grow(size)
            if data:
                await clock.sleep_s(0)
        data = stream.unused_data if window == GZIP else b""
    return b"".join(parts)


def _has_zlib_header(data: bytes) -> bool:
    return len(data) > 1 and data[0] & 0x0F == zlib.DEFLATED and int.from_bytes(data[:2], "big") % 31 == 0
