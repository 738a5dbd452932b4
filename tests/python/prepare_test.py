"""What tutti.torch.prepare promises beyond that every method trains: whose optimiser makes the update, what may be
done between the calls of a loop, and what gives an error message."""

import ctypes
import logging
import pathlib
import warnings

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402

import tutti.torch  # noqa: E402
from tutti import engine  # noqa: E402
from tutti._library import table  # noqa: E402
from tutti.torch import _run, _translate  # noqa: E402

torch.set_num_threads(1)
STEPS = 6


def cases(short, *rest):
    """Of what is tested with each of these, make test has the first."""
    return [short, *(pytest.param(*(r if isinstance(r, tuple) else (r,)), marks=pytest.mark.slow) for r in rest)]


def net(norm=False):
    torch.manual_seed(0)
    between = [torch.nn.BatchNorm1d(7)] if norm else []
    return torch.nn.Sequential(torch.nn.Linear(5, 7), *between, torch.nn.ReLU(), torch.nn.Linear(7, 2))


def batch(step, rank):
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(100 * step + rank))
    return x, x.sum(1).gt(0).long()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def loop(model, optimizer, steps, rank=0, scheduler=None):
    for step in steps:
        x, y = batch(step, rank)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        if scheduler is not None:
            scheduler.step()


def values(model):
    return [p.flatten().tolist() for p in model.parameters()]


def prepared(method="ddp", model=None, optimizer=sgd, **options):
    logging.disable()
    model = model or net()
    return tutti.torch.prepare(model, optimizer(model), method, **options)


def alone(function, *arguments, n=1):
    answers = forked.ranks(n, function, *arguments)
    assert all("value" in a for a in answers), answers
    return [a["value"] for a in answers]


# ---- the user's optimiser ----


def train(method, steps, rule, scheduled):
    model, optimizer = prepared(method, optimizer=RULES[rule])
    scheduler = None
    if scheduled:
        inner = optimizer.optimizer if scheduled == "inner" else optimizer
        scheduler = torch.optim.lr_scheduler.StepLR(inner, 2, 0.5)
    loop(model, optimizer, range(steps), optimizer.world.rank, scheduler)
    optimizer.finish()
    return values(model)


RULES = {
    "sgd": sgd,
    "rmsprop": lambda model: torch.optim.RMSprop(model.parameters(), lr=0.01),
    "groups": lambda model: torch.optim.AdamW(
        [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters(), "weight_decay": 0.0}]
    ),
}


@pytest.mark.parametrize(
    "rule, scheduled",
    cases(*((r, s) for s in ("wrapped", "inner", None) for r in reversed(RULES))),
)
def test_one_worker_is_plain_torch_bit_for_bit(rule, scheduled):
    model = net()
    optimizer = RULES[rule](model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5) if scheduled else None
    loop(model, optimizer, range(STEPS), 0, scheduler)
    for method in ("ddp", "d-psgd", "ad-psgd"):
        assert alone(train, method, STEPS, rule, scheduled) == [values(model)]


@pytest.mark.slow
def test_a_rate_that_changes_where_servers_update_is_refused():
    (answer,) = forked.ranks(1, train, "asgd", STEPS, "sgd", "inner")
    assert answer["error"] == "ValueError" and "learning rate" in answer["text"], answer


EXCHANGING = [
    m.name.decode()
    for m in table("tutti_methods")
    if m.exchange and not _run._traits(m.name.decode()) & _run._UPDATES_ITSELF and m.name != b"scadles"
]  # scadles takes what has come, for which sampler_test has a sampler


