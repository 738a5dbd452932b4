"""Checkpoints of a prepared run: the library's checkpoint (tutti.h), and files with what only torch has.

    DIR/step-00001200/                                   model and method, saved by all ranks
    DIR/step-00001200-optimizer/rank-00000.safetensors   state of the torch optimiser of a worker
    DIR/step-00001200-optimizer/module-00000.safetensors tensors of a worker's module that are not trained

If replicas are equal, their optimisers are, too, and rank 0 saves its state for all. Tensors that are not trained are
frozen parameters (if replicas are equal, rank 0 saves them) and buffers (each worker saves its own). Not saved are
buffers that the module leaves out of its state_dict() (persistent=False), and statistics of batch norms, which the
engine saves.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import re
import shutil
import warnings
from typing import TYPE_CHECKING, Any

import torch

from .._library import library as _c
from ..errors import CorruptError
from . import _described, _moments

if TYPE_CHECKING:
    from ._preempt import Saves
    from ._run import Run
    from .pipeline import Pipeline

_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
          "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
_HASHES = "tutti_hashes"
RATES_OF = "rates of"  # a word of checkpoints of a run whose workers come and go
_BY_ENGINE = "engine"  # the engine made the updates, and has the state of the optimiser
DTYPES = {t: name for name, t in _TYPES.items()}


def _hash(t: torch.Tensor) -> str:
    return f"{_c.tutti_hash(t.data_ptr(), t.numel() * t.element_size()):016x}"


def _headed(tensors: dict[str, torch.Tensor], words: dict[str, str]) -> tuple[bytes, list[torch.Tensor]]:
    """Returns the beginning of a safetensors file, and the tensors that follow it."""
    header: dict[str, Any] = {"__metadata__": words}
    at, flat, hashes = 0, [], {}
    for name, t in tensors.items():
        t = t.detach().cpu().contiguous()
        size = t.numel() * t.element_size()
        hashes[name] = _hash(t)
        header[name] = {"dtype": DTYPES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + size]}
        flat.append(t)
        at += size
    header["__metadata__"] = words | {_HASHES: json.dumps(hashes)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, flat


def _bytes(t: torch.Tensor) -> bytes:
    return ctypes.string_at(t.data_ptr(), t.numel() * t.element_size())


def packed(tensors: dict[str, torch.Tensor], words: dict[str, str]) -> bytes:
    """Returns what write() writes."""
    head, flat = _headed(tensors, words)
    return b"".join([head, *map(_bytes, flat)])


def write(path: pathlib.Path, tensors: dict[str, torch.Tensor], words: dict[str, str]) -> None:
    """Writes a safetensors file atomically. words: its metadata, to which hashes are added as in folder.h."""
    head, flat = _headed(tensors, words)
    part = path.with_suffix(".part")
    with open(part, "wb") as f:
        f.write(head)
        for t in flat:
            f.write(_bytes(t))
        f.flush()
        os.fsync(f.fileno())
    os.replace(part, path)


def read(path: pathlib.Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    return unpacked(path.read_bytes(), path)


def unpacked(data: bytes, path: object) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Takes packed() apart. path: what it is called in a sentence."""
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
        hashes = json.loads(words.get(_HASHES, "{}"))  # files of older versions have none
        damaged = [name for name, value in hashes.items() if _hash(tensors[name]) != value]
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise CorruptError(f"'{path}' is not a safetensors file as saved here ({e}); take another checkpoint") from None
    if damaged:
        raise CorruptError(f"'{path}', tensor '{damaged[0]}' does not have the hash that is written in the file; it "
                           "was damaged: take another checkpoint")
    return tensors, words


