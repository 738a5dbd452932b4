"""Folders of weights, as Hugging Face's libraries and torch.distributed.checkpoint write and read them: what
`tutti convert` writes they read, and what they write it reads, with the same bits. What is not installed is skipped,
with the reason: tools/setup --frameworks.
"""

import json
import os
import re
import subprocess

import processes
import pytest

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", TRANSFORMERS_OFFLINE="1")
pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch")
hub = pytest.importorskip("huggingface_hub", reason="no huggingface_hub here: tools/setup --frameworks installs it")
safetensors_torch = pytest.importorskip("safetensors.torch", reason="no safetensors here: tools/setup --frameworks")

from tutti import checkpoints  # noqa: E402

INDEX = "model.safetensors.index.json"


def tutti(*words, code=0):
    done = subprocess.run([str(processes.build() / "bin/tutti"), *map(str, words)], env=processes.environment(),
                          capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def loaded(folder):
    """What the package safetensors reads of a folder's index, or of its one file."""
    if not (folder / INDEX).exists():
        return safetensors_torch.load_file(folder / "model.safetensors")
    places = json.loads((folder / INDEX).read_text())["weight_map"]
    found = {}
    for name in set(places.values()):
        for key, tensor in safetensors_torch.load_file(folder / name).items():
            assert places[key] == name and key not in found
            found[key] = tensor
    assert found.keys() == places.keys()
    return found


def bits(tensor):
    return str(tensor.dtype), tuple(tensor.shape), tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist()


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert bits(a[name]) == bits(b[name]), name


def drawn():
    torch.manual_seed(3)
    return {"a.weight": torch.randn(37, 5), "a.bias": torch.randn(11).bfloat16(), "b.half": torch.randn(2, 3, 4).half(),
            "step": torch.tensor(2**40 + 1), "empty": torch.zeros(0, 4), "nan": torch.tensor([float("nan"), -0.0]),
            "bytes": torch.arange(250, dtype=torch.uint8), "n": torch.arange(-3, 9, dtype=torch.int32)}


@pytest.mark.parametrize("size", [1, 300, 10**9])
def test_huggingface_hub_writes_what_convert_reads(size, tmp_path):
    given = drawn()
    (tmp_path / "hub").mkdir()
    hub.save_torch_state_dict(given, tmp_path / "hub", max_shard_size=size)
    assert (tmp_path / "hub" / INDEX).exists() == (size < 10**9)
    tutti("convert", tmp_path / "hub", tmp_path / "one.safetensors")
    same(safetensors_torch.load_file(tmp_path / "one.safetensors"), given)
    assert "no hashes" in tutti("check", tmp_path / "hub")


@pytest.mark.parametrize("size", ["1B", "300B", "1GiB"])
def test_safetensors_reads_what_convert_writes(size, tmp_path):
    given = drawn()
    safetensors_torch.save_file(given, tmp_path / "given.safetensors")
    tutti("convert", tmp_path / "given.safetensors", tmp_path / "to", "--max-shard-size", size)
    same(loaded(tmp_path / "to"), given)
    assert "whole" in tutti("check", tmp_path / "to")
    for name in os.listdir(tmp_path / "to"):
        if name != INDEX: # the package tutti reads each of them, too
            with checkpoints.TensorFile(tmp_path / "to" / name) as f:
                assert {t.name for t in f.tensors} == safetensors_torch.load_file(tmp_path / "to" / name).keys()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transformers_reads_what_convert_writes_and_writes_what_it_reads(dtype, tmp_path):
    transformers = pytest.importorskip("transformers", reason="no transformers here: tools/setup --frameworks")
    torch.manual_seed(5)
    shape = transformers.GPT2Config(vocab_size=61, n_positions=16, n_embd=24, n_layer=2, n_head=3)
    model = transformers.GPT2LMHeadModel(shape).to(dtype)
    model.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    assert (tmp_path / "theirs" / INDEX).exists()
    ours = tmp_path / "ours"
    tutti("convert", tmp_path / "theirs", ours, "--max-shard-size", "7KiB")
    same(loaded(ours), loaded(tmp_path / "theirs"))
    assert len(list(ours.iterdir())) != len(list((tmp_path / "theirs").iterdir())) - 2
    (ours / "config.json").write_text((tmp_path / "theirs/config.json").read_text())
    back = transformers.AutoModelForCausalLM.from_pretrained(ours, dtype=dtype)
    same(back.state_dict(), model.state_dict())
    one = tmp_path / "one"
    one.mkdir()
    (one / "config.json").write_text((ours / "config.json").read_text())
    tutti("convert", ours, one / "model.safetensors")
    same(transformers.AutoModelForCausalLM.from_pretrained(one, dtype=dtype).state_dict(), model.state_dict())
    assert "whole" in tutti("check", ours) and "whole" in tutti("check", one)


def test_distributed_checkpoint_reads_what_convert_writes(tmp_path):
    import torch.distributed.checkpoint as dcp
    given = drawn()
    safetensors_torch.save_file(given, tmp_path / "given.safetensors")
    for size in ("1B", "400B", "1GiB"):
        tutti("convert", tmp_path / "given.safetensors", tmp_path / size, "--max-shard-size", size)
        back = {k: torch.zeros_like(v) for k, v in given.items()}
        dcp.load(back, storage_reader=dcp.HuggingFaceStorageReader(str(tmp_path / size)), no_dist=True)
        same(back, given)


def test_distributed_checkpoint_writes_what_convert_reads(tmp_path):
    import torch.distributed.checkpoint as dcp
    given = drawn()
    places = {name: 1 + k % 3 for k, name in enumerate(given)}
    writer = dcp.HuggingFaceStorageWriter(str(tmp_path / "dcp"), fqn_to_index_mapping=places)
    dcp.save(given, storage_writer=writer, no_dist=True)
    tutti("convert", tmp_path / "dcp", tmp_path / "to")
    same(loaded(tmp_path / "to"), given)


def test_a_run_begins_with_a_folder_that_others_wrote(tmp_path):
    settings = ("--model", "mlp(hidden=8)", "--data", "mnist", "--steps", 1, "--optimizer", "sgd(lr=0)", "--quiet")
    torch.manual_seed(1)
    given = torch.nn.Sequential(torch.nn.Linear(784, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8), torch.nn.ReLU(),
                                torch.nn.Linear(8, 10)).state_dict()
    (tmp_path / "hub").mkdir()
    hub.save_torch_state_dict(given, tmp_path / "hub", max_shard_size=400)
    tutti("train", *settings, "--out", tmp_path / "run", "-n", 2, "--init", tmp_path / "hub")
    same(safetensors_torch.load_file(tmp_path / "run/model.safetensors"), given)
    tutti("convert", tmp_path / "run", tmp_path / "to", "--max-shard-size", "1KiB")
    same(loaded(tmp_path / "to"), given)


def test_others_do_not_see_a_changed_bit_and_check_does(tmp_path):
    given = drawn()
    safetensors_torch.save_file(given, tmp_path / "given.safetensors")
    tutti("convert", tmp_path / "given.safetensors", tmp_path / "to", "--max-shard-size", "300B")
    name = json.loads((tmp_path / "to" / INDEX).read_text())["weight_map"]["a.weight"]
    raw = bytearray((tmp_path / "to" / name).read_bytes())
    raw[raw.index(given["a.weight"].numpy().tobytes()) + 99] ^= 1
    (tmp_path / "to" / name).write_bytes(raw)
    assert bits(loaded(tmp_path / "to")["a.weight"]) != bits(given["a.weight"])
    assert re.search(rf"'[^']*{name}', tensor 'a.weight': .* damaged", tutti("check", tmp_path / "to", code=1))
