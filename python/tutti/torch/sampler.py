"""The library's order of samples (base.h), which `tutti train` has, too, as a torch sampler of batches.

    sampler = tutti.torch.sampler(dataset, batch=64, seed=1)
    model, optimizer = tutti.torch.prepare(model, optimizer, method, sampler=sampler)
    loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler)

The order is a function of seed, epoch and position, the same on all workers, and each worker has its own part of it.
Some methods assign samples while they run: asynchronous methods, those that assign passes by measured speed, and those
that decide how many samples a step has. Under these the sampler asks the engine for each batch, so the loader must not
read ahead.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Any

import torch

from .. import _abi
from .._library import library as _c
from .._owner import worlds
from ..errors import StateError

if TYPE_CHECKING:
    from ._run import Run


class BatchSampler(torch.utils.data.Sampler[list[int]]):
    """Yields the batches of this worker as lists of indices. An iteration is an epoch; the next one continues after it.

    Rank and number of workers are those of the run that it was given to (prepare(sampler=...)), else of the run that
    this process is in when it is first used."""

    samples: int
    batch: int
    seed: int
    accumulate: int
    rank: int

    def __init__(
        self,
        samples: int,
        batch: int,
        seed: int,
        shares: str | Sequence[float],
        parts: Sequence[Sequence[int]] | None,
        accumulate: int,
        place: tuple[int, int] | None,
    ):
        for name, value in (("samples", samples), ("batch", batch), ("accumulate", accumulate)):
            if value < 1:
                raise ValueError(f"sampler: {name} is {value}; it must be at least 1")
        self.samples, self.batch, self.seed, self.accumulate = samples, batch, seed, accumulate
        self._shares, self._given = shares, parts
        self._step = 0  # step of the run with which the next batch begins
        self._epoch = -1  # the current or last epoch
        self._bound: weakref.ref[Run] | None = None  # weak, since a loader may outlive the run
        self._share: _abi.tutti_share | None = None
        self._parts: _abi.tutti_parts | None = None
        self._batch_of: Any = None
        self._logical = 0  # logical shares of the run
        self._dealt: list[int] = []  # how many of them each worker computes, with shares="auto"
        self._local = 1  # local steps of a share in a step of the run
        self.rank = -1
        if place is not None:
            self._place(*place)

    # ---- where this worker is ----

    def _place(self, rank: int, workers: int) -> None:
        if not 0 <= rank < workers:
            raise ValueError(f"sampler: rank {rank} of {workers} workers; ranks are 0 to {workers - 1}")
        self.rank = rank
        self._batch_of = self._unequal(workers)
        self._parts = self._cut(workers)
        self._share = _abi.tutti_share(
            samples=self.samples,
            workers=workers,
            batch=self.batch,
            accumulate=self.accumulate * self._local,
            seed=self.seed,
            batch_of=self._batch_of,
            parts=ctypes.pointer(self._parts) if self._parts is not None else None,
            logical=self._logical,
        )

    def _unequal(self, workers: int) -> Any:
        shares = self._shares
        if shares == "auto":
            return (ctypes.c_int64 * len(self._dealt))(*self._dealt) if self._dealt else None
        if shares == "even":
            return None
        if shares == "data":
            if self._given is None:
                raise ValueError("sampler: shares='data' are those of the workers' parts; give parts")
            shares = [len(p) for p in self._given]
        try:
            weights = [float(w) for w in (shares.split(":") if isinstance(shares, str) else shares)]
        except ValueError:
            weights = []
        if len(weights) != workers or not sum(weights) > 0 or not all(0 <= w <= 1e9 for w in weights):
            raise ValueError(
                f"sampler: shares are {self._shares!r}; write even, data, or a weight for each of the {workers} "
                "workers: '3:1', not all 0"
            )
        part = (ctypes.c_int64 * workers)()
        least = 1 if self._shares == "data" or self._logical else 0
        weight = (ctypes.c_double * workers)(*weights)
        _c.tutti_share_apportion(self._logical or self.batch * workers, workers, weight, least, part)
        return part

    def _cut(self, workers: int) -> _abi.tutti_parts | None:
        if self._given is None:
            return None
        flat = [int(i) for part in self._given for i in part]
        if len(self._given) != workers or not all(len(part) for part in self._given):
            raise ValueError(f"sampler: {len(self._given)} parts for {workers} workers; each has one that is not empty")
        if sorted(flat) != list(range(self.samples)):
            raise ValueError(f"sampler: each of the {self.samples} samples must be in exactly one part")
        first = (ctypes.c_uint64 * (workers + 1))()
        for r, part in enumerate(self._given):
            first[r + 1] = first[r] + len(part)
        return _abi.tutti_parts(first=first, sample=(ctypes.c_uint32 * len(flat))(*flat))

    def options(self, workers: int, shares: int = 0, dealt: list[int] | None = None) -> dict[str, Any]:
        """Returns the engine's options that follow from it (tutti_engine_options).

        shares: logical shares of the run. dealt: how many of them each worker computes, with shares="auto"."""
        if self._shares == "auto" and dealt is None:
            raise ValueError("sampler: shares='auto' is for prepare(elastic=True), whose workers compute shares of a "
                             "step by their speed; write even, data, or a weight for each worker")
        self._logical, self._dealt = shares, dealt or []
        self._place(0, workers)
        return {
            "batch": self.batch,
            "accumulate": self.accumulate,
            "seed": self.seed,
            "data_samples": self.samples,
            "batch_of": list(self._batch_of) if self._batch_of is not None else None,
            "parts": ctypes.pointer(self._parts) if self._parts is not None else None,
        }

    def bind(self, run: Run) -> None:
        self._bound = weakref.ref(run)
        share = run.engine.share()
        self._logical = share.logical
        if share.logical:
            self._local = share.accumulate // self.accumulate
        self._place(run.engine.rank, run.engine.workers)

    @property
    def _run(self) -> Run | None:
        return None if self._bound is None else self._bound()

    def _settle(self) -> _abi.tutti_share:
        if self._share is None:
            places = {(w.rank, w.size) for w in worlds if not w.closed}
            if len(places) != 1:
                raise StateError(
                    "sampler: this process is in no run yet; make DistributedDataParallel or prepare(sampler=...) "
                    "first, or give rank and workers"
                )
            self._place(*places.pop())
        assert self._share is not None
        return self._share

    # ---- batches ----

    def __len__(self) -> int:
        """Returns the batches of an epoch; for asynchronous methods: if all workers were equally fast."""
        share = self._settle()
        last = _c.tutti_share_steps(share) - 1
        return int(last * self._most(share)) + sum(1 for _ in self._passes(share, last))

    def _most(self, share: _abi.tutti_share) -> int:
        """Returns the passes of a full step: if shares are dealt in turn, worker 0's, in which all take part."""
        return int(_c.tutti_share_passes(share, 0 if share.logical < 0 else self.rank))

    def __iter__(self) -> Iterator[list[int]]:
        run = self._run
        if run is not None and run.elastic is not None:  # iteration k is epoch k, also where that is over
            self._epoch += 1
            yield from run.elastic.batches(self._epoch + 1)
            return
        share = self._settle()
        steps = _c.tutti_share_steps(share)
        self._epoch = self._step // steps if self._step < (self._epoch + 1) * steps else self._epoch + 1
        if run is not None and run.decides:
            yield from self._asked(run, self._epoch + 1)
            self._step = (self._epoch + 1) * steps
            return
        self._step = max(self._step, self._epoch * steps)
        while self._step < (self._epoch + 1) * steps:
            batches = list(self._passes(share, self._step))
            for k, batch in enumerate(batches):
                if k + 1 == len(batches):
                    self._step += 1
                yield batch

    def _passes(self, share: _abi.tutti_share, step: int) -> Iterator[list[int]]:
        """Yields the batches of this worker in a step. If a tail step has none for it, yields a batch of one sample
        that does not count, so that the worker takes part in the step. With logical shares it has a batch for each of
        their passes, and one that does not count is a whole one: a batch norm takes no single sample."""
        number, own = 0, _c.tutti_share_passes(share, self.rank)
        least = self._whole() if share.logical else 1
        epoch, position = ctypes.c_uint64(), ctypes.c_uint64()
        while number < self._most(share):
            n = 0 if number >= own else _c.tutti_share_pass(share, step, self.rank, number, epoch, position)
            if n == 0 and number > 0 and not share.logical:
                return
            yield self._indices(share, epoch.value, position.value if n > 0 else 0, n or least)
            number += 1

    def _indices(self, share: _abi.tutti_share, epoch: int, position: int, n: int) -> list[int]:
        return [_c.tutti_share_sample_of(share, self.rank, epoch, position + k) for k in range(n)]

    def _whole(self) -> int:
        """Samples of a whole batch."""
        return min(self.batch, self.samples)

    def idle(self) -> list[int]:
        """Returns a whole batch that does not count."""
        return list(range(self._whole()))

    def _asked(self, run: Run, epochs: int) -> Iterator[list[int]]:
        """Yields the batches that the method assigns to this worker, until the run has done that many epochs."""
        while run.more_epochs(epochs):
            if run.pass_over():
                continue
            steps, spans = run.steps, run.spans()
            share = run.engine.share()
            named = run.named
            if named is None:
                named = [i for epoch, position, n in spans for i in self._indices(share, epoch, position, n)]
            yield named or [0]
            if run.steps == steps and not run.within:
                raise StateError(
                    f"method '{run.method}' assigns samples to workers while it runs, and the next batch was asked for "
                    "before the last one's step(): give the DataLoader num_workers=0, and call step() after each batch"
                )

    # ---- where it is ----

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration this epoch, from its beginning."""
        self._step = epoch * _c.tutti_share_steps(self._settle())
        self._epoch = epoch - 1

    def step_of(self, samples: int) -> int:
        """Returns the step that begins after that many samples if all steps are full, for methods that decide how many
        samples a step has."""
        share = self._settle()
        epochs, rest = divmod(samples, self.samples)
        return int(epochs * _c.tutti_share_steps(share) + rest // (share.workers * self.batch * self.accumulate))

    def state_dict(self) -> dict[str, int]:
        """Returns the step with which the next batch begins. With a loader that reads ahead it is later than the loop's
        step: then give the loop's own count of steps to load_state_dict()."""
        return {"step": self._step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._step = int(state["step"])
        self._epoch = self._step // _c.tutti_share_steps(self._settle()) - 1


def sampler(
    dataset: Sized | int,
    batch: int,
    seed: int = 0,
    *,
    shares: str | Sequence[float] = "even",
    parts: Sequence[Sequence[int]] | None = None,
    accumulate: int = 1,
    rank: int | None = None,
    workers: int | None = None,
) -> BatchSampler:
    """Makes a batch_sampler for a DataLoader, with the batches of this worker in the library's order.

    dataset: an object with a length, or the number of samples.
    batch: samples of a worker in a batch; if shares are unequal, on average.
    shares: "even"; "3:1", weights of the workers; "data", in proportion to their parts; "auto", by measured speed, with
        prepare(elastic=True). A step has the same samples whichever worker computes them. With prepare(sampler=...)
        gradients are weighted by their number of samples. With elastic_shares= it is those that are divided.
    parts: indices of each worker's samples, each sample in exactly one part. A worker then draws from its part only.
    accumulate: batches of a worker in a step.
    rank, workers: of this process; default: of the run that it is in.

    ValueError: one of these is invalid."""
    if (rank is None) != (workers is None):
        raise ValueError("sampler: give both rank and workers, or neither")
    n = dataset if isinstance(dataset, int) else len(dataset)
    place = None if rank is None or workers is None else (rank, workers)
    return BatchSampler(n, batch, seed, shares, parts, accumulate, place)
