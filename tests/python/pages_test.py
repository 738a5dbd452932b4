"""docs/PYTORCH.md states which calls of tutti.torch take a method, as the engine answers them."""

import re

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch")

import forked  # noqa: E402
import processes  # noqa: E402


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
                answers.append(str(error))
        told[method.name] = tuple(answers)
    return told


def words(wrapper: str, prepare: str) -> tuple[str, str, str]:
    """The columns DDP and update of a method's row, and what its last one has to name."""
    wraps = "refused" if wrapper else "yes"
    if "computes whole passes" in prepare:
        return wraps, "", "#a-model-in-stages"
    if "prepare(sampler=" in prepare:
        return wraps, "yours", "sampler="
    if "takes over torch.optim" in prepare:
        return wraps, "taken over", ""
    assert not prepare, f"the page has no words for this answer of prepare(): {prepare}"
    return wraps, "yours", ""


def test_pytorch_page_states_which_calls_take_each_method():
    told = forked.ranks(2, asked)[0]["value"]
    lines = [line.split("|") for line in (processes.ROOT / "docs/PYTORCH.md").read_text().splitlines()]
    rows = {name: [cell.strip() for cell in row[2:6]]
            for row in lines if len(row) == 7 for name in re.findall(r"`([\w-]+)`", row[1])}
    assert told.keys() <= rows.keys()
    for name, both in told.items():
        wraps, update, besides = words(*both)
        assert rows[name][:2] == [wraps, update], name
        assert besides in rows[name][3], name
