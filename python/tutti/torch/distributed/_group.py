"""torch's process group on libtutti: every call of ProcessGroup that moves tensors, under both of its names.
_unserved.py refuses the others.

A call checks its arguments, and raises before anything is sent where they cannot be served. It depends on what all
ranks give alike, so all of them raise, and the group can be used as before. Then the call is put into the group's queue
and its Work is returned (_work.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from ...errors import StateError
from . import _unserved, _worlds
from ._calls import Members
from ._codec import Codec, Coded
from ._options import Options
from ._points import Points
from ._record import Called
from ._reductions import Reduction, reduction
from ._sparse import SparseSum, is_sparse
from ._streams import Several, Staged
from ._tensors import KINDS, alike, check, flat, joined, plain, put, room, spread
from ._work import Queue, Work, seconds

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import GroupName

_CPU = torch.device("cpu")
_SEVERAL = "coalesced calls"


def _devices() -> list[torch.device]:
    """Host memory, and the accelerator if there is one that is served."""
    found = torch.accelerator.current_accelerator()
    return [_CPU] if found is None or found.type not in KINDS else [_CPU, torch.device(found.type)]


def _listed(tensors: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _operation(opts: Any) -> Any:
    """Of options, or where it is given itself."""
    return dist.ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)


def _one(what: str, lists: Sequence[Any]) -> Any:
    if len(lists) != 1:
        raise ValueError(f"{what}: {len(lists)} lists of tensors; a rank has one device here, and so one list")
    return lists[0]


class ProcessGroupTutti(dist.ProcessGroup):
    supports_splitting = supports_coalescing = supports_time_estimate = supports_shrinking = False

    def __init__(self, opts: Any, options: Options):
        super().__init__(opts.group_rank, opts.group_size)  # type: ignore[call-arg]  # the stub has a store's form only
        self._store: dist.Store = opts.store
        self._name, self._desc, self._timeout = str(opts.group_id), "", opts.timeout
        self._coalesced: list[Work] | None = None
        self._shared, ranks = _worlds.of_group(opts, options)
        self._members = Members(self._shared.world, ranks, self._shared.context(self._name))
        self._queue = Queue(self._members, self._name, self._shared.explain, self._shared.missing,
                            self._shared.record)
        self._points = Points(self._shared, self._queue, self._timeout.total_seconds())
        self._codec: Codec | None = None
        if options.codec:
            self._codec = Codec(self._members, options, self._queue.drain)
        self._shared.join(self._queue)

    # ---- names and ends ----

    def getBackendName(self) -> str:
        return "tutti"

    def _get_backend_name(self) -> str:
        return "tutti"

    name = getBackendName

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, desc: str) -> None:
        self._desc = desc

    @property
    def group_name(self) -> GroupName:
        return cast("GroupName", self._name)

    @property
    def group_desc(self) -> str:
        return self._desc

    @property
    def _device_types(self) -> list[torch.device]:
        return _devices()

    def _get_backend(self, device: torch.device) -> ProcessGroupTutti:  # type: ignore[override]  # it is its own
        if torch.device(device).type not in KINDS:
            raise RuntimeError(f"the backend 'tutti' serves no tensors on {device}, only those on {', '.join(KINDS)}")
        return self

    get_backend = _get_backend

    def get_group_store(self) -> dist.Store:
        return self._store

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return False

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return self._queue.issued

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout
        self._points.limit = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def shutdown(self) -> None:
        """Ends the group, after what was issued. The others need not come to it at the same time."""
        self._end(StateError("the group was destroyed with messages in flight"))

    def abort(self) -> None:
        """Ends the group at once; calls in progress fail, on the others as well."""
        if self._shared.is_open():
            self._queue.abort()
        self._end(StateError("the group was aborted"))

    def _end(self, error: BaseException) -> None:
        if self._queue.is_open() and self._shared.is_open():
            self._points.close(error)
            self._shared.leave(self._queue)

    # ---- issue ----

    def _issue(self, what: str, run: Callable[[], Any], outputs: Sequence[Tensor], opts: Any,
               staged: Staged | None = None, how: Sequence[object] = ()) -> Work:
        self._shared.world._mine()  # in a process that was forked from this one it raises
        limit = seconds(getattr(opts, "timeout", None)) or self._timeout.total_seconds()
        coded = self._codec is not None and any(isinstance(of_it, Coded) for of_it in how)
        codec = self._codec.spec if self._codec is not None and coded else ""
        called = None
        if self._shared.record is not None and what != _SEVERAL:
            size = staged.bytes() if staged is not None else 0
            called = Called(self._queue.name, what, codec, size, time.monotonic_ns())
        label = f"{what} ({codec})" if codec else what
        return self._noted(self._queue.issue(what, run, outputs, limit, staged, label, called))

    def _noted(self, work: Work) -> Work:
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _start_coalescing(self, device: torch.device = _CPU) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device = _CPU) -> Work:
        """One Work for all that was issued since. The queue keeps their order, so it is over after them."""
        works, self._coalesced = self._coalesced or [], None

        def run() -> None:
            for work in works:
                work.settled()

        staged = Several([work.staged for work in works])
        return self._issue(_SEVERAL, run, [t for work in works for t in work.result()], None, staged)

    # ---- reductions ----

    def _how(self, what: str, op: Any, dtypes: Sequence[torch.dtype],
             counts: Sequence[Sequence[int]]) -> Sequence[Reduction | Coded]:
        """Of each tensor, with its codec where it has one. counts: elements of its parts."""
        how = [reduction(what, op, dtype) for dtype in dtypes]
        if self._codec is None:
            return how
        return [self._codec.instead_of(exact, what, op, dtype, of_one)
                for exact, dtype, of_one in zip(how, dtypes, counts, strict=True)]

    def _allreduce(self, what: str, tensors: Sequence[Tensor], opts: Any) -> Work:
        op, dense = _operation(opts), [t for t in tensors if not is_sparse(t)]
        check(what, dense)
        sparse = {id(t): SparseSum(what, op, t.dtype) for t in tensors if is_sparse(t)}
        of_dense = iter(self._how(what, op, [t.dtype for t in dense], [[t.numel()] for t in dense]))
        how = [sparse.get(id(t)) or next(of_dense) for t in tensors]
        staged = Staged()
        hosts = [t if id(t) in sparse else staged.updates(t) for t in tensors]

        def run() -> None:
            for t, of_it in zip(hosts, how, strict=True):
                of_it.allreduce(self._members, t)

        return self._issue(what, run, tensors, opts, staged, how)

    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        return self._allreduce("all_reduce", _listed(tensors), opts)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work:
        return self._allreduce("all_reduce_coalesced", _listed(tensors), opts)

    # torch's stub has two forms of some calls, the second one for scripts, and names of arguments.
    # c10d calls a group that is made in Python by position, in the form with options.
    def reduce(self, tensors: Any, opts: Any) -> Work:  # type: ignore[override]  # one form
        what, tensors, root = "reduce", _listed(tensors), opts.rootRank
        check(what, tensors)
        how = [reduction(what, opts.reduceOp, t.dtype) for t in tensors]
        staged = Staged()
        hosts = [staged.updates(t) for t in tensors]

        def run() -> None:
            for t, of_it in zip(hosts, how, strict=True):
                of_it.reduce(self._members, t, root)

        return self._issue(what, run, tensors, opts, staged)

    def _reduce_scatter(self, what: str, outs: Sequence[Tensor], ins: Sequence[Sequence[Tensor]], opts: Any) -> Work:
        """ins: of each output what goes to each member, or one tensor of as many equal parts."""
        for out, parts in zip(outs, ins, strict=True):
            check(what, [out, *parts])
            alike(what, parts, out.dtype)
            whole, size = sum(t.numel() for t in parts), self.size()
            if len(parts) not in (1, size) or (len(parts) == 1 and whole != out.numel() * size):
                raise ValueError(
                    f"{what}: {out.numel()} elements out of {whole} in {len(parts)} tensors, over {size} ranks; each "
                    "rank gets one part"
                )
            if len(parts) == size and parts[self.rank()].numel() != out.numel():
                raise ValueError(
                    f"{what}: {out.numel()} elements out, and {parts[self.rank()].numel()} in this rank's part"
                )
        counts = [[t.numel() for t in parts] if len(parts) == self.size() else [out.numel()] * self.size()
                  for out, parts in zip(outs, ins, strict=True)]
        how = self._how(what, _operation(opts), [out.dtype for out in outs], counts)
        staged = Staged()
        sources = [[staged.reads(t) for t in parts] for parts in ins]
        hosts = [staged.writes(out) for out in outs]

        def run() -> None:
            for out, parts, of_it in zip(hosts, sources, how, strict=True):
                of_it.reduce_scatter(self._members, out, parts)

        return self._issue(what, run, outs, opts, staged, how)

    def reduce_scatter(self, outs: Any, ins: Any, opts: Any = None) -> Work:  # type: ignore[override]  # one form
        ins = [ins] if ins and isinstance(ins[0], Tensor) else ins
        return self._reduce_scatter("reduce_scatter", _listed(outs), ins, opts)

    def reduce_scatter_single(self, out: Tensor, x: Tensor, opts: Any = None) -> Work:
        return self._reduce_scatter("reduce_scatter_single", [out], [[x]], opts)

    def reduce_scatter_single_coalesced(self, outs: Any, ins: Any, opts: Any = None) -> Work:
        return self._reduce_scatter("reduce_scatter_single_coalesced", outs, [[x] for x in ins], opts)

    _reduce_scatter_base = reduce_scatter_single  # type: ignore[assignment]  # names of arguments
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced  # type: ignore[assignment]  # likewise

    # ---- gathers ----

    def _gather_single(self, what: str, outs: Sequence[Tensor], ins: Sequence[Tensor], opts: Any) -> Work:
        for out, x in zip(outs, ins, strict=True):
            check(what, [out, x])
            alike(what, [x], out.dtype)
            if out.numel() != x.numel() * self.size():
                raise ValueError(
                    f"{what}: {x.numel()} elements of each of {self.size()} ranks, and {out.numel()} in the output"
                )

        staged = Staged()
        sources, hosts = [staged.reads(x) for x in ins], [staged.writes(out) for out in outs]

        def run() -> None:
            for out, x in zip(hosts, sources, strict=True):
                whole = room(out)
                self._members.allgather(flat(x), [x.numel()] * self.size(), whole)
                put(whole, out)

        return self._issue(what, run, outs, opts, staged)

    def all_gather_single(self, out: Tensor, x: Tensor, opts: Any = None) -> Work:
        return self._gather_single("all_gather_single", [out], [x], opts)

    def all_gather_single_coalesced(self, outs: Any, ins: Any, opts: Any = None) -> Work:
        return self._gather_single("all_gather_single_coalesced", outs, ins, opts)

    _allgather_base = all_gather_single  # type: ignore[assignment]  # names of arguments
    allgather_into_tensor_coalesced = all_gather_single_coalesced  # type: ignore[assignment]  # likewise

    def _allgather(self, what: str, outs: Sequence[Sequence[Tensor]], ins: Sequence[Tensor], opts: Any) -> Work:
        """outs: of each input what comes of each member; ranks may have inputs of different sizes."""
        for parts, x in zip(outs, ins, strict=True):
            self._check_parts(what, parts, x)
        staged = Staged()
        sources, hosts = [staged.reads(x) for x in ins], [[staged.writes(t) for t in parts] for parts in outs]

        def run() -> None:
            for parts, x in zip(hosts, sources, strict=True):
                counts = [t.numel() for t in parts]
                whole = torch.empty(sum(counts), dtype=x.dtype)
                self._members.allgather(flat(x), counts, whole)
                spread(whole, parts)

        return self._issue(what, run, [t for parts in outs for t in parts], opts, staged)

    def _check_parts(self, what: str, parts: Sequence[Tensor], mine: Tensor) -> None:
        """A tensor for each member, and this rank's own."""
        check(what, [*parts, mine])
        alike(what, parts, mine.dtype)
        if len(parts) != self.size():
            raise ValueError(f"{what}: {len(parts)} tensors for {self.size()} ranks")
        own = parts[self.rank()].numel()
        if own != mine.numel():
            raise ValueError(f"{what}: {own} elements for this rank in the list, and {mine.numel()} in its own tensor")

    def allgather(self, outs: Any, ins: Any, opts: Any = None) -> Work:
        outs = [outs] if outs and isinstance(outs[0], Tensor) else outs
        return self._allgather("all_gather", outs, _listed(ins), opts)

    def allgather_coalesced(self, outs: Any, ins: Any, opts: Any = None) -> Work:
        """outs: of each member what comes of its tensors."""
        return self._allgather("all_gather_coalesced", [list(of_all) for of_all in zip(*outs, strict=True)], ins, opts)

    def gather(self, outs: Any, ins: Any, opts: Any) -> Work:  # type: ignore[override]  # one form
        what, root, x = "gather", opts.rootRank, _one("gather", _listed(ins))
        parts = _one(what, outs) if self.rank() == root else []
        if self.rank() == root:
            self._check_parts(what, parts, x)
            self._check_equal(what, parts)
        check(what, [x])
        staged = Staged()
        mine, hosts = staged.reads(x), [staged.writes(t) for t in parts]

        def run() -> None:
            whole = torch.empty(sum(t.numel() for t in hosts), dtype=x.dtype) if hosts else None
            self._members.gather(flat(mine), whole, root)
            if whole is not None:
                spread(whole, hosts)

        return self._issue(what, run, parts, opts, staged)

    def gather_single(self, out: Tensor, x: Tensor, opts: Any) -> Work:
        """out: of the root alone; the others give one that is not used."""
        what, root = "gather_single", opts.rootRank
        outs = [out] if self.rank() == root else []
        check(what, [x, *outs])
        alike(what, outs, x.dtype)
        if outs and out.numel() != x.numel() * self.size():
            raise ValueError(
                f"{what}: {x.numel()} elements of each of {self.size()} ranks, and {out.numel()} in the output"
            )
        staged = Staged()
        mine, hosts = staged.reads(x), [staged.writes(t) for t in outs]

        def run() -> None:
            whole = room(hosts[0]) if hosts else None
            self._members.gather(flat(mine), whole, root)
            if whole is not None:
                put(whole, hosts[0])

        return self._issue(what, run, outs, opts, staged)

    gather_into_tensor = gather_single

    @staticmethod
    def _check_equal(what: str, parts: Sequence[Tensor]) -> None:
        if len({t.numel() for t in parts}) > 1:
            raise ValueError(f"{what}: tensors of {sorted({t.numel() for t in parts})} elements; all have equally many")

    def scatter(self, outs: Any, ins: Any, opts: Any) -> Work:  # type: ignore[override]  # one form
        what, root, out = "scatter", opts.rootRank, _one("scatter", _listed(outs))
        parts = _one(what, ins) if self.rank() == root else []
        if self.rank() == root:
            self._check_parts(what, parts, out)
            self._check_equal(what, parts)
        check(what, [out])
        staged = Staged()
        sources, host = [staged.reads(t) for t in parts], staged.writes(out)

        def run() -> None:
            mine = room(host)
            self._members.scatter(joined(sources) if sources else None, mine, root)
            put(mine, host)

        return self._issue(what, run, [out], opts, staged)

    def broadcast(self, tensors: Any, opts: Any = None) -> Work:  # type: ignore[override]  # one form
        what, tensors, root = "broadcast", _listed(tensors), getattr(opts, "rootRank", opts or 0)
        check(what, tensors)
        staged, sends = Staged(), self.rank() == root
        hosts = [staged.reads(t) if sends else staged.writes(t) for t in tensors]

        def run() -> None:
            for t in hosts:
                x = flat(t)
                self._members.broadcast(x, root)
                if not sends:
                    put(x, t)

        return self._issue(what, run, tensors, opts, staged)

    # ---- all to all ----

    def _splits(self, what: str, t: Tensor, splits: Sequence[int]) -> list[int]:
        """Elements for each member; splits: of dimension 0; empty: equal ones."""
        size, length = self.size(), t.size(0) if t.dim() > 0 else t.numel()
        if not splits:
            if length % size != 0:
                raise ValueError(f"{what}: dimension 0 has {length} entries, which {size} ranks do not divide")
            return [t.numel() // size] * size
        if len(splits) != size or sum(splits) != length:
            raise ValueError(f"{what}: splits {list(splits)} for {size} ranks, and dimension 0 has {length} entries")
        row = t.numel() // length if length > 0 else 0
        return [n * row for n in splits]

    def all_to_all_single(self, out: Tensor, x: Tensor, out_splits: Any, in_splits: Any, opts: Any = None) -> Work:
        what = "all_to_all_single"
        check(what, [out, x])
        alike(what, [x], out.dtype)
        come, to = self._splits(what, out, out_splits or []), self._splits(what, x, in_splits or [])
        staged = Staged()
        source, host = staged.reads(x), staged.writes(out)

        def run() -> None:
            own = flat(source)
            into = room(host) if plain(host) and host.data_ptr() != own.data_ptr() else host.new_empty(host.numel())
            self._members.alltoall(own, to, into, come)
            put(into, host)

        return self._issue(what, run, [out], opts, staged)

    alltoall_base = all_to_all_single  # type: ignore[assignment]  # names of arguments

    def alltoall(self, outs: Any, ins: Any, opts: Any = None) -> Work:
        what, outs, ins = "all_to_all", list(outs), list(ins)
        check(what, [*outs, *ins])
        alike(what, [*outs, *ins], ins[0].dtype if ins else torch.float32)
        if (len(outs), len(ins)) != (self.size(), self.size()):
            raise ValueError(f"{what}: {len(ins)} tensors in and {len(outs)} out, for {self.size()} ranks")

        staged = Staged()
        sources, hosts = [staged.reads(t) for t in ins], [staged.writes(t) for t in outs]

        def run() -> None:
            into = torch.empty(sum(t.numel() for t in hosts), dtype=ins[0].dtype)
            self._members.alltoall(joined(sources), [t.numel() for t in ins], into, [t.numel() for t in outs])
            spread(into, hosts)

        return self._issue(what, run, outs, opts, staged)

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work:  # type: ignore[override]  # one form
        return self._issue("barrier", self._members.barrier, [], opts)

    # ---- one to one ----

    def _point(self, what: str, tensors: Any) -> Tensor:
        self._shared.world._mine()
        self._queue.check(what)
        tensor: Tensor = _one(what, _listed(tensors))
        check(what, [tensor])
        return tensor

    def send(self, tensors: Any, to: int, tag: int) -> Work:
        return self._noted(self._points.send(self._point("send", tensors), to, tag))

    def recv(self, tensors: Any, of: int, tag: int) -> Work:
        return self._noted(self._points.recv(self._point("recv", tensors), of, tag))

    def recv_anysource(self, tensors: Any, tag: int) -> Work:
        return self._noted(self._points.recv(self._point("recv", tensors), -1, tag))


_unserved.refuse(ProcessGroupTutti)
