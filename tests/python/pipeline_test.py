"""tutti.torch.pipeline: a model in stages under methods that run a pipeline schedule. The updates are those of their
recursions, at the recursions' values, wherever the model is cut; impossible options give an error message."""

import contextlib
import pathlib
import signal

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402
from prepare_test import alone, cases  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tutti.torch  # noqa: E402

torch.set_num_threads(1)
SAMPLES, STEP = 60, 24  # so the last step of an epoch is cut


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(12, 15), nn.ReLU(), nn.Linear(15, 16), nn.LayerNorm(16), nn.Sequential(nn.Linear(16, 10), nn.Tanh()),
        nn.Linear(10, 3),
    )  # fmt: skip


def data(samples=SAMPLES):
    x = torch.randn(samples, 12, generator=torch.Generator().manual_seed(1))
    return torch.utils.data.TensorDataset(x, x[:, :3].argmax(1))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def momentum(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5, weight_decay=0.01)


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def pipe_of(method, model=None, rule=sgd, dataset=None, **options):
    model = model if model is not None else net()
    options.setdefault("batch", STEP // len_of_run())
    loss = options.pop("loss", F.cross_entropy)
    return tutti.torch.pipeline(model, rule(model), loss, data() if dataset is None else dataset, method, **options)


def len_of_run():
    import os

    return int(os.environ["TUTTI_SIZE"])


def values(model):
    return [p.detach().flatten().tolist() for p in model.parameters()]


def train(method, epochs=2, rule=sgd, make=net, **options):
    """Losses of the epochs, and the values in the end."""
    model = make()
    pipe = pipe_of(method, model, rule, **options)
    losses = [pipe.epoch() for _ in range(epochs)]
    pipe.finish()
    return losses, values(model)


def close(mine, theirs, within=2e-6):
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(torch.tensor(a), torch.tensor(b), rtol=1e-4, atol=within)


def micro_batches(epochs, size, samples=SAMPLES, step=STEP):
    """Of one pipeline, in the library's order, of each step: (input, target). A last step's last ones are empty."""
    x, y = data(samples).tensors
    for epoch in range(epochs):
        for batch in order(epoch, samples, step):
            yield [(x[batch[k : k + size]], y[batch[k : k + size]]) for k in range(0, step, size)]


def order(epoch, samples, step):
    sampler = tutti.torch.sampler(samples, step, rank=0, workers=1)
    sampler.set_epoch(epoch)
    return [list(batch) for batch in sampler]


def late_update(model, now, optimizer, versions, x, y):
    """An update of `now` along the gradient at the oldest version; the newest takes its place. Gives the loss there."""
    with torch.no_grad():
        for p, v in zip(model.parameters(), versions[0], strict=True):
            p.copy_(v)
    model.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    for p, q in zip(now.parameters(), model.parameters(), strict=True):
        p.grad = q.grad.clone()
    optimizer.step()
    versions[:] = [*versions[1:], [p.detach().clone() for p in now.parameters()]]
    return loss.item()


def recursion(delay, micro, epochs=2, rule=sgd):
    """Each micro-batch makes an update along its gradient at the values of `delay` micro-batches ago."""
    model, now, total, losses = net(), net(), [], []
    optimizer = rule(now)
    versions = [[p.detach().clone() for p in now.parameters()]] * delay
    for step in micro_batches(epochs, micro):
        for x, y in step:
            if len(x) == 0:
                versions = [*versions[1:], versions[-1]]
                continue
            total.append((late_update(model, now, optimizer, versions, x, y) * len(x), len(x)))
    each = len(total) // epochs
    for e in range(epochs):
        part = total[e * each : (e + 1) * each]
        losses.append(sum(loss for loss, _ in part) / sum(n for _, n in part))
    return losses, values(now)


# ---- what is computed ----


@pytest.mark.parametrize("rule", cases(sgd, momentum, adam))
def test_one_in_flight_matches_torch_for_any_stage_count(rule):
    losses, trained = recursion(1, STEP, rule=rule)
    one = alone(train, "hetpipe(stages=1,in_flight=1)", 2, rule, n=1)[0]
    close(one[1], trained)
    assert one[0] == pytest.approx(losses, rel=1e-5)
    for n in (2, 3):
        for answer in alone(train, f"hetpipe(stages={n},in_flight=1)", 2, rule, n=n):
            assert answer == one


@pytest.mark.parametrize("n, flight", cases((2, 4), (1, 3), (3, 6), (2, 2), (2, 8)))
def test_each_backward_sees_the_values_that_its_forward_saw(n, flight):
    losses, trained = recursion(flight, STEP // flight)
    for answer in alone(train, f"hetpipe(stages={n},in_flight={flight})", n=n):
        close(answer[1], trained)
        assert answer[0] == pytest.approx(losses, rel=1e-4)


def whole(gradients, epochs=2, rule=sgd, scheduled=None):
    """Steps over all workers' samples, along the mean gradient; gradients: how many steps old its values are."""
    model, now, losses = net(), net(), []
    optimizer = rule(now)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5) if scheduled else None
    versions = [[p.detach().clone() for p in now.parameters()]] * (gradients + 1)
    for epoch in range(epochs):
        total = 0.0
        for batch in order(epoch, SAMPLES, STEP):
            x, y = (t[batch] for t in data().tensors)
            total += late_update(model, now, optimizer, versions, x, y) * len(batch)
        losses.append(total / SAMPLES)
        if scheduler:
            scheduler.step()
    return losses, values(now)


@pytest.mark.parametrize(
    "method, n, late",
    cases(
        ("wavelet", 2, 1), ("heterps(stages=2)", 3, 0), ("wavelet(stages=2)", 2, 1), ("wavelet(waves=1)", 2, 0),
        ("wavelet(waves=3)", 2, 2), ("wavelet(sync_mode=accumulate)", 2, 0), ("heterps", 2, 0),
        ("heterps(stages=2,micro_batches=8)", 2, 0), ("heterps(stages=3)", 3, 0), ("wavelet(stages=2)", 4, 1),
    ),
)  # fmt: skip
def test_waves_and_wide_stages_are_steps_over_all_samples(method, n, late):
    """Waves: several slots are in the midst of something at a time, at one version of the values or another."""
    losses, trained = whole(late)
    for answer in alone(train, method, n=n):
        close(answer[1], trained)
        assert answer[0] == pytest.approx(losses, rel=1e-4)


def scheduled(method):
    model = net()
    pipe = pipe_of(method, model, momentum)
    scheduler = torch.optim.lr_scheduler.StepLR(pipe.optimizer, 1, 0.5)
    for _ in range(2):
        pipe.epoch()
        scheduler.step()
    pipe.finish()
    return values(model)


def test_the_rate_is_the_torch_optimizers():
    _, trained = whole(0, 2, momentum, True)
    close(alone(scheduled, "heterps(stages=2)", n=2)[1], trained)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["hetpipe(stages=2)", "hetpipe(stages=2,clock_distance=1)", "wavelet", "heterps"])
