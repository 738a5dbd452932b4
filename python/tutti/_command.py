"""The command `tutti` of the installed package: replaces this process by the program in tutti/bin."""

import os
import signal
import sys

from ._library import built


def main() -> None:
    program = built("bin", "tutti")
    if program is None:
        sys.exit("tutti: this installation has no tutti/bin/tutti, the command itself; install tutti again")
    for name in ("SIGPIPE", "SIGXFSZ"):  # the interpreter ignores them, and the program would too
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.execv(program, [sys.argv[0], *sys.argv[1:]])
