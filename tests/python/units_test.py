"""zero(stage=3) under tutti.torch.prepare: values are there while their module runs, in forward and in backward, and
nowhere else. The bits are those of workers that have all of them, and impossible uses give an error message."""

import inspect
import signal
import textwrap
import time

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402
from prepare_test import alone, cases, prepared, sgd  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import tutti.torch  # noqa: E402
from tutti.torch import _run  # noqa: E402

torch.set_num_threads(1)
STAGE3 = "zero(stage=3)"
KEEPS = "zero(stage=3,persist=100)"
STEPS = 4


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 6, 3)
        self.last = nn.Linear(24, 3)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x.view(-1, 1, 6, 6))), inplace=True)
        return self.last(F.relu(self.second(x)).flatten(1))


class Gpt(nn.Module):
    """Tied weights, a parameter of the model itself, and attention, which reads what its child has."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(20, 8), nn.Parameter(torch.randn(6, 8) * 0.1)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(8, 20, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        ids = (x[:, :6].abs() * 7).long() % 20
        return self.head(self.layers(self.words(ids) + self.places)).mean(1)[:, :3]


class Twice(nn.Module):
    """A layer that is used twice, one that is not used, and one whose parameter another module reads."""

    def __init__(self):
        super().__init__()
        self.into, self.again, self.idle = nn.Linear(36, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.read, self.out = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.again(torch.tanh(self.again(torch.tanh(self.into(x)))))
        return self.out(F.linear(x, self.read.weight) * self.read.bias)


class Places(nn.Module):
    """What it returns is a view of its parameter."""

    def __init__(self):
        super().__init__()
        self.at = nn.Parameter(torch.randn(9, 8))

    def forward(self, n):
        return {"places": (self.at[:n], self.at)}


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.places, self.rows = Places(), nn.LSTM(6, 8, batch_first=True)
        self.more = nn.ParameterList([torch.randn(8, 8) / 3, torch.randn(8, 3) / 3])
        self.norm = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))

    def forward(self, x):
        part, whole = self.places(6)["places"]
        x = self.norm(self.rows(x.view(-1, 6, 6))[0] + part * whole.mean())
        return (x.mean(1) @ self.more[0]).tanh() @ self.more[1]


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.into, self.out, self.reentrant = nn.Linear(36, 8), nn.Linear(8, 3), reentrant
        self.parts = nn.ModuleList([nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)) for _ in range(3)])

    def forward(self, x):
        x = self.into(x)
        for part in self.parts:
            x = checkpoint(part, x, use_reentrant=self.reentrant)
        return self.out(x)


def mlp():
    return nn.Sequential(nn.Linear(36, 30), nn.ReLU(), nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 3))


NETS = {
    "mlp": mlp,
    "cnn": Cnn,
    "gpt": Gpt,
    "twice": Twice,
    "odd": Odd,
    "checkpointed": lambda: Checkpointed(False),
    "reentrant": lambda: Checkpointed(True),
    "bfloat16": lambda: mlp().bfloat16(),
}
RULES = {
    "sgd": sgd,
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01),
}


def batch(step, rank):
    g = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(4, 36, generator=g), torch.randint(0, 3, (4,), generator=g)


def loop(model, optimizer, steps):
    dtype = next(model.parameters()).dtype
    for step in steps:
        x, y = batch(step, optimizer.world.rank)
        F.cross_entropy(model(x.to(dtype)).float(), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def begun(net, method=STAGE3, rule="sgd", **options):
    torch.manual_seed(0)
    return prepared(method, NETS[net](), RULES[rule], **options)


def told(state):
    return {name: t.flatten().tolist() for name, t in state.items()}


def trained(net, method, rule):
    model, optimizer = begun(net, method, rule)
    loop(model, optimizer, range(STEPS))
    with optimizer.evaluate():
        return told(model.state_dict())


# ---- bits ----


@pytest.mark.parametrize(
    "net, rule", cases(("gpt", "adamw"), *((n, r) for n in NETS for r in RULES if (n, r) != ("gpt", "adamw")))
)
def test_sharded_parameters_are_bit_identical_to_replicated_ones(net, rule):
    """Of zero's other stages. ddp's Adam is torch's own, and its SGD has the same bits."""
    if net == "checkpointed":
        forked.compiler()
    mine, other = alone(trained, net, STAGE3, rule, n=2)
    for method in ("zero", "zero(stage=2)", *(["ddp"] if rule == "sgd" and net != "bfloat16" else [])):
        assert alone(trained, net, method, rule, n=2)[0] == mine, method
    assert {k for k in mine if k not in other} >= {"0.weight", "2.bias"} if net == "mlp" else True