def test_four_workers_learn(method):
    losses = [answer[0] for answer in alone(train, method, 12, momentum, n=4)]
    assert losses.count(losses[0]) == 4 and losses[0][-1] < 0.8 * losses[0][0]


@pytest.mark.parametrize("method", cases("hetpipe", "wavelet", "heterps"))
def test_method_trains_with_default_options(method):
    answers = alone(train, method, 8, n=2)
    assert answers[0] == answers[1] and answers[0][0][-1] < answers[0][0][0]


# ---- models ----


class Rows(nn.Module):
    """An LSTM whose state goes along: two tensors, which no stage sends."""

    def __init__(self):
        super().__init__()
        self.rows = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x):
        return self.rows(x.view(-1, 3, 4))


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 10)

    def forward(self, x):
        return F.relu(self.out(x[1][0][0]))


class Head(nn.Module):
    """Tied weights."""

    def __init__(self, tied):
        super().__init__()
        self.tied = nn.Parameter(tied) if not isinstance(tied, nn.Parameter) else tied

    def forward(self, x):
        return F.linear(x, self.tied.t()[:10])


def lstm():
    torch.manual_seed(0)
    return nn.Sequential(Rows(), Last(), nn.Linear(10, 12), nn.Dropout(0.0), nn.Linear(12, 3))


