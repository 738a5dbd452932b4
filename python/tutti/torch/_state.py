"""The state of a method as a plain dictionary, optimizer.state_dict()["tutti"]:

    {"format": 1, "method": "powersgd(rank=4)", "rank": 0, "workers": 2, "step": 1200, "state": {name: tensor, ...}}

Names are those of checkpoints: "optim.momentum/0.weight@0" is the state, the parameter, and the index in the parameter
at which the piece begins. The dictionary is of this rank. If each worker has a state of its own, it can be loaded on
the same rank of the same number of workers only; checkpoints of Tutti can be loaded with other numbers.

What the module's state_dict() has is left out: buffers, and float32 parameters that are equal on all workers. Other
parameters are included, since the engine's values are more precise or the worker's own. Where values are held by unit,
this worker's part of them is included.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch

from .. import _abi

if TYPE_CHECKING:
    from ._run import Run
    from .pipeline import Pipeline

KEY = "tutti"
_FORMAT = 1
_TYPES = {
    _abi.TUTTI_F32: torch.float32, _abi.TUTTI_F64: torch.float64, _abi.TUTTI_F16: torch.float16,
    _abi.TUTTI_BF16: torch.bfloat16, _abi.TUTTI_U8: torch.uint8, _abi.TUTTI_I8: torch.int8,
    _abi.TUTTI_I32: torch.int32, _abi.TUTTI_I64: torch.int64,
}
_ELSEWHERE = "optimizer.save(directory) and load(directory) have all of it"


def rests(run: Run) -> bool:
    """Returns whether all workers have to quiesce before the state can be read."""
    ops = run.engine.method.ops.contents
    serves = bool(ops.services) and (not ops.serves or ops.serves(run.engine.method.self))
    return run.world.size > 1 and (run.is_async or serves or bool(ops.quiesce) or bool(ops.resume))


def check(run: Run) -> None:
    """Refuses a run with ranks that only serve, whose state no worker's dictionary has."""
    if run.servers:
        raise ValueError(
            f"under prepare(servers={run.servers}) a part of what method '{run.method}' keeps is at ranks that only "
            f"serve, which no worker's state_dict() can have; {_ELSEWHERE}"
        )


def memory(piece: _abi.tutti_saved) -> torch.Tensor:
    """Returns a view of a piece in the engine's memory."""
    dtype, n = _TYPES[piece.dtype], piece.end - piece.begin
    return torch.frombuffer((ctypes.c_char * (n * dtype.itemsize)).from_address(piece.data), dtype=dtype)


def _pieces(run: Run | Pipeline) -> dict[str, _abi.tutti_saved]:
    whole = run.replicas_equal and not run.binding.by_unit
    modules = {b.name.encode() for b in run.binding.bound if whole and not b.apart}
    return {
        f"{p.state.decode()}/{p.tensor.decode()}@{p.begin}": p
        for p in run.engine.state()
        if p.state != b"client" and not (p.state == b"x" and p.tensor in modules)
    }


def _own(pieces: dict[str, _abi.tutti_saved]) -> bool:
    """Returns whether any of the pieces is of this rank only."""
    return any(p.keep != _abi.TUTTI_SAME for p in pieces.values())


def get(run: Run | Pipeline) -> dict[str, Any]:
    pieces = _pieces(run)
    return {
        "format": _FORMAT,
        "method": run.method,
        "rank": run.world.rank,
        "workers": run.engine.workers,
        "step": run.engine.figures()["steps"],
        "state": {name: memory(p).clone() for name, p in pieces.items()},
    }


def _name(method: object) -> str:
    return str(method).split("(")[0].strip()


def fit(run: Run | Pipeline, said: Any) -> dict[str, _abi.tutti_saved]:
    """Returns the pieces that write() has to fill. ValueError: the dictionary does not match this run."""
    if not isinstance(said, dict) or said.get("format") != _FORMAT or not isinstance(said.get("state"), dict):
        raise ValueError(
            f"the state_dict's '{KEY}' is not what this version of tutti writes (format {_FORMAT}); load it with the "
            "version that wrote it, or leave the key out: then the method starts again"
        )
    if _name(said.get("method")) != _name(run.method):
        raise ValueError(
            f"the state_dict is of method '{said.get('method')}', and this run's is '{run.method}'; take its '{KEY}' "
            "out to start this method again"
        )
    pieces, state = _pieces(run), said["state"]
    theirs, mine = (said.get("rank"), said.get("workers")), (run.world.rank, run.engine.workers)
    if theirs != mine and _own(pieces):
        raise ValueError(
            f"the state_dict is of rank {theirs[0]} of {theirs[1]} workers, and this is rank {mine[0]} of {mine[1]}: "
            f"under method '{run.method}' each worker has a state of its own. Save state_dict() on every rank and load "
            "each where it was saved. For other workers there are Tutti's checkpoints: optimizer.save(directory) and "
            "load(directory)"
        )
    for name in sorted(pieces.keys() ^ state.keys()):
        where = "this run has none" if name in state else "the state_dict has none"
        raise ValueError(
            f"state '{name}': {where}. It was saved by method '{said['method']}', and this is '{run.method}'; give "
            "prepare() the method, codec and options of that run"
        )
    for name, p in pieces.items():
        t, dtype, n = state[name], _TYPES[p.dtype], p.end - p.begin
        if not isinstance(t, torch.Tensor) or t.dtype != dtype or t.shape != (n,):
            has = f"{t.dtype} of shape {list(t.shape)}" if isinstance(t, torch.Tensor) else type(t).__name__
            raise ValueError(
                f"state '{name}' is {has} in the state_dict, and {dtype} of shape [{n}] in this run; give prepare() "
                "the model, method, codec and options of that run"
            )
    return pieces


def write(run: Run | Pipeline, pieces: dict[str, _abi.tutti_saved], said: dict[str, Any]) -> None:
    for name, p in pieces.items():
        memory(p).copy_(said["state"][name])
    run.engine.state_written()
