"""The parameters of a module bound to an engine: which, in which order, where their values and gradients lie.

The engine's x and g are float32. A float32 parameter moves into x: its data becomes a view there, so that nothing is
delivered or copied. Every other parameter keeps its memory ("apart"): of another type, or one that overlaps another in
memory. After a backward `.grad` of a float32 parameter is a view of g.

Views have the strides that the parameter has (channels_last, transposed). So the engine's memory is in the
parameter's memory order, and the shape that it is given is the shape in that order.

The weight of embeddings with sparse=True is a table (row_sparse): its gradient comes as rows, goes to the engine as
rows, and a sparse one is what the script's optimiser gets.
"""

import ctypes
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .. import _abi
from ..engine import Engine, Param, tenants
from ..errors import StateError

_LINE = 16  # elements of a cache line
DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


@dataclass(slots=True, eq=False)
class Bound:
    """One trainable parameter and its place in the engine."""

    index: int  # in the engine's list
    name: str
    param: nn.Parameter
    shape: tuple[int, ...]  # in memory order: what the engine is given
    order: tuple[int, ...]  # the parameter's dimensions from the slowest in memory to the fastest
    strides: tuple[int, ...]  # the parameter's own, those of dimensions of one element too: kernels go by them
    apart: bool  # its values have memory of their own
    dense: bool  # which lies densely, in the order above
    x: torch.Tensor | None = None  # its values in the engine, float32, shaped as the parameter
    g: torch.Tensor | None = None  # its gradient there; None, too, where gradients are handed over
    at: int = 0  # the address of g
    host: torch.Tensor | None = None  # of a parameter on a device: its values as the engine hands them out and in
    table: bool = False  # of embeddings with sparse=True alone
    asks: bool = False  # a table whose rows are asked for before a pass reads them
    unit: int = 0  # the module that it is in, where values are held by unit (_units)
    overlaps: bool = False  # another tensor's memory
    kind: type = nn.Parameter  # what it is while its values are there
    empty: torch.Tensor | None = None  # what is in their place when they are not
    version: int = 0  # torch's, as they came

    def lies_in(self, grad: torch.Tensor) -> bool:
        """Is it the place in g?"""
        return not grad.is_sparse and grad.data_ptr() == self.at

    def sparse(self) -> torch.Tensor:
        """A table's exchanged gradient: the rows of g that are not 0 in all their elements."""
        ids = self.g.ne(0).any(1).nonzero().flatten()
        return torch.sparse_coo_tensor(
            ids.unsqueeze(0), self.g[ids].to(self.param.dtype), self.param.shape, is_coalesced=True,
            check_invariants=False,
        )

    def view(self, memory: object) -> torch.Tensor:
        """Memory of the engine's, shaped as the parameter."""
        flat = torch.frombuffer(memory, dtype=torch.float32, count=self.param.numel())
        return flat.as_strided(self.param.shape, self.strides)

    def outside(self) -> torch.Tensor:
        """Its values as the engine hands them out, shaped as the parameter."""
        return self.param if self.host is None else self.host.view(-1).as_strided(self.param.shape, self.strides)


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def memory_order(p: torch.Tensor) -> tuple[int, ...] | None:
    """Its dimensions from the slowest to the fastest; None: its elements do not lie densely."""
    order = tuple(sorted(range(p.dim()), key=lambda d: (-p.stride(d), d)))
    step = 1
    for d in reversed(order):
        if p.size(d) != 1 and p.stride(d) != step:
            return None
        step *= p.size(d)
    return order


