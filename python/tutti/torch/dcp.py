"""Lets torch.distributed.checkpoint read checkpoints of Tutti, into any number of ranks and any sharding:

    from tutti.torch.dcp import CheckpointReader
    state = {"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, optimizer)}
    torch.distributed.checkpoint.load(state, storage_reader=CheckpointReader("runs/a"))

Names are those of PyTorch: "model.0.weight", "optim.state.0.weight.exp_avg". A checkpoint stores tensors flat. What a
script has saved also has their shapes and their order in memory (_described); for one of `tutti train`, which is in
row-major order, the shapes are those of the tensors that are to be filled. All that is read is compared with its hash,
which PyTorch's own checkpoints do not have. Nothing of the files is unpickled.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import math
import os
import pathlib
import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from .. import checkpoints
from ..errors import CorruptError
from . import _described, _saved
from ._moments import TORCHS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem

__all__ = ["CheckpointReader"]
_TYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "u8": torch.uint8,
          "i8": torch.int8, "i32": torch.int32, "i64": torch.int64}
_BESIDE = "-optimizer"  # files of a script's optimizer and module (_saved)


@dataclasses.dataclass(frozen=True)
class _Tensor:
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements, of its order in the checkpoint
    dtype: torch.dtype
    read: Callable[[int, int], torch.Tensor]  # elements [begin, end) of it, flat


def _strides(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [0] * len(shape), 1
    for d in reversed(order):
        strides[d] = step
        step *= shape[d]
    return tuple(strides)


def _none(_begin: int, _end: int) -> torch.Tensor:
    return torch.empty(0)


def _between(flat: torch.Tensor, begin: int, end: int) -> torch.Tensor:
    return flat[begin:end]


class CheckpointReader(StorageReader):
    """path: a checkpoint, a run's directory, or a directory of checkpoints (the newest valid one is read).

    state_dict: what will be loaded; only needed for a checkpoint of `tutti train`, as above.
    model, optimizer: the prefix of the names of each; model="": names of the module itself.
    cast: a tensor may be filled that has another type than what was saved (float32 where a run trains a 16-bit module).

    If each worker had a model of its own, the values are their mean, as in `tutti convert`. The state of torch's
    optimizer can be loaded if all workers had the same. Buffers are those of the first worker, running means and
    variances of batch norms the mean of all workers'.
    """

    def __init__(self, path: str | os.PathLike[str], state_dict: dict[str, Any] | None = None, *, model: str = "model",
                 optimizer: str = "optim", cast: bool = False):
        self._model, self._optimizer, self._cast = model and model + ".", optimizer + ".", cast
        self._wanted = None if state_dict is None else flatten_state_dict(state_dict)[0]
        self._open(path)

    def _open(self, path: str | os.PathLike[str]) -> None:
        self.path = checkpoints.find(path)
        self._tensors: dict[str, _Tensor] = {}
        self._objects: dict[str, Any] = {}
        self._checkpoint = checkpoints.Checkpoint(self.path)
        self._described = _described.of(self._checkpoint)
        if self._described is None and "config" not in self._checkpoint.facts:
            raise ValueError(
                f"checkpoint '{self.path}' does not have the shapes of its tensors: an older version of tutti, a "
                "pipeline or a program in C saved it; load it with what saved it, and export it from there"
            )
        if self._described is None and self._wanted is None:
            raise ValueError(
                f"checkpoint '{self.path}' is of `tutti train`, which stores no shapes; give CheckpointReader() the "
                "state_dict that is to be loaded as its second argument"
            )
        self._list_values()
        self._list_engine_moments()
        self._list_statistics()
        self._list_optimizer_and_module()
        if self._described is not None:
            self._list_unstored(self._described)

    def _list_unstored(self, described: _described.Described) -> None:
        """Parameters without elements, and other names of tied ones."""
        for name, p in described.parameters.items():
            if math.prod(p.shape) == 0:
                self._tensors[self._model + name] = _Tensor(p.shape, _strides(p.shape, p.order), torch.float32, _none)
        for name, first in described.tied.items():
            if self._model + first in self._tensors:
                self._tensors[self._model + name] = self._tensors[self._model + first]

    def _list_optimizer_and_module(self) -> None:
        beside = pathlib.Path(self.path + _BESIDE)
        if self._described is not None:
            self._list_file(beside / "module-00000.safetensors", self._module_name)
            files = [one.name for one in beside.glob("rank-*.safetensors")]
            if files == ["rank-00000.safetensors"]:  # else each worker has its own
                self._list_torch_optimizer(beside / "rank-00000.safetensors")

    # ---- what the checkpoint has ----
    def _shape(self, tensor: str, name: str, count: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Returns shape and strides of a parameter; None: its shape is not known, and it is not asked for."""
        if self._described is not None:
            found = self._described.parameters.get(tensor)
            if found is None or math.prod(found.shape) != count:
                raise CorruptError(f"checkpoint '{self.path}' has {count} elements of '{tensor}', and describes "
                                   f"{'no such tensor' if found is None else found.shape}; take another checkpoint")
            return found.shape, _strides(found.shape, found.order)
        like = (self._wanted or {}).get(name)
        if not isinstance(like, torch.Tensor):
            return None
        shape = tuple(like.shape)
        if math.prod(shape) != count:
            raise ValueError(f"'{name}' has shape {list(shape)} in the state_dict, and {count} elements in checkpoint "
                             f"'{self.path}'; build the module that was trained")
        return shape, _strides(shape, tuple(range(len(shape))))

    def _add(self, name: str, items: list[checkpoints.Item]) -> None:
        known = self._shape(items[0].tensor, name, items[0].count)
        if known is not None:
            dtype = _TYPES[items[0].dtype.lower()]
            self._tensors[name] = _Tensor(*known, dtype, lambda begin, end: self._mean(items, dtype, begin, end))

    def _one(self, item: checkpoints.Item, dtype: torch.dtype, begin: int, end: int) -> torch.Tensor:
        values = self._checkpoint.read(item.state, item.tensor, item.owner, begin=begin, end=end)
        return torch.frombuffer(values, dtype=dtype)

    def _mean(self, items: list[checkpoints.Item], dtype: torch.dtype, begin: int, end: int) -> torch.Tensor:
        if items[0].owner is None:
            return self._one(items[0], dtype, begin, end)
        total = torch.zeros(end - begin, dtype=torch.float64)
        for item in sorted(items, key=lambda i: i.owner or 0):
            total += self._one(item, dtype, begin, end)
        return (total / len(items)).to(dtype)

    def _by_tensor(self, state: str) -> Iterator[list[checkpoints.Item]]:
        found: dict[str, list[checkpoints.Item]] = {}
        for item in self._checkpoint.items:
            if item.state == state:
                found.setdefault(item.tensor, []).append(item)
        yield from found.values()

    def _list_values(self) -> None:
        states = {item.state for item in self._checkpoint.items}
        for items in self._by_tensor("server.values" if "server.values" in states else "x"):
            self._add(self._model + items[0].tensor, items)
        if not states & {"server.values", "x"}:
            raise ValueError(f"checkpoint '{self.path}' has no model; is it of a run in which this directory was given "
                             "to save() by ranks that only serve?")

    def _list_engine_moments(self) -> None:
        """Moments of an optimiser of the library's, which are one for all workers under methods of the kind of zero."""
        for state in sorted({i.state for i in self._checkpoint.items if i.state.startswith("optim.")}):
            slot = state.removeprefix("optim.")
            for items in self._by_tensor(state):
                if items[0].owner is None:
                    prefix = f"{self._optimizer}state.{items[0].tensor}."
                    self._add(prefix + TORCHS.get(slot, slot), items)
                    if slot == "exp_avg":
                        self._tensors[prefix + "step"] = _Tensor((), (), torch.float32, self._updates)

    def _updates(self, _begin: int, _end: int) -> torch.Tensor:
        step, _samples, skipped = struct.unpack("<3Q", self._checkpoint.read("engine.progress").tobytes())
        return torch.tensor([float(step - skipped)])

    def _list_statistics(self) -> None:
        at = 0
        for name, shape in self._described.statistics if self._described is not None else ():
            self._tensors[self._model + name] = _Tensor(
                shape, _strides(shape, tuple(range(len(shape)))), torch.float32,
                functools.partial(self._running, at))
            at += math.prod(shape)

    def _running(self, at: int, begin: int, end: int) -> torch.Tensor:
        """The mean over the workers that have computed samples; the last number of the state is 1 for those."""
        each = [self._one(item, torch.float32, 0, item.count) for items in self._by_tensor("client") for item in items]
        used = [one for one in each if one[-1] > 0] or each[:1]
        return torch.stack([one[at + begin:at + end].double() for one in used]).mean(0).float()

    def _module_name(self, name: str) -> str:
        return self._model + name

    def _list_file(self, path: pathlib.Path, named: Callable[[str], str]) -> dict[str, str]:
        """Adds the tensors of a file that belongs to the checkpoint. Returns its metadata."""
        if not path.exists():
            return {}
        tensors, words = _saved.read(path)
        kinds = json.loads(words.get("kinds", "{}"))
        for name, t in tensors.items():
            if kinds.get(name, str(t.dtype)).split(" ")[0] == str(t.dtype):
                flat = t.reshape(-1)
                self._tensors[named(name)] = _Tensor(tuple(t.shape), t.stride(), t.dtype,
                                                     functools.partial(_between, flat))
        return words

    def _list_torch_optimizer(self, path: pathlib.Path) -> None:
        assert self._described is not None
        of = self._described.optimizer

        def named(key: str) -> str:
            index, slot = key.split("/", 1)
            return f"{self._optimizer}state.{of[int(index)]}.{slot}"

        try:
            words = self._list_file(path, named)
            if words:
                for key, value in json.loads(words["plain"]).items():
                    self._objects[named(key)] = value
                groups = json.loads(words["param_groups"])
                self._objects[self._optimizer + "param_groups"] = [
                    g | {"params": [of[index] for index in g["params"]]} for g in groups]
        except (IndexError, KeyError, TypeError, ValueError) as e:
            raise CorruptError(f"'{path}' is not the state of the optimizer that its checkpoint describes ({e}); take "
                               "another checkpoint") from None

    # ---- what torch.distributed.checkpoint calls ----
    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None and os.fspath(checkpoint_id) != self.path:
            self._checkpoint.close()
            self._open(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        about: dict[str, Any] = {name: BytesStorageMetadata() for name in self._objects}
        for name, t in self._tensors.items():
            size = torch.Size(t.shape)
            chunk = ChunkStorageMetadata(torch.Size([0] * len(t.shape)), size)
            about[name] = TensorStorageMetadata(TensorProperties(dtype=t.dtype), size, [chunk])
        return Metadata(about)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return dataclasses.replace(plan, storage_data=os.path.basename(self.path))

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        found = sorted({plan.storage_data for plan in plans})
        if len(found) > 1:
            raise ValueError(f"the ranks have found different checkpoints: {', '.join(found)}; name one of them, not "
                             "the directory of a run that still saves")
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                text = io.BytesIO()
                torch.save(self._objects[item.storage_index.fqn], text)
                text.seek(0)
                planner.load_bytes(item, text)
            else:
                target = planner.resolve_tensor(item).detach()
                target.copy_(self._block(item, target.dtype))
                planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _block(self, item: ReadItem, dtype: torch.dtype) -> torch.Tensor:
        name = item.storage_index.fqn
        t, offsets, lengths = self._tensors[name], item.storage_offsets, item.lengths
        if math.prod(lengths) == 0:
            return torch.empty(tuple(lengths), dtype=dtype)
        if t.dtype != dtype and not self._cast:
            raise ValueError(f"'{name}' is {t.dtype} in checkpoint '{self.path}', and {dtype} in the state_dict; give "
                             "CheckpointReader(cast=True) to convert it")
        begin = sum(o * s for o, s in zip(offsets, t.strides, strict=True))
        end = begin + sum((n - 1) * s for n, s in zip(lengths, t.strides, strict=True)) + 1
        return t.read(begin, end).as_strided(tuple(lengths), t.strides)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Returns whether the path is, or has, checkpoints of Tutti by their names."""
        path = pathlib.Path(checkpoint_id)
        places = (path, path / "checkpoints")
        return (path / "manifest.json").is_file() or any(
            re.fullmatch(r"step-\d+", one.name) for p in places if p.is_dir() for one in p.iterdir())
