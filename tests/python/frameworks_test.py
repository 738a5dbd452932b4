"""Lightning, Fabric, Accelerate, transformers' Trainer and timm over Tutti: the scripts of docs/LIGHTNING.md and
docs/ACCELERATE.md as they are there, with the real packages. Each prints what it prints over Gloo, to the last digit:
with two workers the order of sums cannot differ.

What is not installed is skipped, with the reason: tools/setup --frameworks.
"""

import importlib.util
import re
import sys

import processes
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

LIGHTNING, ACCELERATE = ((processes.ROOT / f"docs/{name}.md").read_text() for name in ("LIGHTNING", "ACCELERATE"))
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRANSFORMERS_OFFLINE": "1"}


def needs(*packages):
    lacking = [name for name in packages if importlib.util.find_spec(name) is None]
    if lacking:
        pytest.skip(f"no {', '.join(lacking)} here: tools/setup --frameworks installs it")


# ---- pages ----

def blocks(page, heading, language="python"):
    """The blocks of code in a section of a page."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.S | re.M)[1]
    return re.findall(rf"```{language}\n(.*?)```", section, re.S)


def applied(script, diff):
    """The script with a change that the page shows."""
    lines = diff.rstrip("\n").split("\n")
    before, after = ("\n".join(line[1:] for line in lines if line[0] in marks) for marks in (" -", " +"))
    assert script.count(before) == 1, before
    return script.replace(before, after)


def replaced(script, before, after):
    assert script.count(before) == 1, (before, script)
    return script.replace(before, after)


def caught(script):
    """The script of the Trainer, of which fit() is refused: it prints the reason."""
    return replaced(script, "    trainer.fit(model, data)\n", """\
    try:
        trainer.fit(model, data)
    except (RuntimeError, ValueError) as error:
        if trainer.is_global_zero:
            print(" ".join(str(error).split()))
        sys.exit()
""")


def as_pytorch(script):
    """The script without Tutti."""
    script = script.replace('"tutti"', '"ddp"' if 'strategy="tutti"' in script else '"gloo"')
    return re.sub(r"(?m)^import tutti\..*\n", "", script)


# ---- runs ----

def printed(run, folder, script, launcher="torchrun", over_gloo=False, lines=1):
    """The last lines that rank 0 of two has printed."""
    file = folder / f"train{len(list(folder.iterdir()))}.py"
    file.write_text(script)
    first, args = (str(processes.HERE / "gloo.py"), [file]) if over_gloo else (file, [])
    result = run(first, n=2, launcher=launcher, env=OFFLINE, timeout=300, args=args)
    out = result.ranks[0].out.splitlines()
    assert len(out) >= lines, result
    return out[-lines:]


def printed_alone(folder, script):
    """The last line of a script that starts its other processes itself."""
    (folder / "train.py").write_text(script)
    job = processes.Job(folder, [sys.executable, "-u", "train.py"], 0, processes.environment(OFFLINE))
    return job.wait(300).out.splitlines()[-1:]


def figure(line, name="loss"):
    return float(re.search(rf"{name} ([\d.]+)", line)[1])


# ---- Lightning ----

@pytest.fixture(scope="module")
def trainer_of_ddp(tmp_path_factory):
    """What the page's script for the Trainer prints over PyTorch's own DDP."""
    needs("lightning", "torchmetrics")
    folder = tmp_path_factory.mktemp("ddp")
    runner = processes.Runner(folder, pytest.skip)
    yield printed(runner, folder, as_pytorch(blocks(LIGHTNING, "Trainer")[0]), over_gloo=True)
    runner.close()


@pytest.mark.parametrize("launcher", ["torchrun", "tutti"])
def test_the_trainer_prints_the_figures_of_ddp(run, tmp_path, trainer_of_ddp, launcher):
    assert printed(run, tmp_path, blocks(LIGHTNING, "Trainer")[0], launcher) == trainer_of_ddp
    assert figure(trainer_of_ddp[0], "accuracy") > 0.5


@pytest.mark.parametrize("strategy", ["tutti", "tutti_fork"])
def test_lightning_starts_the_processes_itself(tmp_path, trainer_of_ddp, strategy):
    script = replaced(blocks(LIGHTNING, "Trainer")[0], 'strategy="tutti"', f'strategy="{strategy}"')
    assert printed_alone(tmp_path, script) == trainer_of_ddp


@pytest.mark.parametrize("number", range(3))
def test_the_strategy_takes_methods_and_codecs(run, tmp_path, trainer_of_ddp, number):
    given = re.findall(r"(?m)^strategy = (.*)$", "".join(blocks(LIGHTNING, "Methods and codecs")))
    assert len(given) == 3
    script = replaced(blocks(LIGHTNING, "Trainer")[0], 'strategy="tutti"', f"strategy={given[number]}")
    (line,) = printed(run, tmp_path, script)
    assert [line] != trainer_of_ddp and figure(line) < 1.3, line


def test_a_method_that_takes_the_optimizer_is_refused(run, tmp_path):
    needs("lightning", "torchmetrics")
    strategy = 'strategy=tutti.lightning.TuttiStrategy(method="local-sgd")'
    script = replaced(blocks(LIGHTNING, "Trainer")[0], 'strategy="tutti"', strategy)
    (line,) = printed(run, tmp_path, "import sys\n" + caught(script))
    assert "local-sgd" in line and "prepare" in line


@pytest.mark.parametrize("method", ["ddp", "page 0", "page 1"])
def test_a_prepared_optimizer_trains_by_any_method(run, tmp_path, trainer_of_ddp, method):
    given = re.findall(r"(?m)^strategy = (.*)$", "".join(blocks(LIGHTNING, "Methods that take the optimizer")))
    assert len(given) == 2
    strategy = 'tutti.lightning.PreparedStrategy("ddp")' if method == "ddp" else given[int(method.split()[1])]
    script = replaced(blocks(LIGHTNING, "Trainer")[0], 'strategy="tutti"', f"strategy={strategy}")
    (line,) = printed(run, tmp_path, script)
    assert ([line] == trainer_of_ddp) == (method == "ddp") and figure(line) < 1.3, (line, trainer_of_ddp)


def test_validations_and_checkpoints_are_of_the_agreed_model(run, tmp_path):
    """The last step is in the middle of a period, when the ranks' own models differ."""
    needs("lightning", "torchmetrics")
    script = blocks(LIGHTNING, "Trainer")[0].split('if __name__ == "__main__":')[0] + """
import json

L.seed_everything(1)
x = torch.randn(416, 20)
data = DataLoader(TensorDataset(x, x[:, :4].argmax(1)), batch_size=16)
model = Classifier()
trainer = L.Trainer(strategy=tutti.lightning.PreparedStrategy("local-sgd(period=8)"), accelerator="cpu", devices=2,
                    max_epochs=2, logger=False, enable_progress_bar=False, default_root_dir="out")
trainer.fit(model, data, data)
validated = float(trainer.callback_metrics["loss"])
saved = torch.load(trainer.checkpoint_callback.best_model_path, weights_only=False)
same = all(torch.allclose(saved["state_dict"][k], v) for k, v in model.state_dict().items() if "net" in k)
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
(figures,) = trainer.validate(model, data, verbose=False)
print(json.dumps([same, abs(figures["loss"] - validated) < 1e-4, weights.double().sum().item()]))
"""
    (tmp_path / "train.py").write_text(script)
    ranks = run(tmp_path / "train.py", n=2, launcher="torchrun", env=OFFLINE, timeout=300).ranks
    assert ranks[0].last[:2] == [True, True] and ranks[0].last == ranks[1].last