def check_trainable(name: str, p: torch.Tensor) -> None:
    """Refuses what cannot be exchanged, in a sentence."""
    if isinstance(p, nn.parameter.UninitializedParameter):
        raise TypeError(
            f"parameter '{name}' has no shape yet; run a forward pass of the lazy module before it is wrapped"
        )
    if p.layout != torch.strided:
        raise ValueError(f"parameter '{name}' is {p.layout}; only dense parameters can be exchanged")
    if p.is_complex():
        raise ValueError(
            f"parameter '{name}' is complex ({p.dtype}); keep its real and imaginary parts (torch.view_as_real) as "
            "the parameter"
        )
    if p.dtype not in DTYPES:
        raise ValueError(
            f"parameter '{name}' is {short(p.dtype)}; float32, bfloat16 and float16 can be exchanged: module.float() "
            "makes it one of them"
        )
    if p.device.type == "meta":
        raise ValueError(f"parameter '{name}' is on the meta device and has no values; materialise the module first")


def words(ids: torch.Tensor) -> ctypes.Array:
    """Row numbers as the engine takes them."""
    array = (ctypes.c_uint32 * len(ids))()
    if len(ids) > 0:
        torch.frombuffer(array, dtype=torch.int32).copy_(ids)
    return array


def _embeddings(module: nn.Module) -> tuple[set[torch.Tensor], list[tuple[str, nn.Module]]]:
    """Weights that only embeddings with sparse=True have, and those embeddings."""
    found, elsewhere = [], set()
    for name, child in module.named_modules():
        sparse = isinstance(child, (nn.Embedding, nn.EmbeddingBag)) and child.sparse
        if sparse:
            found.append((name, child))
        elsewhere |= {p for key, p in child._parameters.items() if p is not None and not (sparse and key == "weight")}
    found = [(name, child) for name, child in found if child.weight not in elsewhere]
    return {child.weight for _, child in found}, found


def _units(module: nn.Module, trained: set[torch.Tensor]) -> dict[torch.Tensor, int]:
    """Modules with parameters of their own, numbered from the input as far as anybody knows. What several have (tied
    weights) is in the first."""
    found: dict[torch.Tensor, int] = {}
    n = 0
    for child in module.modules():
        own = [p for p in child._parameters.values() if p is not None and p in trained and p not in found]
        found |= dict.fromkeys(own, n)
        n += bool(own)
    return found


def _overlapping(params: list[tuple[str, torch.Tensor]]) -> set[str]:
    """Names of tensors that share memory with another of the list."""
    spans = []
    for name, p in params:
        if p.numel() > 0 and p.device.type == "cpu":
            last = sum((n - 1) * s for n, s in zip(p.shape, p.stride(), strict=True))
            spans.append((p.data_ptr(), p.data_ptr() + (last + 1) * p.element_size(), name))
    spans.sort()
    shared: set[str] = set()
    end, owner = -1, ""
    for begin, stop, name in spans:
        if begin < end:
            shared |= {name, owner}
        if stop > end:
            end, owner = stop, name
    return shared