@pytest.mark.parametrize("n", cases(1, 3))
def test_sharded_parameters_train_with_one_and_three_workers(n):
    assert alone(trained, "twice", STAGE3, "adam", n=n)[0] == alone(trained, "twice", "zero", "adam", n=n)[0]


# ---- memory ----


def there(model):
    """Bytes of the parameters' storages."""
    with torch._C.DisableTorchFunctionSubclass():
        return sum({s.data_ptr(): s.nbytes() for p in model.parameters() for s in [p.data.untyped_storage()]}.values())


def held(net):
    model, optimizer = begun(net)
    owners = [m for m in model.modules() if any(True for _ in m.parameters(recurse=False))]
    of = [sum(p.numel() for p in m.parameters(recurse=False)) for m in owners]
    nothing, seen = 4 * sum(1 for _ in model.parameters()), [there(model)]
    for m in owners:
        m.register_forward_hook(lambda *_: seen.append(there(model)))
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda _: seen.append(there(model)))
    loop(model, optimizer, range(STEPS))
    grads = [p.grad is None for p in model.parameters()]
    metrics = {name: value for name, _, value, _ in optimizer._run.engine.metrics()}
    part = sum(p.end - p.begin for p in optimizer._run.engine.state() if p.state == b"x")
    return of, nothing, seen, there(model), metrics, all(grads), 4 * part, optimizer.world.size


def test_worker_holds_only_its_shard_and_the_active_units():
    for of, nothing, seen, last, metrics, grads, part, workers in alone(held, "mlp", n=2):
        assert seen[0] == last == nothing  # an element each
        assert max(seen) <= nothing + 4 * max(of)  # a layer at a time
        assert metrics["units_live"] == 2 and metrics["values_live"] <= sum(sorted(of)[-2:])  # and one ahead
        assert grads  # no worker has all of the gradient either
        state = 4 * sum(of) / workers + 64 * len(of)  # shards end at lines
        assert part <= state


def between():
    model, optimizer = begun("mlp")
    loop(model, optimizer, range(2))
    model.zero_grad(set_to_none=False)
    p = model[0].weight
    facts = p.shape, p.dtype, p.device.type, p.requires_grad, p.numel(), p.dim(), p.is_leaf, p.grad, len(p)
    assert facts == ((30, 36), torch.float32, "cpu", True, 1080, 2, True, None, 30)
    assert isinstance(p, nn.Parameter) and "Linear(in_features=36" in repr(model)
    optimizer.close()


def test_released_parameter_keeps_everything_but_its_values():
    alone(between)


# ---- looking at the model ----


def looking(method, where):
    model, optimizer = begun("cnn", method)
    loop(model, optimizer, range(2))
    x, y = batch(9, 0)
    sent = optimizer.figures()["bytes_sent"]
    with optimizer.evaluate():
        model.eval()
        with torch.no_grad():
            agreed = [float(F.cross_entropy(model(x), y)) for _ in range(2)]
    with torch.no_grad() if where == "no_grad" else torch.inference_mode():
        agreed.append(float(F.cross_entropy(model(x), y)))
    assert method != STAGE3 or optimizer.figures()["bytes_sent"] == sent  # what is looked at does not count
    model.train()
    loop(model, optimizer, range(2, 4))
    optimizer.finish()
    model.eval()
    with torch.no_grad():
        agreed.append(float(F.cross_entropy(model(x), y)))
    return agreed, told(model.state_dict())


@pytest.mark.parametrize("where", cases("no_grad", "inference_mode"))
def test_all_workers_evaluate_one_model_before_and_after_finish(where):
    (mine, state), (other, rest) = alone(looking, STAGE3, where, n=2)
    (theirs, same), _ = alone(looking, "ddp", where, n=2)
    assert mine == other and state == same
    assert [*mine[:2], mine[3]] == [*theirs[:2], theirs[3]]
    assert set(rest) == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}


def unequal(how):
    model, optimizer = begun("mlp")
    rank = optimizer.world.rank
    loop(model, optimizer, range(2 + (rank if how == "train" else 0)))
    x, _ = batch(9, 0)
    model.eval()
    if how == "within":
        with optimizer.evaluate(), torch.no_grad():
            for _ in range(1 + rank):
                model(x)
    elif how == "state":
        if rank == 0:
            model.state_dict()
    elif how == "train":
        optimizer.finish()
    else:
        with torch.no_grad():
            for _ in range(1 + rank):
                model(x)
    model.train()
    if how != "end":
        loop(model, optimizer, range(2, 4))
    optimizer.finish()