def tied():
    torch.manual_seed(0)
    first = nn.Linear(12, 10, bias=False)
    again = nn.Linear(12, 10, bias=False)
    again.weight = first.weight
    return nn.Sequential(first, nn.Linear(10, 12), again, nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 3))


def image():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 3, 4)), nn.Conv2d(1, 4, 2), nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv2d(4, 6, 2), nn.Flatten(),
        nn.utils.parametrizations.weight_norm(nn.Linear(12, 8)), nn.ReLU(), nn.Linear(8, 3),
    )  # fmt: skip


def attention():
    torch.manual_seed(0)
    layer = [nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True) for _ in range(3)]
    return nn.Sequential(nn.Unflatten(1, (3, 4)), *layer, nn.Flatten(), nn.Linear(12, 3))


class Idle(nn.Module):
    """A parameter that is no part of the loss."""

    def __init__(self):
        super().__init__()
        self.used, self.idle = nn.Parameter(torch.ones(10)), nn.Parameter(torch.ones(7))

    def forward(self, x):
        return x * self.used


def partly():
    """A layer that is frozen, one that is used twice, and one that is no part of the loss."""
    model = net()
    twice = nn.Linear(16, 16)
    model = nn.Sequential(model[0], model[1], model[2], twice, nn.Tanh(), twice, model[4], Idle(), model[5])
    model[2].weight.requires_grad_(False)
    return model


MODELS = {"lstm": lstm, "tied": tied, "image": image, "attention": attention, "partly": partly}


def cuts(make, method):
    pipe = pipe_of(method, MODELS[make]())
    modules = pipe.modules
    pipe.finish()
    return modules


@pytest.mark.parametrize("make", cases(*MODELS))
def test_models_are_cut_and_train_the_same(make):
    one = alone(train, "hetpipe(stages=1,in_flight=1)", 2, momentum, MODELS[make], n=1)[0]
    for answer in alone(train, "hetpipe(stages=2,in_flight=1)", 2, momentum, MODELS[make], n=2):
        close(answer[1], one[1])
        assert answer[0] == pytest.approx(one[0], rel=1e-5)
    model = MODELS[make]()
    plain(model, momentum(model))
    close(one[1], values(model), 1e-5)


def plain(model, optimizer, epochs=2):
    for epoch in range(epochs):
        for batch in order(epoch, SAMPLES, STEP):
            x, y = (t[batch] for t in data().tensors)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            for p in model.parameters():  # an unused parameter's gradient is 0 where workers exchange
                p.grad = torch.zeros_like(p) if p.grad is None and p.requires_grad else p.grad
            optimizer.step()


def test_stages_begin_where_one_tensor_is_handed_over():
    first, second = alone(cuts, "lstm", "hetpipe(stages=2)", n=2)
    assert first[:2] == ["0", "1"] and first + second == ["0", "1", "2", "3", "4"]
    first, second = alone(cuts, "tied", "hetpipe(stages=2)", n=2)
    assert first[:3] == ["0", "1", "2"] and first + second == ["0", "1", "2", "3", "4", "5"]


def costly(method, **options):
    pipe = pipe_of(method, **options)
    answer = pipe.modules, pipe.epoch()
    pipe.finish()
    return answer


def test_stage_cuts_follow_given_costs():
    first, second = alone(costly_first, n=2)
    assert (first[0], second[0]) == (["0", "1"], ["2", "3", "4.0", "4.1", "5"])
    first, second = alone(costly_last, n=2)
    assert (first[0], second[0]) == (["0", "1", "2", "3", "4.0", "4.1"], ["5"])


def costly_first():
    return costly("hetpipe(stages=2)", costs=[9.0, 1.0, 1.0, 1.0, 1.0])


def costly_last():
    return costly("hetpipe(stages=2)", costs=[1.0, 1.0, 1.0, 1.0, 9.0])


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(12))

    def forward(self, x):
        import time

        time.sleep(0.02)
        return x * self.scale


def measured():
    model = net()
    return costly("hetpipe(stages=2,profile=measured)", model=nn.Sequential(Slow(), *model))


@pytest.mark.slow
def test_stage_cuts_follow_measured_costs():
    first, second = alone(measured, n=2)
    assert ["0"] in (first[0], second[0]) and first[1] == second[1]


