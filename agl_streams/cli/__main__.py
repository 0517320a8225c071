"""``python -m agl_streams.cli``."""

from agl_streams.cli import main

main()