def flat(state: dict[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    tensors, plain = {}, {}
    for index, one in state["state"].items():
        for name, value in one.items():
            if isinstance(value, torch.Tensor):
                tensors[f"{index}/{name}"] = value
            else:
                plain[f"{index}/{name}"] = value
    groups = [{k: v.item() if isinstance(v, torch.Tensor) else v for k, v in g.items()} for g in state["param_groups"]]
    return tensors, {"plain": json.dumps(plain), "param_groups": json.dumps(groups)}


def unflat(tensors: dict[str, torch.Tensor], words: dict[str, str]) -> dict[str, Any]:
    state: dict[int, dict[str, Any]] = {}
    for key, value in (json.loads(words["plain"]) | tensors).items():
        index, name = key.split("/", 1)
        state.setdefault(int(index), {})[name] = value
    return {"state": state, "param_groups": json.loads(words["param_groups"])}


def optimizer_file(run: Run, checkpoint: str) -> pathlib.Path:
    rank = 0 if run.replicas_equal else run.world.rank
    return pathlib.Path(checkpoint + "-optimizer") / f"rank-{rank:05d}.safetensors"


def _module_file(checkpoint: str, rank: int) -> pathlib.Path:
    return pathlib.Path(checkpoint + "-optimizer") / f"module-{rank:05d}.safetensors"


def _untrained(run: Run | Pipeline) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Returns the frozen parameters and the buffers that are to be saved, by their names."""
    elsewhere = {id(t) for t in run.statistics}
    for prefix, module in run.model.named_modules():
        elsewhere |= {id(module._buffers[name]) for name in module._non_persistent_buffers_set}
    frozen: dict[str, torch.Tensor] = {name: p for name, p in run.binding.frozen if p.numel() > 0}
    return frozen, {name: t for name, t in run.binding.buffers() if id(t) not in elsewhere}


def _as_bytes(t: torch.Tensor) -> torch.Tensor:
    """Returns the tensor on the host; as bytes if the format does not have its type."""
    t = t.detach().cpu().contiguous()
    return t if t.dtype in DTYPES else t.flatten().view(torch.uint8)


def next_of(run: Run | Pipeline | Saves, directory: str) -> str:
    """Returns the path of the checkpoint that is saved there next."""
    return f"{directory}/step-{run.engine.figures()['steps']:08d}"


def save_module(run: Run | Pipeline, directory: str) -> None:
    """Saves the tensors that are not trained. Before the checkpoint, so that each complete checkpoint has them."""
    checkpoint = next_of(run, directory)
    frozen, buffers = _untrained(run)
    mine = buffers if run.replicas_equal and run.world.rank > 0 else frozen | buffers
    if mine:
        kinds = {name: f"{t.dtype} {list(t.shape)}" for name, t in mine.items()}
        path = _module_file(checkpoint, run.world.rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, {name: _as_bytes(t) for name, t in mine.items()}, {"kinds": json.dumps(kinds)})


def load_module(run: Run | Pipeline, checkpoint: str) -> None:
    frozen, buffers = _untrained(run)
    mine = frozen | buffers
    found: dict[str, torch.Tensor] = {}
    kinds: dict[str, str] = {}
    for rank in dict.fromkeys((0, run.world.rank)):
        path = _module_file(checkpoint, rank)
        if path.exists():
            tensors, words = read(path)
            found |= tensors
            kinds |= json.loads(words["kinds"])
    if mine and not found:
        warnings.warn(
            f"checkpoint '{checkpoint}' has no frozen parameters and buffers, since an older version wrote it: "
            f"'{next(iter(mine))}' and {len(mine) - 1} more stay as they are; load them with model.load_state_dict()",
            stacklevel=5,
        )
        return
    for name in sorted(mine.keys() ^ kinds.keys()):
        where = "the module has none" if name in kinds else "the checkpoint has none"
        raise ValueError(
            f"frozen parameter or buffer '{name}' of checkpoint '{checkpoint}': {where}; build the module that was "
            "saved, with the same parameters frozen"
        )
    for name, t in mine.items():
        if kinds[name] != f"{t.dtype} {list(t.shape)}":
            raise ValueError(
                f"frozen parameter or buffer '{name}' is {kinds[name]} in checkpoint '{checkpoint}', and "
                f"{t.dtype} {list(t.shape)} in the module; build the module that was saved"
            )
    with torch.no_grad():
        for name, t in mine.items():
            one = found[name] if t.dtype in DTYPES else found[name].view(t.dtype)
            t.copy_(one.view(t.shape))


def save(run: Run, directory: str, keep: int, wait: bool = True) -> None:
    if run.is_async:  # the number of steps is known only when all workers have stopped
        with run.engine.shown():
            pass
    if not run.only_serves and (run.world.rank == 0 or not run.replicas_equal):
        # before the checkpoint, so that each complete checkpoint has it
        path = optimizer_file(run, next_of(run, directory))
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors, words = run.of_torch()
        write(path, tensors, words | {"by": _BY_ENGINE if run.itself else "torch"})
    if not run.only_serves:
        save_module(run, directory)
    facts = _described.facts(run.binding, run.statistics, run.optimizer)
    run.engine.save(directory, facts, keep=keep, wait=wait)
    prune(run, directory, keep, None if wait else int(run.engine.figures()["steps"]))


def prune(run: Run | Pipeline, directory: str, keep: int, before: int | None = None) -> None:
    """Removes the files that belong to removed checkpoints. before: only of earlier steps, since the checkpoint of this
    step is being written, and other ranks may be ahead."""
    if keep > 0 and run.world.rank == 0:
        for old in pathlib.Path(directory).glob("step-*-optimizer"):
            step = re.fullmatch(r"step-(\d+)-optimizer", old.name)
            if step is None or (before is not None and int(step[1]) >= before):
                continue
            if not (pathlib.Path(directory) / f"step-{step[1]}").exists():
                shutil.rmtree(old)


def load(run: Run, path: str) -> None:
    found = run.world.find_checkpoint(path)
    mine = None if run.only_serves else optimizer_file(run, found)
    theirs, by = None, ""
    if mine is not None and mine.exists():
        tensors, words = read(mine)
        if RATES_OF in words:  # its rates are of the last update, not of what the script makes next
            raise ValueError(f"checkpoint '{found}' is of a run whose workers come and go; continue it by `tutti run "
                             "--workers` and prepare(elastic=True)")
        theirs, by = unflat(tensors, words), words.get("by", "")
    if theirs is None or not _moments.to_engine(run, found, theirs):
        run.engine.load(found)
    if mine is not None:
        if theirs is None:
            raise ValueError(f"checkpoint '{found}' has no state of a torch optimizer for rank {run.world.rank} "
                             f"('{mine}'): under method '{run.method}' each worker's is its own, so continue with as "
                             "many as saved it")
        if by == _BY_ENGINE:
            theirs = _moments.from_engine(run, found, theirs)
        run.optimizer.load_state_dict(theirs | {"state": {}} if run.itself else theirs)
        load_module(run, found)
