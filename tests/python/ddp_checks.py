"""What DistributedDataParallel promises in addition to the bits: checks that run one after the other on all ranks.

Each function is a check. It is called on every rank, and reports by assert what is wrong.
"""

import copy
import gc
import json
import os
import pickle
import sys
import traceback
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from tutti.errors import StateError
from tutti.torch import DistributedDataParallel

RANK = 0  # main() sets it


def net():
    torch.manual_seed(3 + RANK)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def data(k=0):
    g = torch.Generator().manual_seed(31 * RANK + k)
    return torch.randn(5, 6, generator=g)


def mean(wrapped, grads):
    """The mean over the workers of tensors that each has, in float64."""
    flat = torch.cat([g.flatten() for g in grads]).tolist()
    summed = torch.tensor(wrapped.world.reduce(flat, "mean"), dtype=torch.float64)
    return [part.view(g.shape) for part, g in zip(summed.split([g.numel() for g in grads]), grads, strict=True)]


def alone(wrapped, loss):
    """This worker's own gradients of loss(module), on a copy of the module."""
    module = copy.deepcopy(wrapped.module)
    for p in module.parameters():
        p.grad = None
    loss(module).backward()
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in module.parameters() if p.requires_grad]


def near(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        assert torch.allclose(a.double(), b.double(), rtol=1e-5, atol=1e-7), (a, b)


def grads(wrapped):
    return [p.grad for p in wrapped.parameters() if p.requires_grad]


def same_everywhere(wrapped, tensors):
    flat = torch.cat([t.detach().flatten().double() for t in tensors]).tolist()
    assert wrapped.world.reduce(flat, "max") == wrapped.world.reduce(flat, "min")


# ---- making ----
def rank_0_gives_the_first_values_and_no_process_group_is_made():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3).bfloat16()
            self.still = nn.Linear(2, 2, dtype=torch.float64).requires_grad_(False)
            self.register_buffer("count", torch.tensor(RANK))
            self.register_buffer("flags", torch.tensor([True, bool(RANK)]))
            self.register_buffer("hidden", torch.tensor([1.5 + RANK]), persistent=False)

    torch.manual_seed(RANK)
    module = Net()
    names = list(module.state_dict())
    wrapped = DistributedDataParallel(module)
    same_everywhere(wrapped, list(wrapped.parameters()) + list(wrapped.buffers()))
    assert module.count == 0
    assert module.hidden == 1.5 and not module.flags[1]
    assert wrapped.module is module and list(wrapped.state_dict()) == ["module." + name for name in names]
    assert not dist.is_initialized()
    wrapped.close()


def a_state_dict_goes_in_and_out():
    wrapped = DistributedDataParallel(net())
    saved = {name: t.clone() + 1 for name, t in wrapped.state_dict().items()}
    assert wrapped.load_state_dict(saved).missing_keys == []
    for name, t in wrapped.state_dict().items():
        assert torch.equal(t, saved[name])
    file = f"{os.environ['TMPDIR']}/state{RANK}.pt"
    torch.save(wrapped.state_dict(), file)
    assert os.path.getsize(file) < 10000  # each tensor by itself, not the engine's memory
    other = net()
    other.load_state_dict({k.removeprefix("module."): v for k, v in torch.load(file).items()})
    wrapped.close()


