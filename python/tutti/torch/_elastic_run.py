"""The run of one epoch of the members (_elastic.py): its passes, steps, state and end.

A loss does not end it. The call that meets with it notes it, forward and backward go on without the engine, and step()
or the sampler gives the state that is left to Elastic, which enters the next epoch.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from .. import _abi
from .._members import Epoch
from ..errors import PeerError, StateError
from . import _log_to, _saved, _state
from ._rounds import settings
from ._run import Run

if TYPE_CHECKING:
    from . import _preempt
    from ._elastic import Elastic


class Rates(NamedTuple):
    """The optimizer's groups without their parameters, as they were in an epoch of the samples; -1: in none."""

    epoch: int
    groups: list[dict[str, Any]]


class ElasticRun(Run):
    """The run of one epoch."""

    elastic: Elastic

    def __init__(self, elastic: Elastic, epoch: Epoch, **options: Any):
        self.elastic = elastic
        self._entered = epoch.step  # by the nodes' count, which a run that continues begins at 0
        self.first = elastic.base + epoch.step  # steps of the run before this epoch
        self._number = epoch.number
        self._needs_record = not epoch.state
        self._lost: PeerError | None = None  # why this epoch has ended
        self._agreed = 0  # steps of this epoch that all members are known to have made
        self.rounds = elastic.rounds
        super().__init__(elastic.model, elastic.optimizer, elastic.method, world=epoch.world,
                         commit=elastic.commit, **options)

    def _folder(self, trace: str | os.PathLike[str] | None, log_to: _log_to.LogTo) -> str:
        if not self.elastic.folder or self._number == 0:  # 0: one that is left saves its last state
            return ""
        return os.path.join(self.elastic.folder, f"members-{self._number}")

    def _deal(self) -> list[int] | None:
        speeds = self.elastic.speeds
        return None if speeds is None else speeds.deal(self.world)

    def _rule(self) -> tuple[str, float]:
        """As in prepare(): the script of one that has come may not have set the present rate as yet."""
        return self.elastic.rule or super()._rule()

    def _ends_well(self) -> bool:
        """The members of the next epoch go on with what these have done."""
        return not self._failed

    def _resume(self, checkpoint: _preempt.Checkpoints) -> None:
        self.preempt = self.elastic.saves  # Elastic loads what there is

    # ---- passes and steps ----

    @torch._disable_dynamo
    def _before_forward(self, module: nn.Module, _args: Any) -> None:
        if self._lost is None:
            self._until_lost(super()._before_forward, module, _args)

    def _on_gradient(self, tensor: int, _param: torch.Tensor) -> None:
        if self._lost is None:
            self._until_lost(super()._on_gradient, tensor, _param)

    def _until_lost(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except PeerError as e:
            self._lost = e.with_traceback(None)  # whose frames would keep the engine open
            return None

    def step(self, loss: float | None, closure: Callable[[], Any] | None, losses: torch.Tensor | None) -> Any:
        made, found = self.first + self.steps, None
        if self._lost is None:
            found = self._until_lost(super().step, loss, closure, losses)
        if self._lost is not None and self.engine.whole() in (made, None):
            self.elastic.renew()
        return found

    def _end_step(self) -> None:
        super()._end_step()
        self.elastic.count_batches(self.first + self.steps)
        self.elastic.check_state()
        speeds = self.elastic.speeds
        if speeds and speeds.compare(self.world, int(self.engine.figures()["compute_ns"]), self.steps):
            self.elastic.members.renew()

    def try_spans(self, epochs: int) -> list[tuple[int, int, int]] | None:
        """Begins the next pass, and returns its samples. None: the run has done that many epochs, or lost()."""
        found: list[list[tuple[int, int, int]]] = []
        if self._lost is None and not self.elastic.acts():
            self._lost = PeerError("the workers of the run change", -1)
        if self._lost is None:
            self._until_lost(lambda: found.append(self.spans()) if self.more_epochs(epochs) else None)
        return found[0] if found else None

    def lost(self) -> PeerError | None:
        return self._lost

    # ---- the state ----

    def hand_over(self) -> None:
        """Gives the state that is left to the others."""
        step = self.engine.whole()
        if step is None:
            raise StateError("a step has failed in the middle of its update, so this worker has no state of a whole "
                             "step") from self._lost
        if self.rounds is not None:
            self.rounds.begin()
        tensors, words = self.of_torch()
        words["base"] = str(self.elastic.base)
        state = _saved.packed(dict(sorted(tensors.items())), words)
        self.elastic.members.over(step - self.elastic.base, state, self.engine)
        common = self._common() if step == 0 else {}
        self.elastic.beginning = {name: _state.memory(p).clone() for name, p in common.items()}

    def of_torch(self) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
        """The state of the optimizer, with the rates of the last update, and what a checkpoint is of."""
        state, rates = self.optimizer.state_dict(), self.elastic.rates
        for group, then in zip(state["param_groups"], rates.groups, strict=bool(rates.groups)):
            group |= {name: then[name] for name in then.keys() & group.keys() - self.elastic.progress}
        tensors, words = _saved.flat(state)
        words["progress"] = json.dumps(sorted(self.elastic.progress))
        return tensors, words | {_saved.RATES_OF: str(rates.epoch), "cut": json.dumps(self.elastic.cut)}

    def _common(self) -> dict[str, _abi.tutti_saved]:
        """The engine's state without slots in shards, which are 0 before the first step."""
        return {f"{p.state.decode()}/{p.tensor.decode()}@{p.begin}": p for p in self.engine.state()
                if not p.state.startswith(b"optim.")}

    def begin_again(self, state: dict[str, torch.Tensor]) -> None:
        """Takes over the state of step 0."""
        for name, p in self._common().items():
            _state.memory(p).copy_(state[name])
        self.engine.state_written()
        self._take_own()
        self._go_on()

    def unpack(self, state: bytes) -> None:
        """Takes over the state with which the epoch begins. The rates of the optimizer's groups stay the script's."""
        slots, words = _saved.unpacked(state, "the state of the others")
        self.elastic.members.load(self.engine)
        self.elastic.base = int(words["base"])
        self.first = self.elastic.base + self._entered
        self._unpack_torch(slots, words)
        self._take_own()
        self._go_on()

    def load_here(self, checkpoint: str) -> None:
        """Begins with a checkpoint. All members."""
        path = _saved.optimizer_file(self, checkpoint)
        slots, words = _saved.read(path) if path.exists() else ({}, {})
        if _saved.RATES_OF not in words:
            raise ValueError(f"checkpoint '{checkpoint}' is not of a run whose workers come and go; continue it "
                             "without elastic=True, or begin in another folder")
        theirs = json.loads(words["cut"])
        for name, mine in self.elastic.cut.items():
            if theirs.get(name, mine) != mine:  # an older version noted less
                raise ValueError(f"checkpoint '{checkpoint}' is of a run with {name} {theirs[name]}, and this one "
                                 f"has {mine}, so its bits would be others; continue with the same, or begin in "
                                 "another folder")
        self.engine.load(checkpoint)
        self._unpack_torch(slots, words)
        _saved.load_module(self, checkpoint)
        self._take_own()
        self._go_on()
        self.elastic.base = self.first = int(self.engine.figures()["steps"])

    def _unpack_torch(self, slots: dict[str, torch.Tensor], words: dict[str, str]) -> None:
        found = _saved.unflat(slots, words)
        groups, theirs_of = self.optimizer.state_dict()["param_groups"], found["param_groups"]
        if len(groups) != len(theirs_of):
            raise StateError(f"the optimizer has {len(groups)} groups here, and {len(theirs_of)} on the workers that "
                             "this one has joined; all workers run the same script")
        self.elastic.progress |= set(json.loads(words.get("progress", "[]")))
        for mine, other in zip(groups, theirs_of, strict=True):
            for name in self.elastic.progress & other.keys():
                is_tensor = isinstance(mine.get(name), torch.Tensor)
                mine[name] = torch.as_tensor(other[name], dtype=mine[name].dtype) if is_tensor else other[name]
        self.optimizer.load_state_dict({"state": found["state"], "param_groups": groups})
        params = [p for group in self.optimizer.param_groups for p in group["params"]]
        for index, one in found["state"].items():
            for name, t in one.items():  # torch gives slots the type of their parameter
                if isinstance(t, torch.Tensor) and self.optimizer.state[params[index]][name].dtype != t.dtype:
                    self.optimizer.state[params[index]][name] = t
        self.optimizer._opt_called = True  # type: ignore[attr-defined]  # torch's schedulers warn if no update came
        plain = [{k: v for k, v in group.items() if k != "params"} for group in found["param_groups"]]
        self.elastic.rates = Rates(int(words[_saved.RATES_OF]), plain)

    # ---- calls between steps ----

    def show(self, what: str = "evaluate()") -> None:
        """All workers have the same model, so nothing is sent."""
        if self._ended or self.finished or self._shown:
            raise StateError(f"{what} after the run's end, or within evaluate()")
        if self._pass is not None:
            raise StateError(f"{what} within a pass: call step() first")
        if self.rounds is not None and self.within:
            raise StateError(f"{what} within a round of local steps, when the module has the model of one share: call "
                             "it at the end of an epoch of the sampler")
        self._shown = True

    def resume(self) -> None:
        self._shown = False

    def save(self, directory: str, keep: int, wait: bool = True) -> None:
        self._refuse("save()", "torch.save(model.state_dict()) on optimizer.world.rank 0 is one way")

    def load(self, directory: str) -> None:
        self._refuse("load()", "load into the model before prepare()")

    def state_dict(self) -> dict[str, Any]:
        if self.itself:
            self._refuse("state_dict()", f"under '{self.method}' each has a part of the optimizer's, and "
                         "checkpoint=DIR saves all of it")
        return self.optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._refuse("load_state_dict()", "load into the optimizer before prepare()")

    def _refuse(self, what: str, instead: str) -> None:
        raise StateError(f"{what} under prepare(elastic=True), where workers get the state from each other; {instead}")

    def finish(self) -> None:
        if not self._ended and not self.finished:
            self.elastic.finish(None)

    def ends(self, results: Callable[[], Any] | None) -> None:
        """Comes to the end together with the others of this epoch. results: called on rank 0 before all are there."""
        if self._pass is not None or self.within:
            raise StateError("finish() within a step: go through the sampler's epoch to its end, or call step() for "
                             "each batch that it has given")
        if self._lost is None:
            self._until_lost(self._end_together, results)
        if self._lost is None:
            self._take_own()
            self.finished = True

    def _end_together(self, results: Callable[[], Any] | None) -> None:
        self._between("finish()")
        if self.preempt is not None:
            self.preempt.finishes()
        if results is not None and self.world.rank == 0:
            results()
        self.world.barrier()  # before the engine's finish, after which it gives no state to a next epoch
        self.engine.finish()

    def agree(self) -> None:
        """Waits until all members have made the steps so far: then no epoch begins before these."""
        if self._lost is None and self.steps > self._agreed:
            self._until_lost(self._agree_together)

    def _agree_together(self) -> None:
        if self._meetings is not None:
            self._meetings.come("the end of an epoch", self.steps)
        self.world.barrier()
        self._agreed = self.steps

    def _update(self, factor: float) -> None:
        before = settings(self.optimizer)
        super()._update(factor)
        self.elastic.note_progress(before)

    def fail(self, error: BaseException) -> None:
        if not self._ended:
            with contextlib.suppress(Exception):  # as in the midst of a step: others may have the state
                self.hand_over()
        try:
            super().fail(error)
        finally:
            self.elastic.fail()

    @property
    def trained(self) -> bool:
        return self.first + self.steps > 0 or self.within

    def _go_on(self) -> None:
        for b in self._versions:
            self._versions[b] = b.param._version

    @property
    def needs_finish(self) -> bool:
        return not self.finished
