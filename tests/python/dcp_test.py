"""tutti.dcp reads what torch.distributed.checkpoint writes, bit for bit, without PyTorch and without running what is in
the files; what is damaged, or not a checkpoint, it refuses and writes nothing."""

import collections
import itertools
import json
import os
import pickle
import random
import shutil
import struct
import subprocess
import sys

import forked
import processes
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:torch.distributed is disabled")]
torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp_of_torch  # noqa: E402
from tutti import CorruptError, Error, dcp  # noqa: E402

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
          "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}


def loaded(path):
    raw = path.read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    assert head.pop("__metadata__") == {"format": "pt"}
    assert sum(t["data_offsets"][1] - t["data_offsets"][0] for t in head.values()) == len(raw) - 8 - n
    return {name: torch.frombuffer(bytearray(raw[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]) or
                                   bytearray(16), dtype=DTYPES[t["dtype"]])[:torch.Size(t["shape"]).numel()]
            .reshape(t["shape"]) for name, t in head.items()}


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert (a[name].dtype, a[name].shape) == (b[name].dtype, b[name].shape), name
        assert a[name].contiguous().reshape(-1).view(torch.uint8).equal(
            b[name].contiguous().reshape(-1).view(torch.uint8)), name


def drawn():
    torch.manual_seed(2)
    some = {f"of.{k}": (torch.randn(3, 5) * 9).to(v) for k, v in DTYPES.items()}
    return {**some, "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 4), "transposed": torch.randn(4, 7).t(),
            "channels_last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
            "part": torch.randn(9, 9)[2:5, 1:4], "nan": torch.tensor([float("nan"), -0.0]),
            "grad": torch.randn(3, requires_grad=True).detach()}


def by_name(member, _protocol):
    return getattr, (type(member), member.name)  # as Python 3.11.2 of Debian 12 has it


@pytest.fixture
def saved(tmp_path):
    dcp_of_torch.save({"model": drawn(), "step": 7, "lists": ["a", torch.arange(3)]}, checkpoint_id=tmp_path / "dcp",
                      no_dist=True)
    return tmp_path / "dcp"


def test_every_tensor_is_read_with_its_bits(saved, tmp_path):
    done = dcp.convert(saved, tmp_path / "all.safetensors")
    whole = {**{f"model.{k}": v for k, v in drawn().items()}, "lists.1": torch.arange(3)}
    same(loaded(tmp_path / "all.safetensors"), whole)
    assert done.skipped == ("lists.0", "step") and done.tensors == len(whole)
    assert done.bytes == sum(v.nbytes for v in whole.values())
    dcp.convert(saved, tmp_path / "model.safetensors", prefix="model.")
    same(loaded(tmp_path / "model.safetensors"), drawn())
    with pytest.raises(ValueError, match="is there already"):
        dcp.convert(saved, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="no tensor whose name begins with 'optim'"):
        dcp.convert(saved, tmp_path / "x.safetensors", prefix="optim")


@pytest.mark.parametrize("reduced", [by_name, lambda member, _protocol: (type(member), (member.value,))])
def test_members_of_enums_are_read_as_each_python_names_them(tmp_path, monkeypatch, reduced):
    monkeypatch.setattr(dcp_of_torch.metadata._MEM_FORMAT_ENCODING, "__reduce_ex__", reduced)
    dcp_of_torch.save(drawn(), checkpoint_id=tmp_path / "dcp", no_dist=True)
    dcp.convert(tmp_path / "dcp", tmp_path / "x.safetensors")
    same(loaded(tmp_path / "x.safetensors"), drawn())


class Attribute:
    def __init__(self, of, name):
        self.reduced = getattr, (of, name)

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize("of", [torch.Size, "text", dcp_of_torch.metadata.Metadata])
def test_attributes_of_anything_else_are_refused(saved, tmp_path, of):
    (saved / ".metadata").write_bytes(pickle.dumps(Attribute(of, "__class__"), 4))
    with pytest.raises(CorruptError, match="is damaged: TypeError: it asks for a member"):
        dcp.convert(saved, tmp_path / "x.safetensors")


SHARDED = """
import sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
dist.init_process_group("gloo")
row, grid = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2))
whole = lambda *shape: torch.arange(float(torch.Size(shape).numel())).reshape(shape) + 0.25
state = {"rows": distribute_tensor(whole(7, 3), row, [Shard(0)]),
         "columns": distribute_tensor(whole(3, 6), row, [Shard(1)]),
         "blocks": distribute_tensor(whole(5, 2, 7), grid, [Shard(0), Shard(2)]),
         "inner": distribute_tensor(whole(2, 5, 3), row, [Shard(1)]),
         "few": distribute_tensor(whole(2), row, [Shard(0)]),
         "same": distribute_tensor(whole(4, 4), grid, [Replicate(), Shard(1)])}
dcp.save(state, checkpoint_id=sys.argv[1])
dist.destroy_process_group()
"""