@pytest.mark.parametrize(
    "how, says",
    cases(
        ("after", "no worker has all values, so all of them run the model equally often"),
        ("within", "all workers need the same units in the same order"),
        ("train", "all workers make equally many steps"),
        ("state", "all of them call model.state_dict(), after the same step"),
        ("end", "all workers make the same calls in the same order"),
    ),
)
def test_unequal_numbers_of_evaluations_are_reported(how, says):
    answers = forked.ranks(2, unequal, how, timeout=60)
    assert all("error" in a for a in answers), answers
    assert any(says in a["text"] for a in answers), answers


def saved_by_one():
    model, optimizer = begun("mlp")
    loop(model, optimizer, range(2))
    optimizer.finish()
    if optimizer.world.rank == 0:
        model.state_dict()


@pytest.mark.slow
def test_saving_on_one_worker_after_finish_raises_an_error():
    first, second = forked.ranks(2, saved_by_one, timeout=60)
    assert first.get("error") == "PeerError", (first, second)


# ---- resuming ----


def through(net, folder, how, method, rule="adamw"):
    model, optimizer = begun(net, method, rule)
    with torch.no_grad():
        model.eval()(batch(0, 0)[0])  # what is kept of it is old once the checkpoint is there
        model.train()
    if how == "then":
        optimizer.load(folder)
    elif how == "state":
        torch.manual_seed(5)
        saved = torch.load(f"{folder}/{optimizer.world.rank}", weights_only=True)
        optimizer.load_state_dict(saved)
    loop(model, optimizer, range(3) if how == "first" else range(3, 6) if how in ("then", "state") else range(6))
    if how == "first":
        optimizer.save(folder)
        torch.save(optimizer.state_dict(), f"{folder}/{optimizer.world.rank}")
        optimizer.world.barrier()
        optimizer.close()
        return None
    with optimizer.evaluate():
        return told(model.state_dict())


@pytest.mark.parametrize(
    "before, after",
    cases(("zero", KEEPS), ("zero", STAGE3), (KEEPS, KEEPS), (STAGE3, STAGE3), (STAGE3, "zero(stage=2)")),
)
def test_checkpoint_resumes_with_any_zero_stage(before, after, tmp_path):
    whole = alone(through, "gpt", str(tmp_path), "through", "zero", n=2)[0]
    alone(through, "gpt", str(tmp_path), "first", before, n=2)
    assert alone(through, "gpt", str(tmp_path), "then", after, n=2)[0] == whole
    if before == after:
        assert alone(through, "gpt", str(tmp_path), "state", after, n=2)[0] == whole


