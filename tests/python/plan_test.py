"""tutti.plan: a module is timed and methods are ranked, as `tutti plan` ranks them for the file of its measurements;
what the module, its optimizer and PyTorch's random numbers were before, they are after."""

import copy
import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.torch]
torch = pytest.importorskip("torch")

import processes  # noqa: E402

import tutti  # noqa: E402
from tutti.torch._measure import measure  # noqa: E402

TUTTI = str(processes.build() / "bin/tutti")
SIMULATOR = (processes.build() / "lib/libtutti_transport_sim.so").exists()
NETWORK = "cluster(rate=1Gbps,latency=50us)"
METHODS = ("ddp", "powersgd", "local-sgd(period=4)", "zero", "ad-psgd")
needs_simulator = pytest.mark.skipif(not SIMULATOR, reason="the simulator is not built")


class Convolutions(torch.nn.Module):
    """With buffers, dropout and a frozen layer."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
            torch.nn.Dropout(0.5), torch.nn.Linear(4 * 36, 10))
        self.body[0].bias.requires_grad_(False)

    def forward(self, x):
        return self.body(x)


class Tied(torch.nn.Module):
    """A matrix that is the first layer's and the last one's; names for arguments; its own loss."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 16)
        self.mix = torch.nn.MultiheadAttention(16, 2, batch_first=True)
        self.head = torch.nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens, labels=None):
        x = self.embed(tokens)
        logits = self.head(x + self.mix(x, x, x)[0])
        return {"logits": logits, "loss": torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())}


class Two(torch.nn.Module):
    """Two inputs."""

    def __init__(self):
        super().__init__()
        self.left, self.right = torch.nn.Linear(6, 8), torch.nn.Linear(3, 8)

    def forward(self, a, b):
        return self.left(a) * self.right(b)


def images():
    return Convolutions(), torch.rand(4, 1, 8, 8)


def tokens():
    ids = torch.randint(50, (4, 12))
    return Tied(), {"tokens": ids, "labels": ids}


def pairs():
    return Two(), (torch.rand(4, 6), torch.rand(4, 3))


def measured(module, sample, **more):
    return measure(module, sample, **{"loss": None, "optimizer": None, "batch": None, "passes": 2, **more})