class Longer(nn.Module):
    """Gives a number more of some samples than of those that it was tried with."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return F.pad(x * self.weight, (0, len(x) % 5))


def test_shape_change_at_a_stage_boundary_is_reported():
    answers = forked.ranks(2, longer)
    assert "module '0' gives a tensor of shape (4, 16)" in answers[0]["text"], answers
    assert "module '0' gives" in answers[1]["text"], answers


class Mean(nn.Linear):
    def forward(self, x):
        return super().forward(x.mean(1, keepdim=True))


def longer():
    pipe_of("hetpipe(stages=2,in_flight=6)", nn.Sequential(Longer(), Mean(1, 3))).epoch()


# ---- values: whose they are, and when ----


def looked(method):
    """Each worker holds its own range; evaluation brings the whole model, and changes nothing."""
    model = net()
    count = sum(p.numel() for p in model.parameters())
    pipe = pipe_of(method, model, momentum)
    x, y = data().tensors
    losses, seen = [], []
    own = pipe.engine.method.own.count
    for _ in range(2):
        losses.append(pipe.step(2))
        with pipe.evaluate():
            assert not model.training
            state = {k: v.clone() for k, v in model.state_dict().items()}
            seen.append(F.cross_entropy(model(x), y).item())
        assert model.training
        try:
            model(x)
        except tutti.errors.StateError as e:
            assert "parameter '0.weight' was read" in str(e), e
        else:
            raise AssertionError("it was read")
    assert pipe.steps == 4 and pipe.steps_an_epoch == 3
    last = pipe.epoch()
    assert pipe.steps == 6
    pipe.finish()
    assert type(model[0].weight) is nn.Parameter and set(state) == set(model.state_dict())
    return own / count, losses, seen, last, values(model)


def unlooked(method):
    model = net()
    pipe = pipe_of(method, model, momentum)
    losses = [pipe.step(2), pipe.step(2), pipe.epoch()]
    pipe.finish()
    return losses, values(model)


@pytest.mark.parametrize(
    "method, n", cases(("hetpipe", 2), ("hetpipe(stages=2)", 4), ("wavelet", 2), ("heterps(stages=2)", 2))
)
def test_worker_holds_only_its_stage_and_evaluation_changes_nothing(method, n):
    answers, plain = alone(looked, method, n=n), alone(unlooked, method, n=n)
    for answer, other in zip(answers, plain, strict=True):
        assert answer[1:] == answers[0][1:]
        assert [*answer[1], answer[3]] == other[0] and answer[4] == other[1]
    if method != "wavelet":
        assert sum(answer[0] for answer in answers) == pytest.approx(n / 2)
        assert max(answer[0] for answer in answers) < 0.8


def saved(method, folder, rule, way):
    model = net()
    pipe = pipe_of(method, model, rule)
    pipe.epoch()
    if way != "state_dict":
        pipe.save(folder, keep=1, wait=way == "save")
    else:
        torch.save(pipe.state_dict(), f"{folder}/{pipe.world.rank}.pt")
    rest = pipe.step(4)
    pipe.finish()
    return rest, values(model)


def loaded(method, folder, rule, way):
    model = net()
    for p in model.parameters():
        p.data.zero_()
    pipe = pipe_of(method, model, rule)
    if way != "state_dict":
        pipe.load(folder)
    else:
        pipe.load_state_dict(torch.load(f"{folder}/{pipe.world.rank}.pt"))
    assert pipe.steps == 3
    rest = pipe.step(4)
    pipe.finish()
    return rest, values(model)


@pytest.mark.parametrize("way", cases("save", "save beside training", "state_dict"))
@pytest.mark.parametrize(
    "method, n, rule",
    cases(("hetpipe(stages=2,in_flight=4)", 2, momentum), ("wavelet", 2, adam), ("heterps(stages=2)", 2, adam),
          ("hetpipe(stages=2)", 4, momentum)),
)  # fmt: skip
def test_resumed_run_matches_an_uninterrupted_one(tmp_path, method, n, rule, way):
    went = alone(saved, method, str(tmp_path), rule, way, n=n)
    assert alone(loaded, method, str(tmp_path), rule, way, n=n) == went


def test_a_checkpoint_is_of_the_whole_model_wherever_it_was_cut(tmp_path):
    went = alone(saved, "hetpipe(stages=2,in_flight=1)", str(tmp_path), momentum, "save", n=2)
    with tutti.checkpoints.Checkpoint(tutti.checkpoints.find(tmp_path)) as c:
        assert [i.count for i in c.items if i.state == "x" and i.tensor == "5.weight"] == [30]
        assert {i.tensor for i in c.items if i.state == "x"} == {name for name, _ in net().named_parameters()}
    three = alone(loaded, "hetpipe(stages=3,in_flight=1)", str(tmp_path), momentum, "save", n=3)
    assert three == [went[0]] * 3


# ---- the data ----


class Words(torch.utils.data.Dataset):
    """Of other form than pairs of tensors."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, k):
        x, y = data()[k]
        return {"ids": (x.abs() * 5).long() % 9, "class": y}


