"""Tutti's codecs inside torch's own DistributedDataParallel, for scripts that keep it.

    ddp = torch.nn.parallel.DistributedDataParallel(model)
    ddp.register_comm_hook(*tutti.torch.comm_hook("ef(topk(ratio=0.01))"))

The codec runs in the C library (codec.h) on each bucket, a tensor at a time. What it keeps belongs to a parameter, so
that torch rebuilds its buckets after the first step changes nothing. The gradients that come out are those of Tutti's
engine with `--codec` and `--collective allgather`, to the bit: what is summed is summed in Tutti's order.

Messages go by torch.distributed, through a gloo group of the hook's own, of the ranks of DDP's group. They are in host
memory, where the codec runs, whatever carries the rest. And no collective that DDP or the user starts in between can
get into their order.

Two threads: one encodes buckets in the order in which they come, one carries them in the same order and decodes. So
a bucket is encoded while the one before is on its way, all ranks start the same collectives in the same order, and
backward goes on meanwhile. In the first step all waits for its last bucket: only then are all parameters known.
"""

import ctypes
import queue
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from .. import _abi
from .._library import library as _c
from ..errors import check
from ._bind import memory_order
from ._cuda import Cuda
from ._thread import Worker

_DTYPES = {_abi.TUTTI_F32: torch.float32, _abi.TUTTI_F16: torch.float16, _abi.TUTTI_BF16: torch.bfloat16,
           _abi.TUTTI_U8: torch.uint8, _abi.TUTTI_F64: torch.float64, _abi.TUTTI_I32: torch.int32,
           _abi.TUTTI_I64: torch.int64, _abi.TUTTI_I8: torch.int8}
_SMALL = 16384  # sums of at most this many bytes go all to all: one collective instead of two


def _memory(address: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """The C library's memory as a tensor that does not own it."""
    if count == 0:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype=dtype, count=count)


def _tree(rows: torch.Tensor) -> torch.Tensor:
    """The sum of the rows, in the one order of all of Tutti's sums."""
    n = len(rows)
    if n == 1:
        return rows[0]
    half = 1 << (n - 1).bit_length() - 1
    return _tree(rows[:half]) + _tree(rows[half:])


@dataclass
class _Bucket:
    """One of DDP's on its way."""

    first: bool  # a step begins with it
    buffer: torch.Tensor
    spans: list[tuple[torch.Tensor, int]]  # parameter, its place in the buffer
    future: "torch.futures.Future[Any]"  # of the buffer, or of an exception
    cuda: Cuda | None
    ready: Any  # CUDA: the event of its being final
    host: torch.Tensor | None = None  # float32; the buffer itself where it is that
    parcel: Any = None
    freight: Any = None  # None: it is through