class Binding:
    """What of a module an engine trains. Made before the engine, which is opened over `params()`, then attached.

    Tied weights are one parameter, under the first of their names. The order is that of the parameters, reversed: as
    backward goes through the module, as far as anybody knows before the first. Tensors stand back to back in the
    engine, so one of 10 elements would move all that follow off the cache lines, and kernels lose some percent there.
    Those, mostly a few biases, come last; where values are held by unit, last of their unit. `units`: which has each
    parameter, where a unit is something else than a module with parameters of its own.
    """

    def __init__(self, module: nn.Module, ignore: frozenset[str] = frozenset(), by_unit: bool = False,
                 units: dict[torch.Tensor, int] | None = None):
        named = [(name, p) for name, p in module.named_parameters() if name not in ignore]
        self.module, self.by_unit = module, by_unit
        self.frozen = [(name, p) for name, p in named if not p.requires_grad]
        self.buffers_ignored = ignore
        trained = [(name, p) for name, p in named if p.requires_grad]
        if not trained:
            raise ValueError("the module has no parameter that requires a gradient; there is nothing to exchange")
        for name, p in trained:
            check_trainable(name, p)
        tables, self.embeddings = _embeddings(module)
        others = [(name, b) for name, b in module.named_buffers()]
        shared = _overlapping(named + others)
        self.empty = [(name, p) for name, p in trained if p.numel() == 0]
        self.bound: list[Bound] = []
        backward = reversed([t for t in trained if t[1].numel() > 0])
        if units is None:
            units = _units(module, {p for _, p in trained if p.numel() > 0}) if by_unit else {}
        for name, p in sorted(backward, key=lambda t: (-units.get(t[1], 0), t[1].numel() % _LINE != 0)):
            order = memory_order(p)
            apart = p.dtype != torch.float32 or p.device.type != "cpu" or name in shared
            strides, dense = p.stride(), order is not None
            if order is None:  # it becomes dense, or has a dense gradient
                order, strides = tuple(range(p.dim())), torch.empty(p.shape, device="meta").stride()
            shape = tuple(p.size(d) for d in order) or (1,)
            table = p in tables and dense and order == (0, 1) and p.size(0) < 2**32
            self.bound.append(Bound(len(self.bound), name, p, shape, order, strides, apart, dense, table=table,
                                    unit=units.get(p, 0), overlaps=name in shared))
        if not self.bound:
            raise ValueError("all parameters of the module that require a gradient are empty; nothing is to exchange")
        self._places = self._find_places()
        self.engine: Engine | None = None
        self.units: Any = None  # what brings values and lets them go, where they are held by unit

    def ask(self) -> bool:
        """Tables' rows are to be asked for. Is there one?"""
        of = {b.param: b for b in self.bound if b.table}
        for name, child in self.embeddings:
            if child.weight in of and child.max_norm is not None:
                raise ValueError(
                    f"module '{name}' has max_norm={child.max_norm}, which changes rows where they are read, and this "
                    "method has them at servers; leave max_norm out, or make the module with sparse=False"
                )
        for b in of.values():
            b.asks = True
        return bool(of)

    def params(self) -> list[Param]:
        """For an Engine that hands no values out."""
        return [Param(b.name, b.shape, b.unit, row_sparse=b.table) for b in self.bound]

    def delivered(self, pinned: Callable[[Sequence[int], torch.dtype], torch.Tensor] | None = None) -> list[Param]:
        """For an Engine that hands values out to parameters that are apart, and reads them there.

        pinned: of parameters on a device: gives the host memory in their place."""
        for b in self.bound:
            if pinned is not None:
                b.apart = True
                b.host = pinned(b.shape, b.param.dtype)
                with torch.no_grad():
                    b.outside().copy_(b.param)  # where the engine takes rank 0's from
            elif b.apart and not b.dense:
                raise ValueError(
                    f"parameter '{b.name}' does not lie densely in memory, and is {short(b.param.dtype)} or shares "
                    "that memory with another; give it memory of its own (parameter.data = parameter.data.contiguous())"
                )
        return [
            Param(b.name, b.shape, dtype=DTYPES[b.param.dtype], values=b.outside().data_ptr() if b.apart else None,
                  row_sparse=b.table, asks_rows=b.asks)
            for b in self.bound
        ]

    def fingerprint(self) -> str:
        """What has to agree over the workers besides what the engine compares: "key=value" lines."""
        lines = []
        for b in self.bound:
            lines.append(f"dtype of parameter {b.name}={short(b.param.dtype)}")
            if b.order != tuple(range(len(b.order))):
                lines.append(f"memory order of parameter {b.name}={'x'.join(map(str, b.order))}")
        for kind, tensors in (("frozen parameter", self.frozen), ("buffer", self.buffers())):
            for name, t in tensors:
                lines.append(f"{kind} {name}={short(t.dtype)} of shape {'x'.join(map(str, t.shape)) or '1'}")
        return "".join(line + "\n" for line in lines)

    def initial(self, index: int, address: int) -> None:
        """Writes rank 0's values of a tensor to the engine's memory (engine_options.initial)."""
        b = self.bound[index]
        with torch.no_grad():
            b.view((ctypes.c_float * b.param.numel()).from_address(address)).copy_(b.param)

    def attach(self, engine: Engine) -> None:
        """After open: rank 0's values come to every parameter, and float32 ones move into the engine."""
        self.engine = engine
        tenants.add(self)
        if self.by_unit:
            return  # they come and go
        with torch.no_grad():
            for b in self.bound:
                b.x = b.view(engine.values(b.index))
                memory = engine.gradient(b.index)
                if memory is not None:
                    b.g = b.view(memory)
                    b.at = b.g.data_ptr()
                if b.apart:
                    b.param.copy_(b.x)
                    if b.host is not None:
                        b.outside().copy_(b.x)
                else:
                    b.param.data = b.x

    def _elsewhere(self) -> Iterator[Bound]:
        """Parameters whose values are not in the engine: they never were, or the script has put them elsewhere since
        (p.data = ..., vector_to_parameters)."""
        for b in self.bound:
            p, x = b.param, b.x
            if p.shape != x.shape:
                raise StateError(
                    f"parameter '{b.name}' has the shape {tuple(p.shape)} by now, and its run has {tuple(x.shape)}; "
                    "change shapes before the module is wrapped"
                )
            if b.apart or p.data_ptr() != x.data_ptr() or p.stride() != x.stride():
                yield b

    @torch.no_grad()
    def collect(self) -> None:
        """Values that are elsewhere become the engine's, where that does not read them itself."""
        for b in self._elsewhere():
            b.x.copy_(b.param)

    @torch.no_grad()
    def hand_out(self) -> None:
        """And the other way."""
        for b in self._elsewhere():
            b.param.copy_(b.x)

    def detach(self) -> None:
        """Values and gradients go back to memory of their own. The engine may be closed then."""
        if self.engine is None:
            return
        if self.units is not None:
            self.units.close()
        with torch.no_grad():
            for b in () if self.by_unit else self.bound:
                p, grad = b.param, b.param.grad
                if grad is not None and b.lies_in(grad):
                    p.grad = None
                    grad = grad.clone()
                if p.data_ptr() == b.x.data_ptr():
                    p.data = p.data.clone()
                p.grad = grad
                b.x = b.g = b.host = None
                b.at = 0
        self.engine = None

    def check_module(self) -> None:
        """Are the parameters of the module those that the engine trains?"""
        if all([there.get(key) is what for there, key, what in self._places]):
            return
        there = set(self.module.parameters())
        gone = [b.name for b in self.bound if b.param not in there]
        if gone:
            raise StateError(
                f"parameter '{gone[0]}'"
                + (f" and {len(gone) - 1} more have" if len(gone) > 1 else " has")
                + " been replaced in the module, and the gradients of the new ones would not be exchanged; replace "
                "layers, and call load_state_dict(assign=True), before the module is wrapped or prepared"
            )
        self._places = self._find_places()  # moved within it, as register_parametrization does

    def _find_places(self) -> list[tuple[dict[str, Any], str, object]]:
        """How a forward comes to the parameters: through which modules, under which names."""
        mine, found = {b.param for b in self.bound}, []
        for m in self.module.modules():
            found += [(m._modules, key, child) for key, child in m._modules.items()]
            found += [(m._parameters, key, p) for key, p in m._parameters.items() if p in mine]
        return found

    def check_frozen(self) -> None:
        """Refuses one that is to be trained by now."""
        for name, p in self.frozen:
            if p.requires_grad:
                raise ValueError(
                    f"parameter '{name}' did not require a gradient when the module was given to tutti.torch and does "
                    "now; its gradient would not be exchanged: freeze it again, or wrap or prepare the module after "
                    "such a change"
                )

    def untrained(self) -> list[tuple[str, torch.Tensor]]:
        """What of the module no engine trains, and rank 0's is to be everybody's."""
        return [*self.frozen, *self.buffers()]

    def buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Of the module as it is now: modules put new ones in place of old ones."""
        for name, buffer in self.module.named_buffers():
            if name not in self.buffers_ignored and buffer.numel() > 0:
                yield name, buffer


class Exchange:
    """Gradients go to the engine as backward makes them, and come back as `.grad`.

    This one is for parameters in the memory of the host. One for another device has the same five calls.
    """

    def __init__(self, binding: Binding, engine: Engine, views: bool = True):
        self.binding, self.engine, self.views = binding, engine, views

    def begin(self) -> None:
        """A pass begins: before the first `take`."""
        self.engine.pass_begin()

    def take(self, b: Bound) -> None:
        """The parameter's .grad is final. From here on its place in g belongs to the engine, until `end`."""
        grad = b.param.grad
        if grad.is_sparse and b.table:
            grad = grad.coalesce()
            ids = grad.indices()[0]
            b.g.index_copy_(0, ids, grad.values().float())
            self.engine.grad_ready_rows(b.index, words(ids))
            return
        if grad.is_sparse:
            grad = grad.to_dense()
        at = grad.data_ptr()
        if at == b.at:
            self.engine.grad_ready(b.index)
        elif grad.stride() == b.strides and grad.dtype in DTYPES:
            self.engine.grad_ready_from(b.index, at, DTYPES[grad.dtype])
        else:
            b.g.copy_(grad)
            self.engine.grad_ready(b.index)

    def end(self) -> None:
        """All that will come has come. Afterwards the exchanged gradients stand in g."""
        self.engine.pass_end()
        if self.engine.pass_begin() is not None:
            name = self.engine.method.ops.contents.name.decode()
            raise StateError(
                f"method '{name}' computes a step in several passes, and a backward is one; train with "
                "tutti.torch.prepare"
            )
        self.engine.step()

    def give(self, b: Bound) -> None:
        """The exchanged gradient becomes the parameter's .grad."""
        p = b.param
        if b.table:
            p.grad = b.sparse()
        elif self.views and p.dtype == torch.float32:
            if p.grad is None or not b.lies_in(p.grad):
                p.grad = b.g
        elif p.grad is not None and not b.lies_in(p.grad) and not p.grad.is_sparse:
            p.grad.copy_(b.g)
        else:
            p.grad = b.g.to(p.dtype, copy=True)

    def close(self) -> None:
        """No call comes after it."""


