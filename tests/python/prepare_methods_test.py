"""Every method of the library trains MNIST through tutti.torch.prepare, with 2 and 3 workers.

The tests check that the loss of the agreed model falls, and that the model is the same on all. The methods are
those of the registry, so a new one is included automatically; it must train, or refuse with a message that names
the call that takes it, as its row in docs/PYTORCH.md does.
"""

import ctypes
import gzip
import logging
import mmap
import re
import time

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch")

import forked  # noqa: E402
import processes  # noqa: E402

from tutti import _abi  # noqa: E402
from tutti._library import library as _c  # noqa: E402
from tutti._library import table  # noqa: E402

MNIST = processes.ROOT / "data/mnist"
STEPS, AHEAD = 48, 4
# Calls that the sentence of a refusal names, and what the row of the page has for each.
CALLS = {"tutti.torch.pipeline": "#a-model-in-stages", "prepare(sampler=": "sampler=", "step(closure)": "step(closure)"}
METHODS = [m.name.decode() for m in table("tutti_methods")]
torch.set_num_threads(1)


def mnist():
    """Images and labels of the test set: a thousand to look at and the others to train on."""

    def read(name, skip):
        raw = gzip.decompress((MNIST / name).read_bytes())[skip:]
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8)

    x = read("t10k-images-idx3-ubyte.gz", 16).view(-1, 784).float() / 255
    return x, read("t10k-labels-idx1-ubyte.gz", 8).long()


@pytest.fixture(scope="module")
def digits():
    if not (MNIST / "t10k-images-idx3-ubyte.gz").exists():
        pytest.skip(f"{MNIST} is not here: tutti data mnist brings it")
    return mnist()


def optimizer_of(method, workers, parameters):
    """torch's form of the method's own default, which for some methods has no momentum."""
    text = ctypes.create_string_buffer(_abi.TUTTI_METHOD_DEFAULT_BYTES)
    if not _c.tutti_method_default_of(_c.tutti_method_find(method.encode()), method.encode(), b"optimizer", None,
                                      workers, text):
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    rule, options = re.fullmatch(r"(\w+)\((.*)\)", text.value.decode()).groups()
    assert rule == "sgd"
    said = dict(o.split("=") for o in options.split(","))
    values = {k: v == "true" if v in ("true", "false") else float(v) for k, v in said.items()}
    return torch.optim.SGD(parameters, **values)


class Pace:
    """Lets no rank be more than AHEAD steps ahead of the slowest. On a busy machine one rank may make all its steps
    before another's first: a method whose rounds need a gradient of each then makes hardly any updates. A rank that
    has waited for a second waits no more: then the method itself holds the slowest until others have continued."""

    def __init__(self, workers):
        self.made = memoryview(mmap.mmap(-1, 4 * workers)).cast("i")  # shared by forked ranks
        self.waits = True

    def step(self, rank, step):
        self.made[rank] = step
        end = time.monotonic() + 1
        while self.waits and step - min(self.made) > AHEAD:
            self.waits = time.monotonic() < end
            time.sleep(0.001)


def train(method, workers, pace, x, y):
    import tutti.torch

    logging.disable()
    lossf = torch.nn.functional.cross_entropy
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(784, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    held = x[:500], y[:500]

    def validation():
        return lossf(model(held[0]), held[1])

    model, optimizer = tutti.torch.prepare(
        model, optimizer_of(method, workers, model.parameters()), method, batch=32, validation=validation
    )
    rank = optimizer.world.rank
    mine = torch.arange(1000 + rank, len(x), workers)
    # a step of plain descent goes a tenth as far as one with momentum 0.9
    steps = STEPS * (1 if optimizer.param_groups[0].get("momentum") else 3)
    losses = []
    with optimizer.evaluate(), torch.no_grad():
        losses.append(float(validation()))
    for step in range(steps):
        pace.step(rank, step)
        at = step * 32 % (len(mine) - 31)
        i = mine[at : at + 32]
        loss = lossf(model(x[i]), y[i])
        loss.backward()
        optimizer.step(loss=loss)
        optimizer.zero_grad()
    pace.made[rank] = 2 * steps  # no rank waits for it any more
    optimizer.finish()
    with torch.no_grad():
        losses.append(float(validation()))
    # of a model in parts rank 0 has all of it, and the others nothing
    return losses, [float(p.double().sum()) for p in model.state_dict().values()]


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_method_trains_or_is_rejected_with_the_call_that_takes_it(method, workers, digits):
    answers = forked.ranks(workers, train, method, workers, Pace(workers), *digits)
    if any(a.get("error") == "ValueError" for a in answers):
        said = {a["text"] for a in answers}
        assert len(said) == 1, answers
        text = said.pop()
        lines = [line.split("|") for line in (processes.ROOT / "docs/PYTORCH.md").read_text().splitlines()]
        rows = [line[5] for line in lines if len(line) == 7 and f"`{method}`" in line[1]]
        needed = [words for call, words in CALLS.items() if call in text]
        assert needed and len(rows) == 1 and all(words in rows[0] for words in needed), (text, rows)
        return
    values = [a["value"] for a in answers]
    whole = [v for v in values if v[1]]
    assert all(v == whole[0] for v in whole), values
    assert all(v[0] == values[0][0] for v in values) and values[0][1], values
    assert len(whole) == (1 if method == "zero-infinity" else workers), values
    before, after = values[0][0]
    assert after < 0.95 * before, values
