"""What a runner's heartbeat says of its process: small, and cheap to take."""

from __future__ import annotations

import os
import resource
import socket
import sys
from pathlib import Path
from typing import Any

_STATM = Path("/proc/self/statm")
_KIB = 1024


def process_snapshot(*, held_attempts: int, concurrency: int) -> dict[str, Any]:
    """Statistics for ``update_worker``.

    Args:
        held_attempts: how many attempts the process works on now.
        concurrency: how many it may.
    """
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "held_attempts": held_attempts,
        "concurrency": concurrency,
        "rss_bytes": rss_bytes(),
    }


def rss_bytes() -> int:
    """Resident memory of this process: now on Linux, at its peak elsewhere."""
    try:
        resident_pages = int(_STATM.read_text().split()[1])
    except FileNotFoundError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * _KIB
    return resident_pages * os.sysconf("SC_PAGE_SIZE")