def paired(samples):
    batch = torch.utils.data.default_collate(samples)
    return batch["ids"], batch["class"]


def embedded():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(48, 10), nn.ReLU(), nn.Linear(10, 3))


def of_words(method):
    model = embedded()
    pipe = pipe_of(method, model, dataset=Words(), collate=paired)
    losses = [pipe.epoch() for _ in range(2)]
    pipe.finish()
    return losses, values(model)


def test_samples_of_any_form_go_through_a_collate_function():
    one = alone(of_words, "hetpipe(stages=1,in_flight=1)", n=1)[0]
    assert alone(of_words, "hetpipe(stages=2,in_flight=1)", n=2) == [one, one]
    model = embedded()
    optimizer = sgd(model)
    for epoch in range(2):
        for batch in order(epoch, SAMPLES, STEP):
            x, y = paired([Words()[k] for k in batch])
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    close(one[1], values(model))


class Counted(torch.utils.data.Dataset):
    def __init__(self):
        self.inner, self.read = data(), []

    def __len__(self):
        return SAMPLES

    def __getitem__(self, k):
        self.read.append(k)
        return self.inner[k]


def reads(method):
    dataset = Counted()
    pipe = pipe_of(method, dataset=dataset)
    dataset.read.clear()
    pipe.epoch()
    pipe.finish()
    return sorted(dataset.read)


def test_only_first_and_last_stage_read_each_sample_once():
    assert alone(reads, "hetpipe(stages=3)", n=3) == [list(range(SAMPLES)), [], list(range(SAMPLES))]


# ---- what cannot be ----


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 3)

    def forward(self, x):
        return self.layer(x)


def shared():
    model = net()
    model[2].weight.data = model[0].weight.data.view(-1)[:1].expand(16, 15)
    return model


