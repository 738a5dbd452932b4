"""The modules of docs/PYTORCH-MODELS.md, as they stand there: a model that `tutti train` has left gives the same
logits in them, and their state_dict is what a run begins with (--init)."""

import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import types

import pytest

pytestmark = [pytest.mark.torch]
torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import processes  # noqa: E402

TUTTI = str(processes.build() / "bin/tutti")
PAGE = (processes.ROOT / "docs/PYTORCH-MODELS.md").read_text()
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}


def load_file(path):
    raw = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    return {
        name: torch.frombuffer(bytearray(raw[8 + size + t["data_offsets"][0] : 8 + size + t["data_offsets"][1]]),
                               dtype=DTYPES[t["dtype"]]).reshape(t["shape"])
        for name, t in header.items()
    }


def save_file(state, path):
    names = {v: k for k, v in DTYPES.items()}
    header, body = {}, b""
    for name, t in sorted(state.items(), key=lambda item: (-item[1].element_size(), item[0])):
        data = t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [len(body), len(body + data)]}
        body += data
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


def page_code():
    """What the page defines; its block about files by itself, since that one needs a run."""
    defines = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 9
    for block in blocks:
        if "safetensors" not in block:
            exec(compile(block, "docs/PYTORCH-MODELS.md", "exec"), defines)
    return defines, next(block for block in blocks if "safetensors" in block)


M, FILES = page_code()