@needs_simulator
@pytest.mark.parametrize("of", [images, tokens, pairs])
def test_the_ranking_is_that_of_the_file(of, tmp_path):
    module, sample = of()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    file = tmp_path / "net.json"
    plan = tutti.plan(module, sample, workers=3, optimizer=optimizer, network=NETWORK, methods=METHODS, passes=2,
                      file=file, options={"over": 4})
    assert json.loads(file.read_text()) == plan.measured
    assert plan.measured["batch"] == plan.json["batch"] == 4
    assert plan.measured["optimizer_seconds"] > 0
    platform = tmp_path / "platform.xml"
    words = [TUTTI, "platform", NETWORK.replace("(", "(n=3,")]
    platform.write_text(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    words = [TUTTI, "plan", "--model", "measured(file=net.json)", "-n", "3", "--platform", "platform.xml", "--methods",
             ",".join(METHODS), "--over", "4"]
    done = subprocess.run([*words, "--json"], cwd=tmp_path, capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout)
    assert theirs["methods"] == plan.json["methods"]
    assert [m.method for m in plan.methods] == [m["method"] for m in theirs["methods"]]
    assert {m.method for m in plan.methods} == set(METHODS)
    assert [m.seconds for m in plan.methods] == sorted(m.seconds for m in plan.methods)
    assert plan.fastest == plan.methods[0]
    assert plan.fastest_synchronous.effect in ("exact", "synchronous")
    assert plan.refused == {}
    for m in plan.methods:
        assert f'\n  method="{m.method}"\n' in str(plan)
    assert repr(plan) == "<tutti.Plan of 5 methods for 3 workers>"


@needs_simulator
def test_options_are_switches_paths_and_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("lan.xml", "w") as f:
        subprocess.run([TUTTI, "platform", "cluster(n=3,rate=1Gbps)"], stdout=f, check=True)
    options = {"platform": "lan.xml", "codec_checksum": True, "batch_share": "2:1:1", "out": "kept", "over": 12}
    done = tutti.plan(torch.nn.Linear(6, 3), torch.ones(4, 6), workers=3, methods="ddp", codecs="qsgd", file="net.json",
                      options=options)
    assert [(m.method, m.codec) for m in done.methods] == [("ddp", "qsgd")]
    assert (tmp_path / "kept/plan.json").exists() and (tmp_path / "net.json").exists()


@needs_simulator
def test_what_a_method_cannot_is_listed_and_a_wrong_option_is_an_error():
    module, sample = pairs()
    plan = tutti.plan(module, sample, workers=2, network=NETWORK, methods="ddp,hetpipe", codecs="none,fp16", passes=1,
                      options={"over": 2})
    assert {(m.method, m.codec) for m in plan.methods} == {("ddp", ""), ("ddp", "fp16")}
    assert "no layers that stages could be cut from" in plan.refused["hetpipe", ""]
    assert 'method="ddp", codec="fp16"' in str(plan)
    with pytest.raises(ValueError, match="there is no method 'dpd'"):
        tutti.plan(module, sample, workers=2, network=NETWORK, methods="dpd", passes=1)
    with pytest.raises(ValueError, match="no such file, and no spec of `tutti platform`"):
        tutti.plan(module, sample, workers=2, network="lan of ours.xml", passes=1)
    with pytest.raises(ValueError, match="workers is 0; it must be a whole number from 1 on"):
        tutti.plan(module, sample, workers=0)


@pytest.mark.parametrize("of", [images, tokens, pairs])
def test_all_is_as_it_was_before(of):
    module, sample = of()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9)
    first = next(p for p in module.parameters() if p.requires_grad)
    first.grad = kept = torch.ones_like(first)
    before = copy.deepcopy(module.state_dict())
    random = torch.get_rng_state()
    measured(module, sample, optimizer=optimizer)
    assert first.grad is kept and torch.equal(kept, torch.ones_like(first))
    assert [p.grad for p in module.parameters() if p is not first] == [None] * (len([*module.parameters()]) - 1)
    after = module.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert torch.equal(random, torch.get_rng_state())
    assert optimizer.state_dict()["state"] == {}
    assert all(not m._forward_pre_hooks for m in module.modules())
    assert all(not p._post_accumulate_grad_hooks for p in module.parameters())


def test_times_are_in_the_order_of_the_pass():
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    found = measured(module, torch.rand(16, 8))
    assert [t["name"].partition(".")[0] for t in found["tensors"]] == ["2", "2", "1", "1", "0", "0"]
    assert {t["name"]: t["shape"] for t in found["tensors"]}["2.weight"] == [2, 8]
    ready = [t["ready_seconds"] for t in found["tensors"]]
    assert ready == sorted(ready) and 0 < ready[0] and ready[-1] <= found["backward_seconds"]
    needed = {t["name"]: t["needed_seconds"] for t in found["tensors"]}
    assert 0 <= needed["0.weight"] <= needed["1.weight"] <= needed["2.weight"] <= found["forward_seconds"]
    assert found["optimizer_seconds"] == 0 and found["module"] == "Sequential"
    # what backward needs: the inputs of all layers, and nothing of the parameters
    assert found["activation_bytes"] >= 2 * 16 * 8 * 4


def test_frozen_parameters_are_left_out_and_shared_ones_are_there_once():
    module, sample = images()
    assert "body.0.bias" not in {t["name"] for t in measured(module, sample)["tensors"]}
    module, sample = tokens()
    names = [t["name"] for t in measured(module, sample)["tensors"]]
    assert sorted(names) == sorted(name for name, _ in module.named_parameters())
    assert names.count("embed.weight") == 1 and "head.weight" not in names
    assert names[-1] == "embed.weight"  # ready when both its uses have given their part


