"""A port for a test's processes to meet at."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """Below those (from 32768 on) that the kernel gives to others, before it is taken and in between."""
    while True:
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", random.randrange(15000, 32000)))
                return s.getsockname()[1]
            except OSError:
                pass