@pytest.mark.parametrize(
    "rule, before, after",
    cases(
        ("sgd", "ddp", STAGE3),
        ("sgd", STAGE3, "ddp"),
        *((r, *b) for r in ("sgd", "adamw") for b in (("ddp", "zero"), ("zero", "ddp"), ("ddp", STAGE3))),
        ("adamw", STAGE3, "ddp"),
    ),
)
def test_checkpoints_are_portable_between_ddp_and_zero(rule, before, after, tmp_path):
    """With what the optimiser keeps, which is torch's under ddp. torch's Adam has other last bits."""
    whole = alone(through, "mlp", str(tmp_path), "through", "zero", rule, n=2)[0]
    alone(through, "mlp", str(tmp_path), "first", before, rule, n=2)
    then = alone(through, "mlp", str(tmp_path), "then", after, rule, n=2)[0]
    for name in whole:
        torch.testing.assert_close(*map(torch.tensor, (then[name], whole[name])), rtol=0, atol=1e-6 * (rule == "adamw"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "before, after, rule, n, says",
    [
        ("ddp", STAGE3, "sgd", 1, "was saved by 2 workers whose optimizer was torch's own"),
        (STAGE3, "ddp", "rmsprop", 2, "which RMSprop does not continue from"),
        (STAGE3, "ddp", "adamw", 2, "has momentum of an optimiser of the library's, which AdamW does not continue"),
    ],
)
def test_an_optimizer_that_keeps_something_else_is_refused(before, after, rule, n, says, tmp_path):
    RULES["rmsprop"] = lambda model: torch.optim.RMSprop(model.parameters(), lr=0.01)
    alone(through, "mlp", str(tmp_path), "first", before, "sgd", n=2)
    answers = forked.ranks(n, through, "mlp", str(tmp_path), "then", after, rule)
    assert all(a["error"] in ("ValueError", "PeerError") for a in answers), answers
    assert any(says in a["text"] for a in answers), answers


def values_of(folder, how, method, net):
    """From the model of another method, as its state_dict() has it; the rule keeps nothing."""
    model, optimizer = begun(net, method, rule="plain")
    if how == "then":
        model.load_state_dict(torch.load(f"{folder}/model", weights_only=True))
    loop(model, optimizer, range(2) if how == "first" else range(2, 4))
    with optimizer.evaluate():
        state = model.state_dict()
    if how == "first" and optimizer.world.rank == 0:
        torch.save(state, f"{folder}/model")
    optimizer.world.barrier()
    return told(state)


RULES["plain"] = lambda model: torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize("before, after", cases(("ddp", STAGE3), (STAGE3, "ddp"), (STAGE3, STAGE3)))
@pytest.mark.parametrize("net", cases("gpt", "bfloat16"))
def test_state_dict_of_another_method_can_be_loaded(before, after, net, tmp_path):
    before, after = (m if net == "gpt" or m == STAGE3 else "zero" for m in (before, after))
    alone(values_of, str(tmp_path), "first", before, net, n=2)
    alike = [alone(values_of, str(tmp_path), "then", m, net, n=2)[0] for m in (after, before)]
    assert alike[0] == alike[1]


# ---- what cannot be ----


def wrong(what):
    model = mlp()
    if what == "compiled":
        model = torch.compile(model)
    elif what == "overlapping":
        model[0].bias.data = model[2].weight.data.view(-1)[:30]
    elif what == "elsewhere":
        _run._device = lambda _: object()
    model, optimizer = prepared(STAGE3, model)
    loop(model, optimizer, range(1))
    x, y = batch(0, 0)
    if what == "read":
        model[0].weight.norm()
    elif what == "moved":
        model.double()
    elif what == "alone":
        model[2](torch.zeros(2, 30))
    elif what == "kept":
        model.state_dict(keep_vars=True)
    elif what == "part":
        model[0].state_dict()
    elif what == "loaded":
        model.load_state_dict(mlp().state_dict())
    elif what == "assigned":
        model[0].weight = nn.Parameter(torch.zeros(30, 36))
        model(x)
    elif what == "written":
        model[0].forward = lambda x, m=model[0]: F.linear(x, m.weight.mul_(2), m.bias)
        with torch.no_grad():
            model.eval()(x)
    elif what == "late":
        loss = F.cross_entropy(model(x), y)
        loss.backward(retain_graph=True)
        optimizer.step()
        loss.backward()
    elif what == "changed":
        inner = {}
        model[2].register_forward_pre_hook(lambda _, args: inner.update(x=args[0]))
        loss = F.cross_entropy(model(x), y)
        with torch.no_grad():
            inner["x"].add_(1)
        loss.backward()
    elif what == "clipped":
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    elif what == "closed":
        optimizer.close()
        model[0].weight.sum()
    elif what == "wrapped":
        optimizer.close()
        tutti.torch.DistributedDataParallel(mlp(), STAGE3)
    elif what == "over":
        optimizer.finish()
        model(x)


SENTENCES = {
    "read": "parameter '0.weight' was read (norm), but under method 'zero(stage=3)' each worker has a part",
    "moved": "each worker has a part of its values, and all of them only while its module runs",
    "alone": "a module of the model was called by itself (Linear)",
    "kept": "omit keep_vars",
    "part": "take model.state_dict(), on all workers",
    "loaded": "write before the first step, the same on all workers",
    "assigned": "parameter '0.weight' has been replaced in the module",
    "written": "parameter '0.weight' was written to while its module ran",
    "late": "outside a pass",
    "changed": "modified by an inplace operation",
    "compiled": "prepare the module without torch.compile",
    "clipped": "parameter '0.weight' has no gradient any more: method 'zero(stage=3)' exchanges gradients while",
    "closed": "which is too late after close()",
    "over": "the run is over",
    "wrapped": "optimizer is 'client', whose buffers are whole on each worker, but method 'zero' cuts them",
    "elsewhere": "this method brings values to the memory of the host",
    "overlapping": "shares memory with another tensor of the module",
}


@pytest.mark.parametrize("what", cases(*SENTENCES))
def test_invalid_options_are_rejected(what):
    (answer,) = forked.ranks(1, wrong, what, timeout=60)
    assert SENTENCES[what] in answer.get("text", ""), answer


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.turned = nn.Linear(36, 36), nn.Linear(36, 36), False

    def forward(self, x):
        return (self.a(self.b(x)) if self.turned else self.b(self.a(x)))[:, :3]


class Failing(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.fails = nn.Linear(36, 36), nn.Linear(36, 3), False

    def forward(self, x):
        x = self.a(x)
        if self.fails:
            raise ArithmeticError("a layer of this model does not like that")
        return self.b(x)


def differing(kind):
    model, optimizer = prepared(STAGE3, Turned() if kind == "turned" else Failing())
    loop(model, optimizer, range(2))
    if optimizer.world.rank == 1:
        model.turned = model.fails = True
    if kind == "caught":
        try:
            loop(model, optimizer, [2])
        except ArithmeticError:
            model.fails = False
    loop(model, optimizer, range(2, 4))
    optimizer.finish()


@pytest.mark.parametrize(
    "kind, says",
    cases(
        ("turned", r"worker 1 needs unit 1 ('b.weight') where worker 0 needs unit 0 ('a.weight'), in step 2"),
        ("failing", "a layer of this model does not like that"),
        ("caught", "all workers need the same units in the same order"),
    ),
)
def test_worker_with_a_divergent_execution_order_ends_all(kind, says):
    began = time.monotonic()
    answers = forked.ranks(2, differing, kind, timeout=60)
    assert all("error" in a for a in answers), answers
    assert any(says in a["text"] for a in answers), answers
    assert time.monotonic() - began < 50


def alone_again():
    """A worker that catches an exception of a forward continues with the same pass."""
    model, optimizer = prepared(STAGE3, Failing())
    model.fails = True
    with pytest.raises(ArithmeticError):
        loop(model, optimizer, [0])
    model.fails = False
    loop(model, optimizer, range(3))
    empty = there(model) == 4 * len(list(model.parameters()))
    return empty, torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def test_failed_forward_releases_values_and_hooks():
    assert alone(alone_again) == [[True, True]]


def endless():
    import torch

    import tutti.torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    model, optimizer = tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.0), "zero(stage=3)")
    for step in range(1000000):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 5 and optimizer.world.rank == 0:
            print("trains", flush=True)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [
    "tutti", *(pytest.param(name, marks=pytest.mark.long) for name in ("torchrun", "variables"))])
