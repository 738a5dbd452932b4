"""Checkpoints and model.safetensors of a run of the command, read through the library, against a reader of the
format's own rules. A byte that has changed is found."""

import builtins
import json
import struct
import subprocess
import sys

import processes
import pytest
from tutti import CorruptError, checkpoints


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "out"
    done = subprocess.run([processes.build() / "bin/tutti", "train", "--model", "mlp(hidden=16)", "--data", "mnist",
                           "--steps", "4", "-n", "2", "--method", "d-psgd", "--optimizer", "sgd(momentum=0.9)",
                           "--checkpoint-every", "2", "--out", out], env=processes.environment(), capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def raw(path):
    """A safetensors file as its format says: name -> (dtype, shape, bytes)."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + length])
    head.pop("__metadata__", None)
    begin = 8 + length
    return {k: (t["dtype"], tuple(t["shape"]), data[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]])
            for k, t in head.items()}


def test_model_file_is_read_as_its_format_specifies(trained):
    wanted = raw(trained / "model.safetensors")
    with checkpoints.TensorFile(trained / "model.safetensors") as f:
        assert {t.name: (t.dtype, t.shape) for t in f.tensors} == {k: v[:2] for k, v in wanted.items()}
        for name, (_, shape, data) in wanted.items():
            values = f.read(name)
            assert tuple(values.shape) == shape and values.tobytes() == data
        assert f.metadata("no such key") is None
        with pytest.raises(KeyError, match="has no tensor '9.weight'"):
            f.read("9.weight")
    with pytest.raises(ValueError, match="is closed"):
        f.read(f.tensors[0].name)


def test_checkpoints_are_listed_with_their_step_and_found_from_all_three_places(trained):
    listed = checkpoints.list(trained)
    assert [(c.step, c.workers, c.damage) for c in listed] == [(2, 2, ""), (4, 2, "")]
    assert checkpoints.list(trained / "checkpoints") == listed
    assert checkpoints.list(listed[1].path) == listed[1:]
    assert checkpoints.find(trained) == checkpoints.find(trained / "checkpoints") == listed[1].path
    assert checkpoints.verify(trained) == listed


def test_checkpoint_items_match_the_bytes_of_their_shards(trained):
    with checkpoints.Checkpoint(checkpoints.find(trained)) as c:
        assert (c.step, c.workers) == (4, 2) and c.facts["config"]["method"] == "d-psgd"
        shards = {}
        for rank in range(2):
            for key, (dtype, _, data) in raw(_shard(c.path, rank)).items():
                name, _, begin = key.rpartition("@")
                shards[(rank, *name.split("/", 1))] = (dtype, int(begin), data)
        models = [i for i in c.items if i.state == "x" and i.keep == "own-mean"]
        assert {i.owner for i in models} == {0, 1}  # gossip: a model each
        for item in models:
            dtype, begin, data = shards[item.owner, item.state, item.tensor]
            assert (item.dtype, begin) == (dtype, 0)
            assert c.read(item.state, item.tensor, item.owner).tobytes() == data
        assert c.read("x", models[0].tensor, 0).tobytes() != c.read("x", models[0].tensor, 1).tobytes()
        for item in c.items:
            assert len(c.read(item.state, item.tensor, item.owner)) == item.count
        with pytest.raises(KeyError, match="of workers 0, 1: choose one by owner="):
            c.read("x", models[0].tensor)
        with pytest.raises(KeyError, match="has no 'y'"):
            c.read("y")
        with pytest.raises(KeyError, match="of worker 7"):
            c.read("x", models[0].tensor, 7)
        c.verify()


def _shard(path, rank):
    return processes.pathlib.Path(path) / f"rank-{rank:05}-of-00002.safetensors"


def test_returned_arrays_are_copies(trained):
    with checkpoints.TensorFile(trained / "model.safetensors") as f:
        name = f.tensors[0].name
        first = f.read(name)
        memoryview(first).cast("B")[0] ^= 1
        assert f.read(name).tobytes() != first.tobytes()


def test_tensors_are_memoryviews_without_numpy(trained):
    code = """
import sys
sys.modules["numpy"] = None
from tutti import checkpoints
with checkpoints.TensorFile(sys.argv[1]) as f:
    for t in f.tensors:
        v = f.read(t.name)
        assert type(v) is memoryview and v.shape == t.shape and v.format == "f" and not v.readonly
        print(t.name, v.tobytes().hex())
"""
    path = trained / "model.safetensors"
    done = subprocess.run([sys.executable, "-B", "-c", code, path], env=processes.environment(), check=True,
                          capture_output=True, text=True)
    assert dict(line.split(" ") for line in done.stdout.splitlines()) == {k: v[2].hex() for k, v in raw(path).items()}


DTYPES = {"F32": 4, "BF16": 2, "F16": 2, "I32": 4, "I64": 8, "U8": 1, "F64": 8, "I8": 1}


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)])
@pytest.mark.parametrize("with_numpy", [True, False])
def test_every_type_and_shape_is_read(tmp_path, monkeypatch, shape, with_numpy):
    if with_numpy:
        pytest.importorskip("numpy")
    else:
        monkeypatch.setitem(sys.modules, "numpy", None)
    count = 1
    for d in shape:
        count *= d
    head, data = {}, b""
    for name, size in sorted(DTYPES.items(), key=lambda pair: -pair[1]):
        body = bytes(range(1, count * size + 1))
        head[name] = {"dtype": name, "shape": builtins.list(shape), "data_offsets": [len(data), len(data) + len(body)]}
        data += body
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path = tmp_path / "all.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    with checkpoints.TensorFile(path) as f:
        assert {t.name: t.shape for t in f.tensors} == dict.fromkeys(DTYPES, shape)
        for name, size in DTYPES.items():
            v = f.read(name)
            assert v.tobytes() == bytes(range(1, count * size + 1)) and v.itemsize == size
            if count and len(shape) != 0:
                assert tuple(v.shape) == shape


def test_damage_is_named_and_passed_over(trained, tmp_path):
    import shutil
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    shard = _shard(checkpoints.find(copy), 1)
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1  # the sizes are right, a hash is not
    shard.write_bytes(data)
    whole, damaged = checkpoints.verify(copy)
    assert whole.damage == "" and "rank-00001-of-00002.safetensors" in damaged.damage
    with checkpoints.Checkpoint(damaged.path) as c, pytest.raises(CorruptError, match="rank-00001"):
        c.verify()
    shard.write_bytes(data[:-1])  # the newest is none any more
    assert [bool(c.damage) for c in checkpoints.list(copy)] == [False, True]
    assert checkpoints.find(copy) == whole.path


def test_invalid_checkpoint_is_rejected_with_its_path(tmp_path):
    with pytest.raises((ValueError, OSError, CorruptError), match="manifest.json"):
        checkpoints.Checkpoint(tmp_path)
    with pytest.raises((ValueError, OSError), match=str(tmp_path)):
        checkpoints.find(tmp_path)
    assert checkpoints.list(tmp_path) == []
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(CorruptError, match="model.safetensors"):
        checkpoints.TensorFile(tmp_path / "model.safetensors")
