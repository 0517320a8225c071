"""Which single servers hold the data behind a URL, for tests that look at it directly."""

from __future__ import annotations

from typing import Any, cast

import redis

from agl_streams.redis_url import parse
from tests.support.raw import ask


def server_urls(url: str) -> list[str]:
    """URLs of the primaries behind a URL: one, or those of a cluster, or that of a service of sentinels."""
    target = parse(url)
    if target.kind == "single":
        return [url]
    question = (
        ("CLUSTER", "SLOTS") if target.kind == "cluster" else ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.service)
    )
    answer = cast("Any", _answer_of_any(target.seeds, question))
    if target.kind == "sentinel":
        return [f"redis://{answer[0].decode()}:{answer[1].decode()}"]
    return sorted({f"redis://{primary[0].decode()}:{primary[1]}" for _, _, primary, *_ in answer})


def _answer_of_any(urls: tuple[str, ...], question: tuple[str, ...]) -> object:
    for url in urls:
        try:
            return ask(url, *question)
        except redis.ConnectionError:  # it may be the one that the test has killed
            continue
    raise AssertionError(f"none of {urls} answers")
