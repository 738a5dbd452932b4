"""`tutti compare` of a script with tutti.torch: its tables have the figures of the records, each of which is of the
method that the script was given."""

import csv
import json
import re
import shlex
import subprocess
import sys

import processes
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

TUTTI = str(processes.build() / "bin/tutti")


def compare(folder, words, code=0):
    done = subprocess.run([TUTTI, "compare", *words], capture_output=True, text=True, timeout=200, cwd=folder,
                          env=processes.environment())  # fmt: skip
    assert done.returncode == code, done.stderr + done.stdout
    return done


def rows(path):
    with open(path, newline="") as f:
        return list(csv.DictReader(f))


@pytest.mark.long
def test_example_compares_methods_by_its_training(tmp_path):
    """The command is the page's, and the script's, with fewer steps."""
    page = (processes.ROOT / "docs/COMPARE.md").read_text().replace("\\\n", "")
    shown = re.search(r"\n(tutti compare ddp .* -- +python .*methods\.py .*\{seed\})\n", page)[1]
    words = shlex.split(shown.replace("python examples/", f"{sys.executable} {processes.ROOT}/examples/"))[2:]
    compare(tmp_path, ["--pictures", "off", *words, "--steps", "20"])
    out = tmp_path / "runs/methods"
    found, runs = rows(out / "results.csv"), rows(out / "runs.csv")
    methods = ["ddp", "local-sgd(period=8)", "powersgd"]
    assert [row["method"] for row in found] == methods
    assert [(row["method"], row["seed"]) for row in runs] == [(m, s) for s in "01" for m in methods]
    for run in runs:
        folder = out / "runs" / run["run"]
        summary, config = (json.loads((folder / name).read_text()) for name in ("summary.json", "config.json"))
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert config["method"].startswith(run["method"].split("(")[0])
        assert summary["steps"] == 20
        assert float(run["megabytes"]) == pytest.approx(summary["bytes_sent_total"] / 1e6, rel=1e-3)
        assert float(run["seconds"]) == pytest.approx(summary["wall_seconds"], rel=1e-3)
        assert float(run["samples_per_second"]) == pytest.approx(summary["samples_per_second"], rel=1e-3)
        assert float(run["train_loss"]) == pytest.approx(lines[-1]["train_loss"], abs=1e-4)
        assert 0 <= float(run["waiting_percent"]) <= 100
    sent = {row["method"]: float(row["megabytes"]) for row in found}
    assert sent["ddp"] > 2 * sent["local-sgd(period=8)"]
    assert sent["ddp"] > 2 * sent["powersgd"]


def test_methods_that_the_wrapper_refuses_or_the_script_does_not_take_are_named(tmp_path):
    script = tmp_path / "wrapper.py"
    script.write_text("""
import sys, torch, tutti.torch
net = torch.nn.Linear(30, 20)
model = tutti.torch.DistributedDataParallel(net, "ddp" if sys.argv[1] == "powersgd" else sys.argv[1])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    loss = model(torch.ones(8, 30)).square().mean()
    loss.backward()
    model.log(loss=loss)
    optimizer.step()
""")
    done = compare(tmp_path, ["ddp", "ad-psgd", "powersgd", "--seeds", "1", "-n", "2", "--out", "c",
                              "--pictures", "off", "--", sys.executable, str(script), "{method}", "{seed}"],
                   code=1)  # fmt: skip
    assert [row["method"] for row in rows(tmp_path / "c/results.csv")] == ["ddp"]
    missing = next(line for line in done.stdout.splitlines() if line.startswith("No results of 1 of 1 runs: ad-psgd"))
    assert "the last line of its output: " in missing and "ad-psgd" in missing.split("output: ")[1]
    assert "powersgd: its record is of method 'ddp" in done.stdout


EVALUATES = """
import argparse, torch, tutti.torch
a = argparse.ArgumentParser()
for name in ("--method", "--codec", "--seed"):
    a.add_argument(name, default="0")
given = a.parse_args()
torch.set_num_threads(1)
torch.manual_seed(int(given.seed))
net = torch.nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
codec = "" if given.codec in ("none", "0") else given.codec
model, optimizer = tutti.torch.prepare(net, optimizer, given.method, codec=codec, batch=4)
for step in range(6):
    optimizer.zero_grad()
    model(torch.ones(4, 6)).square().mean().backward()
    optimizer.step()
    if step % 2:
        with optimizer.evaluate(), torch.no_grad():
            optimizer.log({"val/f1": step / 10, "test_loss": net(torch.ones(1, 6)).square().mean()})
optimizer.finish()
"""


@pytest.mark.slow
def test_runs_are_compared_by_what_a_script_evaluates_and_its_codecs_are_those_of_its_record(tmp_path):
    (tmp_path / "s.py").write_text(EVALUATES)
    words = ["ddp", "local-sgd(period=2)", "--codecs", "none,qsgd(bits=8)", "--seeds", "1", "-n", "2",
             "--pictures", "off"]
    command = ["--", sys.executable, "s.py", "--method", "{method}", "--seed", "{seed}"]
    compare(tmp_path, [*words, "--out", "c", "--by", "max:val/f1", "--target", "val/f1=0.3", *command, "--codec",
                       "{codec}"])
    found = rows(tmp_path / "c/results.csv")
    assert [(r["val/f1"], r["reached"]) for r in found] == [("0.5000", "1")] * 4
    assert all(float(r["megabytes_to_target"]) > 0 for r in found)
    table = (tmp_path / "c/table.txt").read_text()
    assert "never had" not in table and "not taken" not in table, table
