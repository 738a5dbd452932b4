"""The run of a prepared model and its optimizer: how it opens and closes, and the calls that all ranks make together.

Its passes and steps are Steps (_steps.py), and what passes between parameters and engine is Gradients (_gradients.py).
"""

from __future__ import annotations

import ctypes
import inspect
import logging
import math
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .. import _abi
from .._library import library as _c
from ..engine import Engine
from ..errors import StateError
from ..world import World
from . import _codec, _log_to, _place, _preempt, _record, _saved, _state, _translate, _units
from ._bind import Binding, device_of
from ._buffers import Copies
from ._cuda import Cuda, Device, HostStaging
from ._meet import Meetings
from ._rounds import Rounds, by_rounds
from ._runs import closed, dropped, opened, weakly
from ._sent import Sent
from ._steps import Steps
from ._values import OnDevice
from .sampler import BatchSampler

if TYPE_CHECKING:
    from ._elastic import Elastic

_log = logging.getLogger("tutti")
_UPDATES_ITSELF = _abi.TUTTI_OWNS_UPDATE | _abi.TUTTI_NON_GRADIENT_UPDATE | _abi.TUTTI_SHARDED_OPTIMIZER
_NONFINITE = {"stop": _abi.TUTTI_NONFINITE_STOP, "skip": _abi.TUTTI_NONFINITE_SKIP}


def statistics_of(module: nn.Module) -> list[torch.Tensor]:
    """Returns the running means and variances of batch norms, which are the engine's client state."""
    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._NormBase)]
    return [t for m in norms for t in (m.running_mean, m.running_var) if t is not None]


def _traits(method: str) -> int:
    """Returns the traits of this method with its options; 0: an invalid spec, which the engine refuses later."""
    bits = ctypes.c_uint()
    _c.tutti_method_traits(method.encode(), bits)
    return bits.value


def _asks(method: str) -> bool:
    """Returns whether the method fetches rows of tables when they are acquired, and updates tables at servers."""
    ops = _c.tutti_method_find(method.split("(")[0].strip().encode())
    return bool(ops) and bool(ops.contents.rows_acquire)


def _device(binding: Binding) -> Device | None:
    """Returns the device of the parameters; None: the host. Tests replace this function."""
    where = device_of(binding)
    return None if where.type == "cpu" else Cuda(where)


def check(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raises ValueError if model and optimizer do not have the same parameters, or the optimizer needs a closure."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ValueError(
            f"{type(optimizer).__name__} computes gradients again within its step (it needs step(closure)), and a "
            "method exchanges those of one backward; take another optimizer, or "
            "tutti.torch.DistributedDataParallel, which exchanges in every backward"
        )
    mine = {p for p in model.parameters() if p.requires_grad}
    held = {p for group in optimizer.param_groups for p in group["params"]}
    missing = [name for name, p in model.named_parameters() if p in mine - held]
    if missing:
        raise ValueError(
            f"the optimizer does not have parameter '{missing[0]}' of the model"
            + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
            + "; give it all that require a gradient, or freeze them (requires_grad_(False))"
        )
    if held - set(model.parameters()):
        raise ValueError(
            f"the optimizer has {len(held - set(model.parameters()))} parameters that are not the model's, and workers "
            "would not exchange them; give prepare() one module that has them all"
        )


