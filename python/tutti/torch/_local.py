"""Hosts with a process group of torch's inside and Tutti between them (local_group=).

The ranks of a host reduce-scatter gradients in their group: NCCL on cards, Gloo on the CPU. Then each has the sum of
the host for its own shard, which it exchanges with the ranks of the same local index on the other hosts. These have a
world of their own, so all links work at the same time, and a host sends what one rank would. An all-gather in the group
ends it.

    host 0   rank 0 ─┐ reduce-scatter   shard 0 ── world of local index 0 ── shard 0   rank 2 ┌─ host 1
             rank 1 ─┘ all-gather       shard 1 ── world of local index 1 ── shard 1   rank 3 └─

Two kinds of worlds. `world` has all ranks, as without local_group: rank and size are those that the script knows. It
carries buffers, small questions and the news that a rank is lost. `between` has one rank a host, and the engine.

Gradients are in buckets of float32, each a tensor of which a rank has one shard. The engine's tensors are these shards,
so a codec sees ranges of values and no matrices.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .. import _abi
from ..engine import Engine, Param
from ..errors import Error, PeerError
from . import _place, _streams
from ._bind import Binding, Bound, Exchange
from ._buffers import Copies
from ._runs import weakly
from ._thread import Worker
from ._versions import call_of

_BUCKET = 8 << 20  # bytes of gradients in a bucket: the last one is reduced when backward is over
_LINE = 16  # elements of a cache line, of which shards are multiples
_DIED = "signal|in the middle of the run|without a word"  # of what the transports say of a rank that is lost
_NEWS = 3.0  # seconds in which the news of a lost rank comes to those that only see its connection end
# Methods that exchange gradients, treat all values alike, and leave the update to the script.
OF_GRADIENTS = ("ddp", "qsgd", "nuqsgd")
# Methods whose exchanges are after the same steps on all workers, whatever the values.
OF_VALUES = ("local-sgd", "diloco")


def _reduce_scatter(mine: torch.Tensor, whole: torch.Tensor, group: dist.ProcessGroup) -> dist.Work:
    work: dist.Work = call_of("reduce_scatter_single", "reduce_scatter_tensor")(mine, whole, group=group, async_op=True)
    return work


def _all_gather(whole: torch.Tensor, mine: torch.Tensor, group: dist.ProcessGroup) -> dist.Work:
    work: dist.Work = call_of("all_gather_single", "all_gather_into_tensor")(whole, mine, group=group, async_op=True)
    return work


# ---- what cannot be had ----
def _name(method: str) -> str:
    return method.split("(")[0].strip()


def check_method(method: str, codec: str | None, allowed: Sequence[str]) -> None:
    """ValueError: it would not be the same on shards."""
    name = _name(method)
    if name not in allowed:
        raise ValueError(
            f"local_group: method '{name}' is not for shards of a host's gradients, since it needs whole tensors, "
            f"ranks of its own or the update; with local_group there are {', '.join(allowed)}. Leave local_group out, "
            "or take one of them"
        )
    from .distributed._coder import traits_of

    if codec and traits_of(codec) & _abi.TUTTI_CODEC_WHOLE_TENSOR:
        raise ValueError(
            f"local_group: codec '{codec}' encodes whole matrices, and a rank has a range of a host's gradients; take "
            "one of ranges of values (topk, qsgd, sign), or leave local_group out"
        )


def check_binding(binding: Binding) -> None:
    """ValueError: a parameter cannot be in shards."""
    for b in binding.bound:
        if b.table:
            raise ValueError(
                f"local_group: parameter '{b.name}' is of an embedding with sparse=True, whose rows are not cut into "
                "shards; make it with sparse=False, or leave local_group out"
            )
    devices = {b.param.device for b in binding.bound}
    if len(devices) > 1:
        raise ValueError(f"local_group: the module's parameters are on {' and '.join(sorted(map(str, devices)))}; they "
                         "must all be on one device")


def refuse(given: dict[str, tuple[bool, str]]) -> None:
    """given: of each argument whether it is given, and why it cannot be together with local_group."""
    for name, (there, why) in given.items():
        if there:
            raise ValueError(f"local_group and {name}: {why}")


# ---- which rank is where ----
def _ranks_of(local_group: Any) -> tuple[list[int], str]:
    """The ranks of this rank's group, and what is wrong with it."""
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError("local_group: torch.distributed is not initialised; call init_process_group, and make the "
                         "group of each host with new_group or init_device_mesh")
    if local_group == dist.GroupMember.NON_GROUP_MEMBER:
        return [], "it gave a group that it is not in"
    if not isinstance(local_group, dist.ProcessGroup):
        raise TypeError(f"local_group={local_group!r} is no group of torch.distributed")
    return dist.get_process_group_ranks(local_group), ""