@pytest.mark.slow
def test_a_compiled_module_is_timed_as_it_is():
    module, sample = images()
    compiled = torch.compile(module, backend="eager")
    for given in (compiled, torch.nn.Sequential(compiled)):
        found = measured(given, sample)
        names = {t["name"].removeprefix("0.") for t in found["tensors"]}
        assert names == {name for name, p in module.named_parameters() if p.requires_grad}
        assert found["module"] in ("Convolutions", "Sequential")


def test_shapes_are_in_the_order_of_memory_as_the_engine_has_them():
    module = torch.nn.Conv2d(3, 5, 2).to(memory_format=torch.channels_last)
    shapes = {t["name"]: t["shape"] for t in measured(module, torch.rand(4, 3, 4, 4))["tensors"]}
    assert shapes == {"weight": [5, 2, 2, 3], "bias": [5]}


def test_a_parameter_without_a_gradient_is_warned_of():
    module, sample = pairs()
    module.extra = torch.nn.Linear(3, 3)
    with pytest.warns(UserWarning, match="gave 2 parameters no gradient, 'extra.weight' first"):
        found = measured(module, sample)
    ready = {t["name"]: t["ready_seconds"] for t in found["tensors"]}
    assert ready["extra.bias"] == found["backward_seconds"]


class Frozen(torch.nn.Linear):
    def forward(self, x):
        with torch.no_grad():
            return super().forward(x)


def linear(**more):
    return torch.nn.Linear(4, 2, **more)


@pytest.mark.parametrize(("module", "sample", "more", "error", "says"), [
    (lambda: "net", 1, {}, TypeError, "is for a torch.nn.Module, and was given a str"),
    (lambda: linear().requires_grad_(False), None, {}, ValueError, "no parameter that requires a gradient"),
    (lambda: linear(dtype=torch.float64), None, {}, ValueError, "parameter 'weight' is float64"),
    (lambda: linear(device="meta"), None, {}, ValueError, "parameter 'weight' is on the meta device"),
    (lambda: torch.nn.LazyLinear(2), None, {}, TypeError, "parameter 'weight' has no shape yet"),
    (lambda: Frozen(4, 2), torch.ones(3, 4), {}, ValueError, "does not depend on a parameter that requires a gradient"),
    (linear, {"input": 3}, {}, ValueError, "no tensor whose first size could be its number of samples; give batch=N"),
    (linear, torch.ones(3, 4), {"batch": 0}, ValueError, "batch is 0; it must be a whole number from 1 on"),
    (linear, torch.ones(3, 4), {"passes": 1.5}, ValueError, "passes is 1.5"),
    (linear, torch.ones(3, 4), {"loss": lambda y: y}, ValueError, r"loss\(output\) has the shape \(3, 2\)"),
    (linear, torch.ones(3, 4), {"loss": lambda y: 5}, TypeError, r"loss\(output\) is a int without a loss"),
    (lambda: torch.nn.LSTM(4, 2), torch.ones(3, 1, 4), {}, TypeError, "the module's output is a tuple without a loss"),
    (linear, torch.ones(3, 4), {"optimizer": "adam"}, TypeError, "optimizer is a str; give a torch.optim.Optimizer"),
    (linear, torch.ones(3, 4), {"optimizer": torch.optim.SGD(linear().parameters(), lr=1)}, ValueError,
     "the optimizer has no parameter of the module"),
])
def test_what_cannot_be_timed_is_refused_with_a_sentence(module, sample, more, error, says):
    with pytest.raises(error, match=says):
        measured(module(), sample, **more)


@needs_simulator
def test_the_example_of_the_page_runs(capsys):
    page = (processes.ROOT / "docs/PYTORCH.md").read_text()
    block = page.partition("## Which method would be fast")[2].partition("```python\n")[2].partition("```")[0]
    names = {}
    exec(compile(block, "docs/PYTORCH.md", "exec"), names)
    plan = names["plan"]
    assert {m.method for m in plan.methods} == {"ddp", "powersgd", "local-sgd(period=4)", "ad-psgd"}
    assert capsys.readouterr().out == f"{plan}\n{plan.fastest_synchronous.method} {plan.fastest_synchronous.seconds}\n"


