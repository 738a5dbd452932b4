"""examples/pytorch: each pair of scripts differs by the lines that docs/PYTORCH.md shows, and both do what they say."""

import difflib
import pathlib
import re

import processes
import pytest

EXAMPLES = processes.ROOT / "examples/pytorch"
PAIRS = {"mnist": 1, "gpt": 2}  # name: lines that change


def lines(name: str) -> list[str]:
    return (EXAMPLES / name).read_text().splitlines()


def changes(name: str) -> list[str]:
    found = difflib.unified_diff(lines(f"{name}.py"), lines(f"{name}_tutti.py"), n=0, lineterm="")
    return [line for line in found if re.match(r"[-+](?![-+])", line)]


@pytest.mark.parametrize("name", PAIRS)
def test_the_lines_that_change_are_as_few_as_the_page_says(name):
    found = changes(name)
    assert len([line for line in found if line[0] == "-"]) == PAIRS[name], found
    assert len([line for line in found if line[0] == "+"]) == PAIRS[name], found


@pytest.mark.parametrize("name", PAIRS)
def test_the_page_shows_them(name):
    page = (processes.ROOT / "docs/PYTORCH.md").read_text()
    shown = [line for block in re.findall(r"```diff\n(.*?)```", page, re.S) for line in block.splitlines()]
    assert [line for line in changes(name) if line not in shown] == []


def output(run, script: pathlib.Path, **more) -> list[str]:
    result = run(script, n=2, timeout=120, **more)
    assert result.ranks[1].out == ""
    return result.ranks[0].out.splitlines()


@pytest.mark.torch
@pytest.mark.slow
def test_mnist_ends_with_the_figures_of_pytorchs_own(run):
    plain, ours = (output(run, EXAMPLES / name) for name in ("mnist.py", "mnist_tutti.py"))
    assert ours == plain
    loss, accuracy = re.fullmatch(r"epoch 1  test loss ([\d.]+)  test accuracy ([\d.]+) %", ours[-1]).groups()
    assert float(loss) < 0.15 and float(accuracy) > 95


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt.py", "gpt_tutti.py"])
def test_gpt_learns(run, name):
    found = [float(re.fullmatch(r"step \d+  validation loss ([\d.]+)", line)[1]) for line in output(run, EXAMPLES / name)]
    assert len(found) == 3 and found[0] > found[1] > found[2]
    assert 2.2 < found[2] < 2.75  # nats a byte: of letters drawn by their frequency 3.1