def hosts_of(said: Sequence[dict[str, Any]], ranks: Sequence[int]) -> list[list[int]]:
    """The ranks of each host, in the order of the hosts' first ranks. ValueError: the groups are not equal parts.

    said: of each of the run's `ranks` its group and what is wrong with it."""
    hosts: list[list[int]] = []
    of = {rank: one["ranks"] for rank, one in zip(ranks, said, strict=True)}
    wrong = {rank: one["wrong"] for rank, one in zip(ranks, said, strict=True) if one["wrong"]}
    for rank, group in of.items() if not wrong else ():
        outside = [r for r in group if r not in of]
        other = next((r for r in group if not outside and of[r] != group), None)
        if outside:
            wrong[rank] = f"its group has rank {outside[0]}, which is not in this run"
        elif other is not None:
            wrong[rank] = f"its group is {group}, and that of rank {other} in it is {of[other]}"
        elif group not in hosts:
            hosts.append(group)
    for rank, why in wrong.items():
        raise ValueError(f"local_group of rank {rank}: {why}; each rank gives the group of all ranks of its host")
    sizes = [len(host) for host in hosts]
    if len(set(sizes)) > 1:
        k = next(k for k, size in enumerate(sizes) if size != sizes[0])
        raise ValueError(
            f"local_group: the host of rank {hosts[0][0]} has {sizes[0]} ranks and that of rank {hosts[k][0]} has "
            f"{sizes[k]}; shards are exchanged between ranks of the same place, so hosts have equally many. Start as "
            "many on each, or leave local_group out"
        )
    return hosts


def _meet(members: _place._Members, said: dict[str, Any], ranks: list[int]) -> tuple[dist.Store, list[list[int]]]:
    """All ranks of a run tell each other their groups. Returns a store for what follows, and the hosts. ValueError, on
    all of them: they do not match, or the ranks have not the same module, method and codec."""
    store = dist.distributed_c10d._get_process_group_store(members.group)
    count = store.add(f"tutti: hosts of rank {members.rank}", 1)
    store = dist.PrefixStore(f"tutti hosts {count}", store)
    store.set(f"rank {members.rank}", json.dumps(said))
    all_said = _place._read_all(store, members.size, "give local_group=, in the same order")
    hosts = hosts_of(all_said, ranks)
    for rank, one in zip(ranks, all_said, strict=True):
        if one["alike"] != all_said[0]["alike"]:
            raise ValueError(f"local_group: rank {rank} has another module, method or codec than rank {ranks[0]}; all "
                             "ranks of a run give the same")
    return store, hosts