class CommHookState:
    """What the hook keeps for one DDP module: the codec with its residuals, and how much it has sent.

    `epoch` and `lr` are for codecs that go by them (accordion): set them as training goes on. `bytes_encoded` is what
    the codec has made of this worker's gradients so far. `bytes_sent` is what this worker has sent for it, with what
    the collectives add.
    """

    def __init__(self, spec: str, model: torch.nn.Module | None, process_group: dist.ProcessGroup | None,
                 seed: int) -> None:
        self.spec, self.epoch, self.lr = spec, 0, 0.0
        self.bytes_encoded = self.bytes_sent = 0
        self._seed = seed
        self._rank, self._workers = dist.get_rank(process_group), dist.get_world_size(process_group)
        self._names: dict[torch.Tensor, str] = {}
        if model is not None:
            self._names = {p: name for name, p in model.named_parameters() if p.requires_grad and p.numel() > 0}
        # A spec that is wrong is refused here and not in the first step.
        shapes = self._shapes(self._order(self._names)) if self._names else [_abi.tutti_relay_tensor(None, 1, 1)]
        _c.tutti_relay_close(self._open(shapes))
        self._relay: ctypes.c_void_p | None = None
        self._loaded: dict[str, Any] | None = None
        self._tensor: dict[torch.Tensor, int] = {}
        self._held: list[_Bucket] = []
        self._parcels: queue.SimpleQueue[ctypes.c_void_p] = queue.SimpleQueue()
        self._cuda: dict[torch.device, Cuda] = {}
        self._failure: BaseException | None = None
        self._sum = _c.tutti_relay_begin.argtypes[3](self._sum_of)
        ranks = None if process_group is None else dist.get_process_group_ranks(process_group)
        self._group = dist.new_group(ranks, backend="gloo", use_local_synchronization=ranks is not None)
        self._carrier = Worker(lambda bucket: self._do(self._carry, bucket), "tutti-carrier")
        self._encoder = Worker(lambda bucket: self._do(self._encode, bucket), "tutti-encoder")

    # ---- the codec and its tensors ----

    def _order(self, parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """With a model as tutti.torch.DistributedDataParallel has them, else as they came in the first step."""
        there = list(parameters)
        if not self._names:
            return there
        place = {p: i for i, p in enumerate(self._names)}
        for p in there:
            if p not in place:
                raise ValueError(f"comm_hook was given a model without the parameter of shape {tuple(p.shape)} whose "
                                 "gradient came; give it the model that is in the DistributedDataParallel")
        return sorted(there, key=lambda p: -place[p])

    def _shapes(self, parameters: Iterable[torch.Tensor]) -> list[_abi.tutti_relay_tensor]:
        """As the engine sees them: rows are the dimension that is slowest in memory, whose order buckets have too."""
        shapes = []
        for p in parameters:
            rows = p.size((memory_order(p) or (0,))[0]) if p.dim() > 1 else 1
            name = self._names.get(p)
            shapes.append(_abi.tutti_relay_tensor(name and name.encode(), rows, p.numel() // rows))
        return shapes

    def _open(self, shapes: list[_abi.tutti_relay_tensor]) -> ctypes.c_void_p:
        relay = ctypes.c_void_p()
        check(_c.tutti_relay_open, relay, self.spec.encode(), (_abi.tutti_relay_tensor * len(shapes))(*shapes),
              len(shapes), self._rank, self._workers, self._seed)
        return relay

    def _learn(self) -> None:
        """The last bucket of the first step is there."""
        order = self._order(p for bucket in self._held for p, _ in bucket.spans)
        self._relay = self._open(self._shapes(order))
        self._tensor = {p: i for i, p in enumerate(order)}
        if self._loaded is not None:
            self._load(self._loaded)

    def _states(self) -> Iterable[tuple[str, torch.Tensor]]:
        at, memory = 0, ctypes.c_void_p()
        while state := _c.tutti_relay_state(self._relay, at, memory):
            at += 1
            if state.contents.keep != _abi.TUTTI_SCRATCH:
                yield state.contents.name.decode(), _memory(memory.value or 0, state.contents.count,
                                                            _DTYPES[state.contents.dtype])

    def _layout(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(self._names.get(p, ""), tuple(p.shape)) for p in self._tensor]

    def state_dict(self) -> dict[str, Any]:
        """What this rank's codec keeps, between two steps: its own residuals. Each rank saves its own."""
        if self._relay is None:
            return self._loaded or {"spec": self.spec, "steps": 0}
        return {"spec": self.spec, "steps": _c.tutti_relay_steps(self._relay), "workers": self._workers,
                "tensors": self._layout(), "states": {name: values.clone() for name, values in self._states()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what `state_dict()` gave on the same rank of as many."""
        if state["spec"] != self.spec:
            raise ValueError(f"comm_hook: the state is of codec '{state['spec']}', and this hook's is '{self.spec}'")
        if state["steps"] > 0 and state["workers"] != self._workers:
            raise ValueError(f"comm_hook: the state is of {state['workers']} workers, and there are {self._workers}; "
                             "residuals are one a worker: start without")
        if self._relay is None:
            self._loaded = state
        else:
            self._load(state)

    def _load(self, state: dict[str, Any]) -> None:
        if state["steps"] == 0:
            return
        if [tuple(t) for t in state["tensors"]] != self._layout():
            raise ValueError("comm_hook: the state is of other parameters, or in another order than DDP's buckets have "
                             "them now; give comm_hook the model, whose order is always the same")
        for name, values in self._states():
            values.copy_(state["states"][name])
        _c.tutti_relay_resume(self._relay, state["steps"])

    # ---- a bucket on its way ----

    def take(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer = bucket.buffer()
        if buffer.layout != torch.strided:
            raise ValueError("comm_hook: a sparse gradient; codecs take dense ones (Embedding(sparse=False))")
        if buffer.is_cuda and buffer.device not in self._cuda:
            self._cuda[buffer.device] = Cuda(buffer.device)
        cuda = self._cuda.get(buffer.device)
        future: torch.futures.Future[Any] = torch.futures.Future(devices=[buffer.device] if cuda else None)
        spans = [(p, g.storage_offset() - buffer.storage_offset())
                 for p, g in zip(bucket.parameters(), bucket.gradients(), strict=True) if p.numel() > 0]
        self._held.append(_Bucket(bucket.index() == 0, buffer, spans, future, cuda, cuda and cuda.record()))
        if self._relay is not None or bucket.is_last():
            if self._relay is None:
                self._learn()
            for one in self._held:
                self._encoder.put(one)
            self._held = []
        return future.then(_result)

    def _do(self, work: Callable[[_Bucket], None], bucket: _Bucket) -> None:
        try:
            if self._failure is not None:
                raise self._failure
            work(bucket)
        except BaseException as failure:  # of this rank; all that follows would be out of order
            self._failure = failure
            bucket.future.set_result(failure)

    def _encode(self, bucket: _Bucket) -> None:
        if bucket.first:
            check(_c.tutti_relay_begin, self._relay, self.epoch, self.lr, self._sum, None)
        if bucket.cuda is not None:
            bucket.host = bucket.cuda.pinned(bucket.buffer.shape, torch.float32)
            bucket.cuda.synchronize(bucket.cuda.copy(bucket.host, bucket.buffer, bucket.ready))
        else:
            bucket.host = bucket.buffer.to(torch.float32)
        n, at = len(bucket.spans), bucket.host.data_ptr()
        tensors = (ctypes.c_int * n)(*(self._tensor[p] for p, _ in bucket.spans))
        gradients = (ctypes.POINTER(ctypes.c_float) * n)(
            *(ctypes.cast(at + 4 * first, ctypes.POINTER(ctypes.c_float)) for _, first in bucket.spans))
        bucket.parcel = self._parcel()
        bucket.freight = _abi.tutti_freight()
        if not check(_c.tutti_parcel_send, bucket.parcel, tensors, gradients, n, bucket.freight):
            bucket.freight = None
        self._carrier.put(bucket)

    def _carry(self, bucket: _Bucket) -> None:
        freight = bucket.freight
        while freight is not None:
            numbers = _memory(freight.data, freight.count, _DTYPES[freight.dtype])
            self.bytes_encoded += numbers.nbytes
            theirs = None  # memory that the next call reads
            if freight.kind == _abi.TUTTI_FREIGHT_MEAN:
                self._add_up(numbers, 1 / self._workers)
            else:
                theirs = self._gather(numbers, freight)
            if not check(_c.tutti_parcel_next, bucket.parcel, freight):
                freight = None
            del theirs
        self._parcels.put(bucket.parcel)
        if bucket.cuda is not None:
            bucket.cuda.settle(bucket.future, bucket.buffer, bucket.cuda.copy(bucket.buffer, bucket.host, None))
            return
        if bucket.host is not bucket.buffer:
            bucket.buffer.copy_(bucket.host)
        bucket.future.set_result(bucket.buffer)

    def _parcel(self) -> ctypes.c_void_p:
        try:
            return self._parcels.get_nowait()
        except queue.Empty:
            parcel = ctypes.c_void_p()
            check(_c.tutti_parcel_open, parcel, self._relay)
            return parcel

    # ---- the wire ----

    def _gather_equal(self, mine: torch.Tensor) -> torch.Tensor:
        """A row of each worker, all of one length."""
        theirs = mine.new_empty((self._workers, mine.numel()))
        dist.all_gather_into_tensor(theirs.view(-1), mine, group=self._group)
        self.bytes_sent += (self._workers - 1) * mine.nbytes
        return theirs

    def _gather(self, mine: torch.Tensor, freight: _abi.tutti_freight) -> tuple[Any, ...]:
        """Messages of any length: gloo's all-gather wants one length, so the shorter are padded to the longest."""
        counts = [freight.most] * self._workers
        if not freight.fixed:
            counts = self._gather_equal(torch.tensor([mine.numel()])).view(-1).tolist()
            if max(counts) > freight.most:
                raise RuntimeError(f"comm_hook: a worker has {max(counts)} bytes to send, and the codec makes at most "
                                   f"{freight.most}; do all workers run the same version and spec?")
            padded = mine.new_zeros(max(counts))
            padded[: mine.numel()] = mine
            mine = padded
        theirs = self._gather_equal(mine)
        lengths = (ctypes.c_size_t * self._workers)(*counts)
        freight.all = ctypes.cast(theirs.data_ptr(), ctypes.POINTER(ctypes.c_uint8))
        freight.stride, freight.counts = mine.numel(), lengths
        return theirs, lengths

    def _add_up(self, numbers: torch.Tensor, factor: float) -> None:
        """numbers := the sum over the workers of factor * numbers: products and sums in float32, in Tutti's order,
        rounded once. torch's own all-reduce rounds 16-bit numbers at every hop, and has an order of its own."""
        if self._workers == 1:
            return
        n, workers = numbers.numel(), self._workers
        if numbers.nbytes <= _SMALL:
            numbers.copy_(_tree(self._gather_equal(numbers).float().mul_(factor)))
            return
        each = -(-n // workers)
        all_ = numbers.new_zeros(workers * each)
        all_[:n] = numbers
        parts = torch.empty_like(all_)
        dist.all_to_all_single(parts, all_, group=self._group)
        self.bytes_sent += (workers - 1) * each * numbers.itemsize
        mine = _tree(parts.view(workers, each).float().mul_(factor)).to(numbers.dtype)
        numbers.copy_(self._gather_equal(mine).view(-1)[:n])

    def _sum_of(self, _with: Any, n: int, numbers: Any, err: Any) -> int:
        """What a codec that learns from all workers asks for as a step begins."""
        try:
            self._add_up(_memory(ctypes.addressof(numbers.contents), n, torch.float32), 1.0)
        except BaseException as failure:
            if err:
                err.contents.status, err.contents.text = _abi.TUTTI_ERR_IO, str(failure).encode()[:400]
            return _abi.TUTTI_ERR_IO
        return _abi.TUTTI_OK


def _result(future: "torch.futures.Future[Any]") -> torch.Tensor:
    value = future.value()
    if isinstance(value, BaseException):
        raise value
    return value


def _hook(state: CommHookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    return state.take(bucket)


def comm_hook(spec: str, model: torch.nn.Module | None = None, *, process_group: dist.ProcessGroup | None = None,
              seed: int = 0) -> tuple[CommHookState, Callable[..., torch.futures.Future[torch.Tensor]]]:
    """What `DistributedDataParallel.register_comm_hook` takes, for a codec: `register_comm_hook(*comm_hook(spec))`.

    model: gives parameters their names, for codecs with options that go by names, and an order that does not depend
    on DDP's buckets, which random codecs' draws and a saved state go by. process_group: DDP's, if it was given one.
    seed: of draws, the same on all ranks. All ranks of the group call this, in the same order as other collectives.
    ValueError: a spec that is none; the sentence has near names.
    """
    return CommHookState(spec, model, process_group, seed), _hook