@pytest.mark.parametrize(("before", "after", "words"), [
    ("lr=0.01)", "lr=0.01), torch.optim.SGD([self.net[0].bias], lr=1.0)", "manual optimization|2 optimizers|multiple"),
    ("max_epochs=4", "max_epochs=4, accumulate_grad_batches=2", "accumulate_grad_batches=2"),
    ('"ddp")', '"ddp", servers=1)', "servers="),
])
def test_a_prepared_optimizer_is_refused_with_a_reason(run, tmp_path, before, after, words):
    needs("lightning", "torchmetrics")
    strategy = 'strategy=tutti.lightning.PreparedStrategy("ddp")'
    script = replaced(replaced(blocks(LIGHTNING, "Trainer")[0], 'strategy="tutti"', strategy), before, after)
    (line,) = printed(run, tmp_path, "import sys\n" + caught(script))
    assert re.search(words, line, re.I), line


def test_an_exception_in_fit_is_the_other_ranks_reason(run, tmp_path):
    needs("lightning", "torchmetrics")
    script = replaced(blocks(LIGHTNING, "Trainer")[0], "        x, y = batch\n        return", """\
        x, y = batch
        if self.global_rank == 1 and self.global_step == 3:
            raise RuntimeError("the batch is empty")
        return""")
    (tmp_path / "train.py").write_text(script)
    result = run(tmp_path / "train.py", n=2, launcher="tutti", env=OFFLINE, timeout=300, code=None)
    assert result.code != 0
    assert "PeerError" in result.ranks[0].err and "the batch is empty" in result.ranks[0].err, result


def test_ranks_of_tutti_run_are_lightnings_on_several_hosts(monkeypatch):
    needs("lightning")
    told = {"TUTTI_RANK": 3, "RANK": 3, "WORLD_SIZE": 4, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "a",
            "MASTER_PORT": 29500, "SLURM_NTASKS": 2, "SLURM_PROCID": 0}
    for name, value in told.items():
        monkeypatch.setenv(name, str(value))
    import torch

    import tutti.lightning
    for strategy in (tutti.lightning.TuttiStrategy, tutti.lightning.TuttiFabricStrategy):
        of = strategy(parallel_devices=[torch.device("cpu")] * 2)
        of.num_nodes = 2
        getattr(of, "set_world_ranks", getattr(of, "_set_world_ranks", None))()
        assert (of.global_rank, of.local_rank, of.node_rank, of.world_size) == (3, 1, 1, 4)
        with pytest.raises(ValueError, match="tutti run has started 4 ranks, and devices=2 and num_nodes=1"):
            of.cluster_environment.validate_settings(num_devices=2, num_nodes=1)