def test_blocks_of_four_processes_are_put_together(tmp_path):
    forked.script(SHARDED, 4, [tmp_path / "dcp"])
    assert len([f for f in os.listdir(tmp_path / "dcp") if f.endswith(".distcp")]) == 4
    dcp.convert(tmp_path / "dcp", tmp_path / "to.safetensors")
    shapes = {"rows": (7, 3), "columns": (3, 6), "blocks": (5, 2, 7), "inner": (2, 5, 3), "few": (2,), "same": (4, 4)}
    same(loaded(tmp_path / "to.safetensors"),
         {k: torch.arange(float(torch.Size(s).numel())).reshape(s) + 0.25 for k, s in shapes.items()})


def test_neither_pytorch_is_imported_nor_a_program_run(saved, tmp_path):
    script = ("import sys; from tutti import dcp; dcp.convert(*sys.argv[1:]);"
              "sys.exit(3 if 'torch' in sys.modules else 0)")
    subprocess.run([sys.executable, "-c", script, saved, tmp_path / "to.safetensors"], env=processes.environment(),
                   check=True)
    ran = tmp_path / "ran"

    class Hostile:
        def __reduce__(self):
            return os.system, (f"touch {ran}",)

    for hostile in (Hostile(), {"a": [Hostile()]}):
        (saved / ".metadata").write_bytes(pickle.dumps(hostile, 4))
        with pytest.raises(CorruptError, match="asks for 'posix.system'"):
            dcp.convert(saved, tmp_path / "x.safetensors")
    assert not ran.exists() and not (tmp_path / "x.safetensors").exists()


def test_few_bytes_do_not_ask_for_much_memory(saved, tmp_path):
    huge = struct.pack("<Q", 2**50)
    for text in (pickle.NONE + pickle.LONG_BINPUT + b"\xff\xff\xff\xff", pickle.BYTEARRAY8 + huge,
                 pickle.BINBYTES8 + huge, pickle.FRAME + huge, pickle.LONG4 + b"\xff\xff\xff\x7f"):
        (saved / ".metadata").write_bytes(pickle.PROTO + b"\x05" + text + pickle.STOP)
        with pytest.raises(CorruptError, match="metadata' is damaged"):
            dcp.convert(saved, tmp_path / "x.safetensors")


def doubled(innermost, of_both):
    """Few bytes for 2^60 elements: each value has the one before it twice. of_both: makes one of these two."""
    text = innermost
    for k in range(60):
        both = 2 * (pickle.BINGET + bytes([k]))
        text += pickle.BINPUT + bytes([k]) + pickle.POP + of_both(both)
    return text


def as_list(both):
    return pickle.EMPTY_LIST + pickle.MARK + both + pickle.APPENDS


def as_member(both):
    """Its arguments are a list."""
    name = pickle.GLOBAL + b"torch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING\n"
    return name + as_list(both) + pickle.REDUCE


TUPLES = doubled(pickle.EMPTY_TUPLE, lambda both: both + pickle.TUPLE2)
MEMBERS = doubled(pickle.EMPTY_TUPLE, as_member)
LISTS = doubled(pickle.EMPTY_LIST, as_list)


@pytest.mark.parametrize("text", [
    pickle.EMPTY_DICT + TUPLES + pickle.NONE + pickle.SETITEM,
    pickle.EMPTY_DICT + MEMBERS + pickle.NONE + pickle.SETITEM,
    pickle.GLOBAL + b"torch\nSize\n" + TUPLES + pickle.TUPLE1 + pickle.REDUCE,
    pickle.GLOBAL + b"torch.serialization\n_get_layout\n" + LISTS + pickle.TUPLE1 + pickle.REDUCE,
    pickle.GLOBAL + b"pathlib\nPosixPath\n" + LISTS + pickle.TUPLE1 + pickle.REDUCE,
    pickle.EMPTY_DICT + pickle.MARK + TUPLES + pickle.FROZENSET + pickle.NONE + pickle.SETITEM,
], ids=["key", "key-of-members", "size", "layout", "path", "set"])
def test_few_bytes_do_not_ask_for_much_time(saved, tmp_path, text):
    (saved / ".metadata").write_bytes(pickle.PROTO + b"\x04" + text + pickle.STOP)
    with pytest.raises(CorruptError, match="metadata' is damaged"):
        dcp.convert(saved, tmp_path / "x.safetensors")


