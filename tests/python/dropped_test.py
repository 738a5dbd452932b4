"""A wrapper, or a prepared pair, to which no reference is left leaves nothing in its process: no descriptor, no
thread, no memory of an engine."""

import gc
import os
import time

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402

import tutti.torch  # noqa: E402

torch.set_num_threads(1)
SLOW, LONG = pytest.mark.slow, pytest.mark.long


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))


def held(at_most=None):
    """Descriptors and threads of this process; once they are no more than `at_most`, if they come to that: a thread
    that has been joined stands in /proc until the kernel has taken it away, and what a thread still has while cycles
    are looked for is found the next time."""
    until = time.monotonic() + 20
    while True:
        gc.collect()
        now = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        if at_most is None or (now[0] <= at_most[0] and now[1] <= at_most[1]) or time.monotonic() > until:
            return now
        time.sleep(0.01)


def once(way, method, **options):
    """One that is made, trained for two steps, and dropped. Its parameters, and what it has left."""
    module = net()
    if way == "staged":
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
        data = torch.utils.data.TensorDataset(torch.ones(8, 4), torch.ones(8, 1))
        pipe = tutti.torch.pipeline(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.nn.MSELoss(), data,
                                    method, batch=2)  # fmt: skip
        pipe.step(2)
        pipe.finish()
        return None, None, None
    if way == "wrapper":
        model, inner = tutti.torch.DistributedDataParallel(module, method, **options), None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    else:
        inner = torch.optim.SGD(module.parameters(), lr=0.1)
        model, optimizer = tutti.torch.prepare(module, inner, method, **options)
    for k in range(2):
        optimizer.zero_grad()
        loss = model(torch.full((8, 4), float(k + 1))).square().mean()
        loss.backward()
        optimizer.step()
    if way == "finished":
        optimizer.finish()
    return module, [p.tolist() for p in module.parameters()] if way == "wrapper" else None, loss


def ten(way, method, options):
    once(way, method, **options)  # what a process makes once for all
    before, values = held(), []
    for _ in range(10):
        module, was, loss = once(way, method, **options)
        if way == "wrapper":  # which leaves its module, with what it was trained to
            values.append(was == [p.tolist() for p in module.parameters()])
        del module, loss
    return before, held(before), all(values)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("way, method, options", [
    ("wrapper", "ddp", {}),
    ("prepared", "ddp", {}),
    *(pytest.param(*p, marks=SLOW) for p in [
        ("wrapper", "ddp", {"codec": "ef(topk(ratio=0.1))", "transport": "tcp"}),
        ("prepared", "zero(stage=3)", {}), ("finished", "ad-psgd(graph=ring)", {}),
    ]),
    *(pytest.param(*p, marks=LONG) for p in [
        ("wrapper", "powersgd", {}), ("prepared", "zero", {}), ("prepared", "dgc", {}),
        ("finished", "local-sgd(period=2)", {}), ("finished", "asgd", {}), ("prepared", "ddp", {"accumulate": 2}),
        ("staged", "hetpipe(stages=1)", {}),
    ]),
])  # fmt: skip
def test_dropped_runs_leave_no_threads_or_descriptors(n, way, method, options):
    for answer in forked.ranks(n, ten, way, method, options):
        before, after, same = answer["value"]
        assert after[0] <= before[0] and after[1] <= before[1] and same, answer


def kept(what):
    """A reference to a part of it is left: it continues to work."""
    module = net()
    model, optimizer = tutti.torch.prepare(module, torch.optim.SGD(module.parameters(), lr=0.1), "ddp")
    if what == "model":
        world = optimizer.world
        del optimizer, module
        gc.collect()
        model(torch.ones(8, 4)).sum().backward()
        return world.closed
    del model, module
    gc.collect()
    optimizer._run.model(torch.ones(8, 4)).sum().backward()
    optimizer.step()
    return optimizer.world.closed


@pytest.mark.parametrize("what", ["model", "optimizer"])
def test_reference_to_model_or_optimizer_keeps_the_run_open(what):
    for answer in forked.ranks(2, kept, what):
        assert answer == {"value": False}


def gradient_of_a_dropped_one():
    ddp = tutti.torch.DistributedDataParallel(net())
    module = ddp.module
    loss = ddp(torch.full((8, 4), float(ddp.rank))).sum()
    loss.backward()
    grad = module[0].weight.grad
    was = grad.clone()
    del ddp, loss
    gc.collect()
    same = [torch.equal(module[0].weight.grad, was), torch.equal(grad, was)]
    module(torch.ones(8, 4)).sum().backward()  # a module as any
    return same


def test_gradients_outlive_the_wrapper():
    for answer in forked.ranks(2, gradient_of_a_dropped_one):
        assert answer == {"value": [True, True]}


SCRIPT = """
import gc, sys, threading, torch, tutti.torch
how = sys.argv[1]
module = torch.nn.Linear(4, 1)
model, optimizer = tutti.torch.prepare(module, torch.optim.SGD(module.parameters(), lr=0.1), "local-sgd(period=8)")
model(torch.randn(8, 4)).sum().backward()
optimizer.step()
if how == "finishes":
    optimizer.finish()
world = optimizer.world
del module, model, optimizer
gc.collect()
print(world.closed, threading.active_count(), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["forgets", "finishes"])
def test_dropped_run_reports_its_missing_finish(run, how):
    forgot = how == "forgets"
    done = run(SCRIPT, launcher="variables", args=[how], code=1 if forgot else 0)
    for rank in done.ranks:
        assert rank.out.split() == ["True", "1"], done
        assert ("has trained and ends without optimizer.finish(): under method 'local-sgd" in rank.err) == forgot, done
