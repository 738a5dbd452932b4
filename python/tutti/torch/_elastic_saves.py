"""Checkpoints of a run whose workers come and go: prepare(elastic=True, checkpoint=DIR).

The members of an epoch save together, as other runs do (_saved.py): before the first pass of a step, when all have made
the step before it. So no later epoch goes back behind the step of such a checkpoint. If the epoch ends meanwhile, the
next one saves the step again. The run's end by SIGTERM is agreed there, too: all that were asked to leave save, and
then leave. One that was asked alone leaves after a while without a checkpoint, as the others go on. If the run ends
while there is no epoch, since too few are left or all are asked to leave, one worker saves its last state alone. Others
may have gone on elsewhere, behind that step, so it needs the folder's claim, and saves none where a later step is.

A run that is started again loads the checkpoint in an epoch without a state, on all members. The steps of its nodes
begin at 0 again, so Elastic.base has those of the checkpoint. Rates of the optimizer's groups stay the script's, which
goes through the epochs of the samples that are over, and are compared as those of a newcomer are.
"""

from __future__ import annotations

import dataclasses
import os
import re
import threading
import time
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .. import _abi
from ..errors import CorruptError, Error, StateError
from . import _claim, _preempt

if TYPE_CHECKING:
    from ._elastic import Elastic
    from ._elastic_run import ElasticRun

_ALONE_S = 1.0  # one that was asked to leave waits so long for the others to be asked, too
_CLAIM_S = 0.2  # a worker that has ended a moment ago may keep its lock so long
_KINDS = {"ValueError": ValueError, "CorruptError": CorruptError}