def tensors_that_are_kept_outlive_it():
    wrapped = DistributedDataParallel(net())
    wrapped(data()).sum().backward()
    kept = [p.detach() for p in wrapped.parameters()] + grads(wrapped) + list(wrapped.state_dict().values())
    before = [t.clone() for t in kept]
    module = wrapped.module
    wrapped.close()
    wrapped.close()
    del wrapped
    gc.collect()
    for a, b in zip(kept, before, strict=True):
        assert torch.equal(a, b)
    for p, a, g in zip(module.parameters(), before, before[len(before) // 3 :], strict=False):
        assert torch.equal(p, a) and torch.equal(p.grad, g)
    module(data()).sum().backward()


def two_of_them_train_in_one_process():
    first, second = DistributedDataParallel(net()), DistributedDataParallel(net(), "powersgd(rank=1)")
    for k in range(3):
        second(F.pad(first(data(k)), (0, 3))).sum().backward()
    same_everywhere(first, grads(first))
    same_everywhere(second, grads(second))
    second.close()
    first.close()


def invalid_options_are_rejected():
    class Bare(nn.Module):
        def __init__(self, **given):
            super().__init__()
            for name, value in given.items():
                setattr(self, name, value)

    def refused(kind, words, make, **given):
        try:
            DistributedDataParallel(make, **given)
        except kind as e:
            assert words in str(e), str(e)
            return
        raise AssertionError("not refused: " + words)

    p = nn.Parameter
    refused(ValueError, "parameter 'w' is float64; float32, bfloat16", Bare(w=p(torch.ones(2, dtype=torch.float64))))
    refused(ValueError, "parameter 'w' is complex", Bare(w=p(torch.ones(2, dtype=torch.complex64))))
    refused(ValueError, "no parameter that requires a gradient", nn.ReLU())
    refused(ValueError, "no parameter that requires a gradient", nn.Linear(2, 2).requires_grad_(False))
    refused(TypeError, "has no shape yet", nn.LazyLinear(2))
    refused(ValueError, "meta device", nn.Linear(2, 2, device="meta"))
    refused(ValueError, "leave device_ids out", nn.Linear(2, 2), device_ids=[0])
    refused(ValueError, "did you mean 'powersgd'", nn.Linear(2, 2), method="powersg")
    refused(ValueError, "did you mean 'topk'", nn.Linear(2, 2), codec="topq")
    refused(ValueError, "tutti.torch.prepare", nn.Linear(2, 2), method="ad-psgd")
    refused(ValueError, "tutti.torch.prepare", nn.Linear(2, 2), method="hetero-ring")
    refused(TypeError, "no argument 'colective'; did you mean collective", nn.Linear(2, 2), colective="ring")
    refused(TypeError, "it is a spec, such as 'ddp'", nn.Linear(2, 2), method=[0])


def workers_with_other_modules_are_told_by_name():
    try:
        DistributedDataParallel(nn.Sequential(nn.Linear(2, 3 + RANK)))
    except ValueError as e:
        assert "0.bias" in str(e) and "rank 1" in str(e) or "worker 1" in str(e), str(e)
    else:
        raise AssertionError("not refused")
    try:
        DistributedDataParallel(nn.Linear(2, 2).to(torch.bfloat16 if RANK else torch.float32))
    except ValueError as e:
        assert "dtype of parameter" in str(e) and "bfloat16" in str(e), str(e)
    else:
        raise AssertionError("not refused")


def it_is_not_pickled_copied_or_converted():
    wrapped = DistributedDataParallel(net())
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        try:
            attempt(wrapped)
        except TypeError as e:
            assert "take its module" in str(e), str(e)
        else:
            raise AssertionError(attempt)
    copied = copy.deepcopy(wrapped.module)  # a plain module, whose backward no engine follows
    copied(data()).sum().backward()
    assert pickle.loads(pickle.dumps(wrapped.module)) is not None
    for attempt in (wrapped.half, wrapped.double, lambda: wrapped.to("meta")):
        try:
            attempt()
        except StateError as e:
            assert "before it is wrapped" in str(e)
        else:
            raise AssertionError(attempt)
    assert wrapped.to("cpu") is wrapped and wrapped.float() is wrapped
    wrapped.close()


def a_frozen_parameter_that_is_freed_later_is_named():
    module = net()
    module[0].requires_grad_(False)
    wrapped = DistributedDataParallel(module)
    wrapped(data()).sum().backward()
    assert module[0].weight.grad is None
    module[0].weight.requires_grad_(True)
    try:
        wrapped(data())
    except ValueError as e:
        assert "'0.weight'" in str(e), str(e)
    else:
        raise AssertionError("not refused")
    wrapped.close()


def one_that_is_frozen_later_is_unused():
    wrapped = DistributedDataParallel(net())
    wrapped.module[0].requires_grad_(False)
    wrapped(data()).sum().backward()
    assert wrapped.module[0].weight.grad is None and wrapped.module[2].weight.grad is not None
    same_everywhere(wrapped, [wrapped.module[2].weight.grad])
    wrapped.close()


# ---- forward and backward ----
def a_forward_without_a_backward_changes_nothing():
    wrapped = DistributedDataParallel(net())
    wrapped(data(7))
    with torch.no_grad():
        wrapped(data(8))
    with torch.inference_mode():
        wrapped(data(8))
    wanted = mean(wrapped, alone(wrapped, lambda m: m(data()).square().sum()))
    wrapped(data()).square().sum().backward()
    near(grads(wrapped), wanted)
    wrapped.close()


def two_forwards_one_backward():
    wrapped = DistributedDataParallel(net())
    wanted = mean(wrapped, alone(wrapped, lambda m: m(data()).square().sum() + m(data(1)).sum()))
    a, b = wrapped(data()), wrapped(data(1))
    (a.square().sum() + b.sum()).backward()
    near(grads(wrapped), wanted)
    assert wrapped.engine.figures()["steps"] == 1
    wrapped.close()


def two_forwards_two_backwards():
    wrapped = DistributedDataParallel(net())
    wanted = mean(wrapped, alone(wrapped, lambda m: m(data()).square().sum() + m(data(1)).sum()))
    a, b = wrapped(data()), wrapped(data(1))
    a.square().sum().backward()
    b.sum().backward()
    near(grads(wrapped), wanted)
    same_everywhere(wrapped, grads(wrapped))
    assert wrapped.engine.figures()["steps"] == 2
    wrapped.close()


def a_backward_twice():
    wrapped = DistributedDataParallel(net())
    wanted = mean(wrapped, alone(wrapped, lambda m: 2 * m(data()).square().sum()))
    loss = wrapped(data()).square().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    near(grads(wrapped), wanted)
    same_everywhere(wrapped, grads(wrapped))
    wrapped.close()


def gradients_of_gradients():
    """A penalty on the gradient by the input is right; create_graph=True in backward is refused."""

    def penalty(m):
        x = data().requires_grad_(True)
        (slope,) = torch.autograd.grad(m(x).square().sum(), x, create_graph=True)
        return slope.square().sum()

    wrapped = DistributedDataParallel(net())
    wanted = mean(wrapped, alone(wrapped, lambda m: penalty(m) + m(data(1)).sum()))
    (penalty(wrapped) + wrapped(data(1)).sum()).backward()
    near(grads(wrapped)[:-1], wanted[:-1])
    assert wrapped.engine.figures()["steps"] == 1
    try:
        wrapped(data()).square().sum().backward(create_graph=True)
    except StateError as e:
        assert "torch.autograd.grad" in str(e), str(e)
    else:
        raise AssertionError("not refused")
    wrapped.close()


def a_loss_that_the_module_keeps():
    """The output is not what is differentiated."""

    class Keeper(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net()

        def forward(self, x):
            self.loss = self.inner(x).square().sum()
            return x

    wrapped = DistributedDataParallel(Keeper())
    wanted = mean(wrapped, alone(wrapped, lambda m: (m(data()), m.loss)[1]))
    wrapped(data())
    wrapped.module.loss.backward()
    near(grads(wrapped), wanted)
    wrapped.close()


def the_inner_module_by_itself_exchanges_nothing():
    wrapped = DistributedDataParallel(net())
    wanted = alone(wrapped, lambda m: m(data()).square().sum())
    wrapped.module(data()).square().sum().backward()
    near(grads(wrapped), wanted)
    assert wrapped.engine.figures()["steps"] == 0
    wrapped.close()


def a_penalty_on_parameters_beside_the_output():
    wrapped = DistributedDataParallel(net())

    def loss(m):
        inner = m.module if isinstance(m, DistributedDataParallel) else m
        return m(data()).sum() + (1 + RANK) * inner[0].weight.square().sum()

    wanted = mean(wrapped, alone(wrapped, loss))
    loss(wrapped).backward(retain_graph=True)
    near(grads(wrapped), wanted)
    wrapped.close()


def what_no_sync_says_is_said_by_the_forward():
    wrapped = DistributedDataParallel(net())
    own = alone(wrapped, lambda m: m(data()).square().sum())
    with wrapped.no_sync():
        out = wrapped(data())
    out.square().sum().backward()
    near(grads(wrapped), own)
    out = wrapped(data())
    with wrapped.no_sync():
        out.square().sum().backward()
    near(grads(wrapped), mean(wrapped, [2 * g for g in own]))
    assert wrapped.require_backward_grad_sync
    wrapped.close()


def used_while_accumulating_counts_as_used():
    """A branch that has a gradient of exactly zero on one rank, within no_sync, keeps .grad on all."""

    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.main, self.side = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x, side=False):
            return self.main(x) + (self.side(x) * 0 if side else 0)

    wrapped = DistributedDataParallel(Branch())
    with wrapped.no_sync():
        wrapped(data(), RANK == 1).sum().backward()
    wrapped(data()).sum().backward()
    side = wrapped.module.side.weight.grad
    assert side is not None and side.count_nonzero() == 0
    wrapped.zero_grad()
    wrapped(data(), RANK == 0).sum().backward()
    assert wrapped.module.side.weight.grad is not None
    wrapped.zero_grad()
    wrapped(data()).sum().backward()
    assert wrapped.module.side.weight.grad is None
    wrapped.close()


def unused_parameters_are_named_once():
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.main, self.unused = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x):
            return self.main(x)

    wrapped = DistributedDataParallel(Branch())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for k in range(3):
            wrapped(data(k)).sum().backward()
    said = [str(w.message) for w in said]
    assert len(said) == 1 and "unused.weight" in said[0] and "unused.bias" in said[0], said
    wrapped.module.unused.weight.grad = torch.zeros(3, 6)
    wrapped(data()).sum().backward()
    assert wrapped.module.unused.weight.grad.count_nonzero() == 0 and wrapped.module.unused.bias.grad is None
    wrapped.close()


def gradients_have_memory_of_their_own_if_asked():
    for views in (True, False):
        wrapped = DistributedDataParallel(net(), gradient_as_bucket_view=views)
        wrapped(data()).sum().backward()
        kept = grads(wrapped)
        before = [g.clone() for g in kept]
        wrapped.zero_grad()
        wrapped(data(1)).square().sum().backward()
        assert views != all(torch.equal(a, b) for a, b in zip(kept, before, strict=True))
        wrapped.close()


def outputs_of_any_form():
    import collections
    import dataclasses

    @dataclasses.dataclass
    class Out:
        logits: torch.Tensor
        other: object = None

    Pair = collections.namedtuple("Pair", "a b")
    for form in (lambda t: Out(t), lambda t: {"x": [t]}, lambda t: Pair(t, 1), lambda t: (None, (t, "x"))):
        class Net(nn.Module):
            def __init__(self, form=form):
                super().__init__()
                self.inner, self.form = net(), form

            def forward(self, x):
                return self.form(self.inner(x))

        wrapped = DistributedDataParallel(Net())
        for _ in range(2):
            out = wrapped(data())
            while not isinstance(out, torch.Tensor):
                out = next(v for v in (vars(out).values() if isinstance(out, Out) else
                                       out.values() if isinstance(out, dict) else out)
                           if isinstance(v, (torch.Tensor, dict, list, tuple)))
            loss = out.square().sum()
            loss.backward(retain_graph=True)
            loss.backward()  # only the output knows of this one
        assert wrapped.engine.figures()["steps"] == 4
        wrapped.close()


def an_overflow_reaches_all_through_a_codec_and_is_forgotten():
    wrapped = DistributedDataParallel(net(), codec="ef(topk(ratio=0.5))")
    for k in range(4):
        wrapped.zero_grad()
        loss = wrapped(data(k)).square().sum()
        (loss * float("inf") if k == 1 and RANK == 0 else loss).backward()
        finite = all(g.isfinite().all() for g in grads(wrapped))
        assert finite == (k != 1), k
    same_everywhere(wrapped, grads(wrapped))
    wrapped.close()


def parameters_that_share_memory_go_on_sharing_it():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            whole = torch.randn(4, 6)
            self.a, self.b = nn.Parameter(whole[:2]), nn.Parameter(whole[1:])

        def forward(self, x):
            return x @ self.a.t() + (x @ self.b.t())[:, :2]

    wrapped = DistributedDataParallel(Shared())
    same_everywhere(wrapped, wrapped.parameters())
    with torch.no_grad():
        wrapped.module.a[1] = 5
    assert (wrapped.module.b[0] == 5).all()
    wrapped(data()).sum().backward()
    same_everywhere(wrapped, grads(wrapped))
    wrapped.close()


def buffers_of_rank_0_count():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net()
            self.register_buffer("seen", torch.tensor(0))

        def forward(self, x):
            self.at_begin = int(self.seen)
            self.seen = self.seen + 1 + RANK  # a new tensor in place of the old one
            return self.inner(x)

    wrapped = DistributedDataParallel(Counter())
    for k in range(4):
        wrapped(data(k)).sum().backward()
        assert wrapped.module.at_begin == k, (k, wrapped.module.at_begin)
    wrapped.close()
    wrapped = DistributedDataParallel(Counter(), broadcast_buffers=False)
    for k in range(4):
        wrapped(data(k)).sum().backward()
        assert wrapped.module.at_begin == k * (1 + RANK)
    wrapped.close()


def a_compiled_module_inside_and_it_compiled():
    for inside in (True, False):
        module = net()
        if inside:
            wrapped = DistributedDataParallel(torch.compile(module, backend="aot_eager"))
            called = wrapped
        else:
            wrapped = DistributedDataParallel(module)
            called = torch.compile(wrapped, backend="aot_eager")
        for k in range(3):
            wanted = mean(wrapped, alone(Inside(module), lambda m, k=k: m(data(k)).square().sum()))
            wrapped.zero_grad()
            called(data(k)).square().sum().backward()
            near(grads(wrapped), wanted)
        assert wrapped.engine.figures()["steps"] == 3
        wrapped.close()


class Inside:
    """What alone() asks of a wrapped module."""

    def __init__(self, module):
        self.module = module


def it_is_cut_for_torch_compile():
    """Graphs are cut as for torch's class, so that gradients come before the backward is over."""
    wrapped = DistributedDataParallel(nn.Sequential(*[nn.Linear(512, 512) for _ in range(6)]))
    wrapped.bucket_bytes_cap = 2 << 20
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    called = torch.compile(wrapped, backend=backend)
    called(torch.randn(2, 512)).sum().backward()
    assert len(graphs) > 1, len(graphs)
    same_everywhere(wrapped, grads(wrapped))
    wrapped.close()


def join_ends_all_if_it_is_told_so():
    wrapped = DistributedDataParallel(net())
    said = ""
    try:
        with wrapped.join(throw_on_early_termination=True):
            for k in range(2 + RANK):
                wrapped(data(k)).sum().backward()
    except RuntimeError as e:
        said = str(e)
    assert "no more inputs" in said
    wrapped.close()


def a_backward_that_fails_is_the_end_of_it():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise OverflowError("as it happens")

    wrapped = DistributedDataParallel(net())
    hidden = wrapped.module[0](data())
    wrapped.module[0] = nn.Sequential(wrapped.module[0])
    try:
        out = wrapped(data())
        (Fails.apply(hidden).sum() + out.sum()).backward()
    except OverflowError:
        pass
    else:
        raise AssertionError("no exception")
    try:
        for _ in range(2):
            wrapped(data()).sum().backward()
    except StateError as e:
        assert "did not come to its end" in str(e), str(e)
    wrapped.close()


CHECKS = [
    rank_0_gives_the_first_values_and_no_process_group_is_made, a_state_dict_goes_in_and_out,
    tensors_that_are_kept_outlive_it, two_of_them_train_in_one_process, invalid_options_are_rejected,
    workers_with_other_modules_are_told_by_name, it_is_not_pickled_copied_or_converted,
    a_frozen_parameter_that_is_freed_later_is_named, one_that_is_frozen_later_is_unused,
    a_forward_without_a_backward_changes_nothing, two_forwards_one_backward, two_forwards_two_backwards,
    a_backward_twice, gradients_of_gradients, a_loss_that_the_module_keeps,
    the_inner_module_by_itself_exchanges_nothing, a_penalty_on_parameters_beside_the_output,
    what_no_sync_says_is_said_by_the_forward, used_while_accumulating_counts_as_used,
    unused_parameters_are_named_once, gradients_have_memory_of_their_own_if_asked, outputs_of_any_form,
    an_overflow_reaches_all_through_a_codec_and_is_forgotten, parameters_that_share_memory_go_on_sharing_it,
    buffers_of_rank_0_count, a_compiled_module_inside_and_it_compiled,
    it_is_cut_for_torch_compile, join_ends_all_if_it_is_told_so, a_backward_that_fails_is_the_end_of_it,
]


def main():
    global RANK
    RANK = int(os.environ.get("TUTTI_RANK", os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", 0))))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = {}
    for check in CHECKS:
        if sys.argv[1:] and check.__name__ not in sys.argv[1:]:
            continue
        try:
            check()
            found[check.__name__] = "right"
        except Exception:
            found[check.__name__] = traceback.format_exc()
            print(check.__name__, traceback.format_exc(), file=sys.stderr, flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
