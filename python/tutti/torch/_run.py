"""The run of a prepared model and its optimizer: passes, gradients, steps, and the calls that all ranks make together.

A pass begins before a forward in training mode and ends in step(). If the method exchanges gradients, they are handed
over during backward, so that exchange and backward overlap; if not, in step(). Calls of the engine never overlap:
autograd runs the hooks of a backward one after another, and step() comes after them.

An iteration of the loop is a step of the method, with two exceptions: with accumulate=N a step is N iterations, and
under a method that updates between the passes of a step (hermes) an iteration is a pass.
"""

from __future__ import annotations

import ctypes
import inspect
import logging
import math
import os
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from .. import _abi
from .._library import library as _c
from ..errors import StateError
from ..world import World
from . import _codec, _log_to, _place, _preempt, _record, _saved, _serve, _state, _translate, _units
from ._bind import DTYPES, Binding, Bound, device_of, warn_unscaled, words
from ._buffers import Copies
from ._cuda import Cuda, Device, HostStaging
from ._meet import Meetings
from ._runs import closed, dropped, opened, weakly
from ._sent import Sent
from ._values import OnDevice
from .sampler import BatchSampler

_log = logging.getLogger("tutti")
_UPDATES_ITSELF = _abi.TUTTI_OWNS_UPDATE | _abi.TUTTI_NON_GRADIENT_UPDATE | _abi.TUTTI_SHARDED_OPTIMIZER
_NONFINITE = {"stop": _abi.TUTTI_NONFINITE_STOP, "skip": _abi.TUTTI_NONFINITE_SKIP}
_NO_CLOSURE = (
    "method '{}' computes a batch again at other values within a step, for which it needs optimizer.step(closure): a "
    "function that clears the gradients, computes the loss, calls backward() and returns the loss"
)


def statistics_of(module: nn.Module) -> list[torch.Tensor]:
    """Returns the running means and variances of batch norms, which are the engine's client state."""
    found = []
    for m in module.modules():
        if isinstance(m, nn.modules.batchnorm._NormBase) and m.running_mean is not None:
            found += [m.running_mean, m.running_var]
    return found


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