REFUSED = {
    "a model that is no sequence": (Net, {}, "the model is a Net, whose forward cannot be split"),
    "more stages than units": (
        lambda: nn.Sequential(nn.Linear(12, 4), nn.Linear(4, 3)), {"method": "hetpipe(stages=3)", "n": 3},
        "3 stages, but this model of 2 units can be cut into 2 at most"),
    "a boundary of two tensors": (
        lambda: nn.Sequential(Rows(), Last(), nn.Linear(10, 3)), {"method": "hetpipe(stages=3)", "n": 3},
        "no stage can begin with module '1': module '0' gives a tuple, and a stage sends one tensor"),
    "a boundary of other numbers": (
        lambda: nn.Sequential(Double(), Back(), nn.Linear(12, 3)), {"method": "hetpipe(stages=3)", "n": 3},
        "module '0' gives a tensor of float64, and a stage sends float32"),
    "samples that are not first": (
        lambda: nn.Sequential(Turned(), Back(True)), {"method": "hetpipe(stages=2)", "n": 2},
        "module '0' gives a tensor of shape (12, 2) for 2 samples, and its first dimension must be they"),
    "tied weights": (
        lambda: nn.Sequential(*tied()[:3]), {"method": "hetpipe(stages=2)", "n": 2},
        "module '2' has parameters of '0', too"),
    "batch norm": (
        lambda: nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), {},
        "module '1' (BatchNorm1d) keeps running statistics"),
    "a buffer that changes": (
        lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(12, 3))), {},
        "is changed by a forward in training mode"),
    "rows": (
        lambda: nn.Sequential(nn.Linear(12, 3), Sparse()), {"method": "heterps"}, "an embedding with sparse=True"),
    "half": (lambda: net().double().bfloat16(), {"loss": lambda x, y: F.cross_entropy(x.float(), y), "half": True},
             " is bfloat16; a pipeline trains float32"),
    "shared memory": (shared, {}, "shares memory with another tensor"),
    "a hook": (lambda: hooked(), {}, "the model has hooks"),
    "a loss that is none": (net, {"loss": lambda x, y: F.cross_entropy(x, y, reduction="none")},
                            "the loss function gives a tensor of shape (2,)"),
    "a method of whole models": (net, {"method": "ddp"}, "computes whole models, which is for tutti.torch.prepare()"),
    "an unknown method": (net, {"method": "hetpip"}, "did you mean 'hetpipe'"),
    "an optimizer that nobody has": (net, {"rule": lambda m: torch.optim.RMSprop(m.parameters())}, "RMSprop"),
    "samples that are no pairs": (net, {"dataset": Words()}, "no pairs of input and target"),
    "no samples": (net, {"dataset": data(0)}, "the data set is empty"),
    "costs": (net, {"costs": [1.0, 2.0]}, "costs has 2 numbers, and the model has 5 units"),
    "micro-batches": (net, {"method": "hetpipe(in_flight=1)", "micro_batch": 4}, "a stage takes 4 at most"),
    "batch": (net, {"batch": 0}, "batch is 0; it must be at least 1"),
    "eval": (lambda: net().eval(), {}, "the model is in eval mode"),
}  # fmt: skip


class Double(nn.Linear):
    def __init__(self):
        super().__init__(12, 12)

    def forward(self, x):
        return super().forward(x).double()


class Turned(nn.Linear):
    def __init__(self):
        super().__init__(12, 12)

    def forward(self, x):
        return super().forward(x).t()


class Back(nn.Linear):
    def __init__(self, turned=False):
        super().__init__(12, 12)
        self.turned = turned

    def forward(self, x):
        return super().forward((x.t() if self.turned else x).float())


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 3, sparse=True)

    def forward(self, x):
        return x + self.table(x.argmax(1))


def hooked():
    model = net()
    model.register_forward_hook(lambda *_: None)
    return model


def refused(name):
    make, options, _ = REFUSED[name]
    options = {k: v for k, v in options.items() if k not in ("n", "half")}
    dataset = data()
    if "half" in REFUSED[name][1]:
        dataset = torch.utils.data.TensorDataset(dataset.tensors[0].bfloat16(), dataset.tensors[1])
    options.setdefault("dataset", dataset)
    pipe_of(options.pop("method", "hetpipe"), make(), **options)


@pytest.mark.parametrize("name", cases(*REFUSED))
def test_invalid_options_are_rejected(name):
    _, options, text = REFUSED[name]
    for answer in forked.ranks(options.get("n", 1), refused, name):
        assert answer.get("error") == "ValueError" and text in answer["text"], answer


# ---- failures ----


def fails(where, how):
    """One worker's program raises within the method's calls, or between them; or workers make other calls."""
    rank = {"first": 0, "last": 1}[where]
    mine = forked_rank() == rank

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return SAMPLES

        def __getitem__(self, k):
            if how == "data" and mine and pipe is not None and pipe.steps >= 3:
                raise KeyError(f"sample {k} is gone")
            return data()[k]

    class Layer(nn.Linear):
        def forward(self, x):
            if how == "layer" and mine and pipe is not None and pipe.steps >= 3:
                raise ArithmeticError("a layer failed")
            return super().forward(x)

    pipe, model = None, net()
    model = nn.Sequential(Layer(12, 15), *model[1:5], Layer(10, 3))
    pipe = pipe_of("hetpipe(stages=2)", model, dataset=Data())
    with pipe if how == "with" else contextlib.nullcontext():
        pipe.epoch()
        if how == "with" and mine:
            raise ArithmeticError("a script failed")
        if how == "leaves" and mine:
            return
        if how == "other call" and mine:
            pipe.finish()
        if how == "other number" and mine:
            pipe.step(2)
        pipe.epoch()
    pipe.finish()


