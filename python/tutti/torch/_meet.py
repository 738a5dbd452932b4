"""Meetings: calls that all workers make together, such as finish() and save(), after the same number of steps.

If the numbers differed, workers would wait for each other forever: one in a step, another in finish(). Here both raise
StateError instead. A worker that comes to a meeting sends its number of steps to all others, and waits until all have
come. In each worker a thread receives these messages, since the client may be blocked in a step; it replies to a worker
that comes too early.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .. import _abi
from .._library import library as _c
from ..errors import Error, PeerError, StateError, check

if TYPE_CHECKING:
    from ._run import Run
    from .pipeline import Pipeline

_COMES, _TOO_EARLY, _ENDS = 1, 2, 3
_OF_UNITS = ("model.state_dict()", "a forward without training")  # these gather values of all workers
_KINDS = ("evaluate()", "save()", "save_end()", "load()", "finish()", "state_dict()", "the end of an epoch", *_OF_UNITS,
          "step()")
_STATE, _MODEL, _FORWARD, _STEP = map(_KINDS.index, ("state_dict()", *_OF_UNITS, "step()"))
_FOREVER = 2**63 - 1
_PORT = b"python: meetings"


class Meetings:
    """The meetings of a run, on one worker."""

    def __init__(self, run: Run | Pipeline):
        self._method, self._world = run.method, run.world  # not the run, which the thread would keep open
        self._others = [r for r in range(run.engine.workers) if r != run.world.rank]
        self._changed = threading.Condition()
        self._meeting = 0  # number of the last meeting that this worker has come to
        self._step = 0  # number of the last step that has begun, from 1
        self._come: dict[int, tuple[int, int, int]] = {}  # rank: number and kind of its last meeting, its steps
        self._refused: tuple[int, int] | None = None  # a rank that this worker came too early for, and its step
        self._over = False
        self._thread = threading.Thread(target=self._listen, name="tutti meetings", daemon=True)
        self._thread.start()

    def _send(self, rank: int, kind: int, a: int = 0, b: int = 0) -> None:
        note = _abi.tutti_header(kind=kind, a=a, b=b)
        check(_c.tutti_send, self._world._at, rank, _c.tutti_port_of(_PORT, 0, 0), note, _abi.tutti_buffer())

    def _listen(self) -> None:
        note = _abi.tutti_header()
        port, nothing = _c.tutti_port_of(_PORT, 0, 0), _abi.tutti_buffer()
        while not self._over:
            try:
                check(_c.tutti_recv, self._world._at, -1, port, note, nothing, _FOREVER)
                if note.kind != _ENDS:
                    self._receive(getattr(note, "from"), note.kind, note.a, note.b)
            except PeerError:  # a worker is lost: the engine decides whether the run continues
                with self._changed:
                    self._changed.wait(0.2)
            except Error:
                return

    def _receive(self, rank: int, kind: int, steps: int, meeting: int) -> None:
        with self._changed:
            if kind == _TOO_EARLY:
                self._refused = rank, steps
            else:
                self._come[rank] = meeting // len(_KINDS), meeting % len(_KINDS), steps
            early = kind == _COMES and meeting // len(_KINDS) > self._meeting and self._step > steps
            step = self._step
            self._changed.notify_all()
        if early:
            self._send(rank, _TOO_EARLY, step)

    def begins(self, step: int) -> None:
        """Call when a step begins; the first is 1. StateError: a worker waits in a meeting before this step."""
        with self._changed:
            for rank, (meeting, kind, steps) in self._come.items():
                if meeting > self._meeting and steps < step:
                    told = f"rank {rank} came to {_KINDS[kind]} after {steps} steps, and this one begins step {step}"
                    raise StateError(self._sentence(told, kind))
            self._step = step

    def come(self, what: str, steps: int) -> None:
        """Comes to a meeting after `steps` steps, and blocks until all workers have come. StateError: one has come to
        another meeting, or after another number of steps."""
        kind = _KINDS.index(what)
        with self._changed:
            self._meeting += 1
            meeting = self._meeting
        missing = self._others
        while missing:
            # Sent repeatedly, since only a failing send detects a worker that has ended in order.
            # The next call of the engine reports lost workers.
            missing = [r for r in missing if self._notify(r, steps, meeting * len(_KINDS) + kind)]
            with self._changed:
                if self._refused is None and any(self._missing(r, meeting) for r in missing):
                    self._changed.wait(0.5)
                if self._refused is not None:
                    rank, step = self._refused
                    told = f"rank {rank} is in step {step}, and this one has come to {what} after {steps}"
                    raise StateError(self._sentence(told, kind))
                missing = [r for r in missing if self._missing(r, meeting)]
        with self._changed:
            for rank, (theirs, other, after) in self._come.items():
                if theirs == meeting and other != kind:
                    raise StateError(
                        f"rank {rank} has come to {_KINDS[other]} and this one to {what}; all workers make the same "
                        "calls in the same order"
                    )
                if theirs == meeting and after != steps and kind == _STEP:
                    raise StateError(
                        f"rank {rank} continues to step {after}, and this one to step {steps}; the workers of a "
                        "pipeline all call step() with the same number, or epoch()"
                    )
                if theirs == meeting and after != steps:
                    told = f"rank {rank} has come to {what} after {after} steps, and this one after {steps}"
                    raise StateError(self._sentence(told, kind))

    def _missing(self, rank: int, meeting: int) -> bool:
        return self._come.get(rank, (0, 0, 0))[0] < meeting

    def _notify(self, rank: int, steps: int, meeting: int) -> bool:
        """Sends this worker's steps to that rank. False: the rank has ended."""
        try:
            self._send(rank, _COMES, steps, meeting)
            return True
        except PeerError:
            return False

    def _sentence(self, what: str, kind: int) -> str:
        if kind == _STATE:
            return (
                f"{what}: what method '{self._method}' keeps can be looked at when all workers rest, so all of "
                "them call optimizer.state_dict(), after the same step"
            )
        if kind in (_MODEL, _FORWARD):
            alike = (
                "call model.state_dict(), after the same step"
                if kind == _MODEL
                else "run the model equally often; give their loaders equally many batches"
            )
            return f"{what}: under method '{self._method}' no worker has all values, so all of them {alike}"
        return (
            f"{what}: under method '{self._method}' all workers make equally many steps; give their loaders "
            "equally many batches (tutti.torch.sampler does), or stop all at the shortest"
        )

    def close(self) -> None:
        self._over = True
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            try:
                self._send(self._world.rank, _ENDS)
                self._thread.join()
            except Error:  # the world has failed, so the thread's receive has, too
                self._thread.join(1)
