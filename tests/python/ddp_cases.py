"""Small trainings for the tests of DistributedDataParallel: the same script under torch's class and under Tutti's.

Each case is (module of this rank, training of a wrapped module). Rank 0's parameters count: other ranks begin with
others. A training gives what can be compared: parameters, buffers and gradients after it.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Tied(nn.Module):
    """A transformer whose output weights are its embedding."""

    def __init__(self, words=37, width=16):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(12, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, words, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x):
        return self.out(self.norm(self.blocks(self.words(x) + self.places[: x.shape[1]])))


class Branches(nn.Module):
    """One branch is never used, one by odd ranks only, one in every third step, and one is frozen."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.never = nn.Linear(8, 8)
        self.odd = nn.Linear(8, 8)
        self.third = nn.Linear(8, 8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)

    def forward(self, x, odd, third):
        x = self.frozen(torch.relu(self.first(x)))
        if odd:
            x = x + self.odd(x)
        if third:
            x = x + self.third(x)
        return {"value": x.sum(1), "list": [x]}


def convolution():
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, padding=1),
        nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 10))


def perceptron(dtype=torch.float32):
    return nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 5)).to(dtype)


def images(rank, step, n=8):
    g = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(n, 1, 8, 8, generator=g), torch.randint(0, 10, (n,), generator=g)


def rows(rank, step, n=8, width=12, classes=5):
    g = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(n, width, generator=g), torch.randint(0, classes, (n,), generator=g)


def train_cnn(wrapped, rank):
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05, momentum=0.9)
    for step in range(4):
        x, y = images(rank, step)
        optimizer.zero_grad()
        F.cross_entropy(wrapped(x), y).backward()
        nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)
        optimizer.step()
    wrapped.eval()
    with torch.no_grad():
        wrapped(images(rank, 99)[0])


def train_channels_last(wrapped, rank):
    train_cnn(wrapped, rank)


def train_tied(wrapped, rank):
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=0.003, eps=1e-3)
    for step in range(4):
        g = torch.Generator().manual_seed(100 * rank + step)
        x = torch.randint(0, 37, (4, 12), generator=g)
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        F.cross_entropy(wrapped(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()).backward()
        optimizer.step()


def train_branches(wrapped, rank):
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=0.01, weight_decay=0.1)
    for step in range(7):
        x, _ = rows(rank, step, width=8)
        optimizer.zero_grad(set_to_none=step != 5)
        out = wrapped(x, rank % 2 == 1 and step != 4, step % 3 == 0)
        (out["value"].square().mean() + out["list"][0].mean()).backward()
        optimizer.step()


def train_accumulating(wrapped, rank):
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    for step in range(4):
        if step != 2:  # without it gradients go on adding up over exchanges
            optimizer.zero_grad(set_to_none=step % 2 == 0)
        with wrapped.no_sync():
            for k in range(2):
                x, y = rows(rank, 10 * step + k)
                F.cross_entropy(wrapped(x), y).backward()
        x, y = rows(rank, 10 * step + 5)
        F.cross_entropy(wrapped(x), y).backward()
        optimizer.step()


def train_half(wrapped, rank):
    dtype = next(wrapped.parameters()).dtype
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    for step in range(4):
        x, y = rows(rank, step)
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        F.cross_entropy(wrapped(x.to(dtype)).float(), y).backward()
        optimizer.step()


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(12, 12), nn.Linear(12, 12).bfloat16(), nn.Linear(12, 5)

    def forward(self, x):
        return self.c(self.b(self.a(x).bfloat16()).float())


def train_mixed(wrapped, rank):
    train_plain(wrapped, rank)


def train_plain(wrapped, rank):
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    for step in range(3):
        x, y = rows(rank, step)
        optimizer.zero_grad()
        F.cross_entropy(wrapped(x), y).backward()
        optimizer.step()


def train_scaled(wrapped, rank):
    """A GradScaler, with a gradient that overflows on one rank."""
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    for step in range(5):
        x, y = rows(rank, step)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(wrapped(x).float(), y)
        if step == 2 and rank == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    wrapped.scale = scaler.get_scale()


def train_checkpointed(wrapped, rank):
    train_plain(wrapped, rank)


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 5)

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint
        x = self.a(x)
        x = checkpoint(lambda v: torch.relu(self.b(v)), x, use_reentrant=True)
        return checkpoint(self.c, x, use_reentrant=False)