class Hosts:
    """The run's hosts, and this rank's place.

    world: all ranks; every: their numbers in the job. between: the ranks of this one's local index, one a host in the
    order of hosts; ranks: their numbers. group: torch's, inside the host; local: its ranks; index, size: this rank's
    place in it."""

    def __init__(self, local_group: Any, group: dist.ProcessGroup | None, transport: str | None, alike: str):
        """alike: what has to be equal on all ranks. Collective; refuses on all ranks alike."""
        mine, wrong = _ranks_of(local_group)
        if transport is not None and transport.startswith("mpi"):
            raise ValueError(f"local_group: transport '{transport}' has all ranks, and here each local index has its "
                             "own; leave transport= out, or give 'tcp' or 'shm'")
        self.every = list(range(dist.get_world_size())) if group is None else dist.get_process_group_ranks(group)
        said = {"ranks": mine, "wrong": wrong, "alike": hashlib.sha256(alike.encode()).hexdigest()}
        members = _place._members(group)
        assert members is not None, "_ranks_of() has asked"
        store, hosts = _meet(members, said, self.every)
        me = dist.get_rank()
        self.group, self.local, self.size, self.index = local_group, mine, len(mine), mine.index(me)
        self.ranks = [host[self.index] for host in hosts]
        self.world = _place.open_world(transport, group)
        try:
            store = dist.PrefixStore(f"index {self.index}", store)
            place = next(k for k, host in enumerate(hosts) if me in host)
            self.between = _place.open_part(store, place, len(hosts), transport or "")
        except BaseException as e:
            _place.give_up(self.world, e)
            raise

    def folder(self, folder: str) -> str:
        """Of a record: that of this local index, whose ranks record one run."""
        return os.path.join(folder, f"local-{self.index}") if folder else ""

    def give_up(self, error: BaseException) -> None:
        """What was to be opened is not. What is refused is so on all ranks, so that there is nothing to report."""
        for world in (self.between, self.world):
            if not world.closed and world.size > 1 and not isinstance(error, ValueError):
                world.failure_report(RuntimeError(str(error)))
            world.close()

    # ---- failures ----
    def _lost(self) -> PeerError | None:
        """The rank that all of this run's news lead to."""
        if self.world.closed:
            return None
        lost = {r: self.world.lost(r) for r in range(self.world.size) if r != self.world.rank}
        found = [(r, why) for r, why in lost.items() if why]
        if not found:
            return None
        # one that has died, before those that end because of it
        rank, why = next(((r, why) for r, why in found if re.search(_DIED, why)), found[0])
        why = re.sub(r"^worker \d+ was lost: ", "", why)
        # a rank that ended because of another one's loss says so, with its number in the job
        of = re.search(r"^worker \d+ failed: rank (\d+) is lost: (.*)", why, re.DOTALL)
        job, why = (int(of[1]), of[2]) if of else (self.every[rank], why)
        return PeerError(f"rank {job} is lost: {why}", job)

    def _of_job(self, error: Error) -> Error:
        """The engine's exception with the ranks of the job."""
        def of(found: re.Match[str]) -> str:
            rank = int(found[2])
            return f"{found[1]} {self.ranks[rank]}" if rank < len(self.ranks) else str(found[0])

        text = re.sub(r"\b([Rr]ank|[Ww]orker) (\d+)\b", of, str(error))
        if not isinstance(error, PeerError):
            return type(error)(text)
        return PeerError(text, self.ranks[error.rank] if 0 <= error.rank < len(self.ranks) else error.rank)

    def news(self, seconds: float = _NEWS) -> PeerError | None:
        """The rank that is lost, if news of it come in this time."""
        end = time.monotonic() + seconds
        while (lost := self._lost()) is None and not self.world.closed and time.monotonic() < end:
            time.sleep(0.01)
        return lost

    @contextlib.contextmanager
    def naming(self) -> Iterator[None]:
        """A lost rank is named by its number in the job, also where only its connection inside the host has ended."""
        try:
            yield
        except RuntimeError as e:
            if isinstance(e, Error) and not isinstance(e, PeerError):
                raise self._of_job(e) from None
            lost = self.news()
            if lost is not None:
                raise lost from None
            if not isinstance(e, Error):  # torch's
                raise
            raise self._of_job(e) from None


# ---- buckets and shards ----
class _Bucket:
    def __init__(self, first: int, bound: list[Bound], places: list[int], part: int):
        self.first, self.bound, self.places, self.part = first, bound, places, part
        self.left = len(bound)  # tensors that are not filled yet
        self.flat = self.shard = self.host = torch.empty(0)


