"""Binds the parameters of a module to an engine: their order, and the memory of their values and gradients.

The engine's values x and gradients g are float32. The data of a float32 parameter becomes a view of x, so that nothing
is copied. A parameter of another type, or one that overlaps another in memory, keeps its memory ("apart"). After a
backward `.grad` of a float32 parameter is a view of g.

Views have the strides of the parameter (channels_last, transposed). So the engine's memory is in the parameter's memory
order, and the engine is given the shape in that order.

The weight of embeddings with sparse=True is a table (row_sparse): its gradient is handed to the engine as rows, and the
script's optimiser gets a sparse gradient.
"""

import ctypes
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .. import _abi
from .._owner import tenants
from ..engine import Engine, Param
from ..errors import StateError

_LINE = 16  # elements of a cache line
DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
Embedding = nn.Embedding | nn.EmbeddingBag


@dataclass(slots=True, eq=False)
class Bound:
    """A trainable parameter and its memory in the engine."""

    index: int  # in the engine's list of tensors
    name: str
    param: nn.Parameter
    shape: tuple[int, ...]  # in memory order, as the engine is given it
    order: tuple[int, ...]  # the parameter's dimensions from the slowest in memory to the fastest
    strides: tuple[int, ...]  # the parameter's, also of dimensions of one element, on which kernels depend
    apart: bool  # its values are not in the engine's memory
    dense: bool  # its own memory has no gaps
    x: torch.Tensor | None = None  # its values in the engine, float32, shaped as the parameter
    g: torch.Tensor | None = None  # its gradient there; None: not attached, or gradients are handed over
    at: int = 0  # the address of g
    host: torch.Tensor | None = None  # of a 16-bit parameter on a device: host memory between it and the engine
    table: bool = False  # only embeddings with sparse=True have it
    asks: bool = False  # a table whose rows are acquired before a pass reads them
    unit: int = 0  # its unit, if values are held by unit (_units)
    overlaps: bool = False  # it shares memory with another tensor
    kind: type = nn.Parameter  # its class while it has values
    empty: torch.Tensor | None = None  # its data while it has none
    version: int = 0  # torch's version when its unit was acquired

    def lies_in(self, grad: torch.Tensor) -> bool:
        """Returns whether grad is the engine's memory for this gradient."""
        return not grad.is_sparse and grad.data_ptr() == self.at

    @property
    def values(self) -> torch.Tensor:
        """x, which is attached."""
        assert self.x is not None, "the parameter has no values in the engine now"
        return self.x

    @property
    def gradient(self) -> torch.Tensor:
        """g, which the engine has."""
        assert self.g is not None, "the engine has no memory for this gradient"
        return self.g

    def sparse(self) -> torch.Tensor:
        """Returns the exchanged gradient of a table: the rows of g that have an element other than 0."""
        g = self.gradient
        ids = g.ne(0).any(1).nonzero().flatten()
        return torch.sparse_coo_tensor(
            ids.unsqueeze(0), g[ids].to(self.param.dtype), self.param.shape, is_coalesced=True,
            check_invariants=False,
        )

    def view(self, memory: object) -> torch.Tensor:
        """Returns memory of the engine as a tensor with the shape and strides of the parameter."""
        flat = torch.frombuffer(memory, dtype=torch.float32, count=self.param.numel())
        return flat.as_strided(self.param.shape, self.strides)

    def outside(self) -> torch.Tensor:
        """Returns the memory to which the engine copies its values, with the shape of the parameter."""
        return self.param if self.host is None else self.host.view(-1).as_strided(self.param.shape, self.strides)

    def window(self) -> torch.Tensor:
        """Returns the host memory between a parameter on a device and the engine, with the shape of the parameter."""
        return self.values if self.host is None else self.outside()


