"""Tutti's codecs in torch's DistributedDataParallel (DDP), by a communication hook.

    ddp = torch.nn.parallel.DistributedDataParallel(model)
    ddp.register_comm_hook(*tutti.torch.comm_hook("ef(topk(ratio=0.01))"))

The codec runs in the C library (codec.h) on each bucket, a tensor at a time. Its state belongs to parameters, so it
does not matter that torch rebuilds its buckets after the first step. The resulting gradients have the bits of those of
Tutti's engine with `--codec` and `--collective allgather`, since sums are made in Tutti's order.

Messages are sent by torch.distributed, through a gloo group of the hook's own with the ranks of DDP's group. They are
in host memory, where the codec runs. With a group of its own the order of collectives is not affected by those that
DDP or the user starts in between.

There are two threads: the first encodes buckets in the order of DDP's calls, the second exchanges and decodes them in
the same order. So a bucket is encoded while the previous one is exchanged, all ranks start the same collectives in the
same order, and backward continues meanwhile. In the first step nothing is encoded before the last bucket, since only
then all parameters are known.
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
_SMALL = 16384  # up to this many bytes a sum is made by one all-gather instead of two collectives


def _memory(address: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns memory of the C library as a tensor, which does not own it."""
    if count == 0:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype=dtype, count=count)


def _tree(rows: torch.Tensor) -> torch.Tensor:
    """Returns the sum of the rows, in the order of all of Tutti's sums."""
    n = len(rows)
    if n == 1:
        return rows[0]
    half = 1 << (n - 1).bit_length() - 1
    return _tree(rows[:half]) + _tree(rows[half:])


@dataclass
class _Bucket:
    """A bucket of DDP that is being exchanged."""

    first: bool  # the first of a step
    buffer: torch.Tensor
    spans: list[tuple[torch.Tensor, int]]  # parameter, index of its gradient in the buffer
    future: "torch.futures.Future[Any]"  # result: the buffer, or an exception
    cuda: Cuda | None  # None: the buffer is on the host
    ready: Any  # CUDA: the event after which the buffer is final
    staged: torch.Tensor | None = None  # of a buffer on a GPU: the gradients in pinned memory, in the buffer's type
    host: torch.Tensor | None = None  # the gradients on the host, float32; buffer or `staged` itself if they are that
    parcel: Any = None  # of the library: the bucket's tensors on their way through the codec
    freight: Any = None  # of the library: what to exchange next; None: nothing more


