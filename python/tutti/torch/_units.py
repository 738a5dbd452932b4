"""Values that are held by unit (zero's third stage): a module's parameters have values only while the module runs.

A unit is a module with parameters of its own; units are numbered from the input, in the order of registration. A
parameter of several modules (tied weights) is in the unit of the first, and the others acquire that unit, too. Between
its uses a parameter is a `Cut`: it has its shape, type and gradient, and its data is one NaN. Code that reads it then
gets an error. Within a forward the unit is acquired instead, until the module that reads it has run. So modules that
read parameters of others (nn.MultiheadAttention, a loss over a ParameterList) need nothing special.

    forward     a pre-hook acquires the unit, and the parameters' data becomes the engine's memory (a copy if the
                parameter has 16 bits); a hook releases it
    backward    a tensor that autograd saves of a parameter cannot be kept: its storage is a buffer that another unit
                uses by then, and it is mostly a view, as a linear layer's weight.t(), which a change of `param.data`
                does not affect. (FSDP keeps one storage, frees it by resize_(0) and copies values in again.) So
                saved_tensors_hooks pack such a tensor as the parameter and the position of the view, and unpack it
                from the engine's memory, without a copy. The first read of a unit in backward acquires it. It is
                released when the gradients of all of its parameters are handed over, or when the pass ends

If a module returns a view of its parameter, the view is cloned before the unit is released.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.utils import _pytree

from .. import _abi
from ..errors import Error, StateError
from ._bind import Bound, is_compiled
from ._state import memory

if TYPE_CHECKING:
    from ._run import Run

_T = torch.Tensor
_GRAD: Any = _T.grad  # the descriptor
FACTS = {
    getattr(_T, name).__get__
    for name in (
        "shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_leaf", "grad_fn", "_version", "is_sparse",
        "is_cpu", "is_cuda", "is_meta", "is_nested", "is_quantized", "is_mkldnn", "nbytes", "itemsize", "grad",
        "_backward_hooks", "_post_accumulate_grad_hooks", "retains_grad",
    )
} | {getattr(_T, name) for name in (
    "size", "dim", "ndimension", "numel", "nelement", "element_size", "is_floating_point", "is_complex",
    "register_hook", "register_post_accumulate_grad_hook", "requires_grad_", "get_device", "__len__", "is_inference",
)} | {torch.numel, torch.is_floating_point, torch.is_complex, _GRAD.__set__, _GRAD.__delete__}  # fmt: skip
"""Functions that are allowed on a parameter without values."""


_GRADS = (_GRAD.__get__, _GRAD.__set__, _GRAD.__delete__)


class Cut(nn.Parameter):
    """The class of a parameter while it has no values."""

    _bound: Bound
    _units: Units

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in FACTS:
            if func is _T.copy_ and type(args[0]) is Cut:
                args[0]._units.write(args[0]._bound, args[1])
                return args[0]
            read = [t for t in _pytree.tree_leaves((args, kwargs)) if type(t) is Cut]
            if all([t._units.read(t._bound, func) for t in read]):
                return func(*args, **kwargs)
        elif func in _GRADS:
            args[0]._units.check_gradient(args[0]._bound)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)


class _Saved(NamedTuple):
    """A view of a parameter's memory, as autograd saves it."""

    bound: Bound
    size: torch.Size
    stride: tuple[int, ...]
    offset: int | torch.SymInt


_Pack = Callable[[torch.Tensor], Any]
_Unpack = Callable[[Any], torch.Tensor]


@dataclass(slots=True, eq=False)
class _Frame:
    """A module that runs."""

    module: nn.Module
    units: list[int] = field(default_factory=list)  # units that it has acquired, once for each time
    pushed: bool = False  # it has pushed hooks for saved tensors
    looks: bool = False  # it has begun an evaluation of the agreed model


def check(model: nn.Module, bound: list[Bound], elsewhere: bool) -> None:
    """Refuses modules and parameters that cannot be trained by unit. elsewhere: parameters are not on the CPU."""
    for name, module in model.named_modules():
        if is_compiled(module):
            raise ValueError(
                f"module '{name or type(module).__name__}' is compiled, and reads parameters without asking for them, "
                "but this method brings a module's values when it runs; prepare the module without torch.compile or "
                "torch.jit, or take zero(stage=2)"
            )
    if elsewhere:
        raise ValueError(
            f"the module's parameters are on {bound[0].param.device}, and this method brings values to the memory of "
            "the host; take zero(stage=2), or leave the module on the CPU"
        )
    for b in bound:
        if b.overlaps:
            raise ValueError(
                f"parameter '{b.name}' shares memory with another tensor of the module, and this method holds each "
                "worker's part of each; give it memory of its own (parameter.data = parameter.data.clone())"
            )