class Fed(torch.nn.Module):
    """Its gradients are given by the test."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.arange(12.0).view(3, 4) / 7)
        self.b = torch.nn.Parameter(torch.arange(5.0) / 3)

    def forward(self, a, b):
        return (self.a * a).sum() + (self.b * b).sum()


def fed(step, rank):
    g = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(3, 4, generator=g), torch.randn(5, generator=g)


def through_torch(method):
    model, optimizer = prepared(method, model=Fed())
    for step in range(STEPS):
        model(*fed(step, optimizer.world.rank)).backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.finish()
    return values(model)


def through_c(method):
    model = Fed()
    spec = _translate.spec(sgd(model), method)
    world = engine.World()
    params = [("b", model.b), ("a", model.a)]
    first = [p.detach().clone() for _, p in params]

    def initial(k, address):
        ctypes.memmove(address, first[k].data_ptr(), first[k].numel() * 4)

    e = engine.Engine(
        world, [engine.Param(n, tuple(p.shape)) for n, p in params], method=method, optimizer=spec,
        lr_schedule="constant", batch=1, initial=initial,
    )  # fmt: skip
    g = [torch.frombuffer(e.gradient(k), dtype=torch.float32) for k in range(2)]
    for step in range(STEPS):
        p = e.pass_begin()
        given = dict(zip("ab", fed(step, world.rank), strict=True))
        while p is not None:
            for k, (name, _) in enumerate(params):
                # of a mean over all of the worker's samples, in the last pass that is assigned to
                # it (divisor 0: none of its samples is in this step)
                last = not p.more and p.divisor > 0
                g[k].copy_(given[name].flatten() * (e.method.samples / p.divisor if last else 0))
                e.grad_ready(k)
            e.pass_end()
            p = e.pass_begin()
        e.step()
    e.finish()
    x = {n: torch.frombuffer(e.values(k), dtype=torch.float32).tolist() for k, (n, _) in enumerate(params)}
    return [x["a"], x["b"]]


@pytest.mark.parametrize("method", cases("zero", "zero(stage=2)"))
def test_sharded_optimizer_is_bit_identical_to_ddp(method):
    """Where gradients are handed over, too. What ddp's optimizer does is torch's own, and sgd's bits are the same."""
    assert alone(through_torch, method, n=2) == alone(through_torch, "ddp", n=2)


@pytest.mark.parametrize("method", cases(*EXCHANGING))
def test_gradients_through_torch_and_through_c_give_the_same_bits(method):
    assert alone(through_torch, method, n=2) == alone(through_c, method, n=2)


class Sometimes(Fed):
    def forward(self, a, b):
        return (self.a * a).sum() + (0 if b is None else (self.b * b).sum())


def late(method, uses):
    """b is in the loss of some steps only; with one worker too its gradient is applied when it is due."""
    model, optimizer = prepared(method, model=Sometimes())
    for step, used in enumerate(uses):
        a, b = fed(step, optimizer.world.rank)
        model(a, b if used else None).backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.finish()
    return values(model)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("uses", [(1, 0, 1, 0), (0, 1, 1, 0, 0), (1, 0, 0, 0, 0)])
def test_delayed_gradient_of_an_unused_parameter_is_applied(n, uses):
    model = Fed()
    rule = sgd(model)
    for step, used in enumerate(uses):  # the gradients do not depend on the values, so only their order counts
        given = [fed(step, rank) for rank in range(n)]
        model.a.grad = sum(a / n for a, _ in given)
        model.b.grad = sum(b / n for _, b in given) if used else torch.zeros_like(model.b)
        rule.step()
    for answer in alone(late, "pipe-sgd(width=3,warmup=0)", uses, n=n):
        for mine, theirs in zip(answer, values(model), strict=True):
            torch.testing.assert_close(torch.tensor(mine), torch.tensor(theirs), rtol=0, atol=1e-6)


def half(method, steps):
    model, optimizer = prepared(method, model=net().bfloat16())
    rank = optimizer.world.rank
    halves(model, optimizer, steps, rank)
    optimizer.finish()
    return values(model)


def halves(model, optimizer, steps, rank):
    for step in range(steps):
        x, y = batch(step, rank)
        torch.nn.functional.cross_entropy(model(x.bfloat16()), y).backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("method", cases("d-psgd", "ddp", "local-sgd(period=2)", "ad-psgd"))
def test_bfloat16_parameters_train_as_in_torch(method):
    model = net().bfloat16()
    halves(model, sgd(model), STEPS, 0)
    assert alone(half, method, STEPS) == [values(model)]
    first, second = alone(half, method, STEPS, n=2)
    assert first == second


# ---- the loop ----


def accumulating(parts, method="ddp"):
    model, optimizer = prepared(method, accumulate=parts)
    assert optimizer.world.size == 2
    for step in range(STEPS):
        x, y = batch(step, optimizer.world.rank)
        for x_, y_ in zip(x.chunk(parts), y.chunk(parts), strict=True):
            torch.nn.functional.cross_entropy(model(x_), y_).backward()
            optimizer.step()
            optimizer.zero_grad()
    optimizer.finish()
    return [p.flatten().tolist() for p in model.state_dict().values()]


