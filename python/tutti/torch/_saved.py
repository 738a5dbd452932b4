"""Checkpoints of a prepared run: the library's own (checkpoint.h), and beside them what the torch optimiser keeps.

    DIR/step-00001200/                               model and method, by all ranks
    DIR/step-00001200-optimizer/rank-00000.safetensors   the torch optimiser's tensors of a worker

Where replicas are equal so are the optimisers, and rank 0 saves one for all.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import re
import shutil
from typing import TYPE_CHECKING, Any

import torch

from ..errors import CorruptError
from . import _moments

if TYPE_CHECKING:
    from ._run import Run

_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
          "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
_BY_ENGINE = "engine"  # who made the updates, and has what the optimiser keeps
_NAMES = {t: name for name, t in _TYPES.items()}


def _write(path: pathlib.Path, tensors: dict[str, torch.Tensor], words: dict[str, str]) -> None:
    """A safetensors file, whole or not at all."""
    header: dict[str, Any] = {"__metadata__": words}
    at, flat = 0, []
    for name, t in tensors.items():
        t = t.detach().cpu().contiguous()
        size = t.numel() * t.element_size()
        header[name] = {"dtype": _NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + size]}
        flat.append(t)
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_suffix(".part")
    with open(part, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in flat:
            f.write(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
        f.flush()
        os.fsync(f.fileno())
    os.replace(part, path)


def _read(path: pathlib.Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    data = path.read_bytes()
    try:
        n = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + n])
        words, tensors = header.pop("__metadata__"), {}
        for name, one in header.items():
            begin, end = one["data_offsets"]
            t = torch.empty(one["shape"], dtype=_TYPES[one["dtype"]])
            if end - begin != t.numel() * t.element_size() or not 0 <= begin <= end <= len(data) - 8 - n:
                raise ValueError(name)
            ctypes.memmove(t.data_ptr(), data[8 + n + begin:8 + n + end], end - begin)
            tensors[name] = t
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise CorruptError(f"'{path}' is not a safetensors file as saved here ({e}); take another checkpoint") from None
    return tensors, words


def _flat(state: dict[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    tensors, plain = {}, {}
    for index, one in state["state"].items():
        for name, value in one.items():
            if isinstance(value, torch.Tensor):
                tensors[f"{index}/{name}"] = value
            else:
                plain[f"{index}/{name}"] = value
    groups = [{k: v.item() if isinstance(v, torch.Tensor) else v for k, v in g.items()} for g in state["param_groups"]]
    return tensors, {"plain": json.dumps(plain), "param_groups": json.dumps(groups)}


def _unflat(tensors: dict[str, torch.Tensor], words: dict[str, str]) -> dict[str, Any]:
    state: dict[int, dict[str, Any]] = {}
    for key, value in (json.loads(words["plain"]) | tensors).items():
        index, name = key.split("/", 1)
        state.setdefault(int(index), {})[name] = value
    return {"state": state, "param_groups": json.loads(words["param_groups"])}


def _mine(run: Run, checkpoint: str) -> pathlib.Path:
    rank = 0 if run.replicas_equal else run.world.rank
    return pathlib.Path(checkpoint + "-optimizer") / f"rank-{rank:05d}.safetensors"


def save(run: Run, directory: str, keep: int) -> None:
    if run.own_pace:  # how many steps there are is known when all rest
        with run.engine.shown():
            pass
    if not run.only_serves and (run.world.rank == 0 or not run.replicas_equal):
        # first, so that a checkpoint that can be found has its optimiser
        path = _mine(run, f"{directory}/step-{run.engine.figures()['steps']:08d}")
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors, words = _flat(run.optimizer.state_dict())
        _write(path, tensors, words | {"by": _BY_ENGINE if run.itself else "torch"})
    run.engine.save(directory, keep=keep)
    if keep > 0 and run.world.rank == 0:
        for old in pathlib.Path(directory).glob("step-*-optimizer"):
            step = re.fullmatch(r"step-(\d+)-optimizer", old.name)
            if step and not (pathlib.Path(directory) / f"step-{step[1]}").exists():
                shutil.rmtree(old)


def load(run: Run, path: str) -> None:
    found = run.world.find_checkpoint(path)
    mine = None if run.only_serves else _mine(run, found)
    theirs, by = None, ""
    if mine is not None and mine.exists():
        tensors, words = _read(mine)
        theirs, by = _unflat(tensors, words), words.get("by", "")
    if theirs is None or not _moments.to_engine(run, found, theirs):
        run.engine.load(found)
    if mine is not None:
        if theirs is None:
            raise ValueError(f"checkpoint '{found}' has no state of a torch optimizer for rank {run.world.rank} "
                             f"('{mine}'): under method '{run.method}' each worker's is its own, so go on with as many "
                             "as saved it")
        if by == _BY_ENGINE:
            theirs = _moments.from_engine(run, found, theirs)
        run.optimizer.load_state_dict(theirs | {"state": {}} if run.itself else theirs)
