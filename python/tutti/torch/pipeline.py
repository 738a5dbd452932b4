"""pipeline(): trains a model in stages, one on each worker, with methods that schedule forward and backward themselves.

    model = nn.Sequential(...)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pipe = tutti.torch.pipeline(model, optimizer, nn.CrossEntropyLoss(), dataset, "hetpipe(stages=2)", batch=64)
    for epoch in range(10):
        loss = pipe.epoch()
        with pipe.evaluate():
            ...model(x)...
    pipe.finish()

There is no loop over batches: the method decides which samples each micro-batch has, in which order forwards and
backwards run, and with which version of the values. So it is given the data set and the loss function, and a call makes
many steps, since each call fills and empties the pipeline.

Each process makes the whole model, so that all agree on its structure; rank 0's values are trained. During the run a
worker has the values of its stage only, and reading a parameter raises StateError. Within evaluate(), and after
finish(), the module has all values.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Any, cast

import torch
from torch import nn
from torch.utils.data import Dataset, default_collate

from .. import _abi, catalogue
from .._library import library as _c
from .._owner import tenants
from ..engine import Engine, Event
from ..errors import StateError
from ..world import World
from . import _layers, _log_to, _logged, _place, _record, _saved, _state, _translate
from ._bind import Binding, short, warn_unscaled
from ._buffers import Copies
from ._meet import Meetings
from ._run import _traits, check
from ._runs import check_second, closed, dropped, opened, run_of
from ._stage import Stage
from ._units import FACTS


class _Away(nn.Parameter):
    """The class of a parameter while it has no values."""

    _name: str

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func not in FACTS:
            name = next((a._name for a in args if type(a) is _Away), "")
            raise StateError(
                f"parameter '{name}' was read ({getattr(func, '__name__', func)}), but in a pipeline each worker has "
                "the values of its stage alone; do it within evaluate(), on all workers, or after finish()"
            )
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Pipeline:
    """A run in which each worker has a stage of the model; pipeline() makes it. All workers make the same calls in the
    same order."""

    model: nn.Sequential
    optimizer: torch.optim.Optimizer
    method: str
    servers: int
    binding: Binding
    world: World
    engine: Engine
    replicas_equal: bool
    is_async: bool
    finished: bool

    def __init__(
        self,
        model: nn.Module | Sequence[nn.Module],
        optimizer: torch.optim.Optimizer,
        loss: Callable[[Any, Any], torch.Tensor],
        dataset: Dataset[Any],
        method: str,
        *,
        micro_batch: int,
        costs: Sequence[float] | None,
        collate: Callable[[list[Any]], Any],
        transport: str | None,
        trace: str | os.PathLike[str] | None,
        trace_overwrite: bool,
        log_to: _log_to.LogTo,
        **options: Any,
    ):
        self.model = model = _layers.sequence(model)
        self.optimizer, self.method, self.servers = optimizer, method, 0
        self._dataset, self._collate = dataset, collate
        traits = _traits(method)
        if traits and not traits & _abi.TUTTI_PIPELINE_SCHEDULE:
            others = ", ".join(m.name for m in catalogue.methods() if "pipeline-schedule" in m.traits)
            raise ValueError(
                f"method '{method}' computes whole models, which is for tutti.torch.prepare(); a pipeline takes one of "
                f"{others}"
            )
        if run_of(model) is not None:
            raise ValueError("this model is trained already; give a new one")
        check_second(0)
        check(model, optimizer)
        _layers.check(model)
        if not model.training:
            raise ValueError("the model is in eval mode; call model.train() before")
        number = len(cast(Sized, dataset))
        samples = min(2, number)
        if samples == 0:
            raise ValueError("the data set is empty")
        x, y = self._pair(range(samples))
        units = _layers.cut(model)
        _layers.try_out(model, units, loss, x, y, samples)
        self._units, of, self._joined = _layers.joined(units)
        self.binding = Binding(model, by_unit=True, units=of)
        self._check_memory()
        spec = _translate.spec(optimizer, method)
        self._lr = float(optimizer.param_groups[0]["lr"])
        folder = _record.folder_of(trace)
        log_to.check_folder(folder)
        self.world = _place.open_world(transport)
        self.record: _record.Record | None = None
        try:
            most = micro_batch or options["batch"] * options["accumulate"] * self.world.size
            self._stage = Stage(self._units, costs, self.binding.bound, most, loss, self._fetch)
            if traits & _abi.TUTTI_PROFILES_UNITS:
                self._stage.seconds = self._measured(loss, x, y, samples)
            self.engine = _place.open_engine(
                self.world,
                self.binding.params(),
                transport,
                method=method,
                optimizer=spec,
                lr_schedule="constant",
                data_samples=number,
                initial=self.binding.initial,
                fingerprint=self.binding.fingerprint() + self._fingerprint() + _record.fingerprint(folder, log_to),
                trace_events=_record.trace_events(folder),
                model=self._stage,
                needs=True,
                same_order=True,
                **options,
            )
            names = {"model": type(model).__name__, "optimizer": type(optimizer).__name__}
            self.record = _record.open_record(  # with a line after each call
                self.engine, folder, trace_overwrite, log_to, True, names, report_every=1
            )
            Copies(self.world).broadcast([t for _, t in self.binding.untrained()])
        except ValueError as e:
            self._give_up(e)
            raise ValueError("; ".join([str(e), *self._joined[:3]])) if "stage" in str(e) and self._joined else e
        except BaseException as e:
            self._give_up(e)
            raise
        self._stage.attach(self.engine)
        self.replicas_equal, self.is_async = True, False
        self.statistics: list[torch.Tensor] = []  # batch norms that have them are refused
        self.finished = self._ended = self._shown = False
        self._kinds = [type(b.param) for b in self.binding.bound]
        self._away()
        self.binding.engine, self.binding.units = self.engine, self._stage
        tenants.add(self)
        together = self.engine.workers > 1 and self.world.transport in ("tcp", "shm")
        self._meetings = Meetings(self) if together else None
        opened(self)

    # ---- opening ----

    def _give_up(self, why: BaseException) -> None:
        if self.record is not None:
            self.record.close(ended=False)
        _place.give_up(self.world, why)

    def _check_memory(self) -> None:
        for b in self.binding.bound:
            p = b.param
            if p.device.type != "cpu":
                raise ValueError(f"parameter '{b.name}' is on {p.device}; a pipeline computes on the CPU: model.cpu()")
            if p.dtype != torch.float32:
                raise ValueError(
                    f"parameter '{b.name}' is {short(p.dtype)}; a pipeline trains float32 parameters: model.float()"
                )
            if b.overlaps:
                raise ValueError(
                    f"parameter '{b.name}' shares memory with another tensor of the module, and they may be in other "
                    "stages; give it memory of its own (parameter.data = parameter.data.clone())"
                )
            if b.table:
                raise ValueError(
                    f"parameter '{b.name}' is of an embedding with sparse=True, whose rows methods bring and serve; in "
                    "a pipeline gradients are dense: make it with sparse=False"
                )

    def _fingerprint(self) -> str:
        return "".join(
            f"stage boundary before module {u.names[0]}={'x'.join(map(str, u.shape)) or '1'} numbers a sample\n"
            for u in self._units[1:]
        )

    def _measured(self, loss: Callable[[Any, Any], torch.Tensor], x: Any, y: Any, n: int) -> list[float]:
        """Returns the seconds of each unit on each worker, [workers x units]. Collective."""
        seconds, units = _layers.measured(self._units, loss, x, y, n), len(self._units)
        place = [0.0] * (self.world.size * units)
        place[self.world.rank * units : (self.world.rank + 1) * units] = seconds
        return self.world.reduce(place)

    def _pair(self, indices: Sequence[int] | range) -> tuple[Any, Any]:
        batch = self._collate([self._dataset[i] for i in indices])
        if not isinstance(batch, (list, tuple)) or len(batch) != 2:
            raise ValueError(
                "the data set's samples are no pairs of input and target; the first stage reads the input and "
                "the last stage the target; give collate=, a function that makes such a pair of a list of samples"
            )
        return batch[0], batch[1]

    def _fetch(self, now: _abi.tutti_pass) -> tuple[Any, Any]:
        """Returns input and target of a micro-batch."""
        was, share = self.engine.doing(_abi.TUTTI_DOING_DATA), self.engine.share()
        try:
            at = range(now.position, now.position + now.samples)
            return self._pair([_c.tutti_share_sample_of(share, 0, now.epoch, p) for p in at])
        finally:
            self.engine.doing(was)

    # ---- values ----

    @torch.no_grad()
    def _away(self) -> None:
        for b in self.binding.bound:
            b.param.data = torch.full((), float("nan")).expand(b.param.shape)
            b.param.__class__ = _Away
            setattr(b.param, "_name", b.name)

    @torch.no_grad()
    def _there(self) -> None:
        """Copies the values of the whole model to the module: all workers acquire one unit after another."""
        for unit in range(len(self._units)):
            bound = [(b, kind) for b, kind in zip(self.binding.bound, self._kinds, strict=True) if b.unit == unit]
            if not bound:
                continue
            self.engine.unit_acquire(unit, False)
            for b, kind in bound:
                b.param.__class__ = kind
                b.param.data = b.view(self.engine.values(b.index)).clone()
            self.engine.unit_release(unit, False)

    # ---- training ----

    @property
    def steps(self) -> int:
        """The number of steps that the run has made."""
        return int(self.engine.figures()["steps"])

    @property
    def steps_an_epoch(self) -> int:
        return int(_c.tutti_share_steps(self.engine.share()))

    @property
    def stage(self) -> int:
        """The number of this worker's stage."""
        return int(self.engine.method.stage)

    @property
    def modules(self) -> list[str]:
        """The names of the modules of this worker's stage."""
        return [name for u in self._units[self._stage.first : self._stage.end] for name in u.names]

    def step(self, n: int = 1) -> float:
        """Makes n steps. Returns the mean loss of their samples, on all workers. Each call fills the pipeline again, so
        few calls of many steps are faster than many calls of few."""
        if n < 1:
            raise ValueError(f"step: n is {n}; it must be at least 1")
        return self._drive(self._between("step()") + n)

    def epoch(self) -> float:
        """Makes the remaining steps of the current epoch, or all steps of the next one. Returns the same as step()."""
        each = self.steps_an_epoch
        return self._drive((self._between("epoch()") // each + 1) * each)

    def _drive(self, until: int) -> float:
        _place.check(self.world)
        if not self.model.training:
            raise StateError("the model is in eval mode; call model.train() before the next steps")
        lr = float(self.optimizer.param_groups[0]["lr"])
        if lr != self._lr:
            self.engine.lr(lr)
            self._lr = lr
        self._meet("step()", until)
        warn_unscaled(self.engine)
        self._stage.lost = [0.0, 0.0]
        self.optimizer._opt_called = True  # type: ignore[attr-defined]  # torch's schedulers ask
        try:
            self.engine.drive(until)
            lost, samples = self.world.reduce(self._stage.lost)
            mean = lost / samples if samples > 0 else 0.0
            if self.record is not None:
                self.record.loss(mean)
                self.record.step()
        except BaseException as e:
            self.fail(e)
            raise
        return mean

    # ---- calls that all workers make together ----

    def _between(self, what: str) -> int:
        if self._ended or self.finished:
            raise StateError(f"{what} after the run's end")
        if self._shown:
            raise StateError(f"{what} within evaluate()")
        return self.steps

    def _meet(self, what: str, steps: int) -> None:
        if self._meetings is not None:
            self._meetings.come(what, steps)

    @contextlib.contextmanager
    def evaluate(self) -> Iterator[None]:
        """Context in which the module has the whole model, in eval mode, on all workers, which call it together. Call
        model.state_dict() within it."""
        self.show()
        training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(training)
            self.resume()

    def show(self) -> None:
        self._meet("evaluate()", self._between("evaluate()"))
        self.engine.eval_begin()
        self._shown = True
        self._there()

    def resume(self) -> None:
        self._away()
        self._shown = False
        self.engine.eval_end()

    def save(self, directory: str, *, keep: int = 0, wait: bool = True) -> None:
        """Saves a checkpoint in a new folder of `directory`. All workers; each writes its stage. Keeps the newest
        `keep` checkpoints (0: all). It can be loaded with other stages. wait=False: returns when it is copied to
        memory, and a thread writes it. It is there after the next save() or save_end(), which raise what has failed,
        and after finish()."""
        self._meet("save()", self._between("save()"))
        _saved.save_module(self, directory)
        self.engine.save(directory, keep=keep, wait=wait)
        _saved.prune(self, directory, keep, None if wait else int(self.engine.figures()["steps"]))

    def save_end(self) -> None:
        """Waits for the checkpoint of save(wait=False), if one is under way. All workers."""
        self._meet("save_end()", self._between("save_end()"))
        self.engine.save_end()

    def load(self, directory: str) -> None:
        """Resumes from a checkpoint, or from the newest in that directory. All workers, before the first step."""
        if self._between("load()"):
            raise StateError(
                "state is loaded before the first step: after it workers would continue from different models"
            )
        self._meet("load()", 0)
        found = self.world.find_checkpoint(directory)
        self.engine.load(found)
        _saved.load_module(self, found)

    def state_dict(self) -> dict[str, Any]:
        """Returns this worker's state: values of its stage, the optimiser's state of them, versions. All workers. It
        can be loaded by the same worker of the same number only; for others use save()."""
        self._meet("state_dict()", self._between("state_dict()"))
        return _state.get(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads a state_dict(). All workers, before the first step."""
        if self._between("load_state_dict()"):
            raise StateError(
                "state is loaded before the first step: after it workers would continue from different models"
            )
        _state.write(self, _state.fit(self, state), state)

    def figures(self) -> dict[str, int | float]:
        """Returns times, bytes, steps and samples of this rank so far (tutti_figures)."""
        return self.engine.figures()

    def log(self, figures: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Adds figures of an evaluation to the record (trace=) by name, test_accuracy=0.9 or {"val/f1": 0.5}, after the
        steps so far. Rank 0's count, the other ranks may leave the call out. Without a record figures are only checked.
        Training losses are there already."""
        if "loss" in more or (isinstance(figures, Mapping) and "loss" in figures):
            raise ValueError("log(loss=...): step() and epoch() of a pipeline record the training loss by themselves; "
                             "call the loss of an evaluation test_loss")
        _logged.log(self.record, _c.tutti_record_log, figures, None, more)

    def metrics(self) -> list[tuple[str, int, float, int]]:
        """Returns (name, worker, value, at) of each figure that the method has reported."""
        return self.engine.metrics()

    def events(self) -> list[Event]:
        return self.engine.events()

    def finish(self) -> None:
        """Ends the run. All workers. The module then has the whole model, in memory of its own."""
        if self._ended or self.finished:
            return
        self._meet("finish()", self._between("finish()"))
        self.engine.finish()
        self._there()
        self.finished = True
        self.close()

    def close(self) -> None:
        """Leaves the run without finish(). Workers that still need this one are notified."""
        if self._ended:
            return
        self._ended = True
        closed(self)
        if self._meetings is not None:
            self._meetings.close()
        if self.record is not None:
            self.record.close(ended=self.finished)
        self.detach()
        self.engine.close()
        self.world.close()

    def detach(self) -> None:
        """Drops all references to the engine's memory."""
        if self._shown:
            self._away()
            self._shown = False
        self._stage.close()

    def __del__(self) -> None:
        if not getattr(self, "_ended", True):
            dropped(self)

    finishes: str = "finish"
    needs_finish: bool = True
    in_pass: bool = False

    @property
    def trained(self) -> bool:
        return self.steps > 0

    def fail(self, error: BaseException) -> None:
        """Closes the run after a failure of this rank's program, which is reported to the other ranks."""
        if not self._ended:
            self.world.failure_report(error)
            self.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.finish()
        else:
            self.fail(error)

    def __repr__(self) -> str:
        return f"tutti({self.method}): stage {self.stage} of modules {', '.join(self.modules)}"


def pipeline(
    model: nn.Module | Sequence[nn.Module],
    optimizer: torch.optim.Optimizer,
    loss: Callable[[Any, Any], torch.Tensor],
    dataset: Dataset[Any],
    method: str = "hetpipe",
    *,
    batch: int = 64,
    accumulate: int = 1,
    seed: int = 0,
    micro_batch: int = 0,
    costs: Sequence[float] | None = None,
    collate: Callable[[list[Any]], Any] = default_collate,
    transport: str | None = None,
    trace: str | os.PathLike[str] | None = None,
    trace_overwrite: bool = False,
    log_to: _log_to.Given = None,
    metrics_port: int | str | None = None,
) -> Pipeline:
    """Joins the run that this process was started in, and returns a Pipeline of all its workers that trains the model.

    model: a torch.nn.Sequential, or a list of modules, the same on all ranks. A stage begins with a module that has
        parameters; its input has to be one float32 tensor whose first dimension is the samples.
    optimizer: SGD, Adam or AdamW over the model's parameters, in one group. The method makes the updates by its rule;
        the learning rate is read from it at each call.
    loss: a function of the model's output and the target of a micro-batch, which returns the mean over the samples.
    dataset: pairs of input and target by index, the same on all ranks. They are read on the workers that have the
        first or the last stage.
    method: hetpipe, wavelet or heterps; `tutti methods` lists them with their options.
    batch, accumulate: a step has batch x accumulate x workers samples.
    seed: of the order of samples.
    micro_batch: most samples of a micro-batch; 0: the method decides.
    costs: the cost of each unit, in any measure, for methods that partition by costs; None: operations are counted.
    collate: makes a pair of input and target from a list of samples.
    transport: None: chosen from the launcher's environment.
    trace, trace_overwrite, log_to, metrics_port: the record of the run, as of tutti.torch.prepare(). It has a line of
        figures after each call of step() and epoch(), and their activities.

    Raises ValueError, before anything is done, if this method, model and optimizer do not match."""
    for name, value, least in (("batch", batch, 1), ("accumulate", accumulate, 1), ("micro_batch", micro_batch, 0)):
        if value < least:
            raise ValueError(f"pipeline: {name} is {value}; it must be at least {least}")
    return Pipeline(model, optimizer, loss, dataset, method, batch=batch, accumulate=accumulate, seed=seed,
                    micro_batch=micro_batch, costs=costs, collate=collate, transport=transport, trace=trace,
                    trace_overwrite=trace_overwrite, log_to=_log_to.plan_of(log_to, metrics_port))

