"""One run at a time writes checkpoints to a folder.

A claim is a lock (flock) on the file DIR/lock, in which its owner has written its process and host: that of
src/launch/claim.c, so a `tutti train --out DIR` and a script keep each other out, too. The kernel releases it when the
owner ends, so the file of a killed run is no claim. The owner removes the file when it releases the claim; a process
that has just opened it then has the lock of a file without a name, which it notices.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import time
import warnings

DIES_S = 3.0  # a run that was killed may take so long to end


class Taken(ValueError):
    """Another process has the claim."""


class OfThisRun(Taken):
    """A process of the same run has it."""


class Claim:
    """Claims the folder, and makes it. Taken; ValueError: it cannot be written. run: a name that the processes of a run
    have in common, in the second line of the file."""

    def __init__(self, directory: str, wait: float = DIES_S, run: str = ""):
        self._directory, self._path = directory, os.path.join(directory, "lock")
        self._run = run
        self._made = not os.path.exists(directory)
        self._fd, self._pid = -1, os.getpid()
        until = time.monotonic() + wait
        try:
            while not self._try(last=time.monotonic() >= until):
                time.sleep(0.05)
        except OSError as e:
            self.close()
            raise ValueError(f"checkpoints cannot be written to '{directory}': {e}") from None

    def _try(self, last: bool) -> bool:
        os.makedirs(self._directory, exist_ok=True)
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner, run, *_ = [*os.pread(self._fd, 1000, 0).decode(errors="replace").split("\n"), "", ""]
            owner = owner or "another process"
            self._drop()
            if not last:
                return False
            raise (OfThisRun if self._run and run == f"run {self._run}" else Taken)(
                f"a run that is under way writes its checkpoints to '{self._directory}' ({owner}); wait for its end, "
                "or give this one another folder"
            ) from None
        except FileNotFoundError:  # its owner has removed the folder just now
            return False
        except OSError as e:
            if self._fd < 0 or e.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
                raise
            warnings.warn(f"the file system of '{self._directory}' has no locks ({e.strerror}): it is not noticed if "
                          "another run writes its checkpoints there, too", stacklevel=2)
            self._drop(removes=True)
            return True
        if not self._is_there():
            self._drop()
            return False
        os.ftruncate(self._fd, 0)
        run = f"run {self._run}\n" if self._run else ""
        os.pwrite(self._fd, f"process {os.getpid()} on host '{platform.node()}'\n{run}".encode(errors="replace"), 0)
        os.fsync(self._fd)  # processes on other hosts read it
        return True

    def _is_there(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._fd), os.stat(self._path))
        return False

    def __del__(self) -> None:
        self.close()

    def _drop(self, removes: bool = False) -> None:
        if self._fd < 0:
            return
        if removes:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        os.close(self._fd)
        self._fd = -1

    def close(self) -> None:
        """In a forked child, which would keep the lock beyond the end of its parent: only gives up its share."""
        mine = self._pid == os.getpid()
        self._drop(removes=mine)
        if self._made and mine:
            with contextlib.suppress(OSError):  # it has checkpoints
                os.rmdir(self._directory)