def is_compiled(module: nn.Module) -> bool:
    """Has torch.compile or torch.jit made code of it, which reads parameters in its own way?"""
    compiled = sys.modules.get("torch._dynamo")  # its import takes as long as all the rest of PyTorch
    return (
        isinstance(module, torch.jit.ScriptModule)
        or module._compiled_call_impl is not None
        or (compiled is not None and isinstance(module, compiled.OptimizedModule))
    )


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def memory_order(p: torch.Tensor) -> tuple[int, ...] | None:
    """Returns its dimensions from the slowest in memory to the fastest; None: its memory has gaps."""
    strides = p.stride()
    order = tuple(sorted(range(p.dim()), key=lambda d: (-strides[d], d)))
    step = 1
    for d in reversed(order):
        if p.size(d) != 1 and strides[d] != step:
            return None
        step *= p.size(d)
    return order


def is_sharded(p: torch.Tensor) -> bool:
    """Returns whether it is a DTensor, as FSDP2 makes of a parameter."""
    of_torch = sys.modules.get("torch.distributed.tensor")
    return of_torch is not None and isinstance(p, of_torch.DTensor)


def check_whole(name: str, p: torch.Tensor) -> None:
    """Refuses a parameter of which each rank has a shard."""
    if is_sharded(p):
        raise ValueError(
            f"parameter '{name}' is a DTensor, of which this rank has a shard; give prepare(local_group=) the group of "
            "its mesh, so that a method works between hosts, or let FSDP2 itself communicate through "
            "init_process_group('tutti')"
        )


def check_trainable(name: str, p: torch.Tensor, sharded: bool = False) -> None:
    """Refuses a parameter that cannot be exchanged. sharded: DTensors can be."""
    if not sharded:
        check_whole(name, p)
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


def words(ids: torch.Tensor) -> ctypes.Array[ctypes.c_uint32]:
    """Returns row numbers as an array of c_uint32, for the engine."""
    array = (ctypes.c_uint32 * len(ids))()
    if len(ids) > 0:
        torch.frombuffer(array, dtype=torch.int32).copy_(ids)
    return array


def _embeddings(module: nn.Module) -> tuple[set[torch.Tensor], list[tuple[str, Embedding]]]:
    """Returns the weights that only embeddings with sparse=True have, and the names and modules of these embeddings."""
    found: list[tuple[str, Embedding]] = []
    elsewhere: set[torch.Tensor] = set()
    for name, child in module.named_modules():
        sparse = isinstance(child, (nn.Embedding, nn.EmbeddingBag)) and child.sparse
        if isinstance(child, (nn.Embedding, nn.EmbeddingBag)) and sparse:
            found.append((name, child))
        elsewhere |= {p for key, p in child._parameters.items() if p is not None and not (sparse and key == "weight")}
    found = [(name, child) for name, child in found if child.weight not in elsewhere]
    return {child.weight for _, child in found}, found


def _units(module: nn.Module, trained: set[torch.Tensor]) -> dict[torch.Tensor, int]:
    """Returns the unit of each parameter. A unit is a module with parameters of its own; units are numbered in the
    order of registration. A parameter of several modules (tied weights) is in the unit of the first."""
    found: dict[torch.Tensor, int] = {}
    n = 0
    for child in module.modules():
        own = [p for p in child._parameters.values() if p is not None and p in trained and p not in found]
        found |= dict.fromkeys(own, n)
        n += bool(own)
    return found


