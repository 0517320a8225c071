"""A certificate that signs itself, for servers of this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.servers import missing


def self_signed(certificate: Path, key: Path) -> None:
    """Write a certificate for 127.0.0.1 and its key."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        missing("the openssl command is not installed")