class Shards:
    """The gradients of a module in buckets, and this rank's shard of each.

    The order of calls: begin; fill for each gradient that there is; flush; wait; then gather, once there is what was
    exchanged. `announce(k, shard)` is called on a thread of this object, once a bucket and in order, with the mean of
    the host in host memory. Ranks reduce buckets in the same order, whatever the order of their gradients.

    With begin(inside=True) nothing comes to host memory: after flush, `mean` has the host's mean in the buckets.
    """

    def __init__(self, bound: list[Bound], hosts: Hosts, announce: Callable[[int, torch.Tensor], None]):
        self.bound, self.hosts, self._announce = bound, hosts, announce
        device = bound[0].param.device
        self._streams = _streams.of_device(device)
        self.firsts: list[int] = [0] * len(bound)
        self._of: list[int] = [0] * len(bound)
        self.buckets = self._cut()
        self.flat = torch.zeros(sum(b.part for b in self.buckets) * hosts.size, dtype=torch.float32, device=device)
        for bucket in self.buckets:
            bucket.flat = self.flat[bucket.first : bucket.first + bucket.part * hosts.size]
            bucket.shard = torch.empty(bucket.part, dtype=torch.float32, device=device)
            bucket.host = bucket.shard if self._streams is None else self._streams.pinned((bucket.part,), torch.float32)
        for b in bound:
            b.g = self.view(self.flat, b)
            b.at = b.g.data_ptr()
        self._filled = bytearray(len(bound))
        self._next = 0  # bucket to be reduced
        self._inside = False
        self._works: list[dist.Work] = []  # of each bucket, if inside
        self._up: Any = None  # the event of the last copies from host memory
        self._failure: BaseException | None = None
        self._worker: Worker | None = None

    def _cut(self) -> list[_Bucket]:
        found: list[_Bucket] = []
        held: list[Bound] = []
        places: list[int] = []
        at = begin = 0
        for b in self.bound:
            held.append(b)
            places.append(at - begin)
            self.firsts[b.index], self._of[b.index] = at, len(found)
            at += b.param.numel()
            if 4 * (at - begin) >= _BUCKET or b is self.bound[-1]:
                line = self.hosts.size * _LINE
                at = begin + -(-(at - begin) // line) * line
                found.append(_Bucket(begin, held, places, (at - begin) // self.hosts.size))
                held, places, begin = [], [], at
        return found

    def view(self, flat: torch.Tensor, b: Bound) -> torch.Tensor:
        """A tensor's place in memory of the buckets, with the shape and strides of its parameter."""
        first = self.firsts[b.index]
        return flat[first : first + b.param.numel()].as_strided(b.param.shape, b.strides, first)

    def params(self) -> list[Param]:
        """The shards, as tensors for an Engine."""
        return [Param(f"shard of bucket {k}", (bucket.part,)) for k, bucket in enumerate(self.buckets)]

    # ---- gradients: inside the host ----
    def begin(self, inside: bool = False) -> None:
        self._filled = bytearray(len(self.bound))
        self._next, self._inside, self._works = 0, inside, []
        for bucket in self.buckets:
            bucket.left = len(bucket.bound)

    def fill(self, b: Bound, grad: torch.Tensor) -> None:
        """A gradient that is final. Buckets that are complete, and whose turn it is, are reduced."""
        if grad.is_sparse:
            grad = grad.to_dense()
        if not b.lies_in(grad):
            b.gradient.copy_(grad)
        self._filled[b.index] = 1
        self.buckets[self._of[b.index]].left -= 1
        self._reduce()

    def filled(self, b: Bound) -> bool:
        return bool(self._filled[b.index])

    def _reduce(self) -> None:
        while self._next < len(self.buckets) and self.buckets[self._next].left == 0:
            k, bucket = self._next, self.buckets[self._next]
            self._next += 1
            with self.hosts.naming():
                work = _reduce_scatter(bucket.shard, bucket.flat, self.hosts.group)
            if self._inside:
                self._works.append(work)
                continue
            if self._worker is None:
                self._worker = Worker(weakly(self._bring), "tutti-shards")
            self._worker.put((k, work))

    def flush(self) -> None:
        """There are no more gradients: the others are zero."""
        for b in self.bound:
            if not self._filled[b.index]:
                b.gradient.zero_()
                self._filled[b.index] = 1
                self.buckets[self._of[b.index]].left -= 1
        self._reduce()

    def _bring(self, item: threading.Event | tuple[int, dist.Work]) -> None:
        if isinstance(item, threading.Event):
            item.set()
            return
        try:
            if self._failure is None:
                self._brought(*item)
        except BaseException as failure:  # raised again by wait()
            self._failure = failure

    def _brought(self, k: int, work: dist.Work) -> None:
        bucket, streams = self.buckets[k], self._streams
        with torch.no_grad():
            if streams is None:
                work.wait()
                bucket.shard.mul_(1 / self.hosts.size)
            else:
                with streams.aside():  # which waits for the group's stream, and compute does not
                    work.wait()
                    bucket.shard.mul_(1 / self.hosts.size)
                streams.synchronize(streams.copy(bucket.host, bucket.shard, None))
            self._announce(k, bucket.host)

    def wait(self) -> None:
        """Blocks until all that was reduced is announced."""
        if self._worker is not None:
            flushed = threading.Event()
            self._worker.put(flushed)
            flushed.wait()
        failure, self._failure = self._failure, None
        if failure is not None:
            with self.hosts.naming():
                raise failure

    def mean(self) -> None:
        """After flush, inside: the buckets hold the means of the host."""
        gathered = []
        with self.hosts.naming():
            for bucket, work in zip(self.buckets, self._works, strict=True):
                work.wait()
                bucket.shard.mul_(1 / self.hosts.size)
                gathered.append(_all_gather(bucket.flat, bucket.shard, self.hosts.group))
            for work in gathered:
                work.wait()
        self._works = []

    # ---- values ----
    def values(self, k: int) -> torch.Tensor:
        """This rank's shard of the parameters of a bucket, in host memory, until the next call."""
        bucket = self.buckets[k]
        begin = self.hosts.index * bucket.part
        bucket.shard.zero_()
        for b, place in zip(bucket.bound, bucket.places, strict=True):
            first, last = max(place, begin), min(place + b.param.numel(), begin + bucket.part)
            if first < last:
                p = b.param.detach()
                own = p.as_strided((p.numel(),), (1,)) if b.dense else p.contiguous().view(-1)
                bucket.shard[first - begin : last - begin].copy_(own[first - place : last - place])
        if bucket.host is not bucket.shard:
            bucket.host.copy_(bucket.shard)
        return bucket.host

    # ---- the way back ----
    def gather(self, shards: Sequence[torch.Tensor], whole: torch.Tensor | None = None) -> None:
        """Brings shards of host memory, one a bucket, together in `whole`, memory of all buckets; None: gradients'."""
        whole = self.flat if whole is None else whole
        works = []
        if self._streams is not None and self._up is not None:
            self._streams.synchronize(self._up)  # of the last call: the host's memory is written again
        for bucket, values in zip(self.buckets, shards, strict=True):
            if values is not bucket.host:
                bucket.host.copy_(values)
            if bucket.host is not bucket.shard:
                bucket.shard.copy_(bucket.host, non_blocking=True)
            into = whole[bucket.first : bucket.first + bucket.flat.numel()]
            with self.hosts.naming():
                works.append(_all_gather(into, bucket.shard, self.hosts.group))
        if self._streams is not None:
            self._up = self._streams.record()
        for work in works:
            with self.hosts.naming():
                work.wait()

    def close(self) -> None:
        """Ends the thread. One that waits for a lost rank's part is left alone."""
        if self._worker is not None:
            self._worker.close(2)
            self._worker = None


class LocalExchange(Exchange):
    """Exchange through the hosts' groups. `.grad` of a float32 parameter is a view of the buckets."""

    def __init__(self, binding: Binding, hosts: Hosts, views: bool):
        self.binding, self.hosts, self.views = binding, hosts, views
        self.shards = Shards(binding.bound, hosts, weakly(self._announce))

    @staticmethod
    def initial(k: int, address: int) -> None:
        """The engine's values are not used: each rank's optimizer makes the update of the whole model."""

    def attach(self, engine: Engine) -> None:
        """Call when the engine is open: rank 0's values come to all."""
        self.engine = engine
        self._g = [torch.frombuffer(engine.gradient(k), dtype=torch.float32) for k in range(len(engine.params))]
        Copies(self.hosts.world).broadcast([b.param.data for b in self.binding.bound])

    @property
    def flat(self) -> torch.Tensor:
        return self.shards.flat

    def _announce(self, k: int, shard: torch.Tensor) -> None:
        self._g[k].copy_(shard)
        self.engine.grad_ready(k)

    def begin(self) -> None:
        with self.hosts.naming():
            self.engine.pass_begin()
        self.shards.begin()

    def take(self, b: Bound) -> None:
        grad = b.param.grad
        assert grad is not None, "a gradient that was announced is not there"
        self.shards.fill(b, grad)

    def end(self) -> None:
        self.shards.flush()
        self.shards.wait()
        with self.hosts.naming():
            super().end()
        self.shards.gather(self._g)

    def close(self) -> None:
        self.shards.close()
        self._g = []


def open_hosts(local_group: Any, binding: Binding, group: dist.ProcessGroup | None, transport: str | None,
               options: str) -> Hosts:
    """The hosts of a run. options: method and codec. Refuses before any work, on all ranks alike."""
    check_binding(binding)
    shapes = "".join(f"{b.name}: {b.shape}\n" for b in binding.bound)
    return Hosts(local_group, group, transport, binding.fingerprint() + shapes + options)
