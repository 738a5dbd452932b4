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

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import nn

from .. import _abi
from .._members import Members
from ..errors import PeerError, StateError
from . import _elastic_saves, _facts, _record, _saved, _translate
from ._elastic_run import ElasticRun, Rates
from ._rounds import Rounds, by_rounds, settings
from ._run import _traits, check, statistics_of
from ._speeds import Speeds

if TYPE_CHECKING:
    from .._members import Epoch
    from .sampler import BatchSampler

_MIB = 1 << 20
_LOST = 3  # exit code of a process that cannot go on without others
_REFUSED = 2  # of one that is not admitted, and would not be if it was started again
_BEHIND = (
    "the run is at step {} and in an earlier epoch of samples than this script: the others have gone back a step after "
    "the script had done what follows an epoch, and `tutti run` starts this process again; or the script has left the "
    "sampler's epoch before its end, which a run whose workers come and go does not allow"
)


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
        self.speeds = Speeds(options["elastic_shares"]) if sampler._shares == "auto" else None
        self.base = 0  # steps of the checkpoint with which the run has begun
        self._options = options | {"sampler": sampler, "log_to": self._log_to}
        norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._NormBase)]
        self._counts = [m.num_batches_tracked for m in norms if m.num_batches_tracked is not None]
        self._counted = [int(t) for t in self._counts]
        self.rates = Rates(-1, [])  # of the last update, which all members have; of what was taken over, too
        self._compares = False  # a state was taken over, and its rates are not compared with this script's as yet
        self._seen: dict[int, list[dict[str, Any]]] = {}  # groups as this script began an epoch of the samples
        self.progress: set[str] = set()  # what the optimizer itself changes in its groups, as a count of steps
        self._rates: tuple[int, list[dict[str, Any]]] = (-1, [])  # an epoch of the samples, and the groups in it
        self._took_part = False  # in an epoch
        # what the engine had at step 0, if an epoch has ended before the first step
        self.beginning: dict[str, torch.Tensor] = {}
        self.rule: tuple[str, float] | None = None  # of a method that makes the updates: its spec, and the rate in it
        if _traits(method) & _abi.TUTTI_SHARDED_OPTIMIZER:
            self.rule = _translate.spec(optimizer, method), float(optimizer.param_groups[0]["lr"])
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
        if traits & needs != needs or traits & _abi.TUTTI_STATES_OF_SHARES:
            raise ValueError(f"elastic=True with method '{method}': a lost worker would take a part of its state with "
                             "it, or its bits depend on the number of workers; take ddp, zero(stage=1|2), local-sgd, "
                             "diloco or slowmo")
        if traits & _abi.TUTTI_SHARDED_PARAMETERS:
            raise ValueError(f"elastic=True with method '{method}': no worker has the whole model, which rank 0 writes "
                             "in finish(results), and with which other workers begin; take zero(stage=2), or `tutti "
                             "train`")
        if sampler is None:
            raise ValueError("elastic=True needs sampler=tutti.torch.sampler(...), which knows whose samples are whose "
                             "when the number of workers changes")
        if sampler.rank >= 0 or sampler._shares not in ("even", "auto") or sampler._given is not None:
            raise ValueError("elastic=True takes a sampler without rank, workers and parts, and with shares 'even' or "
                             "'auto': others would be by worker")
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
        if epoch.state:
            self.run.unpack(epoch.state)
        elif self.beginning and not found:
            self.run.begin_again(self.beginning)
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
        commits = self.members.commit(step - self.base)
        if commits and self.run.itself:  # the engine makes the update, and torch's optimizer none
            self.rates = Rates(self._rates[0], settings(self.optimizer))
        return commits

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
            self.run.hand_over()
        except BaseException as e:
            self.run.fail(e)
            raise
        self.run.close()
        for p in self.model.parameters():
            p.grad = None
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
        self.rates = Rates(self._rates[0], now)

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

    def fail(self) -> None:
        """This process ends by an error: leaves in order, so that the others have a majority without it."""
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