class Run:
    """A run, from prepare() to close(). Its methods are called by Optimizer, by hooks, and by the sampler."""

    _apart = False  # the optimizer updates values elsewhere than in the engine's memory, and _bring() copies them
    preempt: _preempt.Preemption | None = None  # of checkpoint=

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
        self.model, self.optimizer, self.method = model, optimizer, method
        self.servers = options["servers"]
        by_unit = bool(_traits(method) & _abi.TUTTI_SHARDED_PARAMETERS)
        self.binding = Binding(model, by_unit=by_unit)
        self._device = _device(self.binding)  # None: the host
        if by_unit:
            _units.check(model, self.binding.bound, self._device is not None)
        self.statistics = statistics_of(model)
        self._validation, self._sampler = validation, sampler
        traits = _traits(method)
        if checkpoint is not None:
            self._check_checkpoint(traits)
        # the engine refuses pipelines
        self.itself = bool(traits & _UPDATES_ITSELF) and not traits & _abi.TUTTI_PIPELINE_SCHEDULE
        if _asks(method) and self.binding.ask():
            self.itself = True  # the method makes the updates, those of tables at servers
        self._lr = optimizer.param_groups[0]["lr"]
        options |= {"optimizer": "client", "update": self._update, "names": sampler is not None}
        if self.itself:
            options |= {"optimizer": _translate.spec(optimizer, method), "update": None}
            _log.info("method '%s' makes the update itself, as %s", method, options["optimizer"])
        elif self._device is not None or self._apart:  # else the engine has what the optimizer has changed
            options |= {"values": self._bring, "keeps_gradients": self._device is not None}
        folder = _record.folder_of(trace)
        log_to.check_folder(folder)
        told = _record.fingerprint(folder, log_to) + _preempt.fingerprint(checkpoint)
        options["codec_cost"] = self._costs = _codec.cost(options["codec_cost"])
        self.world = world or _place.open_world(transport)
        try:
            if sampler is not None:
                options |= sampler.options(self.world.size - self.servers)
            self.engine = _place.open_engine(
                self.world,
                self.binding.params() if by_unit else self.binding.delivered(self._device and self._device.pinned),
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
            self.record = _record.open_record(self.engine, folder, trace_overwrite, log_to, counted, **names)
            Copies(self.world).broadcast([t for _, t in self.binding.untrained()])
        except BaseException as e:
            _place.give_up(self.world, e)
            raise
        self.only_serves = self.world.rank >= self.world.size - self.servers
        self.replicas_equal = bool(self.engine.method.traits & _abi.TUTTI_REPLICAS_EQUAL)
        self.is_async = bool(self.engine.method.traits & _abi.TUTTI_ASYNC)
        self.again = bool(self.engine.method.traits & _abi.TUTTI_RECOMPUTES)
        if self.only_serves:
            return
        self.binding.attach(self.engine)
        self._own = torch.frombuffer(self.engine.client_state(), dtype=torch.float32) if self.statistics else None
        self._places = [] if by_unit else [b.param.data_ptr() for b in self.binding.bound]
        self._values = OnDevice(self._device, self.binding) if self._device else None
        self._staging = None
        if self._values is not None:
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
        self.within = False  # a step has begun, and has more passes
        self.steps = 0
        self._ended = self._shown = self.finished = self._failed = False
        self._resting = True  # ranks that only serve wait for the next call, which rank 0 has to send
        # The method decides during the run which samples are this worker's.
        self.decides = self.is_async or bool(self.engine.share().passes_of) or self.engine.takes() > 0
        self.closes = self.engine.takes() == 3  # only after a pass it is known whether it was the step's last
        if sampler is not None:
            sampler.bind(self)
        together = not self.is_async and self.engine.workers > 1 and self.world.transport in ("tcp", "shm")
        self._meetings = Meetings(self) if together else None
        self._tell_lr()
        self.overlaps = bool(self.engine.method.ops.contents.exchange)
        self.binding.units = self.units = _units.Units(self) if by_unit else None
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
            self.preempt = _preempt.Preemption(
                checkpoint, weakref.proxy(self), device_of(self.binding), self.optimizer
            )
            self.preempt.resume()
        except BaseException as e:
            self.fail(e)
            raise

    def _hook_spans(self, record: _record.Record) -> None:
        """After the other hooks: a forward's span has not what is waited for before it."""

        @torch.compiler.disable
        def begins(_module: nn.Module, _args: Any) -> None:
            record.forward_begins()

        @torch.compiler.disable
        def ends(_module: nn.Module, _args: Any, output: Any) -> None:
            record.forward_ends(_record.tensors(output))

        self._hooks += [self.model.register_forward_pre_hook(begins), self.model.register_forward_hook(ends)]

    # ---- tables whose rows are acquired ----

    def _hook_tables(self) -> None:
        of = {b.param: b for b in self.binding.bound if b.asks}
        if not of:
            return
        for _, child in self.binding.embeddings:
            if child.weight in of:
                self._hooks.append(
                    child.register_forward_pre_hook(
                        lambda _, args, named, b=of[child.weight]: self._before_rows(b, args, named), with_kwargs=True
                    )
                )
        tables = list(of.values())
        look = self.model.register_state_dict_pre_hook(lambda *_: self._check_rows(tables, "state_dict()"))
        self._hooks.append(look)

    def _check_rows(self, tables: Iterable[Bound], what: str) -> None:
        """Raises StateError if a table is read outside a pass and rows of it are at servers."""
        tensor = self.engine.method.layout.contents.tensor
        if self._shown or (self.steps == 0 and not self.within and self._pass is None):
            return
        for b in tables:
            if tensor[b.index].asked:
                raise StateError(
                    f"{what} reads '{b.name}', whose rows are at servers under method '{self.method}' and are here as "
                    "they were last read; train with the model itself in training mode, and look at it within "
                    "optimizer.evaluate()"
                )

    @torch._disable_dynamo
    def _before_rows(self, b: Bound, args: tuple, named: dict[str, Any]) -> None:
        """Called before an embedding reads rows: acquires them."""
        if self._pass is None or self._given[b.index]:
            self._check_rows([b], "a forward outside a pass")
            return
        ids = torch.unique((args[0] if args else named["input"]).detach())
        if len(ids) > 0 and 0 <= int(ids[0]) and int(ids[-1]) < b.param.size(0):  # else torch raises an error
            self.engine.rows_acquire(b.index, words(ids))

    def _announce_rows(self, b: Bound, grad: torch.Tensor) -> None:
        keep, grad = self._pass.keep, grad.coalesce()
        ids, rows = grad.indices()[0], grad.values()
        if self._factor == 0:  # a batch that does not count
            ids, rows = ids[:0], rows[:0]
        with torch.no_grad():
            rows = (rows.float() if self._factor == 1 else rows.float() * self._factor).contiguous()
            if b.g is not None and keep:
                b.g.index_add_(0, ids, rows)
            elif b.g is not None:
                b.g.index_copy_(0, ids, rows)
        if b.g is None:
            self.engine.grad_ready_rows_from(b.index, words(ids), rows.data_ptr())
        else:
            self.engine.grad_ready_rows(b.index, words(ids))

    # ---- a pass ----

    @torch._disable_dynamo
    def _before_forward(self, module: nn.Module, _args: Any) -> None:
        if module.training and torch.is_grad_enabled() and self._trains():
            self.begin()

    def _trains(self) -> bool:
        """Returns whether a parameter is trained. None is in a GAN's discriminator while its generator trains."""
        return any(b.param.requires_grad for b in self.binding.bound)

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
    def in_pass(self) -> bool:
        return self._pass is not None

    @property
    def shown(self) -> bool:
        return self._shown

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def before_first(self) -> bool:
        return self.steps == 0 and self._pass is None and not self.within and not self._ended

    def begin(self) -> _abi.tutti_pass:
        """Returns the current pass. Begins one if there is none."""
        while self._pass is None:
            self._begin_or_close()
        return self._pass

    def _begin_or_close(self) -> bool:
        """Begins a pass. False: the step had no more passes, and was ended."""
        self._check_training()
        if self.steps == 0:
            _place.check(self.world)
        if self._meetings is not None:
            self._meetings.begins(self.steps + 1)
        if self.preempt is not None and not self.within:
            self.preempt.step_begins()
        if self._resting:
            self._notify_servers("train")
            self._resting = False
        p = self._begin_pass()
        if p is None:
            if not self.within:
                self._given = [False] * len(self.binding.bound)
            self._end_step()
            return False
        # If the method assigns passes, a batch has the samples of all of this worker's passes.
        dealt = bool(self.engine.share().passes_of)
        self._spans = [(p.epoch, p.position, p.samples)]
        self.named = p.ids[: p.samples] if p.ids else None
        while dealt and p.more:
            self.engine.pass_end()
            p = self._begin_pass()
            self._spans.append((p.epoch, p.position, p.samples))
        samples = self.engine.method.samples if dealt else p.samples
        self._factor = samples / p.divisor if p.divisor else 0.0
        if self.engine.share().logical:  # what a share draws does not depend on the worker that computes it
            torch.manual_seed(self._seed_of(p))
        self._pass, self._given = p, [None] * len(self.binding.bound)
        if self.units is not None:
            self.units.pass_begins()
        if self.again and not p.again:
            self._draws = torch.get_rng_state()
        return True

    def _seed_of(self, p: _abi.tutti_pass) -> int:
        seed = self.engine.share().seed
        return int(seed * 0x9E3779B97F4A7C15 + p.epoch * 0xC2B2AE3D27D4EB4F + p.position) % (1 << 63)

    def _begin_pass(self) -> _abi.tutti_pass | None:
        self._take_written()
        self._wait_copied()
        warn_unscaled(self.engine)
        shared = self.engine.share().logical > 0
        if shared:
            self._put_own()
        p = self.engine.pass_begin()
        if shared:  # a share begins with the running statistics with which the step began
            self._take_own()
        assert p is not None or self.closes, "a pass that was announced (more) has not come"
        self._deliver()
        return p

    def more_epochs(self, epochs: int) -> bool:
        """Returns whether this worker has another pass before the run has done `epochs` epochs."""
        self._check_training()
        if self._pass is not None or self.within:
            return True
        while self._more(epochs):
            if not self.closes or self._begin_or_close():
                return True
        return False

    def _more(self, epochs: int) -> bool:
        if self._resting:  # ranks that only serve take part in handing out samples
            self._notify_servers("train")
            self._resting = False
        more = self.engine.more_epochs(epochs)
        self._resting = not more and self.is_async
        return more

    def spans(self) -> list[tuple[int, int, int]]:
        """Returns (epoch, position, number) of each range of samples of the current pass."""
        self.begin()
        return self._spans

    def pass_over(self) -> bool:
        """Ends the current pass and returns True if it has no samples, so that the loop needs no batch for it. Only for
        methods that decide how many samples a step has."""
        if self.engine.takes() == 0 or self.begin().samples > 0:
            return False
        self._arrived()
        for b in self.binding.bound:
            if b.table:
                self.engine.grad_ready_rows(b.index, ())
            else:
                with torch.no_grad():
                    b.g.zero_()
                self.engine.grad_ready(b.index)
            self._given[b.index] = True
        self._end_pass(None)
        return True

    def loss_scale(self) -> float:
        return self.begin().scale

    def _check_training(self) -> None:
        if self._ended or self.finished:
            raise StateError("the run is over: optimizer.finish() or close() was called, and nothing trains any more")
        if self._shown:
            raise StateError("a forward in training mode within evaluate(): call model.eval(), or use torch.no_grad()")
        self.binding.check_module()
        self.binding.check_frozen()
        if self.units is not None:
            self.units.check()
            return
        for b, place in zip(self.binding.bound, self._places, strict=True):
            if b.param.data_ptr() != place:
                raise StateError(
                    f"parameter '{b.name}' has other memory than prepare() left it in, which no worker would see; do "
                    "to(), half() and load_state_dict(assign=True) before prepare()"
                )

    def _check_backward(self, again: bool) -> None:
        """StateError: a gradient has come for which there is no pass, or again."""
        if self._pass is None:
            raise StateError(
                "backward without a forward in training mode since the last step: values may have changed in between; "
                "call the model itself and not its parts, and model.train() before"
            )
        if again:
            raise StateError(
                "a second backward before optimizer.step(): a pass has one; add the losses up, or give "
                "prepare(accumulate=N) and call step() after each. Where another model's loss goes through this one, "
                "as a generator's through its discriminator, freeze this one meanwhile: model.requires_grad_(False) "
                "before its forward, and True after the backward"
            )

    def _on_gradient(self, tensor: int, _param: torch.Tensor) -> None:
        b = self.binding.bound[tensor]
        self._check_backward(self._pass is not None and bool(self._given[b.index]))
        now = self._pass
        if now.exchange or now.keep or now.more or self.units is not None:
            self._give(b, during_backward=True)  # else in step(), and until then the script may change it

    def _give(self, b: Bound, during_backward: bool = False) -> None:
        """Hands the final gradient of a parameter over to the engine."""
        now, p = self._pass, b.param
        # gone: the step has several passes, and the next backward must not add to this gradient
        gone = now.keep or now.more
        if during_backward and self.units is None:
            sent = Sent(b, self.method, gone)
            self._sent.append(sent)
            grad, sent.grad = sent.grad, None if gone else sent.grad
        else:
            grad = p.grad
            if gone or self.units is not None:
                p.grad = None
        if self._staging is not None:
            self._staging.to_host(b.index, grad, None if now.keep else b.g)
        else:
            self._announce(b.index, grad)
        self._given[b.index] = True
        if self.units is not None:
            self.units.given(b)

    def _announce(self, tensor: int, grad: torch.Tensor) -> None:
        """Gives the engine a gradient that is in host memory."""
        now, b = self._pass, self.binding.bound[tensor]
        if grad.is_sparse and b.table:
            self._announce_rows(b, grad)
            return
        if grad.is_sparse:
            grad = grad.to_dense()
        if b.asks:
            raise StateError(
                f"the gradient of '{b.name}' is dense, but it is the weight of an embedding with sparse=True, and only "
                "rows of that are read; make it with sparse=False where the weight is used otherwise, too"
            )
        if b.g is None:
            self._hand_over(b, grad)
            return
        with torch.no_grad():
            if now.keep and self._factor != 0:
                b.g.add_(grad, alpha=self._factor)
            elif self._factor == 0:  # a batch that does not count
                if not now.keep:
                    b.g.zero_()
            elif self._factor != 1:
                torch.mul(grad, self._factor, out=b.g)
            elif not b.lies_in(grad):
                b.g.copy_(grad)
        self.engine.grad_ready(tensor)

    def _hand_over(self, b: Bound, grad: torch.Tensor) -> None:
        """Gives the engine a gradient for which it has no memory of its own: it copies it."""
        with torch.no_grad():
            one = grad if self._factor == 1 else grad * self._factor if self._factor != 0 else torch.zeros_like(grad)
            if one.dtype not in DTYPES or one.stride() != b.strides:
                one = torch.empty_strided(b.param.shape, b.strides, dtype=torch.float32).copy_(one)
        self.engine.grad_ready_from(b.index, one.data_ptr(), DTYPES[one.dtype])

    def _arrived(self) -> None:
        """Blocks until all gradients were given to the engine, so that no other thread calls it."""
        if self._staging is not None:
            self._staging.wait_announced()
            self._staging.wait_copied()  # the engine sets gradients that nobody has announced
        self._wait_copied()

    # ---- values of parameters that are apart ----

    def _deliver(self) -> None:
        """Copies the engine's values to parameters on a device, if there are new ones."""
        if self._values is not None:
            self._values.deliver()

    def _wait_copied(self) -> None:
        """Call before the engine may change values."""
        if self._values is not None:
            self._values.wait_copied()

    def _bring(self) -> None:
        """The engine's callback: copies parameters on a device to the engine."""
        if self._values is not None:  # else they are in its memory, or in memory that it reads
            self._values.bring()

    def _take_written(self) -> None:
        """Takes over values that the script has written to parameters that are apart, before the first step, such as by
        model.load_state_dict(). A value of the engine that rounds to the written one stays: it is more precise."""
        if self.units is not None:
            self.units.take_written()
        for b, version in self._versions.items():
            if b.param._version == version:
                continue
            if self.steps or self.within:
                raise StateError(
                    f"parameter '{b.name}' was written to by the script since prepare(). Under tutti.torch.prepare the "
                    f"engine has the values of parameters that are {b.param.dtype}, on {b.param.device}; write before "
                    "the first step, or within the optimizer's step()"
                )
            self._versions[b] = b.param._version
            with torch.no_grad():
                now, handed = b.param.cpu(), b.x.to(b.param.dtype)
                b.x.copy_(torch.where(now == handed, b.x, now.float()))
                if b.host is not None:
                    b.outside().copy_(now)

    # ---- a step ----

    def step(self, loss: float | None, closure: Callable[[], Any] | None, losses: torch.Tensor | None) -> Any:
        """Optimizer.step(). Returns what the closure returned in the step's first pass; None: no closure."""
        self._check_training()
        if losses is not None and loss is None:
            loss = float(losses.detach().mean())
        if losses is not None and self._pass is not None:
            self._write(losses)
        if loss is not None:
            self.log(loss)
        if not self.again:
            self._end_pass(loss)
            return None
        if closure is None:
            raise ValueError(_NO_CLOSURE.format(self.method))
        first = None
        if self._pass is None or all(b.param.grad is None for b in self.binding.bound):
            self.begin()
            with torch.enable_grad():
                first = closure()
        if loss is None and first is not None:
            loss = float(first.detach() if isinstance(first, torch.Tensor) else first)
        self._end_pass(loss)
        while self.within:
            self._look_again(closure)
        for b in self.binding.bound:
            b.param.grad = None  # else the next step would assume that backward was called before it
        return first

    def _write(self, losses: torch.Tensor) -> None:
        """Gives the method the loss of each sample, if it uses them."""
        p = self._pass
        if losses.dim() != 1 or len(losses) != max(p.samples, 1):  # a batch of one that does not count
            raise ValueError(
                f"step(losses=...): losses are of shape {tuple(losses.shape)}, and this batch has {max(p.samples, 1)} "
                "samples; give each sample's loss, as lossf(..., reduction='none') has them"
            )
        if p.losses and p.samples:
            ctypes.memmove(p.losses, losses.detach().float().cpu().contiguous().data_ptr(), 4 * p.samples)

    def _look_again(self, closure: Callable[[], Any]) -> None:
        """Computes the batch again at the values that the method has set, with the same random numbers. The buffers of
        the model are restored."""
        buffers = [(b, b.clone()) for b in self.model.buffers()]
        for b in self.binding.bound:
            b.param.grad = None
        self.begin()
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(self._draws)
            closure()
        with torch.no_grad():
            for b, was in buffers:
                b.copy_(was)
        self._end_pass(None)

    def _end_pass(self, loss: float | None) -> None:
        if self._pass is None:
            raise StateError("step() without a pass: there was no forward in training mode since the last one")
        for sent in self._sent:
            sent.settle()
        self._sent = []
        if self.units is not None:
            self.units.check_gradients()
        else:
            for b in self.binding.bound:  # gradients not handed over yet, also those that the script has set
                if not self._given[b.index] and b.param.grad is not None and not self._pass.stays:
                    self._give(b)
        self._arrived()
        if self.units is not None:
            self.units.pass_ends()
        if self._device is None:  # else before the calls that read them (_rest): it waits for the device
            self._put_own()
        now, self._pass = self._pass, None
        self._stays = now.stays
        self._of_all = self.overlaps and (self.replicas_equal or now.exchange)
        self.engine.pass_end(0.0 if loss is None else loss * now.samples)
        self.within = now.more
        if not now.more:
            self._end_step()
        elif self.closes:
            self._begin_or_close()

    def _end_step(self) -> None:
        self.optimizer._opt_called = True  # torch's schedulers warn if no update came before them
        self._tell_lr()
        self.engine.step()
        if self.engine.share().logical:  # the mean over the shares
            self._take_own()
        self.within = False
        self.steps += 1
        if self.record is not None:
            self.record.step()
        if self._costs:
            self._costs = 0
            _codec.tell(self.engine)

    def _tell_lr(self) -> None:
        lr = float(self.optimizer.param_groups[0]["lr"])
        if self.steps == 0 and self.itself and lr == self._lr:
            return  # the spec of the optimizer has it
        if lr != self._lr or self.steps == 0:
            self.engine.lr(lr)
            self._lr = lr

    def _update(self, factor: float) -> None:
        """The engine's callback: runs the user's optimiser on the engine's values and gradients."""
        groups = self.optimizer.param_groups
        grads = [b.param.grad for b in self.binding.bound]
        rates = [group["lr"] for group in groups]
        self._deliver()
        try:
            for b, grad in zip(self.binding.bound, grads, strict=True):
                # without gradients of other workers an unused parameter has none, as in torch
                if self._stays:
                    b.param.grad = self._own_gradient(grad)
                elif self._of_all or self.within or grad is not None or self._given[b.index]:
                    b.param.grad = self._exchanged(b)
            if self._stays:
                self._values.finite.note(
                    [(b, b.param.grad) for b in self.binding.bound if b.param.grad is not None], self.steps
                )
            for group in groups:
                if factor != 1:
                    group["lr"] = group["lr"] * factor
            self.optimizer.step()
        finally:
            for group, lr in zip(groups, rates, strict=True):
                group["lr"] = lr
            for b, grad in zip(self.binding.bound, grads, strict=True):
                b.param.grad = grad
        self._wait_copied()
        for b in self._versions:
            self._versions[b] = b.param._version

    def _own_gradient(self, grad: torch.Tensor | None) -> torch.Tensor | None:
        """Returns this worker's gradient as the optimiser gets it, if it stays on the device."""
        if grad is not None and grad.is_sparse:
            grad = grad.to_dense()
        return grad if grad is None or self._factor == 1 else grad * self._factor

    def _exchanged(self, b: Bound) -> torch.Tensor:
        """Returns a gradient of the engine, on the device and in the type of the parameter."""
        if b.table:
            return b.sparse()
        if self._staging is None:
            return b.g if b.param.dtype == torch.float32 else b.g.to(b.param.dtype)
        grad = torch.empty_like(b.param)
        self._staging.to_device(b.index, b.g, grad)
        return grad

    def _evaluate(self) -> float:
        training = self.model.training
        self._deliver()
        try:
            self.model.eval()
            with torch.no_grad():
                return float(self._validation())
        finally:
            self.model.train(training)

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
        while self.within:
            p = self._begin_pass()
            for k in range(p.samples if p.losses else 0):
                p.losses[k] = math.inf  # these samples are not computed
            self.engine.pass_end()
            if not p.more:
                self._end_step()
        if self._meetings is not None:
            self._meetings.come(what, self.steps)
        self._rest()

    def _rest(self) -> None:
        self._take_written()
        self._wait_copied()
        self._put_own()

    def _notify_servers(self, what: str, directory: str = "", keep: int = 0) -> None:
        """On rank 0: tells ranks that only serve which call comes next."""
        if self.servers and self.world.rank == 0:
            _serve.notify(self, what, directory, keep)

    def _put_own(self) -> None:
        """Copies the running statistics of the module to the engine."""
        if self._own is not None:
            with torch.no_grad():
                torch.cat([t.reshape(-1).cpu() for t in self.statistics], out=self._own)

    def _take_own(self) -> None:
        """Copies values and running statistics of the engine to the module."""
        self._deliver()
        if self._own is None:
            return
        with torch.no_grad():
            for t, own in zip(self.statistics, self._own.split([t.numel() for t in self.statistics]), strict=True):
                t.copy_(own.view(t.shape))

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
        self._begun = None if wait else (directory, keep, self.engine.figures()["steps"])

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

    def save_here(self, directory: str, keep: int) -> None:
        """save(), where all workers are known to be between the same steps."""
        self._rest()
        _saved.save(self, directory, keep)

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
            step = self._sampler.step_of(made["samples"]) if self.engine.takes() else made["steps"]
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

    def log(self, loss: Any) -> None:
        if self.record is not None:
            self.record.loss(loss)

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
            self.record.close(ended=self.finished or not (self.needs_finish or self._failed or self._pass))
        self.binding.detach()
        self.engine.close()
        self.world.close()

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
