"""The ``agl-streams`` command (alias ``agls``): read flags, find or start the server, hand over to a part.

Exit codes: 0 done, 1 a promise or target was missed, 2 an error (one line on standard error), 130 stopped early,
141 the reader of the output went away.
"""

from agl_streams.cli import bench, dead, demo, doctor, enqueue, parts, rollouts, version
from agl_streams.cli.app import app
from agl_streams.cli.main import main

__all__ = ["app", "bench", "dead", "demo", "doctor", "enqueue", "main", "parts", "rollouts", "version"]