def test_fabric_prints_the_figures_of_ddp(run, tmp_path):
    """Also of the mean of integers."""
    needs("lightning")
    mean = "fabric.print(fabric.all_reduce(torch.tensor([3 * fabric.global_rank, 1]), reduce_op='mean'))\n"
    script = blocks(LIGHTNING, "Fabric")[0] + mean
    theirs = printed(run, tmp_path, as_pytorch(script), over_gloo=True, lines=2)
    assert printed(run, tmp_path, script, lines=2) == theirs
    assert figure(theirs[0]) < 1.38  # of four classes by chance


TIMM = """
import lightning as L
import timm
import torch
import tutti.lightning

L.seed_everything(1)
fabric = L.Fabric(strategy="tutti", accelerator="cpu", devices=2)
fabric.launch()
net = timm.create_model("test_resnet", num_classes=4)
net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9))
torch.manual_seed(fabric.global_rank)
for step in range(4):
    x = torch.randn(4, 3, 64, 64)
    loss = torch.nn.functional.cross_entropy(net(x), torch.arange(4))
    fabric.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
fabric.print(f"loss {loss:.8f}")
"""


def test_a_model_of_timm_trains_to_the_digits_of_ddp(run, tmp_path):
    needs("lightning", "timm", "torchvision")
    try:
        import torchvision  # noqa: F401
    except Exception as error:  # a build for another PyTorch
        pytest.skip(f"torchvision does not load here: {error}")
    assert printed(run, tmp_path, TIMM) == printed(run, tmp_path, as_pytorch(TIMM), over_gloo=True)


# ---- Accelerate, transformers ----

def test_accelerate_trains_over_the_backend(run, tmp_path):
    needs("accelerate")
    (script,) = blocks(ACCELERATE, "Accelerate")
    theirs = printed(run, tmp_path, as_pytorch(script), over_gloo=True)
    end = "accelerator.end_training()\n"
    script = replaced(script, end, "accelerator.print(accelerator.state.backend, dist.get_backend())\n" + end)
    for launcher in ("torchrun", "tutti"):
        assert printed(run, tmp_path, script, launcher, lines=2) == [*theirs, "gloo tutti"]
    assert figure(theirs[0]) < 1.3


def test_accelerate_trains_by_the_wrapper(run, tmp_path):
    needs("accelerate")
    (script,) = blocks(ACCELERATE, "Accelerate")
    theirs = printed(run, tmp_path, as_pytorch(script), over_gloo=True)
    (diff,) = blocks(ACCELERATE, "Accelerate", "diff")
    wrapped = applied(script, diff)
    plain = replaced(wrapped, ', method="powersgd(rank=2)"', "")
    assert printed(run, tmp_path, plain) == theirs
    without = replaced(plain, 'dist.init_process_group("tutti")\n', "")  # over the group that Accelerate makes
    assert printed(run, tmp_path, without) == theirs
    (line,) = printed(run, tmp_path, wrapped)
    assert [line] != theirs and figure(line) < 1.35, (line, theirs)


def test_the_trainer_of_transformers_trains_over_the_backend(run, tmp_path):
    needs("accelerate", "transformers")
    (script,) = blocks(ACCELERATE, "Trainer")
    theirs = printed(run, tmp_path, as_pytorch(script), over_gloo=True)
    for launcher in ("torchrun", "tutti"):
        assert printed(run, tmp_path, script, launcher) == theirs


def test_the_trainer_of_transformers_trains_by_the_wrapper(run, tmp_path):
    needs("accelerate", "transformers")
    (script,) = blocks(ACCELERATE, "Trainer")
    theirs = printed(run, tmp_path, as_pytorch(script), over_gloo=True)
    (diff,) = blocks(ACCELERATE, "Trainer", "diff")
    wrapped = replaced(applied(script, diff), "result = trainer.train()\n", """\
result = trainer.train()
assert trainer.model_wrapped is wrapped
""")
    assert printed(run, tmp_path, replaced(wrapped, ', codec="ef(topk(ratio=0.1))"', "")) == theirs
    (line,) = printed(run, tmp_path, wrapped)
    assert [line] != theirs and figure(line) < 5, (line, theirs)  # of 64 tokens by chance: 4.16


def test_the_backends_name_is_no_argument_of_accelerate(run, tmp_path):
    """If this fails a new version takes it, and the page's recipe can be shorter."""
    needs("accelerate", "transformers")
    (line,) = printed(run, tmp_path, """\
import tutti.torch.distributed
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from transformers import TrainingArguments

said = []
for make in (lambda: Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="tutti")]),
             lambda: TrainingArguments("out", use_cpu=True, ddp_backend="tutti").device):
    try:
        make()
        said.append("taken")
    except ValueError as error:
        said.append(str(error))
print(*said, sep="; ")
""")
    refused = "Your assigned backend tutti is not available, please use gloo"
    assert line == f"{refused}; {refused}"
    assert refused in " ".join(ACCELERATE.split())