def told_the_loss():
    model, optimizer = prepared()
    x, y = batch(0, 0)
    for given in (lambda t: t, float):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of a tensor that requires a gradient
            optimizer.step(loss=given(loss.detach() if given is float else loss))


def test_step_accepts_the_loss_as_tensor_or_number():
    alone(told_the_loss)


@pytest.mark.parametrize("method", cases("ddp", "zero(stage=2)", "zero(stage=3)", "zero-offload", "zero-infinity"))
def test_accumulated_passes_are_one_step(method):
    whole, halves = (torch.tensor(sum(alone(accumulating, *given, n=2)[0], [])) for given in ((1,), (2, method)))
    torch.testing.assert_close(whole, halves, rtol=1e-5, atol=1e-6)


def shared(method, shares, accumulate=1, samples=34):
    """Of 34 samples the last step of an epoch has fewer than its shares have room for; of 30 not, and the model has
    running statistics."""
    torch.manual_seed(0)
    norm = [torch.nn.BatchNorm1d(7, momentum=0.3)] if samples == 30 else []
    model = torch.nn.Sequential(*norm, torch.nn.ReLU(), torch.nn.Dropout(0.4), torch.nn.Linear(7, 2))
    sampler = tutti.torch.sampler(samples, 2, 5, accumulate=accumulate)
    model, optimizer = prepared(method, model, sampler=sampler, elastic_shares=shares)
    x = torch.randn(samples, 7, generator=torch.Generator().manual_seed(3))
    seen = 0
    for _ in range(2):
        for ids in sampler:
            seen += 1
            torch.nn.functional.cross_entropy(model(x[ids]), (x[ids].sum(1) > 0).long()).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert seen == 2 * len(sampler)
    own = [b.tolist() for b in model.buffers()]
    with optimizer.evaluate():
        assert own == [b.tolist() for b in model.buffers()]
        model.eval()
        with torch.no_grad():
            out = model(x).tolist()
    optimizer.finish()
    state = [t.tolist() for t in model.state_dict().values() if t.is_floating_point()]
    return [state if optimizer.world.rank == 0 else None, own[:2], out]  # in parts: rank 0's is whole


@pytest.mark.parametrize("given", [("ddp", 5, 2), ("zero", 5, 1, 30), ("bytescheduler", 5), ("zero(stage=2)", 5),
                                   ("zero(stage=2)", 5, 1, 30), ("zero(stage=3)", 5), ("zero(stage=3)", 5, 1, 30),
                                   ("powersgd(min_compression_rate=1)", 5, 2)])
def test_shares_of_a_step_give_the_same_bits_with_any_number_of_workers(given):
    (one,) = alone(shared, given[0] if given[0].startswith("powersgd") else "ddp", *given[1:])
    for n in (2, 3):
        assert alone(shared, *given, n=n) == [one, *[[None, *one[1:]]] * (n - 1)]


def looking(method):
    model, optimizer = prepared(method, model=net(norm=True))
    rank = optimizer.world.rank
    loop(model, optimizer, range(3), rank)
    own = values(model), model[1].running_mean.tolist()
    with optimizer.evaluate():
        agreed = values(model), model[1].running_mean.tolist()
        model.eval()
        model(batch(0, 0)[0])
        model.train()
    if method != "ad-psgd":  # there averages that were in progress have arrived since
        assert own == (values(model), model[1].running_mean.tolist())
    loop(model, optimizer, range(3, 5), rank)
    optimizer.finish()
    return own, agreed, values(model)


@pytest.mark.parametrize("method", cases("d-psgd", "ddp", "local-sgd(period=100)", "ad-psgd"))
def test_evaluation_uses_the_agreed_model_and_restores_the_workers(method):
    (own0, agreed0, last0), (own1, agreed1, last1) = alone(looking, method, n=2)
    assert agreed0 == agreed1 and last0 == last1
    assert own0[1] != own1[1] and agreed0[1] != own0[1]
    if method.startswith("local"):
        assert own0[0] != own1[0]


def saving(method, folder, how):
    model, optimizer = prepared(method)
    rank = optimizer.world.rank
    if how == "through":
        loop(model, optimizer, range(6), rank)
    elif how == "first":
        loop(model, optimizer, range(3), rank)
        optimizer.save(folder)
    else:
        optimizer.load(folder)
        loop(model, optimizer, range(3, 6), rank)
    if how == "first":
        optimizer.close()
        return None
    optimizer.finish()
    return values(model)


