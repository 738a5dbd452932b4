"""Each method's page states which calls of tutti.torch take it, as the engine answers them.

run: python tests/python/pages_test.py --write      rewrites the first paragraph of that section of each page
"""

import pathlib
import re
import sys
import textwrap

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch")

import forked  # noqa: E402
import processes  # noqa: E402

HEAD = "## With PyTorch\n"
BEFORE = "## What is sent\n"
WRAPPER, PREPARE, PIPELINE = "`DistributedDataParallel`", "`tutti.torch.prepare`", "`tutti.torch.pipeline`"
NEEDS = "../PYTORCH.md#what-each-method-needs"
STAGES = "../PYTORCH.md#a-model-in-stages"


def _said(error: Exception) -> str:
    return str(error).split("; this is a ")[0].rstrip(".")


def asked() -> dict[str, tuple[str, str]]:
    """The answers of the wrapper, and of prepare() with an optimizer that no method can take over, to each method;
    "": they take it. As rank 0 of two gets them."""
    import tutti
    import tutti.torch
    from tutti.errors import Error

    told = {}
    for method in tutti.methods():
        answers = []
        for wrap in (True, False):
            model = torch.nn.Linear(2, 2)
            try:
                if wrap:
                    tutti.torch.DistributedDataParallel(model, method.name).close()
                else:
                    rule = torch.optim.RMSprop(model.parameters())
                    tutti.torch.prepare(model, rule, method.name, batch=32, validation=lambda: 1.0)[1].close()
                answers.append("")
            except (ValueError, Error) as error:
                answers.append(_said(error))
        told[method.name] = tuple(answers)
    return told


def section(wrapper: str, prepare: str) -> str:
    if "computes whole passes" in prepare:
        text = (f"{WRAPPER} and {PREPARE} refuse it. {PIPELINE} takes it: a `torch.nn.Sequential` in stages "
                f"([how]({STAGES})).")
    else:
        text = f"{WRAPPER} {'refuses' if wrapper else 'takes'} it. {PREPARE} takes it"
        if "prepare(sampler=" in prepare:
            text += " with a sampler"
        elif "takes over torch.optim" in prepare:
            text += " with an optimizer that it can take over: SGD, Adam or AdamW with one group of parameters"
        elif prepare:
            raise ValueError(f"a page has no words for this answer of prepare(): {prepare}")
        else:
            text += ", and the script's own optimizer makes the update"
        text += f" ([what each method needs]({NEEDS}))."
    wrapped = textwrap.fill(text, 100, break_on_hyphens=False, break_long_words=False)
    return f"{HEAD}\n{wrapped}\n\n"


def pages(told: dict[str, list[str]]) -> dict[pathlib.Path, str]:
    return {processes.ROOT / f"docs/methods/{name}.md": section(*both) for name, both in told.items()}


def test_method_pages_state_their_pytorch_support():
    told = forked.ranks(2, asked)[0]["value"]
    wrong = [page.name for page, text in pages(told).items() if text not in page.read_text()]
    assert wrong == [], "python tests/python/pages_test.py --write writes them anew"
    rows = [line.split("|") for line in (processes.ROOT / "docs/PYTORCH.md").read_text().splitlines()]
    wraps = {name: row[2].strip() for row in rows if len(row) == 7 for name in re.findall(r"`([\w-]+)`", row[1])}
    assert {name: wraps[name] for name in told} == {n: "refused" if both[0] else "yes" for n, both in told.items()}


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    import conftest  # noqa: F401 (where the package and its library are)

    for page, text in pages(forked.ranks(2, asked)[0]["value"]).items():
        before, there = re.subn(rf"{HEAD}\n(.+\n)+\n", lambda _, text=text: text, page.read_text())
        assert before.count(BEFORE) == 1, page
        page.write_text(before if there else before.replace(BEFORE, text + BEFORE))
