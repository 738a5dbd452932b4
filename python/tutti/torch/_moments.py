"""Converts the state of optimisers (momenta) from torch's form to the library's and back. So a run can resume from a
checkpoint of another method: under ddp the script's optimiser makes the update and has the state, under zero the engine
does, by the library's optimiser (_translate).

Both keep the same values. The library's state `optim.NAME` has one dimension, in the memory order of the parameter;
torch's has the parameter's shape, and nearly the same NAME. Run.itself: the engine makes the updates.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch

from .. import _abi
from .._library import library as _c
from ..checkpoints import Checkpoint
from ..errors import check
from ._state import memory

if TYPE_CHECKING:
    from ._bind import Bound
    from ._run import Run

# Names in the library of what an optimiser keeps for each parameter.
_SLOTS = {torch.optim.SGD: ("momentum",), torch.optim.Adam: ("exp_avg", "exp_avg_sq"),
          torch.optim.AdamW: ("exp_avg", "exp_avg_sq")}  # fmt: skip
TORCHS = {"momentum": "momentum_buffer"}  # torch's names of those that have another one there


def _places(run: Run) -> list[tuple[int, Bound]]:
    """Returns the number in the torch optimiser's state_dict() of each trained parameter, and the parameter."""
    of = {b.param: b for b in run.binding.bound}
    params = [p for group in run.optimizer.param_groups for p in group["params"]]
    return [(k, of[p]) for k, p in enumerate(params) if p in of]


def _slots_of(c: Checkpoint) -> set[str]:
    """Returns the names of what the library's optimiser kept in this checkpoint; empty: nothing."""
    return {i.state.removeprefix("optim.") for i in c.items if i.state.startswith("optim.")}


def to_engine(run: Run, path: str, theirs: dict[str, Any]) -> bool:
    """Loads a checkpoint of a run in which torch's optimiser made the updates, with its state `theirs`, into a run
    whose engine does. False: the checkpoint or this run is not such a one, and nothing was loaded."""
    slots = _SLOTS.get(type(run.optimizer), ()) if run.itself else ()
    kept = theirs["state"].values()
    with Checkpoint(path) as c:
        torchs_kept = any(TORCHS.get(s, s) in one for s in slots for one in kept)
        if _slots_of(c) or not torchs_kept:
            return False
        if c.workers != run.world.size:
            raise ValueError(
                f"checkpoint '{path}' was saved by {c.workers} workers whose optimizer was torch's own, and method "
                f"'{run.method}' updates by itself: what that kept is taken over by as many workers, and these are "
                f"{run.world.size}. Continue with {c.workers}, and save there"
            )
        pieces = run.engine.state()
        if not any(p.state.startswith(b"optim.") for p in pieces):
            return False
        # all else is loaded as it is
        plain = [p for p in pieces if not p.state.startswith(b"optim.")]
        check(_c.tutti_checkpoint_read, c._open(), (_abi.tutti_saved * len(plain))(*plain), len(plain))
    of = {b.name: (k, b) for k, b in _places(run)}
    for p in pieces:
        if not p.state.startswith(b"optim."):
            continue
        k, b = of[p.tensor.decode()]
        slot = p.state.decode().removeprefix("optim.")
        value = theirs["state"].get(k, {}).get(TORCHS.get(slot, slot))
        if value is None:  # a parameter that was never used
            memory(p).zero_()
        else:
            memory(p).copy_(value.detach().permute(b.order).reshape(-1)[p.begin:p.end])
    run.engine.state_written()
    return True


def from_engine(run: Run, path: str, theirs: dict[str, Any]) -> dict[str, Any]:
    """Returns the state for torch's optimiser from a loaded checkpoint of a run whose engine made the updates. Returns
    `theirs` if this run's engine makes them, too."""
    with Checkpoint(path) as c:
        slots = _slots_of(c)
        if run.itself or not slots:
            return theirs
        if slots != set(_SLOTS.get(type(run.optimizer), ())):
            raise ValueError(
                f"checkpoint '{path}' has {', '.join(sorted(slots))} of an optimiser of the library's, which "
                f"{type(run.optimizer).__name__} does not continue from; take the optimizer that it was saved with"
            )
        figures, state = run.engine.figures(), {}
        for k, b in _places(run):
            one = {TORCHS.get(s, s): _shaped(b, c.read(f"optim.{s}", b.name)) for s in slots}
            if "exp_avg" in one:  # Adam's count of updates, which the library's optimiser takes from the engine
                one["step"] = torch.tensor(float(figures["steps"] - figures["skipped"]))
            state[k] = one
    return theirs | {"state": state}


def _shaped(b: Bound, flat: Any) -> torch.Tensor:
    """Returns the values of Checkpoint.read(), float32 in memory order, with the shape and type of the parameter."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(flat))
    values = torch.frombuffer((ctypes.c_float * len(flat)).from_address(address), dtype=torch.float32).clone()
    return values.as_strided(b.param.shape, b.strides).to(b.param.dtype)
