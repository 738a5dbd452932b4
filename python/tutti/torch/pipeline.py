"""pipeline(): methods that decide by themselves what of a model is computed when: a stage of it on each worker.

    model = nn.Sequential(...)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pipe = tutti.torch.pipeline(model, optimizer, nn.CrossEntropyLoss(), dataset, "hetpipe(stages=2)", batch=64)
    for epoch in range(10):
        loss = pipe.epoch()
        with pipe.evaluate():
            ...model(x)...
    pipe.finish()

There is no loop over batches here: the method says which samples each micro-batch has, in which order forward and
backward of several are, and at which version of the values. So it is given the data set and the loss function, and
called for many steps at a time, as a pipeline is filled and emptied once a call.

Each process makes the whole model, so that all agree on what it is; rank 0's values are trained. From then on a worker
has the values of its stage alone, and a parameter that is read elsewhere raises. They are there within evaluate(), and
after finish().
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import torch
from torch import nn
from torch.utils.data import Dataset, default_collate

from .. import _abi, catalogue
from .._library import library as _c
from ..engine import Event, tenants
from ..errors import StateError
from . import _layers, _place, _saved, _state, _translate
from ._bind import Binding, short, warn_unscaled
from ._buffers import Copies
from ._meet import Meetings
from ._run import _check, _traits
from ._runs import check_second, closed, dropped, opened, run_of
from ._stage import Stage
from ._units import FACTS


class _Away(nn.Parameter):
    """What a parameter is while its values are not there."""

    _name: str

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
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
    """A run in which each worker has a stage of the model (pipeline()). All workers make the same calls in the same
    order."""

    def __init__(
        self,
        model: nn.Module | Sequence[nn.Module],
        optimizer: torch.optim.Optimizer,
        loss: Callable[[Any, Any], torch.Tensor],
        dataset: Dataset,
        method: str,
        *,
        micro_batch: int,
        costs: Sequence[float] | None,
        collate: Callable[[list], Any],
        transport: str | None,
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
        _check(model, optimizer)
        _layers.check(model)
        if not model.training:
            raise ValueError("the model is in eval mode; call model.train() before")
        samples = min(2, len(dataset))
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
        self.world = _place.open_world(transport)
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
                data_samples=len(dataset),
                initial=self.binding.initial,
                fingerprint=self.binding.fingerprint() + self._fingerprint(),
                model=self._stage,
                needs=True,
                same_order=True,
                **options,
            )
            Copies(self.world).broadcast([t for _, t in self.binding.untrained()])
        except ValueError as e:
            _place.give_up(self.world, e)
            raise ValueError("; ".join([str(e), *self._joined[:3]])) if "stage" in str(e) and self._joined else e
        except BaseException as e:
            _place.give_up(self.world, e)
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

    # ---- what the run is made of ----

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
        """Of all workers, each as it has measured its own."""
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
        """The samples of a micro-batch."""
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
            b.param._name = b.name

    @torch.no_grad()
    def _there(self) -> None:
        """The whole model's, in memory of their own: the engine shows one unit after another, to all workers."""
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
        """Steps that the run has made."""
        return int(self.engine.figures()["steps"])

    @property
    def steps_an_epoch(self) -> int:
        return int(_c.tutti_share_steps(self.engine.share()))

    @property
    def stage(self) -> int:
        """Which this worker has."""
        return int(self.engine.method.stage)

    @property
    def modules(self) -> list[str]:
        """Names of the modules that this worker's stage is made of."""
        return [name for u in self._units[self._stage.first : self._stage.end] for name in u.names]

    def step(self, n: int = 1) -> float:
        """n more steps of the run. Returns the mean loss of their samples, on all workers. A pipeline is filled again
        at each call, so few calls of many steps are better than many of few."""
        if n < 1:
            raise ValueError(f"step: n is {n}; it must be at least 1")
        return self._drive(self._between("step()") + n)

    def epoch(self) -> float:
        """The steps that are left of the epoch under way, or of the next one."""
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
        self.optimizer._opt_called = True  # type: ignore[attr-defined] # schedulers ask
        try:
            self.engine.drive(until)
            lost, samples = self.world.reduce(self._stage.lost)
        except BaseException as e:
            self.fail(e)
            raise
        return lost / samples if samples > 0 else 0.0

    # ---- what all do together ----

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
        """Within it the whole model stands in the module, in eval mode, on all workers. They come here together.
        model.state_dict() is taken here."""
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

    def save(self, directory: str, *, keep: int = 0) -> None:
        """A checkpoint by all workers, a new one a step; the newest `keep` stay (0: all). It has the whole model, each
        worker writes its stage, and it can be loaded by other stages."""
        self._meet("save()", self._between("save()"))
        _saved.save_module(self, directory)
        self.engine.save(directory, keep=keep)
        _saved.prune(self, directory, keep)

    def load(self, directory: str) -> None:
        """Goes on from a checkpoint, or from the newest in that directory. By all workers, before the first step."""
        if self._between("load()"):
            raise StateError(
                "state is loaded before the first step: after it workers would continue from different models"
            )
        self._meet("load()", 0)
        found = self.world.find_checkpoint(directory)
        self.engine.load(found)
        _saved.load_module(self, found)

    def state_dict(self) -> dict[str, Any]:
        """What this worker has of the run: its stage's values, what the optimiser keeps of them, versions. By all
        workers. For the same worker of as many; save() is for others."""
        self._meet("state_dict()", self._between("state_dict()"))
        return _state.get(self)  # type: ignore[arg-type]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """By all workers, before the first step."""
        if self._between("load_state_dict()"):
            raise StateError(
                "state is loaded before the first step: after it workers would continue from different models"
            )
        _state.write(self, _state.fit(self, state), state)  # type: ignore[arg-type]

    def figures(self) -> dict[str, int | float]:
        """Times, bytes, steps and samples of this rank so far (tutti_figures)."""
        return self.engine.figures()

    def metrics(self) -> list[tuple[str, int, float, int]]:
        """What the method tells of itself: (name, worker, value, at)."""
        return self.engine.metrics()

    def events(self) -> list[Event]:
        return self.engine.events()

    def finish(self) -> None:
        """Ends the run. The whole model stands in the module for good, in memory of its own, on all workers."""
        if self._ended or self.finished:
            return
        self._meet("finish()", self._between("finish()"))
        self.engine.finish()
        self._there()
        self.finished = True
        self.close()

    def close(self) -> None:
        """Leaves the run as it is. Others that still need this worker are notified."""
        if self._ended:
            return
        self._ended = True
        closed(self)
        if self._meetings is not None:
            self._meetings.close()
        self.detach()
        self.engine.close()
        self.world.close()

    def detach(self) -> None:
        """Nothing here lies in the engine's memory any more."""
        if self._shown:
            self._away()
            self._shown = False
        self._stage.close()

    def __del__(self) -> None:
        if not getattr(self, "_ended", True):
            dropped(self)

    finishes, needs_finish, in_pass = "finish", True, False

    @property
    def trained(self) -> bool:
        return self.steps > 0

    def fail(self, error: BaseException) -> None:
        """Leaves after a failure of this rank's program, and says so to the others."""
        if not self._ended:
            self.world.failure_report(error)
            self.close()

    def __enter__(self) -> Self:
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
    dataset: Dataset,
    method: str = "hetpipe",
    *,
    batch: int = 64,
    accumulate: int = 1,
    seed: int = 0,
    micro_batch: int = 0,
    costs: Sequence[float] | None = None,
    collate: Callable[[list], Any] = default_collate,
    transport: str | None = None,
) -> Pipeline:
    """Joins the run that this process was started in, and gives a pipeline of all its workers that trains the model.

    model: a torch.nn.Sequential, or a list of modules, the same on all ranks. A stage begins with a module that has
        parameters; what it receives has to be one float32 tensor whose first dimension is the samples.
    optimizer: SGD, Adam or AdamW over the model's parameters, in one group. The method makes the updates by its rule;
        the rate is read from it at each call.
    loss: of what the model gives for a micro-batch and of its targets: the mean over the samples.
    dataset: samples by number, pairs of input and target, the same on all ranks. They are read on the workers that
        have the first stage or the last.
    method: hetpipe, wavelet or heterps, as `tutti methods` lists them with their options.
    batch, accumulate: samples a worker, and how many of those a step: a step has batch x accumulate x workers.
    seed: of the order of samples.
    micro_batch: samples of a micro-batch at most; 0: as many as the method likes.
    costs: what each unit takes, in any measure, for methods that cut by it; else operations are counted.
    collate: makes a pair of input and target of a list of samples.
    transport: None finds it.

    ValueError: what this method, model and optimizer cannot do, before anything is done."""
    for name, value, least in (("batch", batch, 1), ("accumulate", accumulate, 1), ("micro_batch", micro_batch, 0)):
        if value < least:
            raise ValueError(f"pipeline: {name} is {value}; it must be at least {least}")
    return Pipeline(model, optimizer, loss, dataset, method, batch=batch, accumulate=accumulate, seed=seed,
                    micro_batch=micro_batch, costs=costs, collate=collate, transport=transport)