def test_interrupt_ends_all_workers(run, launcher):
    job = run.start(endless, launcher=launcher)
    job.says(0, "trains")
    if launcher == "variables":  # one rank alone; the others learn of it
        job.kill(1, signal.SIGINT)
    else:
        job.interrupt()
    result = job.wait(60, code=None)
    assert result.code != 0, result
    if launcher == "variables":
        assert "rank 1 is gone: worker 1 failed: KeyboardInterrupt" in result.ranks[0].err, result


def launched():
    import sys

    import torch
    from torch.nn import functional as F

    import tutti.torch

    method, transport = sys.argv[1:]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(36, 30), torch.nn.LayerNorm(30), torch.nn.Linear(30, 3))
    rule = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer = tutti.torch.prepare(model, rule, method, transport=transport)
    for step in range(4):
        x = torch.randn(4, 36, generator=torch.Generator().manual_seed(10 * step + optimizer.world.rank))
        F.cross_entropy(model(x), torch.tensor([0, 1, 2, 0])).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        print(model.eval()(torch.ones(1, 36)).tolist())
    print([t.flatten().tolist() for t in model.state_dict().values()])
    optimizer.finish()


@pytest.mark.slow
@pytest.mark.parametrize("launcher, transport", [
    ("torchrun", "tcp"), ("openmpi", "mpi"), pytest.param("mpich", "mpi", marks=pytest.mark.long)])
def test_all_transports_give_the_same_bits(run, launcher, transport):
    mine = run(launched, launcher=launcher, args=[STAGE3, transport]).ranks
    text = textwrap.dedent(inspect.getsource(launched)) + "\nlaunched()\n"
    # Of one method: on some CPUs PyTorch's products round by where in memory a weight stands.
    assert mine[0].out == forked.script(text, args=[STAGE3, ""])[0].out
    assert mine[1].out.splitlines()[1] == "[]"