class Units:
    """Acquires and releases the units of a run, by hooks of its modules."""

    def __init__(self, run: Run):
        self._run, self._engine, self._model = run, run.engine, run.model
        self._bound = run.binding.bound
        self._of: list[list[Bound]] = [[] for _ in range(1 + max(b.unit for b in self._bound))]
        self._held = [0] * len(self._of)  # [unit]: how many times it is acquired
        self._left = [0] * len(self._of)  # [unit]: parameters whose gradient was not handed over in this pass
        self._came: set[Bound] = set()  # parameters whose gradient was
        self._back: set[int] = set()  # units that backward has acquired
        self._frames: list[_Frame] = []
        self._where: dict[int, Bound] = {}  # address of a storage with values: its parameter
        self._empty: dict[int, Bound] = {}  # address of a storage that stands for missing values: its parameter
        self._pair_alone = self._pair(None, None)
        self._gathered: dict[Bound, torch.Tensor] | None = None  # for a state_dict() that is being made
        self._written = False
        for b in self._bound:
            self._of[b.unit].append(b)
            b.kind = type(b.param)
            b.empty = torch.full((), float("nan"), dtype=b.param.dtype).expand(b.param.shape)
            self._empty[b.empty.untyped_storage().data_ptr()] = b
            cut: Any = b.param  # what it is after _hide()
            cut._bound, cut._units = b, self
            self._hide(b)
        self._places = [
            (module, name, b) for b in self._bound for module in self._model.modules()
            for name, p in module._parameters.items() if p is b.param
        ]  # fmt: skip
        self._hooks: list[Any] = []
        owners: dict[nn.Module, list[int]] = {self._model: []}
        for module, _, b in self._places:
            units = owners.setdefault(module, [])
            if b.unit not in units:
                units.append(b.unit)
        for module, units in owners.items():
            self._hooks.append(module.register_forward_pre_hook(
                lambda m, _, units=sorted(units): self._enter(m, units), prepend=True))  # fmt: skip
            self._hooks.append(module.register_forward_hook(lambda m, _, out: self._leave(m, out), always_call=True))
        self._hooks.append(self._model.register_state_dict_pre_hook(self._before_state))
        self._hooks.append(self._model.register_state_dict_post_hook(lambda _, state, *__: self._after_state(state)))

    # ---- acquiring and releasing ----

    def _show(self, b: Bound) -> None:
        x = b.view(self._engine.values(b.index))
        b.x = x if b.param.dtype == torch.float32 else x.to(b.param.dtype)
        b.param.__class__ = b.kind
        b.param.data = b.x
        b.version = b.param._version
        self._where[b.x.untyped_storage().data_ptr()] = b

    def _hide(self, b: Bound) -> None:
        if b.x is not None:
            del self._where[b.x.untyped_storage().data_ptr()]
        assert b.empty is not None
        b.param.data = b.empty
        b.param.__class__ = Cut
        b.x = None

    def _acquire(self, unit: int, backward: bool = False) -> None:
        if self._held[unit] == 0:
            self._engine.unit_acquire(unit, backward)
            with torch.inference_mode(False), torch.no_grad():
                for b in self._of[unit]:
                    self._show(b)
        self._held[unit] += 1

    def _release(self, unit: int, backward: bool = False) -> None:
        self._held[unit] -= 1
        if self._held[unit] > 0:
            return
        wrong = [b.name for b in self._of[unit] if b.param._version != b.version]
        with torch.inference_mode(False), torch.no_grad():
            for b in self._of[unit]:
                self._hide(b)
        self._engine.unit_release(unit, backward)
        if wrong:
            raise StateError(
                f"parameter '{wrong[0]}' was written to while its module ran, which would be lost: under method "
                f"'{self._run.method}' values are there for reading, and only the method's step changes them"
            )

    # ---- forward ----

    @torch._disable_dynamo
    def _enter(self, module: nn.Module, units: list[int]) -> None:
        frame = _Frame(module)
        if module is self._model:
            if all(f.module is not module for f in self._frames):
                self._unwind()  # after an interrupt the hooks of modules that ran were not called
            frame.looks = self._run.before_forward()
        elif not self._frames and not self._within():
            raise StateError(
                f"a module of the model was called by itself ({type(module).__name__}): under method "
                f"'{self._run.method}' no worker has all of its values; call the model that was given to prepare(), or "
                "do it within optimizer.evaluate(), on all workers"
            )
        self._frames.append(frame)
        top = torch._C._autograd._top_saved_tensors_default_hooks(True)
        if top is None or getattr(top[0], "units", None) is not self:
            torch._C._autograd._push_saved_tensors_default_hooks(*(self._pair(*top) if top else self._pair_alone))
            frame.pushed = True
        for unit in units:
            self._acquire(unit)
            frame.units.append(unit)

    @torch._disable_dynamo
    def _leave(self, module: nn.Module, output: Any) -> Any:
        if all(f.module is not module for f in self._frames):
            return None  # its own pre-hook has failed
        while self._frames[-1].module is not module:
            self._pop()
        gone = {u for u in self._frames[-1].units if self._held[u] == self._frames[-1].units.count(u)}
        if gone:
            output = self._own(output, gone)
        self._pop()
        return output

    def _own(self, output: Any, gone: set[int]) -> Any:
        """Returns the output, with copies of tensors that are views of parameters of the units `gone`."""

        def own(t: Any) -> Any:
            if isinstance(t, torch.Tensor) and t.layout == torch.strided and type(t) is not Cut:
                b = self._where.get(t.untyped_storage().data_ptr())
                if b is not None and b.unit in gone:
                    return t.clone()
            return t

        return own(output) if isinstance(output, torch.Tensor) else _pytree.tree_map(own, output)

    def _pop(self) -> None:
        frame = self._frames.pop()
        if frame.pushed:
            torch._C._autograd._pop_saved_tensors_default_hooks()
        # After a failure the engine takes no calls, and the failure is reported already.
        with contextlib.suppress(Error) if sys.exc_info()[0] is not None else contextlib.nullcontext():
            for unit in frame.units:
                self._release(unit)
            if frame.looks:
                self._run.resume()

    def _unwind(self) -> None:
        while self._frames:
            self._pop()

    def _within(self) -> bool:
        """Returns whether values can be acquired now."""
        return self._run.in_pass or self._run.shown or self._run.finished

    def read(self, b: Bound, func: Callable[..., Any]) -> bool:
        """Called when `func` reads a parameter without values. True: it has values now. False: it is to be read as it
        is."""
        if self._gathered is not None and func is _T.detach:
            return False
        if b.x is not None:  # gathered with another parameter of its unit
            return True
        if self._frames:
            self._acquire(b.unit)
            self._frames[-1].units.append(b.unit)
        elif torch._C._current_graph_task_id() != -1:  # a checkpointed part is computed again
            self._acquire_in_backward(b)
        else:
            raise StateError(
                f"parameter '{b.name}' was read ({getattr(func, '__name__', func)}), but under method "
                f"'{self._run.method}' each worker has a part of its values, and all of them only while its module "
                "runs; take model.state_dict(), on all workers"
                + (", which is too late after close()" if self._run.ended else "")
            )
        return True

    # ---- what autograd saves ----

    def _pair(self, outer_pack: _Pack | None, outer_unpack: _Unpack | None) -> tuple[_Pack, _Unpack]:
        """Returns hooks for saved tensors. Tensors that are no parameters are passed to the outer hooks, if any (those
        of torch.utils.checkpoint)."""

        def pack(t: torch.Tensor) -> Any:
            b = self._where.get(t.untyped_storage().data_ptr()) if t.layout == torch.strided else None
            if b is not None and t.dtype == b.values.dtype:
                return _Saved(b, t.size(), t.stride(), t.storage_offset())
            if b is not None:  # a view of another type
                t = t.clone()
            return outer_pack(t) if outer_pack is not None else (t, t._version)

        def unpack(saved: Any) -> torch.Tensor:
            if type(saved) is _Saved:
                b = saved.bound
                if b.x is None:
                    self._acquire_in_backward(b)
                return b.values.as_strided(saved.size, saved.stride, saved.offset)
            if outer_unpack is not None:
                return outer_unpack(saved)
            t: torch.Tensor
            t, version = saved
            if t._version != version:  # with hooks autograd does not check versions
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"[{torch.typename(t)} {list(t.shape)}] is at version {t._version}; expected version {version} "
                    "instead"
                )
            return t

        setattr(pack, "units", self)
        return pack, unpack

    # ---- backward ----

    def _acquire_in_backward(self, b: Bound) -> None:
        if not self._run.in_pass:
            raise StateError(
                f"backward reads parameter '{b.name}' outside a pass, where under method '{self._run.method}' its "
                "values are not there; call backward() once after a forward in training mode, before step()"
            )
        self._acquire(b.unit, True)
        self._back.add(b.unit)

    def check_gradient(self, b: Bound) -> None:
        """Called when a gradient is read. StateError: it was handed over in this pass, and is not there any more."""
        if self._run.in_pass and b in self._came:
            raise StateError(
                f"parameter '{b.name}' has no gradient any more: method '{self._run.method}' exchanges gradients while "
                "backward runs, and each worker keeps a part; give prepare(clip_norm=...) in place of clip_grad_norm_, "
                "and optimizer.scale(loss) in place of a GradScaler"
            )

    def check_gradients(self) -> None:
        """Called by step(). StateError: the script has set a gradient after the real one was handed over."""
        for b in self._bound:
            with torch._C.DisableTorchFunctionSubclass():
                grad = b.param.grad
            if grad is not None:
                raise StateError(
                    f"the gradient of '{b.name}' was set between backward and step(): method '{self._run.method}' "
                    "exchanges gradients while backward runs, so the step would go without it; change it in a hook "
                    "(parameter.register_hook) or in the loss"
                )

    def given(self, b: Bound) -> None:
        """Called when the gradient of a parameter was handed over."""
        self._came.add(b)
        self._left[b.unit] -= 1
        if self._left[b.unit] == 0 and b.unit in self._back:
            self._back.remove(b.unit)
            self._release(b.unit, True)

    def pass_begins(self) -> None:
        self._left = [len(of) for of in self._of]
        self._came.clear()
        self._gathered = None  # of a state_dict() that has failed

    def pass_ends(self) -> None:
        """Releases units that are still acquired, such as those that backward has used in part."""
        self._unwind()
        for unit in sorted(self._back):
            self._release(unit, True)
        self._back.clear()

    # ---- the model's state_dict() ----

    def _before_state(self, _module: nn.Module, _prefix: str, keep_vars: bool) -> None:
        if keep_vars:
            raise ValueError(
                f"state_dict(keep_vars=True): under method '{self._run.method}' parameters have no values outside of "
                "their modules' runs; omit keep_vars"
            )
        self._gathered = None
        looks = self._run.look("model.state_dict()")
        gathered: dict[Bound, torch.Tensor] = {}
        try:
            for unit, of in enumerate(self._of):
                self._acquire(unit)
                if self._run.world.rank == 0:
                    gathered |= {b: b.values.clone() for b in of}
                self._release(unit)
        finally:
            if looks:
                self._run.resume()
        self._gathered = gathered

    def _after_state(self, state: dict[str, Any]) -> None:
        gathered, self._gathered = self._gathered or {}, None
        for name, t in list(state.items()):
            if isinstance(t, torch.Tensor) and t.layout == torch.strided:
                b = self._empty.get(t.untyped_storage().data_ptr())
                if b in gathered:
                    state[name] = gathered[b]
                elif b is not None:
                    del state[name]

    def _pieces(self, b: Bound) -> Iterator[_abi.tutti_saved]:
        name = b.name.encode()
        return (p for p in self._engine.state() if p.state == b"x" and p.tensor == name)

    @torch.no_grad()
    def write(self, b: Bound, source: torch.Tensor) -> None:
        """Writes the values of a parameter; this worker keeps its part. Where the engine's value rounds to the
        written one it stays, since it is more precise."""
        if not self._run.before_first:
            raise StateError(
                f"parameter '{b.name}' was written to by the script since the first step. Under method "
                f"'{self._run.method}' each worker has a part of its values; write before the first step, the same on "
                "all workers (model.load_state_dict()), or continue from a checkpoint (optimizer.load())"
            )
        assert b.empty is not None
        if source.shape != b.empty.shape:
            raise ValueError(f"values of shape {list(source.shape)} for parameter '{b.name}' {list(b.empty.shape)}")
        dtype = b.empty.dtype
        flat = source.detach().to("cpu", dtype).permute(b.order).reshape(-1)
        for p in self._pieces(b):
            mine, new = memory(p), flat[p.begin:p.end]
            mine.copy_(torch.where(mine.to(dtype) == new, mine, new.float()))
        self._written = True

    def take_written(self) -> None:
        """Call before the next use of the engine's values: tells the engine that write() has changed some."""
        if self._written:
            self._written = False
            self._engine.state_written()

    # ---- the rest ----

    def check(self) -> None:
        for module, name, b in self._places:
            if module._parameters.get(name) is not b.param:
                raise StateError(
                    f"parameter '{b.name}' is another one than prepare() was given, which no worker would see; do "
                    "to(), half() and load_state_dict(assign=True) before prepare()"
                )

    def close(self) -> None:
        """Removes all hooks, and all references of parameters to the engine's memory."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        while self._frames:
            frame = self._frames.pop()
            if frame.pushed:
                torch._C._autograd._pop_saved_tensors_default_hooks()
        for b in self._bound:
            if b.x is not None:
                self._hide(b)