class Run(Steps):
    """A run, from prepare() to close(). Its methods are called by Optimizer, by hooks, and by the sampler."""

    elastic: Elastic | None = None  # of a run whose workers come and go
    _needs_record = True  # a record that is refused ends the run
    _apart = False  # the optimizer updates values elsewhere than in the engine's memory, and _bring() copies them

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        method: str,
        *,
        transport: str | None,
        nonfinite: str,
        validation: Callable[[], Any] | None,
        sampler: BatchSampler | None,
        trace: str | os.PathLike[str] | None,
        trace_overwrite: bool,
        log_to: _log_to.LogTo,
        checkpoint: _preempt.Checkpoints | None,
        world: World | None = None,  # that there is already; None: opens the run's
        **options: Any,
    ):
        if nonfinite not in _NONFINITE:
            raise ValueError(f"nonfinite is '{nonfinite}'; it must be 'stop' or 'skip'")
        if world is None:
            check(model, optimizer)
        self.model: nn.Module = model
        self.optimizer: torch.optim.Optimizer = optimizer
        self.method: str = method
        self.servers: int = options["servers"]
        by_unit = bool(_traits(method) & _abi.TUTTI_SHARDED_PARAMETERS)
        self.binding: Binding = Binding(model, by_unit=by_unit)
        self._device = _device(self.binding)  # None: the host
        if by_unit:
            _units.check(model, self.binding.bound, self._device is not None)
        self.statistics: list[torch.Tensor] = statistics_of(model)
        self._validation, self._sampler = validation, sampler
        traits = _traits(method)
        if options["elastic_shares"] and by_rounds(traits) and self.rounds is None:
            self.rounds = Rounds(optimizer)
        if checkpoint is not None:
            self._check_checkpoint(traits)
        # the engine refuses pipelines
        self.itself: bool = bool(traits & _UPDATES_ITSELF) and not traits & _abi.TUTTI_PIPELINE_SCHEDULE
        if _asks(method) and self.binding.ask():
            self.itself = True  # the method makes the updates, those of tables at servers
        options |= {"optimizer": "client", "update": self._update, "names": sampler is not None}
        spec, self._lr = self._rule() if self.itself else ("", optimizer.param_groups[0]["lr"])
        if self.itself:
            options |= {"optimizer": spec, "update": None}
            _log.info("method '%s' makes the update itself, as %s", method, options["optimizer"])
        elif self._device is not None or self._apart:  # else the engine has what the optimizer has changed
            options |= {"values": self._bring, "keeps_gradients": self._device is not None}
        folder = self._folder(trace, log_to)
        told = _record.fingerprint(folder, log_to) + _preempt.fingerprint(checkpoint)
        options["codec_cost"] = self._costs = _codec.cost(options["codec_cost"])
        self.world: World = world or _place.open_world(transport)
        self.record: _record.Record | None = None
        try:
            if sampler is not None:
                options |= sampler.options(self.world.size - self.servers, options["elastic_shares"], self._deal())
            self._several = options["accumulate"] > 1
            pinned = None if self._device is None else self._device.pinned
            self.engine: Engine = _place.open_engine(
                self.world,
                self.binding.params() if by_unit else self.binding.delivered(pinned),
                transport,
                method=method,
                needs=by_unit,
                lr_schedule="constant",
                nonfinite=_NONFINITE[nonfinite],
                initial=self.binding.initial,
                fingerprint=self.binding.fingerprint() + told,
                trace_events=_record.trace_events(folder),
                evaluate=validation and self._evaluate,
                own_values=sum(t.numel() for t in self.statistics),
                whole_batches=sampler is None,
                **options,
            )
            names = {"model": type(model).__name__, "optimizer": type(optimizer).__name__}
            counted = sampler is not None or options["batch"] > 1
            self.record = _record.open_record(
                self.engine, folder, trace_overwrite, log_to, counted, names, self._needs_record
            )
            Copies(self.world).broadcast([t for _, t in self.binding.untrained()])
        except BaseException as e:
            if self.record is not None:
                self.record.close(ended=False)
            _place.give_up(self.world, e)
            raise
        self.only_serves: bool = self.world.rank >= self.world.size - self.servers
        self.replicas_equal: bool = bool(self.engine.method.traits & _abi.TUTTI_REPLICAS_EQUAL)
        self.is_async: bool = bool(self.engine.method.traits & _abi.TUTTI_ASYNC)
        self.again: bool = bool(self.engine.method.traits & _abi.TUTTI_RECOMPUTES)
        if self.only_serves:
            return
        self.binding.attach(self.engine)
        self._own = torch.frombuffer(self.engine.client_state(), dtype=torch.float32) if self.statistics else None
        self._put_own()  # a world may end before the first pass, and what is left is the engine's
        self._places = [] if by_unit else [b.param.data_ptr() for b in self.binding.bound]
        self._values = OnDevice(self._device, self.binding) if self._device else None
        self._staging = None
        if self._device is not None and self._values is not None:
            self._staging = HostStaging(self._device, weakly(self._announce), self._values.windows)
        self._stays = False  # the gradient of the last pass is on the device alone
        # Writes of the script to parameters that are apart are detected by their versions.
        self._versions = {b: b.param._version for b in self.binding.bound if b.apart and not by_unit}
        self._pass: _abi.tutti_pass | None = None  # in progress
        self._factor = 1.0  # by which gradients are multiplied: samples of the pass / divisor
        self._given: list[bool] = []  # [parameter]: its gradient was handed over in this pass
        self._sent: list[Sent] = []  # gradients that were handed over during backward
        # directory, keep and step of a save(wait=False), until it is over
        self._begun: tuple[str, int, int] | None = None
        self._of_all = False  # the gradients of the update are those of all workers
        self._draws: torch.Tensor | None = None  # state of torch's generator before the first pass of the step
        self.within: bool = False  # a step has begun, and has more passes
        self.steps: int = 0
        self.finished: bool = False
        self._ended = self._shown = self._failed = False
        self._resting = True  # ranks that only serve wait for the next call, which rank 0 has to send
        # The method decides during the run which samples are this worker's.
        self.decides: bool = self.is_async or bool(self.engine.share().passes_of) or self.engine.takes() > 0
        self.closes: bool = self.engine.takes() == 3  # only after a pass it is known whether it was the step's last
        if sampler is not None:
            sampler.bind(self)
        together = not self.is_async and self.engine.workers > 1 and self.world.transport in ("tcp", "shm")
        self._meetings = Meetings(self) if together else None
        self._tell_lr()
        self.overlaps: bool = bool(self.engine.method.ops.contents.exchange)
        self.units: _units.Units | None = _units.Units(self) if by_unit else None
        self.binding.units = self.units
        self._hooks: list[Any] = [] if by_unit else [model.register_forward_pre_hook(self._before_forward)]
        if self.overlaps:
            for b in self.binding.bound:
                self._hooks.append(b.param.register_post_accumulate_grad_hook(weakly(self._on_gradient, b.index)))
        self._hook_tables()
        if self.record is not None and not by_unit:  # else the engine has spans of each unit
            self._hook_spans(self.record)
        opened(self)
        if checkpoint is not None:
            self._resume(checkpoint)

    def _folder(self, trace: str | os.PathLike[str] | None, log_to: _log_to.LogTo) -> str:
        """Of the record; "": there is none."""
        folder = _record.folder_of(trace)
        log_to.check_folder(folder)
        return folder

    def _rule(self) -> tuple[str, float]:
        """The spec of the optimizer for a method that makes the update itself, and the rate in it."""
        return _translate.spec(self.optimizer, self.method), float(self.optimizer.param_groups[0]["lr"])

    def _deal(self) -> list[int] | None:
        """How many logical shares each worker computes, by speed; None: they do not come and go."""
        return None

    def _check_checkpoint(self, traits: int) -> None:
        if traits & _abi.TUTTI_ASYNC:
            raise ValueError(
                f"checkpoint= with method '{self.method}': its workers make no step together after which all could "
                "save; call optimizer.save() at the end of an epoch, and load()"
            )
        if self.servers:
            raise ValueError(
                "checkpoint= with servers=: ranks that only serve have no steps, and do not take part when workers ask "
                "each other for a signal; leave servers= out, or call optimizer.save() and load()"
            )

    def _resume(self, checkpoint: _preempt.Checkpoints) -> None:
        try:
            preempt = _preempt.Preemption(checkpoint, weakref.proxy(self), device_of(self.binding), self.optimizer)
            self.preempt: _preempt.Preemption | None = preempt
            preempt.resume()
        except BaseException as e:
            self.fail(e)
            raise

    def _hook_spans(self, record: _record.Record) -> None:
        """After the other hooks: a forward's span has not what is waited for before it."""

        @torch.compiler.disable  # type: ignore[untyped-decorator]  # torch's has no types
        def begins(_module: nn.Module, _args: Any) -> None:
            record.forward_begins()

        @torch.compiler.disable  # type: ignore[untyped-decorator]  # torch's has no types
        def ends(_module: nn.Module, _args: Any, output: Any) -> None:
            record.forward_ends(_record.tensors(output))

        self._hooks += [self.model.register_forward_pre_hook(begins), self.model.register_forward_hook(ends)]

    # ---- what others ask of it ----

    def before_forward(self) -> bool:
        """_before_forward() for values that are held by unit. Returns whether this forward has begun an evaluation of
        the agreed model, which resume() ends."""
        if self.model.training and torch.is_grad_enabled():
            if not self._trains():
                raise StateError(
                    f"a forward in training mode of a model that is frozen as a whole: under method '{self.method}' "
                    "values are there within this model's own passes, so no other model's loss can go through it; take "
                    "zero(stage=2)"
                )
            self.begin()
            return False
        return self._pass is None and self.look("a forward without training")

    @property
    def shown(self) -> bool:
        return self._shown

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def before_first(self) -> bool:
        return self.steps == 0 and self._pass is None and not self.within and not self._ended

    # ---- calls that all ranks make together ----

    def _between(self, what: str) -> None:
        """Prepares for a call between steps: comes to a meeting. A step that has begun is ended with the passes that it
        has."""
        if self._ended or self.finished:
            raise StateError(f"{what} after the run's end")
        if self._shown:
            raise StateError(f"{what} within evaluate()")
        if self._pass is not None and self.closes:
            raise StateError(
                f"{what} within a step: method '{self.method}' decides when it is over; call it when the sampler has "
                "given its last batch of an epoch"
            )
        if self._pass is not None:
            raise StateError(
                f"{what} within a pass: a forward in training mode has begun one; call step() first, or look at the "
                "model in eval mode or under torch.no_grad(). Where another model's loss goes through this one, freeze "
                "it meanwhile (model.requires_grad_(False))"
            )
        if self.rounds is not None:
            self.rounds.cut_short = self.within
        while self.within:
            p = self._begin_pass()
            assert p is not None, "a pass that was announced (more) has not come"
            for k in range(p.samples if p.losses else 0):
                p.losses[k] = math.inf  # these samples are not computed
            self.engine.pass_end()
            if not p.more:
                self._end_step()
        if self.rounds is not None:
            self.rounds.cut_short = False
        if self._meetings is not None:
            self._meetings.come(what, self.steps)
        self._rest()

    def _rest(self) -> None:
        self._take_written()
        self._wait_copied()
        self._put_own()

    def look(self, what: str) -> bool:
        """Begins an evaluation of the agreed model, until resume(). False: it had begun, or the run is finished."""
        if self._shown or self.finished:
            return False
        self.show(what)
        return True

    def show(self, what: str = "evaluate()") -> None:
        if self.finished and self.units is not None:
            return
        self._between(what)
        self._notify_servers("show")
        self._resting = True
        self.engine.eval_begin()
        self._shown = True
        if self.units is not None:  # gathering is then not counted as the method's communication
            self._doing = self.engine.doing(_abi.TUTTI_DOING_OUTSIDE)
        self._take_own()

    def resume(self) -> None:
        if self.units is not None and self._shown:
            self.engine.doing(self._doing)
        self._wait_copied()
        self.engine.eval_end()
        self._shown = False
        self._take_own()

    def save(self, directory: str, keep: int, wait: bool = True) -> None:
        self._between("save()")
        self._notify_servers("save" if wait else "save_begin", directory, keep)
        self._resting = True
        _saved.save(self, directory, keep, wait)
        self._begun = None if wait else (directory, keep, int(self.engine.figures()["steps"]))

    def save_end(self) -> None:
        """Ranks that only serve need not wait."""
        self._between("save_end()")
        self.engine.save_end()
        self._prune()

    def _prune(self) -> None:
        """The checkpoint of save(wait=False) is there: what belongs to older ones can go."""
        if self._begun is not None:
            _saved.prune(self, *self._begun)
        self._begun = None

    def of_torch(self) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
        """Returns the state of the torch optimizer, as a checkpoint has it."""
        return _saved.flat(self.optimizer.state_dict())

    def save_here(self, directory: str, keep: int, wait: bool) -> None:
        """save(), where all workers are known to be between the same steps."""
        self._rest()
        _saved.save(self, directory, keep, wait)
        self._begun = None if wait else (directory, keep, int(self.engine.figures()["steps"]))

    def save_ends_here(self) -> None:
        self.engine.save_end()
        self._prune()

    def load(self, directory: str) -> None:
        self.check_load()
        self._notify_servers("load", directory)
        _saved.load(self, directory)
        self._take_own()
        self._go_on()

    def _go_on(self) -> None:
        """After a load: takes over the versions of parameters, and sets the sampler to the step of the run."""
        for b in self._versions:
            self._versions[b] = b.param._version
        if self._sampler is not None:
            made = self.engine.figures()
            step = self._sampler.step_of(int(made["samples"])) if self.engine.takes() else int(made["steps"])
            self._sampler.load_state_dict({"step": step})

    def state_dict(self) -> dict[str, Any]:
        inner = self.optimizer.state_dict()
        if self._ended or self.finished:
            return inner
        _state.check(self)
        if _state.rests(self):
            self._between("state_dict()")
        elif self._pass is not None or self.within:
            raise StateError(
                "state_dict() within a step, when a part of what the method keeps is of this one and a part of the "
                "last; call it after the step() that ends the step"
            )
        elif self._shown and not self.replicas_equal:
            raise StateError(
                "state_dict() within evaluate(), when the model that stands there is not this worker's own; call it "
                "before or after"
            )
        else:
            self._take_written()
        return inner | {_state.KEY: _state.get(self)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.check_load()
        said = state.get(_state.KEY)
        if said is None:
            self.optimizer.load_state_dict(state)
            return
        _state.check(self)
        self._take_written()
        pieces = _state.fit(self, said)
        self.optimizer.load_state_dict({k: v for k, v in state.items() if k != _state.KEY})
        _state.write(self, pieces, said)
        self._deliver()
        self._go_on()

    def figures(self) -> dict[str, int | float]:
        if not self._ended:
            self._arrived()
        return self.engine.figures()

    def check_load(self) -> None:
        if self.steps or self._pass is not None:
            raise StateError(
                "state is loaded before the first step: after it workers would continue from different models"
            )

    def finish(self) -> None:
        if self._ended or self.finished:
            return
        self._between("finish()")
        if self.preempt is not None:
            self.preempt.finishes()
        self._notify_servers("finish")
        self.engine.finish()
        self._prune()
        self._take_own()
        self.finished = True
        if self.units is None:  # else the engine has to gather values until close()
            self.close()

    def close(self) -> None:
        """Closes engine and world. The module keeps its values, in memory of its own."""
        if self._ended:
            return
        self._ended = True
        closed(self)
        if self.preempt is not None:
            self.preempt.close()
        for sent in self._sent:
            sent.leave()
        for hook in self._hooks:
            hook.remove()
        if self._meetings is not None:
            self._meetings.close()
        if self._staging is not None:
            self._staging.close()
        if self._values is not None:
            self._values.close()
        self._own = None
        if self.record is not None:
            self.record.close(ended=self._ends_well())
        self.binding.detach()
        self.engine.close()
        self.world.close()

    def _ends_well(self) -> bool:
        return self.finished or not (self.needs_finish or self._failed or self._pass)

    def __del__(self) -> None:
        if not getattr(self, "_ended", True):
            dropped(self)

    finishes = "optimizer.finish"

    @property
    def whole(self) -> World:
        """The world of all ranks."""
        return self.world

    @property
    def trained(self) -> bool:
        return self.steps > 0 or self.within

    @property
    def needs_finish(self) -> bool:
        return not self.replicas_equal

    def fail(self, error: BaseException) -> None:
        """Closes the run after a failure of this rank's program, which is reported to the other ranks."""
        if not self._ended:
            self._failed = True
            self.world.failure_report(error)
            self.close()