def changed(saved, where, make):
    """Writes .metadata with a change: make gets torch's own object."""
    with open(saved / ".metadata", "rb") as f:
        meta = pickle.load(f)
    make(meta)
    (saved / ".metadata").write_bytes(pickle.dumps(meta, 4))


def entry(meta, name):
    return meta.state_dict_metadata[name]


def info(meta, name):
    return next((k, v) for k, v in meta.storage_data.items() if k.fqn == name)


def drop(meta):
    del meta.storage_data[info(meta, "model.scalar")[0]]


def place(**values):
    def change(meta):
        for key, value in values.items():
            object.__setattr__(info(meta, "model.of.F32")[1], key, value)
    return change


def chunk(offsets, sizes, *more):
    def change(meta):
        chunks = entry(meta, "model.of.F32").chunks
        chunks[0].offsets, chunks[0].sizes = torch.Size(offsets), torch.Size(sizes)
        index, at = info(meta, "model.of.F32")
        del meta.storage_data[index]
        for k, (o, s) in enumerate([(offsets, sizes), *more]):
            if k > 0:
                chunks.append(type(chunks[0])(offsets=torch.Size(o), sizes=torch.Size(s)))
            meta.storage_data[type(index)(fqn=index.fqn, offset=torch.Size(o), index=k)] = at
    return change


def size(*shape):
    return lambda meta: setattr(entry(meta, "model.of.F32"), "size", torch.Size(shape))


@pytest.mark.parametrize("change, sentence", [
    (drop, "tensor 'model.scalar': it is not said where"),
    (place(relative_path="../__0_0.distcp"), "no name of a file in this directory"),
    (place(relative_path="/etc/passwd"), "no name of a file in this directory"),
    (place(relative_path="__7_0.distcp"), "names '__7_0.distcp', which is not in the directory"),
    (place(relative_path=["__0_0.distcp"]), "has not what an index of tensors has"),
    (place(length=2**40), "the file was cut"),
    (place(length=30), "does not fit into 30 bytes"),
    (place(offset=-1), "has not what an index"),
    (place(transform_descriptors=["zstd"]), "are transformed"),
    (size(4, 5), "its blocks have 15 of 20 elements"),
    (size(2, 5), "is not inside of"),
    (size(5, 3), "is not inside of"),
    (chunk((1, 0), (2, 5)), "its blocks have 10 of 15 elements"),
    (chunk((0, 0), (2, 5)), "its blocks have 10 of 15 elements"),
    (chunk((0, 0), (2, 5), ((1, 0), (1, 5))), r"the blocks at \(0, 0\) and \(1, 0\) overlap"),
    (chunk((0, 0), (2, 5), ((2, 0), (1, 5))), r"shape \(3, 5\), where \(2, 5\) of F32 is wanted"),
    (lambda meta: meta.state_dict_metadata.update(x=3), "has not what an index"),
    (lambda meta: setattr(meta, "storage_data", None), "has not what an index"),
], ids=lambda value: value[:30].replace(" ", "_") if isinstance(value, str) else "")
def test_an_index_that_is_not_true_is_refused(change, sentence, saved, tmp_path):
    changed(saved, ".metadata", change)
    with pytest.raises(Error, match=sentence):
        dcp.convert(saved, tmp_path / "x.safetensors")
    assert sorted(os.listdir(tmp_path)) == ["dcp"]


class Counted:
    """A block that counts how often it is looked at."""

    looks = 0

    def __init__(self, offsets, sizes):
        self._of = {"offsets": offsets, "sizes": sizes}

    def __getattr__(self, name):
        Counted.looks += 1
        return self._of[name]


def boxes(cuts):
    """The blocks of a grid; cuts: the places of its planes along each dimension."""
    spans = [list(zip(c, c[1:])) for c in cuts]
    return [Counted(tuple(a for a, _ in of), tuple(b - a for a, b in of)) for of in itertools.product(*spans)]


PINWHEEL = [((0, 0), (1, 2)), ((0, 2), (2, 1)), ((2, 1), (1, 2)), ((1, 0), (2, 1)), ((1, 1), (1, 1))]


