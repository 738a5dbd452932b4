"""examples/pytorch: each pair of scripts differs by the lines that docs/PYTORCH.md shows, and both do what
the page states."""

import ctypes
import difflib
import pathlib
import re

import processes
import pytest

import tutti
from tutti import _abi
from tutti._library import library

EXAMPLES = processes.ROOT / "examples/pytorch"
PAIRS = {"mnist": 1, "gpt": 2}  # name: lines that change


def lines(name: str) -> list[str]:
    return (EXAMPLES / name).read_text().splitlines()


def changes(name: str) -> list[str]:
    found = difflib.unified_diff(lines(f"{name}.py"), lines(f"{name}_tutti.py"), n=0, lineterm="")
    return [line for line in found if re.match(r"[-+](?![-+])", line)]


@pytest.mark.parametrize("name", PAIRS)
def test_example_pairs_differ_by_the_expected_number_of_lines(name):
    found = changes(name)
    assert len([line for line in found if line[0] == "-"]) == PAIRS[name], found
    assert len([line for line in found if line[0] == "+"]) == PAIRS[name], found


@pytest.mark.parametrize("name", PAIRS)
def test_page_shows_the_changed_lines(name):
    page = (processes.ROOT / "docs/PYTORCH.md").read_text()
    shown = [line for block in re.findall(r"```diff\n(.*?)```", page, re.S) for line in block.splitlines()]
    assert [line for line in changes(name) if line not in shown] == []


def test_the_table_of_methods_is_the_registrys():
    """Each method stands in it once. Whose update it is, and whether models differ, is what the engine says of it."""
    page = (processes.ROOT / "docs/PYTORCH.md").read_text()
    table = page.split("| method | DDP | update | finish | besides |\n")[1].split("\n\n")[0].splitlines()[1:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    named = {name: row for row in rows for name in re.findall(r"`([\w-]+)`", row[0])}
    assert sorted(named) == sorted(m.name for m in tutti.methods())
    assert sum(len(re.findall("`", row[0])) for row in rows) == 2 * len(named)
    itself = _abi.TUTTI_OWNS_UPDATE | _abi.TUTTI_NON_GRADIENT_UPDATE | _abi.TUTTI_SHARDED_OPTIMIZER
    for name, row in named.items():
        traits = ctypes.c_uint()
        library.tutti_method_traits(name.encode(), traits)
        drives = traits.value & _abi.TUTTI_PIPELINE_SCHEDULE  # refused by both
        update = "" if drives else "taken over" if traits.value & itself else "yours"
        finish = "" if drives or traits.value & _abi.TUTTI_REPLICAS_EQUAL else "needed"
        assert row[2:4] == [update, finish], name
        assert row[1] == "refused" or (row[1] == "yes" and row[2:4] == ["yours", ""]), name


def output(run, script: pathlib.Path, launcher: str = "torchrun", args=()) -> list[str]:
    result = run(str(processes.HERE / "gloo.py"), n=2, launcher=launcher, timeout=300, args=[script, *args])
    assert result.ranks[1].out == ""
    return result.ranks[0].out.splitlines()


@pytest.mark.torch
@pytest.mark.slow
def test_mnist_example_prints_the_same_figures_as_pytorch(run):
    plain, ours = (output(run, EXAMPLES / name) for name in ("mnist.py", "mnist_tutti.py"))
    assert ours == plain
    loss, accuracy = re.fullmatch(r"epoch 1  test loss ([\d.]+)  test accuracy ([\d.]+) %", ours[-1]).groups()
    assert float(loss) < 0.15 and float(accuracy) > 95


@pytest.mark.torch
@pytest.mark.long
def test_gpt_example_prints_the_same_figures_as_pytorch(run):
    plain, ours = (output(run, EXAMPLES / name, args=[160]) for name in ("gpt.py", "gpt_tutti.py"))
    assert ours == plain
    found = [float(re.fullmatch(r"step \d+  validation loss ([\d.]+)", line)[1]) for line in ours]
    assert len(found) == 2 and found[0] > found[1] and 2.3 < found[1] < 2.8  # letters by their frequency: 3.1


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("launcher, method", [("torchrun", "ddp"), *(
    pytest.param(*p, marks=pytest.mark.long) for p in (
        ("tutti", "local-sgd(period=8)"), ("torchrun", "ad-psgd(graph=exponential)"), ("tutti", "asgd")))])
def test_the_trainer_trains_by_methods_of_every_kind(run, launcher, method):
    (line,) = output(run, EXAMPLES / "trainer.py", launcher=launcher, args=[method])
    found = re.fullmatch(r"epoch 1  (.*)  test loss ([\d.]+)", line)
    assert found[1] == method and float(found[2]) < 0.5