def scalar_and_lstm():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.out, self.scale = nn.LSTM(12, 6), nn.Linear(6, 5), nn.Parameter(torch.tensor(1.5))
            self.turned = nn.Parameter(torch.randn(5, 3).t())

        def forward(self, x):
            return self.out(self.lstm(x)[0]) * self.scale + self.turned.sum(0)

    return Net()


def train_joining(wrapped, rank):
    """Every worker has another number of samples; the second loop divides by those that still have some."""
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    for whole in (True, False):
        with wrapped.join(divide_by_initial_world_size=whole):
            for step in range(3 + rank):
                x, y = images(rank, step + 50 * whole)
                optimizer.zero_grad()
                F.cross_entropy(wrapped(x), y).backward()
                optimizer.step()
    optimizer.zero_grad()


# name: (module, training, arguments of torch's class)
CASES = {
    "cnn": (convolution, train_cnn, {}),
    "channels-last": (lambda: convolution().to(memory_format=torch.channels_last), train_channels_last, {}),
    "tied": (Tied, train_tied, {}),
    "branches": (Branches, train_branches, {"find_unused_parameters": True}),
    "accumulating": (perceptron, train_accumulating, {}),
    "bf16": (lambda: perceptron(torch.bfloat16), train_half, {}),
    "fp16": (lambda: perceptron(torch.float16), train_half, {}),
    "mixed": (Mixed, train_mixed, {}),
    "scaled": (perceptron, train_scaled, {}),
    "checkpointed": (Checkpointed, train_checkpointed, {}),
    "lstm": (scalar_and_lstm, train_plain, {}),
    "joining": (convolution, train_joining, {}),
}


def state(wrapped):
    """What two trainings are compared by."""
    found = {name: t.clone() for name, t in wrapped.state_dict().items()}
    for name, p in wrapped.named_parameters():
        found["gradient of " + name] = None if p.grad is None else p.grad.clone()
    if hasattr(wrapped, "scale"):
        found["scale"] = torch.tensor(wrapped.scale)
    return found


def train(name, rank, wrap):
    make, training, theirs = CASES[name]
    torch.manual_seed(7 + 10 * rank)
    wrapped = wrap(make(), theirs)
    training(wrapped, rank)
    return state(wrapped)


def differences(mine, theirs, tolerance=0.0):
    """Lines that show where two states differ."""
    said = [] if list(mine) == list(theirs) else ["names: %s, %s" % (list(mine), list(theirs))]
    for name in mine.keys() & theirs.keys():
        a, b = mine[name], theirs[name]
        if a is None or b is None:
            if a is not b:
                said.append(f"{name}: {a}, {b}")
        elif a.dtype != b.dtype or a.shape != b.shape:
            said.append(f"{name}: {a.dtype} {a.shape}, {b.dtype} {b.shape}")
        elif not torch.equal(a, b) if tolerance == 0 else not torch.allclose(a, b, rtol=tolerance, atol=tolerance):
            if not (torch.isnan(a) == torch.isnan(b)).all() or not torch.allclose(
                    a, b, rtol=tolerance, atol=tolerance, equal_nan=True):
                said.append(f"{name}: {(a.double() - b.double()).abs().max()} apart")
    return said


def main():
    """All cases, or those named, under both classes; the last line of a rank's output shows where they
    differ."""
    import json
    import os
    import sys
    import warnings

    import torch.distributed as dist

    import gloo
    import tutti.torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    names = sys.argv[1:] or list(CASES)
    mine, said = {}, {}
    for name in names:
        made = []

        def ours(module, theirs, made=made):
            transport = os.environ.get("TUTTI_TEST_TRANSPORT")
            made.append(tutti.torch.DistributedDataParallel(module, transport=transport, **theirs))
            return made[0]

        mine[name] = train(name, rank, ours)
        made[0].close()
    assert not dist.is_initialized()
    dist.init_process_group("gloo")
    for name in names:
        theirs = train(name, rank, lambda m, o: nn.parallel.DistributedDataParallel(m, **o))
        # of two summands there is one order; of more the sums differ by roundings of the type,
        # added up over steps
        tolerance = 0.0 if n == 2 else {"bf16": 0.02, "mixed": 0.02, "scaled": 0.02, "fp16": 0.002}.get(name, 1e-5)
        said[name] = differences(mine[name], theirs, tolerance)
    gloo.leave()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