def _overlapping(params: list[tuple[str, torch.Tensor]]) -> set[str]:
    """Returns the names of tensors that share memory with another tensor of the list."""
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
    """The parameters of a module that an engine trains. Make it, open the engine with `params()`, then call `attach`.

    Tied weights are one parameter, under the first of their names. The order is that of registration, reversed, since
    backward mostly computes gradients in that order. Tensors are stored without gaps in the engine, so one whose size
    is no multiple of a cache line would misalign those that follow, which slows kernels. Such tensors, mostly a few
    biases, come last; if values are held by unit, last in their unit.

    units: the unit of each parameter; None: a unit is a module with parameters of its own.
    """

    module: nn.Module
    by_unit: bool
    frozen: list[tuple[str, nn.Parameter]]
    buffers_ignored: frozenset[str]
    embeddings: list[tuple[str, Embedding]]
    empty: list[tuple[str, nn.Parameter]]

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
        for name, p in self.frozen:
            check_whole(name, p)
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
        self.units: Any = None  # acquires and releases values, if they are held by unit (_units.Units, _stage.Stage)

    def ask(self) -> bool:
        """Marks tables as such whose rows are acquired before a pass reads them. Returns whether there is one."""
        of: dict[torch.Tensor, Bound] = {b.param: b for b in self.bound if b.table}
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
        """Returns the tensors for an Engine whose values are read in its own memory."""
        return [Param(b.name, b.shape, b.unit, row_sparse=b.table) for b in self.bound]

    def delivered(self, pinned: Callable[[Sequence[int], torch.dtype], torch.Tensor] | None = None) -> list[Param]:
        """Returns the tensors for an Engine that reads and writes the memory of parameters that are apart.

        pinned: allocates host memory, for parameters on a device; None: parameters are on the host. A float32 parameter
        on a device needs none: its values are copied to and from the engine's."""
        for b in self.bound:
            if pinned is not None:
                b.apart = True
                if b.param.dtype != torch.float32:
                    b.host = pinned(b.shape, b.param.dtype)
                    with torch.no_grad():
                        b.outside().copy_(b.param)  # from which the engine reads rank 0's values
            elif b.apart and not b.dense:
                raise ValueError(
                    f"parameter '{b.name}' does not lie densely in memory, and is {short(b.param.dtype)} or shares "
                    "that memory with another; give it memory of its own (parameter.data = parameter.data.contiguous())"
                )
        return [
            Param(b.name, b.shape, dtype=DTYPES[b.param.dtype],
                  values=b.outside().data_ptr() if b.apart and (pinned is None or b.host is not None) else None,
                  row_sparse=b.table, asks_rows=b.asks)
            for b in self.bound
        ]

    def fingerprint(self) -> str:
        """Returns "key=value" lines that have to be equal on all workers, in addition to what the engine compares."""
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
        """Call when the engine is open: gives every parameter rank 0's values, and makes float32 parameters views of
        the engine's memory."""
        self.engine = engine
        tenants.add(self)
        if self.by_unit:
            return  # parameters have values only while their unit is acquired
        with torch.no_grad():
            for b in self.bound:
                x = b.x = b.view(engine.values(b.index))
                memory = engine.gradient(b.index)
                if memory is not None:
                    g = b.g = b.view(memory)
                    b.at = g.data_ptr()
                if b.apart:
                    b.param.copy_(x)
                    if b.host is not None:
                        b.outside().copy_(x)
                else:
                    b.param.data = x

    def _elsewhere(self) -> Iterator[Bound]:
        """Yields parameters whose values are not in the engine's memory: those that are apart, and those to which the
        script has assigned other memory (p.data = ..., vector_to_parameters)."""
        for b in self.bound:
            p, x = b.param, b.values
            if p.shape != x.shape:
                raise StateError(
                    f"parameter '{b.name}' has the shape {tuple(p.shape)} by now, and its run has {tuple(x.shape)}; "
                    "change shapes before the module is wrapped"
                )
            if b.apart or p.data_ptr() != x.data_ptr() or p.stride() != x.stride():
                yield b

    @torch.no_grad()
    def collect(self) -> None:
        """Copies values of parameters that are not in the engine's memory to the engine."""
        for b in self._elsewhere():
            b.values.copy_(b.param)

    @torch.no_grad()
    def hand_out(self) -> None:
        """Copies the engine's values to parameters that are not in its memory."""
        for b in self._elsewhere():
            b.param.copy_(b.values)

    def detach(self) -> None:
        """Moves values and gradients to memory of their own. Afterwards the engine may be closed."""
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
                if p.data_ptr() == b.values.data_ptr():
                    p.data = p.data.clone()
                p.grad = grad
                b.x = b.g = b.host = None
                b.at = 0
        self.engine = None

    def check_module(self) -> None:
        """Raises StateError if parameters of the module were replaced by others that the engine does not train."""
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
        """Returns the dictionaries, keys and values by which a forward finds the modules and the parameters."""
        mine = {b.param for b in self.bound}
        found: list[tuple[dict[str, Any], str, object]] = []
        for m in self.module.modules():
            found += [(m._modules, key, child) for key, child in m._modules.items()]
            found += [(m._parameters, key, p) for key, p in m._parameters.items() if p in mine]
        return found

    def check_frozen(self) -> None:
        """Raises ValueError if a frozen parameter requires a gradient now."""
        for name, p in self.frozen:
            if p.requires_grad:
                raise ValueError(
                    f"parameter '{name}' did not require a gradient when the module was given to tutti.torch and does "
                    "now; its gradient would not be exchanged: freeze it again, or wrap or prepare the module after "
                    "such a change"
                )

    def untrained(self) -> list[tuple[str, torch.Tensor]]:
        """Returns the tensors that the engine does not train, whose values all ranks get from rank 0."""
        return [*self.frozen, *self.buffers()]

    def buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the present buffers of the module: modules may replace their buffers."""
        for name, buffer in self.module.named_buffers():
            if name not in self.buffers_ignored and buffer.numel() > 0:
                yield name, buffer


class Exchange:
    """Hands gradients to the engine during backward, and sets `.grad` to the exchanged ones.

    This class is for parameters in host memory; CudaExchange has the same methods for a GPU. The order of calls is
    begin, take for each gradient, end, give for each gradient.
    """

    def __init__(self, binding: Binding, engine: Engine, views: bool = True):
        self.binding, self.engine, self.views = binding, engine, views

    def begin(self) -> None:
        """Begins a pass, before the first `take`."""
        self.engine.pass_begin()

    def take(self, b: Bound) -> None:
        """Hands over the parameter's .grad, which is final. The engine uses its memory in g until `end` returns."""
        grad = b.param.grad
        assert grad is not None, "a gradient that was announced is not there"
        if grad.is_sparse and b.table:
            grad = grad.coalesce()
            ids = grad.indices()[0]
            b.gradient.index_copy_(0, ids, grad.values().float())
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
            b.gradient.copy_(grad)
            self.engine.grad_ready(b.index)

    def end(self) -> None:
        """Ends the pass when all gradients were taken. Afterwards g has the exchanged gradients. Blocks."""
        self.engine.pass_end()
        if self.engine.pass_begin() is not None:
            name = self.engine.method.ops.contents.name.decode()
            raise StateError(
                f"method '{name}' computes a step in several passes, and a backward is one; train with "
                "tutti.torch.prepare"
            )
        self.engine.step()

    def give(self, b: Bound) -> None:
        """Sets the parameter's .grad to the exchanged gradient."""
        p = b.param
        if b.table:
            p.grad = b.sparse()
        elif self.views and p.dtype == torch.float32:
            if p.grad is None or not b.lies_in(p.grad):
                p.grad = b.g
        elif p.grad is not None and not b.lies_in(p.grad) and not p.grad.is_sparse:
            p.grad.copy_(b.gradient)
        else:
            p.grad = b.gradient.to(p.dtype, copy=True)

    def close(self) -> None:
        """Ends threads. The last call."""


def device_of(binding: Binding) -> torch.device:
    """Returns the device of the module's parameters. ValueError: they are on several, or it is not supported."""
    devices = {b.param.device for b in binding.bound}
    if len(devices) == 1 and next(iter(devices)).type in ("cpu", "cuda", "xpu"):
        device = devices.pop()
        tables = [b.name for b in binding.bound if b.table]
        if device.type != "cpu" and tables:
            raise ValueError(
                f"parameter '{tables[0]}' is of an embedding with sparse=True on {device}; sparse gradients can be "
                "exchanged on the CPU: make it with sparse=False"
            )
        return device
    names = " and ".join(sorted(map(str, devices)))
    raise ValueError(f"the module's parameters are on {names}; they must all be on the CPU, or on one GPU (cuda, xpu)")


def warn_unscaled(engine: Engine) -> None:
    """Before the first step: warns if the method cannot scale the loss and autocast uses fp16."""
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
    """Warns about parameters that had no gradient."""
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    warnings.warn(f"no gradient reached {shown} in this backward; see docs/PYTORCH.md, unused parameters", stacklevel=4)
