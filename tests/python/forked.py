"""Ranks as forked children of the test: for many short runs, which would else import PyTorch hundreds of times.

Each child is a process that its environment tells its place in a run of its own, as any launcher would. Real launchers
are the fixture `run`'s business.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import secrets
import selectors
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import processes

sys.path.append(str(processes.HERE.parent))
from ports import free_port  # noqa: E402


def _child(function: Callable[..., Any], arguments: tuple, place: dict[str, str], out: int, log: str) -> None:
    code = 1
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.environ.update(place)
        answer: dict[str, Any]
        try:
            answer = {"value": function(*arguments)}
            code = 0
        except SystemExit as e:
            answer, code = {"exit": e.code}, 0
        except BaseException as e:  # noqa: BLE001
            traceback.print_exc()
            answer = {"error": type(e).__name__, "text": str(e)}
        with os.fdopen(out, "w") as f:
            f.write(json.dumps(answer))
        import tutti._owner
        import tutti.torch._runs

        tutti.torch._runs.at_exit()  # what the interpreter would do at its end
        tutti._owner._leave()
    finally:
        os._exit(code)


def _ended(pid: int, end: float) -> bool:
    """Waits for a child until then; one that is late is killed."""
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if time.monotonic() > end:
            break
        time.sleep(0.001)
    else:
        return True
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def compiler() -> None:
    """What torch.compile and torch.utils.checkpoint import when they are first called: here, or each child does."""
    import torch._dynamo.backends.debugging  # noqa: F401
    import torch._functorch.aot_autograd  # noqa: F401


class _GlooFailed(Exception):
    """Gloo at times loses a connection that it makes to itself, and the other ranks then wait (pytorch#53270)."""


def ranks(n: int, function: Callable[..., Any], *arguments: Any, timeout: float = 120,
          killed: Sequence[int] = ()) -> list[dict[str, Any]]:
    """function(*arguments) on n ranks. Of each {"value": ...}, or {"error": type, "text": ...}, or {"exit": code}.

    killed: ranks that kill themselves, of which nothing is expected; {}. Where Gloo did not connect them they start
    again, with the next FORKED_ATTEMPT: the store of the attempt before has old addresses.
    """
    import tutti.torch  # noqa: F401 (here, or each child does)

    for attempt in range(3):
        try:
            return _ranks_once(n, function, arguments, timeout, killed, attempt)
        except _GlooFailed as e:
            print(f"attempt {attempt}: {e}", file=sys.stderr)
    raise AssertionError("Gloo has failed three times to connect the ranks")


def _ranks_once(n: int, function: Callable[..., Any], arguments: tuple, timeout: float, killed: Sequence[int],
                attempt: int) -> list[dict[str, Any]]:
    place = {"TUTTI_SIZE": str(n), "TUTTI_MEET": f"127.0.0.1:{free_port()}", "TUTTI_RUN_ID": secrets.token_hex(16),
             "TUTTI_RUN_KEY": secrets.token_hex(32), "FORKED_ATTEMPT": str(attempt)}
    answers: list[bytes] = [b""] * n
    pids = []
    end = time.monotonic() + timeout
    with tempfile.TemporaryDirectory() as folder, selectors.DefaultSelector() as waiting:
        try:
            for r in range(n):
                read, write = os.pipe()
                pid = os.fork()
                if pid == 0:
                    os.close(read)
                    _child(function, arguments, place | {"TUTTI_RANK": str(r)}, write, f"{folder}/{r}")
                os.close(write)
                pids.append(pid)
                waiting.register(read, selectors.EVENT_READ, r)
            while waiting.get_map():
                events = waiting.select(max(0.0, end - time.monotonic()))
                if not events and time.monotonic() >= end:
                    for pid in pids:
                        os.kill(pid, signal.SIGABRT)
                    time.sleep(0.5)
                    said = "\n".join(f"--- rank {r}\n{pathlib.Path(folder, str(r)).read_text()}" for r in range(n))
                    raise AssertionError(f"the run has not ended after {timeout} s\n{said}")
                for key, _ in events:
                    data = os.read(key.fd, 1 << 16)
                    answers[key.data] += data
                    if not data:
                        waiting.unregister(key.fd)
                        os.close(key.fd)
                    if not data and b"Gloo connectFullMesh failed" in answers[key.data]:
                        for pid in pids:
                            os.kill(pid, signal.SIGKILL)
                        raise _GlooFailed(answers[key.data].decode())
        finally:
            late = [r for r, pid in enumerate(pids) if not _ended(pid, end)]
            for key in list(waiting.get_map().values()):
                os.close(key.fd)
        said = [pathlib.Path(folder, str(r)).read_text() if os.path.exists(f"{folder}/{r}") else "" for r in range(n)]
    assert not late, f"ranks {late} have answered and not ended after {timeout} s\n" + "\n".join(said)
    for r in range(n):
        assert answers[r] or r in killed, f"rank {r} has ended without a word\n" + "\n".join(said)
    return [json.loads(a or b"{}") for a in answers]


def _script(text: str, words: Sequence[str], port: int) -> str:
    sys.argv = ["script.py", *words]
    os.environ.update(RANK=os.environ["TUTTI_RANK"], WORLD_SIZE=os.environ["TUTTI_SIZE"], MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(text, "script.py", "exec"), {"__name__": "__main__"})
    return said.getvalue()


def script(text: str, n: int = 2, args: Sequence[object] = (), timeout: float = 120) -> list[processes.Rank]:
    """Runs the text of a script on n ranks, which also get torch.distributed's variables. Returns their output."""
    answers = ranks(n, _script, text, [str(word) for word in args], free_port(), timeout=timeout)
    assert all("value" in answer for answer in answers), answers
    return [processes.Rank(answer["value"], "") for answer in answers]