def tutti(*words, ok=True):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
    done = subprocess.run([TUTTI, *map(str, words)], capture_output=True, text=True, env=clean)
    assert (done.returncode == 0) == ok, done.stderr
    return done.stdout if ok else done.stderr


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A set of images and a text, small and drawn."""
    folder = tmp_path_factory.mktemp("data")
    rng = numpy.random.default_rng(7)
    (folder / "images").mkdir()
    pixels = {}
    for name, n in (("train", 96), ("t10k", 70)):
        labels = rng.integers(0, 10, n, numpy.uint8)
        labels[:10] = range(10)
        pixels[name] = rng.integers(0, 256, (n, 28, 28), numpy.uint8)
        (folder / f"images/{name}-images-idx3-ubyte").write_bytes(
            struct.pack(">IIII", 0x803, n, 28, 28) + pixels[name].tobytes())
        (folder / f"images/{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, n) + labels.tobytes())
    text = bytes(rng.integers(97, 123, 6000, numpy.uint8))
    (folder / "text").write_bytes(text)
    return types.SimpleNamespace(folder=folder, images=pixels["t10k"], text=text)


def inputs(data, run, kind):
    """The test split as the network is given it."""
    if kind == "text":
        cut, n = int(6000 * 0.95), (300 - 13) // 12 + 1
        windows = [data.text[cut + 12 * i : cut + 12 * i + 12] for i in range(n)]
        return (torch.tensor([list(w) for w in windows]),)
    facts = json.loads((run / "model.json").read_text())["pixels"]
    x = torch.from_numpy(data.images.astype(numpy.float32))[:, None]
    x = (x / 255 - numpy.float32(facts["mean"])) / numpy.float32(facts["deviation"])
    return (x.flatten(1),) if kind == "flat" else (x.squeeze(1),) if kind == "rows" else (x,)


CASES = {
    "mlp": ("mlp(hidden=40)", "flat", lambda: M["mlp"](hidden=40)),
    "logistic": ("logistic", "flat", lambda: M["logistic"]()),
    "cnn": ("cnn", "images", lambda: M["cnn"]()),
    "resnet": ("resnet(depth=8)", "images", lambda: M["ResNet"](8)),
    "vgg": ("vgg", "images", lambda: M["VGG"]()),
    "blstm": ("blstm(layers=2,hidden=12)", "rows", lambda: M["BLSTM"](layers=2, hidden=12)),
    "gpt": ("gpt(layers=2,dim=16,heads=2)", "text", lambda: M["GPT"](2, 16, 2, 12)),
    "gpt-all": ("gpt(layers=1,dim=16,heads=2,positions=rotary,norm=rms,tied=on)", "text",
                lambda: M["GPT"](1, 16, 2, 12, positions="rotary", norm="rms", tied=True)),
    "wordlm": ("wordlm(dim=12,hidden=20)", "text", lambda: M["WordLM"](256, 12, 20)),
}


def train(data, run, model, kind, *more):
    if kind == "text":
        where = f"text(file={data.folder}/text,context=12)"
    else:
        where = data.folder / "images"
    tutti("train", "--model", model, "--data", where, "--batch", 16, "--out", run, "--quiet", *more)


def logits_of(weights, out):
    tutti("eval", weights, "--logits", out)
    return load_file(out)["logits"]


def close(a, b):
    assert a.shape == b.shape
    assert float((a - b).abs().max()) <= 2e-5 * max(1.0, float(b.abs().max()))


@pytest.mark.parametrize("case", CASES)
def test_trained_model_gives_the_same_logits_in_pytorch(case, data, tmp_path):
    model, kind, module = CASES[case]
    run = tmp_path / "run"
    train(data, run, model, kind, "--steps", 4)
    told = logits_of(run, tmp_path / "l.safetensors")
    m = module()
    m.load_state_dict(load_file(run / "model.safetensors"))
    m.eval()
    with torch.no_grad():
        close(m(*inputs(data, run, kind)), told)


@pytest.mark.parametrize("case", CASES)
def test_pytorch_state_dict_initializes_a_run(case, data, tmp_path):
    model, kind, module = CASES[case]
    names = list(CASES)
    dtype = (torch.float32, torch.float16, torch.bfloat16)[names.index(case) % 3]
    torch.manual_seed(names.index(case))
    m = module().eval()
    given = {k: v if v.dtype == torch.int64 else v.to(dtype) for k, v in m.state_dict().items()}
    for name, t in given.items():
        if "running" in name:
            t += 7 + torch.rand_like(t) # far from what a network begins with
    m.load_state_dict({k: v if v.dtype == torch.int64 else v.float() for k, v in given.items()})
    save_file(given, tmp_path / "torch.safetensors")
    run, n = tmp_path / "run", 1 + names.index(case) % 2
    method = ("ddp", "local-sgd(period=1)", "d-psgd")[names.index(case) % 3]
    train(data, run, model, kind, "--steps", 1, "--optimizer", "sgd(lr=0)", "--init", tmp_path / "torch.safetensors",
          "-n", n, "--method", method)
    trained = load_file(run / "model.safetensors")
    for name, t in trained.items():
        if "running" not in name: # a pass has moved those
            assert torch.equal(t, given[name].float()), name
        else:
            assert not torch.equal(t, given[name].float())
            assert float((t - 0.9 * given[name].float()).abs().max()) < 1 # a tenth is the batch's
    assert set(given) - set(trained) == {k for k in given if k.endswith("num_batches_tracked")}
    save_file(given, run / "torch.safetensors") # of all numbers, statistics too
    with torch.no_grad():
        close(m(*inputs(data, run, kind)), logits_of(run / "torch.safetensors", tmp_path / "l.safetensors"))


def test_click_model_gives_the_same_logits_in_pytorch(data, tmp_path):
    rng = numpy.random.default_rng(3)
    numbers, clicked = rng.integers(0, 500, (200, 13)), rng.integers(0, 2, 200)
    with open(tmp_path / "clicks", "w") as f: # no category is there, so every row is row 0
        for k in range(200):
            f.write("\t".join([str(clicked[k]), *map(str, numbers[k]), *[""] * 26]) + "\n")
    run = tmp_path / "run"
    tutti("train", "--model", "ctr(dim=4,hidden=8)", "--data", f"clicks(file={tmp_path}/clicks,rows=50)", "--batch",
          16, "--steps", 4, "--out", run, "--quiet")
    logs = numpy.log1p(numbers.astype(numpy.float64))
    values = (logs - logs[:180].mean(0)) / logs[:180].std(0)
    m = M["CTR"](rows=50, dim=4, hidden=8)
    m.load_state_dict(load_file(run / "model.safetensors"))
    with torch.no_grad():
        close(m(torch.from_numpy(values[180:]).float(), torch.zeros(20, 26, dtype=torch.int64)),
              logits_of(run, tmp_path / "l.safetensors"))


def test_file_conversion_example_of_the_page_runs(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(data, tmp_path / "runs/to-torch", "cnn", "images", "--steps", 2)
    if "safetensors" not in sys.modules: # what this test needs of it
        package, inner = types.ModuleType("safetensors"), types.ModuleType("safetensors.torch")
        inner.load_file, inner.save_file = load_file, save_file
        monkeypatch.setitem(sys.modules, "safetensors", package)
        monkeypatch.setitem(sys.modules, "safetensors.torch", inner)
    exec(compile(FILES, "docs/PYTORCH-MODELS.md", "exec"), dict(M))
    train(data, tmp_path / "further", "cnn", "images", "--steps", 1, "--init", "cnn.safetensors", "--method",
          "powersgd", "-n", 2, "--optimizer", "sgd(lr=0)")
    before, after = load_file("runs/to-torch/model.safetensors"), load_file("further/model.safetensors")
    assert before.keys() == after.keys() and all(torch.equal(before[k], after[k]) for k in before)