def forked_rank():
    import os

    return int(os.environ["TUTTI_RANK"])


@pytest.mark.parametrize(
    "where, how, own, others",
    cases(
        ("first", "data", ("KeyError", "is gone"), "KeyError"),
        ("last", "layer", ("ArithmeticError", "a layer failed"), "a layer failed"),
        ("last", "data", ("KeyError", "is gone"), "is gone"),
        ("first", "layer", ("ArithmeticError", "a layer failed"), "a layer failed"),
        ("first", "with", ("ArithmeticError", "a script failed"), "a script failed"),
        ("last", "leaves", None, "rank 1 has ended without finish()"),
        ("first", "other call", ("StateError", "come to step() and this one to finish()"), "come to finish()"),
        ("first", "other number", ("StateError", "continues to step 6, and this one to step 5"), "to step 5"),
    ),
)  # fmt: skip
def test_failure_is_reported_on_all_workers(where, how, own, others):
    answers = forked.ranks(2, fails, where, how)
    rank = {"first": 0, "last": 1}[where]
    if own is not None:
        assert answers[rank].get("error") == own[0] and own[1] in answers[rank]["text"], answers
    assert others in answers[1 - rank].get("text", ""), answers


ENDLESS = """
import sys
import torch, tutti.torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.zeros(64, dtype=torch.long))
pipe = tutti.torch.pipeline(model, torch.optim.SGD(model.parameters(), lr=0.01), nn.CrossEntropyLoss(), data, METHOD,
                            batch=8)
pipe.epoch()
print("trains", flush=True)
try:
    while True:
        pipe.step(20)
except BaseException as e:
    print(f"{type(e).__name__}: {e}", flush=True)
    raise
"""


@pytest.mark.slow
@pytest.mark.parametrize("launcher, method", [
    ("tutti", "hetpipe(stages=2)"), ("variables", "wavelet"), *(pytest.param(*p, marks=pytest.mark.long) for p in [
        ("variables", "hetpipe(stages=2)"), ("tutti", "wavelet"), ("tutti", "heterps(stages=2)"),
        ("variables", "heterps(stages=2)"),
    ]),
])  # fmt: skip
def test_a_worker_that_is_killed_is_named(run, launcher, method):
    """Over shared memory, and over tcp."""
    job = run.start(ENDLESS.replace("METHOD", repr(method)), launcher=launcher)
    for rank in range(2):
        job.says(rank, "trains")
    job.kill(1)
    result = job.wait(60, code=None)
    assert result.code != 0, result
    text = result.ranks[0].out + result.err
    assert "worker 1" in text or "rank 1" in text, result
    if launcher == "variables":
        assert "PeerError: " in result.ranks[0].out, result


@pytest.mark.slow
@pytest.mark.parametrize("launcher", cases("tutti", "variables"))
def test_interrupt_ends_all_workers(run, launcher):
    job = run.start(ENDLESS.replace("METHOD", "'hetpipe(stages=2)'"), launcher=launcher)
    for rank in range(2):
        job.says(rank, "trains")
    job.kill(0, signal.SIGINT)
    result = job.wait(60, code=None)
    assert result.code != 0 and "KeyboardInterrupt" in result.ranks[0].out, result


# ---- the page ----


def page():
    text = (pathlib.Path(__file__).parents[2] / "docs/PYTORCH.md").read_text()
    part = text.split("## A model in stages\n")[1].split("\n## ")[0]
    return part.split("```python\n")[1].split("```")[0]


def test_the_pages_script_learns():
    first, second = forked.script(page(), n=2)
    lines = first.out.splitlines()
    assert second.out == "" and len(lines) == 5 and lines[-1].startswith("epoch 5  loss ")
    assert float(lines[-1].split()[-2]) > 80


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["tutti", *(pytest.param(x, marks=pytest.mark.long) for x in (
    "torchrun", "openmpi"))])
def test_script_prints_the_same_under_every_launcher(run, launcher):
    text = page().replace("model = ", "torch.manual_seed(0)\nmodel = ", 1)
    assert run(text, launcher=launcher).ranks[0].out == forked.script(text, n=2)[0].out