SCRIPT = """
import sys, torch
{before}
print("with", sys.argv[1:])
torch.manual_seed(1)
class Net(torch.nn.Sequential):
    pass
net = Net(torch.nn.Linear(16, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{wrap}
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    for part in range({passes}):
        model(torch.rand(6, 16)).square().mean().backward()
    with torch.no_grad():
        model.eval()
        model(torch.rand(50, 16))
        model.train()
    optimizer.step()
print("to its end")
"""
WRAPS = {
    "one process": ("", "model = net", 2),
    "the group of torchrun": (
        "import torch.distributed as dist; dist.init_process_group('gloo')",
        "model = torch.nn.parallel.DistributedDataParallel(net)", 1),
    "wrapper": ("import tutti.torch", "model = tutti.torch.DistributedDataParallel(net, 'powersgd')", 1),
    "prepare": ("import tutti.torch", "model, optimizer = tutti.torch.prepare(net, optimizer, 'local-sgd')", 1),
}


def script(kind="one process", more=""):
    before, wrap, passes = WRAPS[kind]
    return SCRIPT.format(before=before, wrap=wrap + more, passes=passes)


def plan_script(folder, text, *words):
    (folder / "train.py").write_text(text)
    platform = subprocess.run([TUTTI, "platform", "cluster(n=2)"], capture_output=True, text=True, check=True).stdout
    (folder / "lan.xml").write_text(platform)
    given = [TUTTI, "plan", "train.py", "-n", "2", "--platform", "lan.xml", "--methods", "ddp,local-sgd(period=4)",
             "--over", "4", "--json", "--quiet", "--", *words]
    return subprocess.run(given, cwd=folder, capture_output=True, text=True,
                          env=processes.environment({"VIRTUAL_ENV": sys.prefix}))


@needs_simulator
@pytest.mark.parametrize("kind", [
    "one process", "prepare", *(pytest.param(k, marks=pytest.mark.slow) for k in ("the group of torchrun", "wrapper"))])
def test_a_script_is_timed_as_it_stands_and_ended(kind, tmp_path):
    done = plan_script(tmp_path, script(kind), "1000")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)  # and nothing that the script has printed
    assert {m["method"] for m in plan["methods"]} == {"ddp", "local-sgd(period=4)"}
    assert plan["batch"] == 6
    parameters = 16 * 8 + 8 + 8 * 4 + 4
    sent = {m["method"]: m["bytes_sent_a_step"] for m in plan["methods"]}
    assert sent["ddp"] == 4 * parameters  # of each of two workers
    assert "with ['1000']" in done.stderr and "to its end" not in done.stderr


@pytest.mark.slow
def test_a_script_that_cannot_be_timed_is_refused_with_a_sentence(tmp_path):
    one_more = "\noptimizer.add_param_group({'params': [torch.ones(1, requires_grad=True)]})"
    for text, steps, says in (
        (script(), 3, "train.py ended after 6 training passes in its own process, and 7 are needed"),
        (script(more=one_more), 9, "an optimizer of the script trains parameters that are not in the Net"),
        (script(more="\nnet.double(); torch.set_default_dtype(torch.float64)"), 9, "parameter '0.weight' is float64"),
    ):
        done = plan_script(tmp_path, text, str(steps))
        assert done.returncode == 2, done.stderr
        assert f"tutti plan: {says}" in done.stderr
        assert done.stdout == ""
    missing = subprocess.run([TUTTI, "plan", "none.py"], cwd=tmp_path, capture_output=True, text=True,
                             env=processes.environment({"VIRTUAL_ENV": sys.prefix}))
    assert missing.returncode == 2 and "there is no script 'none.py'" in missing.stderr
    nothing = subprocess.run([TUTTI, "plan", "train.py"], cwd=tmp_path, capture_output=True, text=True,
                             env=processes.environment({"VIRTUAL_ENV": str(tmp_path)}))
    assert nothing.returncode == 2 and "/bin/python', which cannot be started" in nothing.stderr


def test_the_package_alone_does_not_import_pytorch():
    code = "import sys, tutti; assert callable(tutti.plan); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], env=processes.environment(), check=True)