class ElasticSaves(_preempt.Preemption):
    """The checkpoints of a run, on one worker. The members of an epoch make its calls together."""

    def __init__(self, plan: _preempt.Checkpoints, elastic: Elastic):  # without super().__init__(): Elastic has signals
        if not plan.wait:
            raise ValueError("Checkpoints(wait=False) with elastic=True: a thread would still write a step when its "
                             "epoch ends; leave wait out")
        # another folder in the process of one that has joined from elsewhere is another run's
        resume = plan.resume if plan.resume in ("", "auto") else os.path.abspath(plan.resume)
        self._plan = dataclasses.replace(plan, directory=os.path.abspath(plan.directory), resume=resume)
        self._directory, self._elastic = os.fspath(self._plan.directory), weakref.proxy(elastic)
        self._run: ElasticRun
        self._claim = None
        self._newest, self._saved = "", -1
        self._asked = 0.0  # when this process was asked to leave
        self._waits = True  # for an epoch
        self._timer: threading.Timer | None = None
        _preempt._of_run = weakref.ref(self)  # a forked child gives up its share of the claim

    def fingerprint(self) -> str:
        """What all have in common, in a line."""
        return _preempt.fingerprint(self._plan).strip()

    # ---- signals ----

    def notes(self) -> bool:
        """Within a signal's handler. Returns whether this process asks the others before it leaves."""
        if self._asked:
            return time.monotonic() - self._asked < _ALONE_S  # a launcher and its group may both send the first one
        self._asked = time.monotonic()
        if self._waits:
            self.waits()
        return True

    def waits(self) -> None:
        """This process waits for the next epoch, which may not come."""
        self._waits = True
        if self._asked and self._timer is None:
            self._timer = threading.Timer(_ALONE_S, self._elastic.members.leave)
            self._timer.daemon = True
            self._timer.start()

    # ---- an epoch ----

    def enters(self, run: ElasticRun, begins: bool) -> str:
        """The next epoch has begun. begins: without a state of the run. Returns the checkpoint to load; "": none."""
        self._waits = False  # first: a signal that comes now begins no timer
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._run = weakref.proxy(run)
        if run.world.rank > 0:
            self._drop()
        run.world.barrier()  # before rank 0 takes what another one has had
        kind, _, text = self._from_rank_0(lambda: self._begin(begins)).partition(":")
        if kind in _KINDS:
            raise _KINDS[kind](text)
        return text

    def _begin(self, begins: bool) -> str:
        """Returns what all are to know: the checkpoint, or why there is no run."""
        try:
            if not begins:
                return self._keep_claim()
            self._take_claim(_claim.DIES_S)
            return f"found:{self._look()}"
        except (ValueError, CorruptError) as e:
            return f"{'CorruptError' if isinstance(e, CorruptError) else 'ValueError'}:{e}"

    def _take_claim(self, wait: float) -> None:
        if self._claim is None:
            self._claim = _claim.Claim(self._directory, wait, os.environ.get("TUTTI_RUN_ID", ""))

    def _keep_claim(self) -> str:
        """While the run goes on. Returns why it may not: another run has the folder."""
        try:
            self._take_claim(_CLAIM_S)
        except _claim.OfThisRun:  # a worker that stands still has it, and these go on without it
            pass
        except _claim.Taken as e:
            return f"ValueError:{e}"
        except ValueError as e:  # now; a save that is due may fail, or not
            self._say(str(e))
        return ""

    def loaded(self, found: str, step: int) -> None:
        self._newest, self._saved = found, step
        self._say(f"continues from checkpoint '{found}'")

    def _drop(self) -> None:
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def close(self, forked: bool = False) -> None:
        """Of the run of one epoch: the claim stays."""
        if forked:
            self._drop()

    def ends(self) -> None:
        """This process takes part no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._drop()
        if _preempt._of_this_process() is self:
            _preempt._of_run = None

    def also(self, objects: Mapping[str, Any]) -> None:
        raise StateError("also() under prepare(elastic=True): a script that comes or continues goes through the epochs "
                         "that are over, and what stands between them, such as scheduler.step(), is done again")

    # ---- to save ----

    def step_begins(self) -> None:
        """Before the first pass of each step. SystemExit: all were asked to leave."""
        self._agree(last=False)

    def finishes(self) -> None:
        """After the last step."""
        self._agree(last=True)

    def _agree(self, last: bool) -> None:
        run, every = self._run, self._plan.every
        steps = run.first + run.steps
        was = run.engine.doing(_abi.TUTTI_DOING_OUTSIDE)
        # one that has come does not know what was saved
        asked, saved = run.world.reduce([float(self._asked > 0), -float(self._saved)], "min")
        self._saved = -int(saved)
        due = every > 0 and (last or steps % every == 0)
        if (asked or due) and steps not in (0, self._saved):
            _, _, refused = self._from_rank_0(self._keep_claim).partition(":")
            if refused:
                raise ValueError(refused)
            run.save_here(self._directory, self._plan.keep, wait=True)
            self._saved, self._newest = steps, f"{self._directory}/step-{steps:08d}"
        run.engine.doing(was)
        if asked:
            saved_there = f"{self._directory}/step-{self._saved:08d}"  # by others, before this one came
            if not self._newest and self._saved >= 0 and os.path.isdir(saved_there):
                self._newest = saved_there
            there = f"continues from checkpoint '{self._newest}'" if self._newest else "begins again"
            self._say(f"ends since all workers are asked to leave; started again, the script {there}")
            self._elastic.leave()
        if self._asked and time.monotonic() - self._asked >= _ALONE_S:
            self._elastic.members.leave()

    def saves_last(self, run: ElasticRun) -> None:
        """The run has ended outside of an epoch, and this process alone has its last state."""
        steps = run.first + run.steps
        if steps == self._saved:
            return  # all have saved it, and then left
        self._run = weakref.proxy(run)
        there = f"{self._directory}/step-{steps:08d}"
        try:
            self._take_claim(_claim.DIES_S)  # a worker that has it may be saving, with others
            newest = self._newest_step()
            if newest > steps:  # it could be removed as this one is saved (keep)
                self._say(f"the state of step {steps} is not saved: the folder has one of step {newest} already")
                return
            run.save_here(self._directory, self._plan.keep, wait=True)
        except (ValueError, OSError, Error) as e:
            self._say(f"the state of step {steps}, the last one, could not be saved: {e}")
            return
        self._saved, self._newest = steps, there
        self._say(f"has saved step {steps}, the last one; started again, the script continues from checkpoint "
                  f"'{there}'")

    def _newest_step(self) -> int:
        """Returns the step of the checkpoint that a run would continue from; -1: there is none."""
        try:
            found = re.search(r"step-(\d+)/*$", self._run.world.find_checkpoint(self._directory))
        except (ValueError, CorruptError):
            return -1
        return int(found[1]) if found else -1