def device_of(binding: Binding) -> torch.device:
    """Where all of the module's parameters are."""
    devices = {b.param.device for b in binding.bound}
    if len(devices) == 1 and next(iter(devices)).type in ("cpu", "cuda"):
        device = devices.pop()
        tables = [b.name for b in binding.bound if b.table]
        if device.type == "cuda" and tables:
            raise ValueError(
                f"parameter '{tables[0]}' is of an embedding with sparse=True on {device}; sparse gradients can be "
                "exchanged on the CPU: make it with sparse=False"
            )
        return device
    names = " and ".join(sorted(map(str, devices)))
    raise ValueError(f"the module's parameters are on {names}; they must all be on the CPU, or on one CUDA device")


def warn_unscaled(engine: Engine) -> None:
    """Warns as a run begins: its backward in fp16 has no loss scale."""
    m = engine.method
    if m.step > 0 or not m.traits & _abi.TUTTI_NEVER_SKIPS:
        return
    if any(torch.is_autocast_enabled(d) and torch.get_autocast_dtype(d) == torch.float16 for d in ("cpu", "cuda")):
        warnings.warn(
            f"method '{m.ops.contents.name.decode()}' cannot skip a step, so fp16 has no loss scale with it, and "
            "values below 6e-8 in a backward pass become 0; torch.bfloat16 needs no scale",
            stacklevel=2,
        )


def warn_unused(names: list[str]) -> None:
    """Warns once: which parameters had no gradient."""
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    warnings.warn(f"no gradient reached {shown} in this backward; see docs/PYTORCH.md, unused parameters", stacklevel=4)