@pytest.mark.parametrize("cuts", [
    lambda n: [range(n + 1)], lambda n: [(0, 7), range(n + 1)], lambda n: [(0, 1, 3), range(n // 4 + 1), (0, 2, 5)],
    lambda n: [(0, 3), (0, 2), (0, 1), (0, 5), range(0, 2 * n + 2, 2)],
], ids=["rows", "columns", "grid", "last"])
def test_many_blocks_are_each_looked_at_a_few_times(cuts):
    looks = []
    for n in (1000, 4000):
        blocks = boxes(cuts(n))
        shape = tuple(c[-1] for c in cuts(n))
        Counted.looks = 0
        assert len(blocks) == n and dcp._fill(shape, blocks)
        looks.append(Counted.looks)
        assert not dcp._fill(shape, blocks[1:]) and not dcp._fill(shape, [*blocks, blocks[n // 2]])
        twice = [*blocks[:n // 2], *blocks[n // 2 + 1:], blocks[n // 3]]  # as many elements as there should be
        assert not dcp._fill(shape, twice)
        assert dcp._overlap(twice) is not None and dcp._overlap(blocks) is None
    assert looks[0] <= 8 * 1000 and looks[1] <= 4.01 * looks[0]


def test_blocks_that_no_plane_parts_fill_a_tensor():
    blocks = [Counted(*of) for of in PINWHEEL]
    assert dcp._fill((3, 3), blocks) and not dcp._fill((3, 3), blocks[:-1])
    assert not dcp._fill((3, 3), [*blocks[:-1], Counted((0, 1), (1, 1))])
    assert dcp._fill((), [Counted((), ())]) and not dcp._fill((), []) and not dcp._fill((), [Counted((), ())] * 2)
    assert dcp._fill((0, 3), [])


def test_blocks_fill_a_tensor_if_each_element_is_in_one():
    draw = random.Random(5)
    for _ in range(400):
        shape = tuple(draw.randint(1, 3) for _ in range(draw.randint(1, 3)))
        blocks = []
        for _ in range(draw.randint(0, 4)):
            offsets = tuple(draw.randrange(n) for n in shape)
            blocks.append(Counted(offsets, tuple(draw.randint(1, n - o) for n, o in zip(shape, offsets))))
        counts = collections.Counter(
            at for b in blocks for at in itertools.product(*(range(o, o + n) for o, n in zip(b.offsets, b.sizes))))
        assert dcp._fill(shape, blocks) == all(counts[at] == 1 for at in itertools.product(*map(range, shape)))


def test_a_changed_byte_of_a_value_is_refused_by_name(saved, tmp_path):
    path = saved / "__0_0.distcp"
    raw = path.read_bytes()
    for name in ("of.F32", "of.U8", "transposed"):
        values = drawn()[name].t().contiguous() if name == "transposed" else drawn()[name]
        at = raw.index(values.reshape(-1).view(torch.uint8).numpy().tobytes()) + 3
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 16]) + raw[at + 1:])
        with pytest.raises(CorruptError, match=f"__0_0.distcp', tensor 'model.{name}', block .*CRC-32"):
            dcp.convert(saved, tmp_path / "x.safetensors")
    assert not (tmp_path / "x.safetensors").exists()
    path.write_bytes(raw)
    dcp.convert(saved, tmp_path / "x.safetensors")


def test_any_damage_is_a_sentence_or_changes_nothing(saved, tmp_path):
    draw = random.Random(4)
    dcp.convert(saved, tmp_path / "sound.safetensors")
    sound = (tmp_path / "sound.safetensors").read_bytes()
    refused = 0
    for name in (".metadata", "__0_0.distcp"):
        raw = (saved / name).read_bytes()
        for _ in range(300):
            at, kind = draw.randrange(len(raw)), draw.randrange(3)
            other = (raw[:at] + bytes([draw.randrange(256)]) + raw[at + 1:], raw[:at], raw[:at] + raw[at + 3:])[kind]
            (saved / name).write_bytes(other)
            try:
                dcp.convert(saved, tmp_path / "x.safetensors")
            except Error:
                refused += 1
                assert not (tmp_path / "x.safetensors").exists()
            else:
                if name != ".metadata":  # of which a changed name, say, is another name
                    assert (tmp_path / "x.safetensors").read_bytes() == sound
                (tmp_path / "x.safetensors").unlink()
        (saved / name).write_bytes(raw)
    assert refused > 200


def test_command_converts_and_names_what_it_leaves_out(saved, tmp_path):
    def command(*words):
        return subprocess.run([sys.executable, "-m", "tutti.dcp", *map(str, words)], env=processes.environment(),
                              capture_output=True, text=True)

    done = command(saved, tmp_path / "to.safetensors", "--prefix", "model.")
    assert done.returncode == 0 and "left out, since no tensors: lists.0, step" in done.stdout
    same(loaded(tmp_path / "to.safetensors"), drawn())
    shutil.rmtree(saved)
    done = command(saved, tmp_path / "again.safetensors")
    assert done.returncode == 1 and "has no .metadata" in done.stderr
