"""Ranks that only serve (prepare(servers=k)). The threads of the method's services reply to requests; the main thread
takes part in the calls that all ranks make together. Such a rank makes no steps, so rank 0 sends it a message before
each of these calls."""

from __future__ import annotations

import ctypes
import json
from typing import TYPE_CHECKING, Any

from .. import _abi
from .._library import library as _c
from ..errors import check
from . import _saved

if TYPE_CHECKING:
    from ._run import Run
    from ._steps import Steps

_ROOM = 8192
_FOREVER = 2**63 - 1


def _port() -> int:
    return int(_c.tutti_port_of(b"python: what comes next", 0, 0))


def notify(run: Steps, what: str, directory: str = "", keep: int = 0) -> None:
    """On rank 0: sends the next call to all ranks that only serve."""
    figures = run.engine.figures()
    words = json.dumps({"what": what, "directory": directory, "keep": keep, "steps": figures["steps"]}).encode()
    if len(words) > _ROOM:
        raise ValueError(f"the directory's name has {len(directory)} characters; a shorter one must do")
    memory = ctypes.create_string_buffer(words, len(words))
    payload = _abi.tutti_buffer(data=ctypes.addressof(memory), count=len(words), dtype=_abi.TUTTI_U8)
    for rank in range(run.world.size - run.servers, run.world.size):
        check(_c.tutti_send, run.world._at, rank, _port(), _abi.tutti_header(), payload)


def _receive(run: Run) -> dict[str, Any]:
    """Returns the next message of rank 0. Blocks."""
    memory, note = ctypes.create_string_buffer(_ROOM), _abi.tutti_header()
    room = _abi.tutti_buffer(data=ctypes.addressof(memory), count=_ROOM, dtype=_abi.TUTTI_U8)
    check(_c.tutti_recv, run.world._at, 0, _port(), note, room, _FOREVER)
    said: dict[str, Any] = json.loads(memory.raw[:note.bytes])
    return said


def until_finished(run: Run) -> None:
    """Serves until the workers have finished, and closes engine and world. Blocks."""
    resting = True
    try:
        while True:
            said = _receive(run)
            if said["what"] == "train":  # in asynchronous methods it returns when all have stopped
                resting = run.is_async
                run.engine.more(int(run.engine.figures()["gradients"] if run.is_async else said["steps"]) + 1)
                continue
            if not resting:
                run.engine.more(said["steps"])
                resting = True
            if said["what"] == "show":
                run.engine.eval_begin()
                run.engine.eval_end()
            elif said["what"] in ("save", "save_begin"):
                _saved.save(run, said["directory"], said["keep"], wait=said["what"] == "save")
            elif said["what"] == "load":
                _saved.load(run, said["directory"])
            else:
                run.engine.finish()
                if run.record is not None:
                    run.record.close(ended=True)
                break
    except BaseException as e:
        run.world.failure_report(e)
        raise
    finally:
        if run.record is not None:
            run.record.close(ended=False)
        run.engine.close()
        run.world.close()