@pytest.mark.parametrize("method", cases("ddp", "powersgd(rank=1)", "d-psgd", "parameter-server", "zero(stage=2)"))
def test_run_resumed_from_a_checkpoint_is_bit_identical(method, tmp_path):
    through = alone(saving, method, str(tmp_path), "through", n=2)
    alone(saving, method, str(tmp_path), "first", n=2)
    assert alone(saving, method, str(tmp_path), "then", n=2) == through
    assert not [p for p in pathlib.Path(tmp_path).rglob("*.part")]


def resuming(folder, how):
    model, optimizer = prepared("ad-psgd")
    rank = optimizer.world.rank
    if how == "first":
        loop(model, optimizer, range(3 + rank), rank)
        optimizer.save(folder)
    else:
        optimizer.load(folder)
    momenta = [s["momentum_buffer"].flatten().tolist() for s in optimizer.state_dict()["state"].values()]
    optimizer.close()
    return momenta


@pytest.mark.slow
def test_asynchronous_workers_save_their_own_momentum(tmp_path):
    saved = alone(resuming, str(tmp_path), "first", n=2)
    assert saved[0] != saved[1]
    assert alone(resuming, str(tmp_path), "then", n=2) == saved


def unequal(method, late):
    import time

    model, optimizer = prepared(method)
    rank = optimizer.world.rank
    time.sleep(late if rank == 0 else 0)
    loop(model, optimizer, range(3 if rank == 0 else 5), rank)
    optimizer.finish()


@pytest.mark.parametrize("method", cases("ddp", "d-psgd", "lasgd", "ssp"))
def test_unequal_numbers_of_steps_are_reported(method):
    answers = forked.ranks(3, unequal, method, 0.5)
    said = [a.get("text", "") for a in answers]  # no rank is left waiting; one that needs no other may finish
    assert any(f"under method '{method}' all workers make equally many steps" in text for text in said), answers


def serving(method, folder):
    model, optimizer = prepared(method, servers=1, optimizer=lambda m: torch.optim.SGD(m.parameters(), lr=0.05))
    rank = optimizer.world.rank
    loop(model, optimizer, range(3), rank)
    with optimizer.evaluate():
        agreed = values(model)
    optimizer.save(folder)
    loop(model, optimizer, range(3, 5), rank)
    optimizer.finish()
    return agreed, values(model)


@pytest.mark.parametrize(
    "method", cases("parameter-server", "asgd", "ssp", "ringmaster-asgd", "oscars", "decoupled-diloco(period=2)")
)
def test_dedicated_servers_serve_and_exit(method, tmp_path):
    first, second, server = forked.ranks(3, serving, method, str(tmp_path))
    assert server == {"exit": 0}, server
    assert first["value"] == second["value"]


# ---- what gives an error message ----


def wrong(what):
    model, optimizer = prepared("d-psgd" if what == "clipped alone" else "ddp")
    x, y = batch(0, 0)

    def backward():
        torch.nn.functional.cross_entropy(model(x), y).backward()

    if what == "twice":
        backward()
        backward()
    elif what == "no pass":
        optimizer.step()
    elif what == "parts":
        model[2](model[1](model[0](x))).sum().backward()
    elif what in ("clipped", "clipped alone"):
        backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
    elif what == "closure":
        optimizer.step(backward)
    elif what == "open pass":
        model(x)
        with optimizer.evaluate():
            pass
    elif what == "training while shown":
        with optimizer.evaluate():
            model(x)
    elif what == "after the end":
        optimizer.finish()
        backward()
        optimizer.step()
    elif what == "moved":
        model.double()
        backward()
    elif what == "late state":
        backward()
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
    elif what == "again":
        tutti.torch.prepare(model, sgd(model))
    elif what == "copy":
        import copy

        copy.deepcopy(optimizer)


@pytest.mark.parametrize(
    "what, words",
    [
        ("twice", "a second backward before optimizer.step()"),
        ("no pass", "step() without a pass"),
        ("parts", "backward without a forward in training mode"),
        ("clipped", "give prepare(clip_norm=...) in place of clip_grad_norm_"),
        ("closure", "step(closure) cannot be had"),
        ("open pass", "evaluate() within a pass"),
        ("training while shown", "a forward in training mode within evaluate()"),
        ("after the end", "the run is over"),
        ("moved", "parameter '2.bias' has other memory than prepare() left it in"),
        ("late state", "state is loaded before the first step"),
        ("again", "this model was prepared already"),
        ("copy", "cannot be pickled or copied"),
    ],
)
def test_invalid_calls_give_clear_errors(what, words):
    (answer,) = forked.ranks(1, wrong, what)
    assert words in answer.get("text", ""), answer