class CommHookState:
    """The state of the hook for one DDP module: the codec with its residuals, and counts of bytes.

    epoch, lr: for codecs that depend on them (accordion); set them during the training. bytes_encoded: size of this
    worker's encoded gradients so far. bytes_sent: bytes that this worker has sent for them, with the overhead of the
    collectives.
    """

    spec: str
    epoch: int
    lr: float
    bytes_encoded: int
    bytes_sent: int

    def __init__(self, spec: str, model: torch.nn.Module | None, process_group: dist.ProcessGroup | None,
                 seed: int) -> None:
        self.spec, self.epoch, self.lr = spec, 0, 0.0
        self.bytes_encoded = self.bytes_sent = 0
        self._seed = seed
        self._rank, self._workers = dist.get_rank(process_group), dist.get_world_size(process_group)
        self._names: dict[torch.Tensor, str] = {}
        if model is not None:
            self._names = {p: name for name, p in model.named_parameters() if p.requires_grad and p.numel() > 0}
        # Opened once at once, so that an invalid spec is refused here and not in the first step.
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
        """Returns the parameters in the codec's order: with a model that of tutti.torch.DistributedDataParallel, else
        that of the first step."""
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
        """Returns rows and columns of each parameter, as for the engine: rows are the slowest dimension in memory."""
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
        """Opens the codec when the last bucket of the first step has come, so that all parameters are known."""
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
        """Returns the state of this rank's codec, such as residuals. Between steps; each rank saves its own."""
        if self._relay is None:
            return self._loaded or {"spec": self.spec, "steps": 0}
        return {"spec": self.spec, "steps": _c.tutti_relay_steps(self._relay), "workers": self._workers,
                "tensors": self._layout(), "states": {name: values.clone() for name, values in self._states()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a state_dict() of the same rank of the same number of workers."""
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

    # ---- a bucket, from DDP's call to its future ----

    def take(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer = bucket.buffer()
        if buffer.layout != torch.strided:
            raise ValueError("comm_hook: a sparse gradient; codecs take dense ones (Embedding(sparse=False))")
        if buffer.device.type != "cpu" and buffer.device not in self._cuda:
            self._cuda[buffer.device] = Cuda(buffer.device)
        cuda = self._cuda.get(buffer.device)
        future: torch.futures.Future[Any] = torch.futures.Future(devices=[buffer.device] if cuda else None)
        spans = [(p, int(g.storage_offset() - buffer.storage_offset()))
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
        except BaseException as failure:  # later buckets fail, too, since collectives would be out of order
            self._failure = failure
            bucket.future.set_result(failure)

    def _encode(self, bucket: _Bucket) -> None:
        if bucket.first:
            check(_c.tutti_relay_begin, self._relay, self.epoch, self.lr, self._sum, None)
        source = bucket.buffer
        if bucket.cuda is not None:
            source = bucket.staged = bucket.cuda.pinned(bucket.buffer.shape, bucket.buffer.dtype)
            bucket.cuda.synchronize(bucket.cuda.copy(source, bucket.buffer, bucket.ready))
        host = bucket.host = source.to(torch.float32)
        n, at = len(bucket.spans), host.data_ptr()
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
        host, staged = bucket.host, bucket.staged
        assert host is not None, "_encode() has made it"
        if bucket.cuda is not None and staged is not None:
            if host is not staged:
                staged.copy_(host)
            bucket.cuda.settle(bucket.future, bucket.buffer, bucket.cuda.copy(bucket.buffer, staged, None))
            return
        if host is not bucket.buffer:
            bucket.buffer.copy_(host)
        bucket.future.set_result(bucket.buffer)

    def _parcel(self) -> ctypes.c_void_p:
        try:
            return self._parcels.get_nowait()
        except queue.Empty:
            parcel = ctypes.c_void_p()
            check(_c.tutti_parcel_open, parcel, self._relay)
            return parcel

    # ---- collectives ----

    def _gather_equal(self, mine: torch.Tensor) -> torch.Tensor:
        """All-gathers a row of each worker; all have the same length."""
        theirs = mine.new_empty((self._workers, mine.numel()))
        dist.all_gather_into_tensor(theirs.view(-1), mine, group=self._group)
        self.bytes_sent += (self._workers - 1) * mine.nbytes
        return theirs

    def _gather(self, mine: torch.Tensor, freight: _abi.tutti_freight) -> tuple[Any, ...]:
        """All-gathers messages of any length. They are padded to the longest, since gloo needs equal lengths."""
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
        """Sets numbers to the sum over the workers of factor * numbers: products and sums in float32, in Tutti's order,
        rounded once. (torch's all-reduce rounds 16-bit numbers at every hop, and adds in another order.)"""
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
        """Callback of a codec that needs a sum over all workers when a step begins."""
        try:
            self._add_up(_memory(ctypes.addressof(numbers.contents), n, torch.float32), 1.0)
        except BaseException as failure:
            if err:
                err.contents.status, err.contents.text = _abi.TUTTI_ERR_IO, str(failure).encode()[:400]
            return _abi.TUTTI_ERR_IO
        return _abi.TUTTI_OK


def _result(future: "torch.futures.Future[Any]") -> torch.Tensor:
    value: torch.Tensor | BaseException = future.value()
    if isinstance(value, BaseException):
        raise value
    return value


def _hook(state: CommHookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    return state.take(bucket)


def comm_hook(spec: str, model: torch.nn.Module | None = None, *, process_group: dist.ProcessGroup | None = None,
              seed: int = 0) -> tuple[CommHookState, Callable[..., torch.futures.Future[torch.Tensor]]]:
    """Returns the arguments of `DistributedDataParallel.register_comm_hook` for a codec.

    spec: of the codec.
    model: gives names to the parameters, for codecs with options for named parameters, and an order that does not
        depend on DDP's buckets. Random draws and saved states depend on the order.
    process_group: DDP's, if it was given one.
    seed: of random draws, the same on all ranks.

    Collective: all ranks of the group call it. ValueError: an invalid spec; the text suggests similar names.
    """
    return CommHookState(spec, model, process_group, seed), _hook
