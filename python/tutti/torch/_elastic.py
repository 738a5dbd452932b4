"""prepare(elastic=True): a script whose workers come, leave and are lost (docs/design/membership.md).

The script's model and optimizer are in one Run after another, each in the world of an epoch. An Elastic has the present
one. When it fails since its epoch has ended, what is left is the state of a whole step. It goes to Members, which gives
it to those that need it, and all members of the next epoch load the state of the step with which that begins.

A worker can learn that its epoch has ended at three places:

    the sampler        a pass cannot begin: the next epoch begins, and the sampler gives the batch of a pass of it
    forward, backward  they go on without the engine, and what they compute is dropped in step()
    step()             the step was not made: the next epoch begins, and step() returns with the values of the step
                       before. It was made: step() returns, and the sampler begins the next epoch

So a script's loop stays as it is. The sampler asks the engine for each batch, and an iteration of it is the epoch of
the samples with that number. A newcomer runs the script from its beginning, and its iterations of epochs that are over
are empty. What the script does between epochs, such as scheduler.step(), it does as often as the others have.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch
from torch import nn

from .. import _abi
from .._members import Epoch, Members
from ..errors import PeerError, StateError
from . import _elastic_saves, _facts, _log_to, _record, _saved, _state
from ._rounds import Rounds, by_rounds, settings
from ._run import Run, _traits, check, statistics_of

if TYPE_CHECKING:
    from . import _preempt
    from .sampler import BatchSampler

_MIB = 1 << 20
_LOST = 3  # exit code of a process that cannot go on without others
_REFUSED = 2  # of one that is not admitted, and would not be if it was started again
_BEHIND = (
    "the run is at step {} and in an earlier epoch of samples than this script: the others have gone back a step after "
    "the script had done what follows an epoch, and `tutti run` starts this process again; or the script has left the "
    "sampler's epoch before its end, which a run whose workers come and go does not allow"
)


class _Rates(NamedTuple):
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

    def pack(self) -> tuple[int, bytes]:
        """Returns the steps that were made, and the state after them."""
        step = self.engine.whole()
        if step is None:
            raise StateError("a step has failed in the middle of its update, so this worker has no state of a whole "
                             "step") from self._lost
        if self.rounds is not None:
            self.rounds.begin()
        tensors, words = self.of_torch()
        words["base"] = str(self.elastic.base)
        of_torch = {f"torch/{name}": t for name, t in sorted(tensors.items())}
        of_engine = {f"tutti/{name}": _state.memory(p) for name, p in self._pieces().items()}
        return step, _saved.packed(of_engine | of_torch, words)

    def of_torch(self) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
        """The state of the optimizer, with the rates of the last update, and what a checkpoint is of."""
        state, rates = self.optimizer.state_dict(), self.elastic.rates
        for group, then in zip(state["param_groups"], rates.groups, strict=bool(rates.groups)):
            group |= {name: then[name] for name in then.keys() & group.keys() - self.elastic.progress}
        tensors, words = _saved.flat(state)
        words["progress"] = json.dumps(sorted(self.elastic.progress))
        return tensors, words | {_saved.RATES_OF: str(rates.epoch), "cut": json.dumps(self.elastic.cut)}

    def _pieces(self) -> dict[str, _abi.tutti_saved]:
        return {f"{p.state.decode()}/{p.tensor.decode()}@{p.begin}": p for p in self.engine.state()}

    def unpack(self, state: bytes) -> None:
        """Takes over a state. The rates of the optimizer's groups stay the script's."""
        tensors, words = _saved.unpacked(state, "the state of the others")
        pieces = self._pieces()
        theirs = {name.removeprefix("tutti/") for name in tensors if name.startswith("tutti/")}
        if theirs != pieces.keys():
            raise StateError(f"the others have the state {sorted(theirs)}, and this worker {sorted(pieces)}; all "
                             "workers run the same script")
        for name, p in pieces.items():
            _state.memory(p).copy_(tensors[f"tutti/{name}"])
        self.engine.state_written()
        slots = {name.removeprefix("torch/"): t for name, t in tensors.items() if name.startswith("torch/")}
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
        self.elastic.rates = _Rates(int(words[_saved.RATES_OF]), plain)

    # ---- calls between steps ----

    def show(self, what: str = "evaluate()") -> None:
        """All workers have the same model, so nothing is sent."""
        if self._ended or self.finished or self._shown:
            raise StateError(f"{what} after the run's end, or within evaluate()")
        if self._pass is not None:
            raise StateError(f"{what} within a pass: call step() first")
        self._shown = True

    def resume(self) -> None:
        self._shown = False

    def save(self, directory: str, keep: int, wait: bool = True) -> None:
        self._refuse("save()", "torch.save(model.state_dict()) on optimizer.world.rank 0 is one way")

    def load(self, directory: str) -> None:
        self._refuse("load()", "load into the model before prepare()")

    def state_dict(self) -> dict[str, Any]:
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
        left = None
        if not self._ended:
            with contextlib.suppress(Exception):  # as in the midst of a step: others may have the state
                left = self.pack()
        try:
            super().fail(error)
        finally:
            self.elastic.fail(left)

    @property
    def trained(self) -> bool:
        return self.first + self.steps > 0 or self.within

    def _go_on(self) -> None:
        for b in self._versions:
            self._versions[b] = b.param._version

    @property
    def needs_finish(self) -> bool:
        return not self.finished


class Elastic:
    """This process in a run whose workers come and go."""

    _taken = False  # this process takes part, or has

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, method: str, *, sampler: BatchSampler | None,
                 **options: Any):
        self._check(model, method, sampler, options)
        check(model, optimizer)
        if Elastic._taken:
            raise ValueError("this process takes part in its run already, or has: `tutti run --workers` has one "
                             "prepare(elastic=True) in a script. Give it one module that has both models")
        assert sampler is not None, "it is checked above"
        self.model, self.optimizer, self.method, self.sampler = model, optimizer, method, sampler
        options["elastic_shares"] = self._shares(options["elastic_shares"])
        del options["local_group"]
        folder = _record.folder_of(options["trace"])
        options["log_to"].check_folder(folder)
        self.folder = folder and os.path.abspath(folder)  # in it each epoch has a record of its own
        self._log_to = options["log_to"].in_parts()
        plan = options["checkpoint"]
        self.saves = None if plan is None else _elastic_saves.ElasticSaves(plan, self)
        self.rounds = Rounds(optimizer) if by_rounds(_traits(method)) else None
        self.base = 0  # steps of the checkpoint with which the run has begun
        self._options = options | {"sampler": sampler, "log_to": self._log_to}
        norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._NormBase)]
        self._counts = [m.num_batches_tracked for m in norms if m.num_batches_tracked is not None]
        self._counted = [int(t) for t in self._counts]
        self.rates = _Rates(-1, [])  # of the last update, which all members have; of what was taken over, too
        self._compares = False  # a state was taken over, and its rates are not compared with this script's as yet
        self._seen: dict[int, list[dict[str, Any]]] = {}  # groups as this script began an epoch of the samples
        self.progress: set[str] = set()  # what the optimizer itself changes in its groups, as a count of steps
        self._rates: tuple[int, list[dict[str, Any]]] = (-1, [])  # an epoch of the samples, and the groups in it
        self._took_part = False  # in an epoch
        self._beginning = b""  # the state of step 0, if an epoch has ended before the first step
        self._note_buffers()
        self._tried = False  # whether the optimizer's state can be packed
        size = sum(t.numel() * t.element_size() for t in model.state_dict().values())
        facts = _facts.of(model, optimizer, method, sampler, options)
        facts["checkpoint"] = "" if self.saves is None else self.saves.fingerprint()
        facts["record"] = _record.fingerprint(self.folder, self._log_to).strip() if self.folder else ""
        self.cut = {name: facts[name] for name in ("method", "elastic_shares", "sampler", "optimizer", "clip_norm")}
        self.members = Members(16 * size + 64 * _MIB, facts)
        Elastic._taken = True
        self._listen()
        self.run: ElasticRun
        self._enter()

    # ---- what cannot be ----

    @staticmethod
    def _check(model: nn.Module, method: str, sampler: BatchSampler | None, options: dict[str, Any]) -> None:
        traits, needs = _traits(method), _abi.TUTTI_LOGICAL_SHARES | _abi.TUTTI_WHOLE_STEPS
        if traits & needs != needs or traits & _abi.TUTTI_SHARDED_OPTIMIZER:
            raise ValueError(f"elastic=True with method '{method}': a lost worker would take a part of its state with "
                             "it, or its bits depend on the number of workers; take ddp, local-sgd, diloco or "
                             "slowmo")
        if sampler is None:
            raise ValueError("elastic=True needs sampler=tutti.torch.sampler(...), which knows whose samples are whose "
                             "when the number of workers changes")
        if sampler.rank >= 0 or sampler._shares != "even" or sampler._given is not None:
            raise ValueError("elastic=True takes a sampler without rank, workers, shares and parts: they would be by "
                             "worker")
        empty = {"codec": (None, "", "none"), "transport": (None,), "servers": (0,), "validation": (None,),
                 "loss_scale": (None,), "local_group": (None,)}
        for name, usual in empty.items():
            if options[name] not in usual:
                raise ValueError(f"elastic=True does not go with {name}= as yet; leave it out")
        if any(p.device.type != "cpu" for p in model.parameters()):
            raise ValueError("elastic=True trains on the CPU as yet; leave the model there")
        for name, m in model.named_modules():
            if isinstance(m, nn.modules.batchnorm._NormBase) and m.track_running_stats and m.momentum is None:
                raise ValueError(f"module '{name}' has momentum=None, so its statistics depend on how many batches a "
                                 "worker has seen; give it a momentum")

    @staticmethod
    def _shares(asked: int) -> int:
        """The logical shares: at least as many as there may be workers."""
        words = os.environ.get("TUTTI_WORKERS", "").split(":")
        most = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0  # Members refuses others
        if asked and asked < most:
            raise ValueError(f"elastic_shares={asked} is below the {most} workers that there may be (--workers); give "
                             f"at least {most}, or leave it out")
        return asked or most

    # ---- signals ----

    def _listen(self) -> None:
        """SIGTERM and Ctrl-C make this process leave the run between two steps, unless the script handles them."""
        self._handled: list[tuple[int, Any]] = []  # signals, and what they did before
        if threading.current_thread() is not threading.main_thread():
            return
        members = self.members
        before: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}

        def leave(number: int, _frame: Any) -> None:
            if members.is_mine():
                if self.saves is None or not self.saves.notes():
                    members.leave()
            else:  # a child of this process
                signal.signal(number, before[number])
                os.kill(os.getpid(), number)

        for number, usual in before.items():
            if signal.getsignal(number) == usual:
                self._handled.append((number, usual))
                signal.signal(number, leave)

    def _listen_no_more(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number, usual in self._handled:
                signal.signal(number, usual)

    # ---- epochs ----

    def _enter(self) -> None:
        """Waits for the next epoch, and opens its run."""
        try:
            self._open_next()
        except BaseException as e:  # SystemExit too: signals are the script's again
            self.close(ended=isinstance(e, SystemExit) and not e.code)
            raise

    def _open_next(self) -> None:
        while True:
            if self.saves is not None:
                self.saves.waits()
            try:
                epoch = self.members.next()
            except PeerError as e:  # too few are left, for too long
                sys.stderr.write(f"tutti: {e}\n")
                self._save_last()
                sys.exit(_LOST)
            except ValueError as e:  # another script than the others', which have not noticed
                sys.stderr.write(f"tutti: {e}\n")
                sys.exit(_REFUSED)
            if epoch is None:
                self._save_last()
                sys.exit(0)
            try:
                self.run = ElasticRun(self, epoch, **self._options)
            except PeerError:  # the next epoch follows
                self.members.over(epoch.step, None)
                continue
            try:
                self._begin(epoch)
            except PeerError:  # of a meeting about checkpoints
                self.run.close()
                self.members.over(epoch.step, None)
                continue
            except BaseException as e:
                self.run.fail(e)
                raise
            return

    def _begin(self, epoch: Epoch) -> None:
        """Takes over the state with which the epoch begins."""
        found = "" if self.saves is None else self.saves.enters(self.run, begins=not epoch.state)
        self._compares = bool(epoch.state or found)
        # without a step each has its own beginning, changed by passes that were dropped
        if epoch.state or (self._beginning and not found):
            self.run.unpack(epoch.state or self._beginning)
        if found and self.saves is not None:
            self.run.load_here(found)
            self._note_buffers()
            self.saves.loaded(found, self.base)
        self.count_batches(self.run.first)
        self._took_part = True

    def _save_last(self) -> None:
        """The run has ended without results, and this process has its last state, which the others leave to it. A
        failure is reported, and changes no exit code."""
        epoch, self.members.last = self.members.last, None
        if epoch is None:
            return
        if self.saves is None:
            epoch.world.close()  # so that no member is left
            return
        if not self._took_part:  # frozen parameters come from rank 0 in an epoch
            sys.stderr.write("tutti: the last state is not saved: this worker has it, and had not begun\n")
            epoch.world.close()
            return
        try:
            self.run = ElasticRun(self, epoch, **self._options)
            try:
                self.run.unpack(epoch.state)
                self.count_batches(self.run.first)
                self.saves.saves_last(self.run)
            finally:
                self.run.close()
        except Exception as e:  # whatever it is, the run has ended for another reason
            sys.stderr.write(f"tutti: the last state could not be saved: {type(e).__name__}: {e}\n")

    def commit(self, step: int) -> bool:
        return self.members.commit(step - self.base)

    def acts(self) -> bool:
        return self.members.acts()

    def leave(self) -> NoReturn:
        """Between two steps, when all leave. SystemExit."""
        self.members.leave()
        while True:  # an epoch that begins before it has left is given up at once
            self.renew()

    def renew(self) -> None:
        """The epoch has ended: gives its state to Members, and enters the next."""
        try:
            step, state = self.run.pack()
        except BaseException as e:
            self.run.fail(e)
            raise
        self.run.close()
        self._beginning = state if step == 0 else b""  # a run that continues loads its checkpoint again
        for p in self.model.parameters():
            p.grad = None
        self.members.over(step - self.base, state)
        self._enter()

    def count_batches(self, steps: int) -> None:
        """A batch norm counts the shares of all workers."""
        shares = self._options["elastic_shares"]
        with torch.no_grad():
            for t, before in zip(self._counts, self._counted, strict=True):
                t.fill_(before + steps * shares)

    def _note_buffers(self) -> None:
        """Those that stay as they are."""
        known = {id(t) for t in [*statistics_of(self.model), *self._counts]}
        self._others = {name: (t, t._version) for name, t in self.model.named_buffers() if id(t) not in known}

    def check_state(self) -> None:
        """After a step: others could not have what the state does not have."""
        if not self._tried:
            self._tried = True
            try:
                _saved.flat(self.optimizer.state_dict())
            except (AttributeError, TypeError, ValueError) as e:
                raise self._failed(StateError(
                    f"the state of {type(self.optimizer).__name__} cannot go to other workers ({e}): it has more than "
                    "tensors and numbers for each parameter; take another optimizer, or leave elastic=True out")) from e
        now = dict(self.model.named_buffers())
        for name, (t, version) in self._others.items():
            if now.get(name) is not t or t._version != version:
                raise self._failed(StateError(
                    f"the module changes its buffer '{name}' in training, which depends on what this worker has "
                    "computed; elastic=True takes the statistics of batch norms only"))

    # ---- the sampler's ----

    def _more(self, epochs: int) -> list[tuple[int, int, int]] | None:
        """Begins this worker's next pass, and returns its samples. None: the run has done that many epochs."""
        while True:
            found = self.run.try_spans(epochs)
            if found is None:
                self.run.agree()  # else the script would do what follows the epoch, and might have to go back
            if self.run.lost() is None:
                return found
            self.renew()

    def batches(self, epochs: int) -> Iterator[list[int]]:
        """Yields the batches of this worker in epoch `epochs` - 1 of the samples."""
        self._seen[epochs - 1] = settings(self.optimizer)
        while (spans := self._more(epochs)) is not None:
            run = self.run
            if spans[0][0] < epochs - 1:
                raise self._failed(StateError(_BEHIND.format(run.first + run.steps)))
            self._compare_groups()
            self._check_rates(spans[0][0])
            share, number = run.engine.share(), (run.steps, run.passes)
            yield [i for e, at, n in spans for i in self.sampler._indices(share, e, at, n)] or self.sampler.idle()
            if self.run is run and (run.steps, run.passes) == number and run.lost() is None:
                raise StateError("the next batch was asked for before the last one's step(): give the DataLoader "
                                 "num_workers=0, and call step() after each batch")

    def _compare_groups(self) -> None:
        """The script of one that has come has set the same rates as the others' scripts, in the epoch of the samples in
        which the last step was made. That may be over, and what follows it done on some workers only."""
        seen = self._seen.get(self.rates.epoch)
        compares, self._compares = self._compares, False
        if not compares or seen is None:
            return
        for number, (other, mine) in enumerate(zip(self.rates.groups, json.loads(json.dumps(seen)), strict=True)):
            for name in other:
                if name not in self.progress and other[name] != mine.get(name):
                    raise self._failed(StateError(
                        f"group {number} of the optimizer has {name}={mine.get(name)} here, and {other[name]} on the "
                        "workers that this one has joined, or in the checkpoint; what changes it, such as "
                        "scheduler.step(), is to be called once at the end of each epoch of the samples"))

    def note_progress(self, before: list[dict[str, Any]]) -> None:
        """The optimizer has made an update."""
        now = settings(self.optimizer)
        for a, b in zip(before, now, strict=True):
            self.progress |= {name for name in b if a.get(name) != b[name]}
        self.rates = _Rates(self._rates[0], now)

    def _check_rates(self, epoch: int) -> None:
        """Workers do not call step() equally often in an epoch, and one that comes has called it less often."""
        now = settings(self.optimizer)
        if self._rates[0] != epoch:
            self._rates = epoch, now
        for number, (a, b) in enumerate(zip(self._rates[1], now, strict=True)):
            for name in a | b:
                if name not in self.progress and a.get(name) != b.get(name):
                    raise self._failed(StateError(
                        f"the script has changed {name} of group {number} of the optimizer from {a.get(name)} to "
                        f"{b.get(name)} within an epoch of the samples, in which workers do not make equally many "
                        "iterations; call scheduler.step() at the end of each epoch"))

    def fail(self, left: tuple[int, bytes] | None) -> None:
        """This process ends by an error, after `left`, a step and the state after it: leaves in order, so that the
        others have a majority without it."""
        if left is not None:
            with contextlib.suppress(Exception):  # it is closed, or there is no memory for it
                self.members.over(left[0] - self.base, left[1])
        self.members.fail()
        self.close()

    def close(self, ended: bool = False) -> None:
        """This process takes part no more. The others go on as soon as its worlds are closed. ended: it has left in
        order."""
        self._listen_no_more()
        if self.saves is not None:
            self.saves.ends()
        self.members.close()
        self._log_to.end(ended)

    def _failed(self, error: Exception) -> Exception:
        self.run.fail(error)
        return error

    # ---- the end ----

    def finish(self, results: Callable[[], Any] | None) -> None:
        while True:
            made = self.run.first + self.run.steps
            self.run.ends(results)
            if self.run.lost() is None:
                break
            self.renew()
            if self.run.first < made:
                raise self._failed(StateError(_BEHIND.format(self.run.first)))
        self.run.close()
        self._listen_no_more()
        if self.saves is not None:
            self.saves.ends()
        self.members.end()
        self._log_to.end(ended=True)