def test_clipping_is_allowed_for_gradients_that_are_not_exchanged():
    assert forked.ranks(1, wrong, "clipped alone") == [{"value": None}]


def test_mismatch_of_optimizer_and_model_parameters_is_rejected():
    model = net()
    with pytest.raises(ValueError, match=r"does not have parameter '2.weight' of the model and 1 more"):
        tutti.torch.prepare(model, torch.optim.SGD(model[0].parameters(), lr=0.1))
    with pytest.raises(ValueError, match="1 parameters that are not the model's"):
        other = [*model.parameters(), torch.nn.Parameter(torch.zeros(1))]
        tutti.torch.prepare(model, torch.optim.SGD(other, lr=0.1))


def test_an_optimizer_that_needs_a_closure_is_rejected():
    model = net()
    with pytest.raises(ValueError, match=r"LBFGS computes gradients again .* tutti.torch.DistributedDataParallel"):
        tutti.torch.prepare(model, torch.optim.LBFGS(model.parameters()))


def test_optimizers_that_servers_cannot_run_are_rejected():
    model = net()
    for optimizer, words in (
        (torch.optim.RMSprop(model.parameters()), "this is a torch.optim.rmsprop.RMSprop"),
        (torch.optim.Adam(model.parameters(), amsgrad=True), "adam has no option amsgrad"),
        (torch.optim.SGD([{"params": [p]} for p in model.parameters()], lr=0.1), "this one has 4 groups"),
    ):
        with pytest.raises(ValueError, match=words):
            tutti.torch.prepare(model, optimizer, "asgd")
    adam = torch.optim.Adam(model.parameters(), lr=0.002, betas=(0.8, 0.99))
    assert _translate.spec(adam, "asgd") == "adam(lr=0.002,eps=1e-08,weight_decay=0,beta1=0.8,beta2=0.99)"
    assert _translate.spec(torch.optim.AdamW(model.parameters()), "asgd").startswith("adamw(lr=0.001,")


def without_finish(method):
    model, optimizer = prepared(method)
    rank = optimizer.world.rank
    loop(model, optimizer, range(3), rank)
    if rank == 0:
        loop(model, optimizer, range(3, 5), rank)
        optimizer.finish()


def test_rank_that_ends_without_finish_is_named():
    answers = forked.ranks(2, without_finish, "local-sgd(period=4)")
    assert answers[1] == {"value": None}
    assert answers[0]["error"] == "PeerError" and "ended without optimizer.finish()" in answers[0]["text"], answers


# ---- under real launchers, over shared memory ----

SCRIPT = """
import json, sys, torch
import tutti.torch

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
model, optimizer = tutti.torch.prepare(
    model, torch.optim.SGD(model.parameters(), lr=0.05), sys.argv[1], servers=int(sys.argv[2])
)
transport = optimizer.world.transport
g = torch.Generator().manual_seed(optimizer.world.rank)
with optimizer:
    for step in range(20):
        x = torch.randn(8, 4, generator=g)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 10:
            with optimizer.evaluate():
                pass
print(json.dumps([float(loss.detach()), transport, model.weight.flatten().tolist()]))
"""


@pytest.mark.parametrize("launcher, method, servers", [
    *(pytest.param(*p, marks=pytest.mark.slow) for p in (
        ("torchrun", "d-psgd", 0), ("tutti", "asgd(hogwild=on)", 0), ("mpirun", "parameter-server", 1))),
    *(pytest.param(*p, marks=pytest.mark.long) for p in (
        ("tutti", "d-psgd", 0), ("mpirun", "d-psgd", 0), ("torchrun", "asgd(hogwild=on)", 0),
        ("mpirun", "asgd(hogwild=on)", 0), ("torchrun", "parameter-server", 1), ("tutti", "parameter-server", 1)))])
def test_a_script_trains_under_a_launcher(run, launcher, method, servers):
    ranks = run(SCRIPT, n=2 + servers, launcher=launcher, args=[method, servers]).ranks
    (loss, transport, weight), other = (ranks[r].last for r in range(2))
    assert transport == "shm" and weight == other[2] and loss < 1
    assert all(not r.out for r in ranks[2:])  # a dedicated server has left within prepare()
