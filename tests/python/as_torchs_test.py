"""DistributedDataParallel is torch's own class to all that ask: what torch, its distributed checkpoints, Lightning and
Accelerate read of one, and each argument of the original."""

import os
import traceback
import warnings

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import ddp_checks  # noqa: E402
import forked  # noqa: E402
import torch.distributed as dist  # noqa: E402
from ddp_checks import alone, data, grads, mean, near, net, same_everywhere  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms.join import Join  # noqa: E402

from tutti.errors import StateError  # noqa: E402
from tutti.torch import DistributedDataParallel  # noqa: E402

_TORCHS = nn.parallel.DistributedDataParallel


def square(m, k=0):
    return m(data(k)).square().sum()


def refused(kind, words, call, *arguments, **named):
    with pytest.raises(kind) as e:
        call(*arguments, **named)
    assert words in str(e.value), str(e.value)


# ---- with a process group, on two ranks ----
def a_distributed_checkpoint_has_the_modules_names():
    from torch.distributed.checkpoint import state_dict as dcp

    wrapped = DistributedDataParallel(net())
    assert isinstance(wrapped, _TORCHS)
    optimizer = torch.optim.AdamW(wrapped.parameters())
    square(wrapped).backward()
    optimizer.step()
    names = list(wrapped.module.state_dict())
    state = dcp.get_model_state_dict(wrapped)
    assert list(state) == names
    other = {name: t.clone() + 1 for name, t in state.items()}
    dcp.set_model_state_dict(wrapped, dict(other))  # which it changes
    for name, t in wrapped.module.state_dict().items():
        assert torch.equal(t, other[name])
    assert set(dcp.get_optimizer_state_dict(wrapped, optimizer)["state"]) == set(names)
    wrapped.close()


def _told(of, names):
    """Which attributes are a sentence instead; none may be missing."""
    told, missing = {}, []
    for name in names:
        try:
            getattr(of, name)
        except StateError as e:
            told[name] = str(e)
        except AttributeError:
            missing.append(name)
    assert missing == []
    return told


def methods(of):
    return [name for name in dir(of) if not name.startswith(("__", "_pybind11"))]


def every_attribute_of_torchs_object_is_there():
    theirs, ours = _TORCHS(net()), DistributedDataParallel(net())
    told = _told(ours, sorted(set(vars(theirs)) | set(dir(theirs))))
    assert list(told) == [name for name in ("_bucket_config",) if hasattr(theirs, name)]  # 2.10 has none
    assert all("Tutti's engine" in text for text in told.values())
    assert not hasattr(ours, "_bucket_config") and getattr(ours, "_bucket_config", 3) == 3
    assert not hasattr(ours, "an_attribute_of_nobody")
    _told(ours.logger, methods(theirs.logger))
    told = _told(ours.reducer, methods(theirs.reducer))
    assert all("reducer" in text for text in told.values())
    for name in ("prepare_for_backward", "prepare_for_forward", "_rebuild_buckets", "_check_reducer_finalized"):
        assert name not in told
    for name in ("rank", "world_size", "find_unused_parameters", "broadcast_buffers", "module_name"):
        assert ours._get_ddp_logging_data()[name] == theirs._get_ddp_logging_data()[name], name
    for name in ("device", "device_type", "device_ids", "output_device", "dim", "join_device", "process_group",
                 "join_process_group", "require_forward_param_sync", "parameters_to_ignore", "_distributed_rank"):
        assert getattr(ours, name) == getattr(theirs, name), name
    ours._set_static_graph()
    assert ours.static_graph
    refused(StateError, "wrap the module again", ours._update_process_group, dist.group.WORLD)
    refused(StateError, "_set_sparse_metadata", ours._set_sparse_metadata, {})
    if hasattr(_TORCHS, "finalize_backward"):  # from PyTorch 2.15 on
        ours.require_manual_backward_finalization = False
        assert not ours.require_manual_backward_finalization and not ours.should_finalize_after_backward
        refused(StateError, "require_manual_backward_finalization=True",
                setattr, ours, "require_manual_backward_finalization", True)
        refused(StateError, "_finalize_backward_manual", ours.finalize_backward)
    ours.close()


def a_backward_is_armed_after_its_forward():
    """As Lightning's manual optimization, Accelerate's trigger_sync_in_backward and torch's pipelines do it."""
    wrapped = DistributedDataParallel(net())
    own = alone(wrapped, square)
    for armed in (False, True):
        for of_loss in (False, True):
            wrapped.zero_grad()
            wrapped.require_backward_grad_sync = False
            loss = square(wrapped)
            wrapped.require_backward_grad_sync = True
            if armed:
                wrapped.require_forward_param_sync = True
                assert not wrapped.reducer._rebuild_buckets()
                wrapped.reducer.prepare_for_backward([loss] if of_loss else [])
            loss.backward()
            wrapped._check_reducer_finalized()
            near(grads(wrapped), mean(wrapped, own) if armed else own)
    with wrapped.no_sync():  # Fabric's no_backward_sync
        wrapped.zero_grad()
        square(wrapped).backward()
    near(grads(wrapped), own)
    wrapped.close()


def _joined(make, both):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    wrapped = make(module, gradient_as_bucket_view=False)  # True: `.grad` of a rank that has joined is the others'
    optimizer = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.SGD, lr=0.05)
    for uneven in (2, 0):
        with Join([wrapped, optimizer], divide_by_initial_world_size=both):
            for k in range(2 + uneven * ddp_checks.RANK):
                optimizer.zero_grad()
                square(wrapped, k).backward()
                optimizer.step()
    optimizer.zero_grad()
    square(wrapped).backward()
    return wrapped, [t.clone() for t in wrapped.state_dict().values()] + [g.clone() for g in grads(wrapped)]


def it_joins_with_other_objects():
    for both in (True, False):
        ours, found = _joined(DistributedDataParallel, both)
        _, wanted = _joined(_TORCHS, both)
        for a, b in zip(found, wanted, strict=True):
            assert torch.equal(a, b), (both, a, b)
        ours.close()


def join_ends_all_with_the_sentence_of_torchs():
    wrapped = DistributedDataParallel(net())
    with pytest.raises(RuntimeError, match="exhausted"):
        with Join([wrapped], throw_on_early_termination=True):
            for k in range(2 + ddp_checks.RANK):
                square(wrapped, k).backward()
    wrapped.close()


def _hooked(make, register):
    torch.manual_seed(3)
    wrapped = make(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))
    register(wrapped)
    for k in range(3):
        wrapped.zero_grad()
        with wrapped.no_sync():
            square(wrapped, 10 + k).backward()
        square(wrapped, k).backward()
        with torch.no_grad():
            for p in wrapped.parameters():
                p -= 0.01 * p.grad
    return wrapped, [p.detach().clone() for p in wrapped.parameters()]


def communication_hooks_of_torchs_are_called():
    from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks, powerSGD_hook

    kinds = dist.BuiltinCommHookType
    hooks = {
        "allreduce": lambda w: w.register_comm_hook(None, default_hooks.allreduce_hook),
        "fp16": lambda w: w.register_comm_hook(dist.group.WORLD, default_hooks.fp16_compress_hook),
        "wrapper": lambda w: w.register_comm_hook(
            None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)),
        "noop": lambda w: w.register_comm_hook(None, debugging_hooks.noop_hook),
        "built in": lambda w: w._register_builtin_comm_hook(kinds.FP16_COMPRESS),
    }  # fmt: skip
    for name, register in hooks.items():
        ours, found = _hooked(DistributedDataParallel, register)
        _, wanted = _hooked(_TORCHS, register)
        for a, b in zip(found, wanted, strict=True):
            assert torch.allclose(a, b, rtol=0, atol=1e-3 if name == "built in" else 0), (name, a - b)
        assert ours.engine.figures()["steps"] == (3 if name == "allreduce" else 0)
        ours.close()
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    ours, found = _hooked(DistributedDataParallel, lambda w: w.register_comm_hook(state, powerSGD_hook.powerSGD_hook))
    same_everywhere(ours, found)
    again = default_hooks.fp16_compress_hook
    refused(StateError, "one is possible", ours.register_comm_hook, None, again)
    ours.close()
    coded = DistributedDataParallel(net(), codec="ef(topk(ratio=0.5))")
    refused(ValueError, "or the hook", coded.register_comm_hook, None, again)
    coded.close()


def a_hook_gets_each_parameter_and_unused_ones_stay():
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.never = nn.Linear(6, 3), nn.Linear(6, 3).bfloat16(), nn.Linear(2, 2)
            self.turned = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

        def forward(self, x):
            return self.a(x) + (self.b(x.bfloat16()) if ddp_checks.RANK else 0)

    seen = []

    def hook(state, bucket):
        seen.append((bucket.index(), bucket.is_last(), len(bucket.parameters()), len(bucket.gradients())))
        group = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return group.then(lambda f: f.value()[0] / 2)

    wrapped = DistributedDataParallel(Partly())
    wanted = mean(wrapped, alone(wrapped, square))
    wrapped.register_comm_hook(None, hook)
    square(wrapped).backward()
    assert seen == [(0, False, 6, 6), (1, True, 2, 2)], seen
    of = {name: g for (name, _), g in zip(wrapped.module.named_parameters(), wanted, strict=True)}
    for name, p in wrapped.module.named_parameters():
        if name.startswith(("never", "turned")):
            assert p.grad is None
        else:
            assert torch.allclose(p.grad.double(), of[name], rtol=0.02, atol=1e-5), name
    wrapped.close()


def buffers_go_by_a_hook_of_torchs():
    from torch.nn.parallel.distributed import _BufferCommHookLocation

    for where in _BufferCommHookLocation:
        module = net()
        module.register_buffer("seen", torch.tensor([1.0 + ddp_checks.RANK]))
        wrapped = DistributedDataParallel(module, forward_sync_buffers=True)
        module.seen.fill_(1.0 + ddp_checks.RANK)
        wrapped._register_buffer_comm_hook(
            None, lambda _, named: [dist.all_reduce(named["seen"], async_op=True).get_future()], where)
        square(wrapped).backward()
        assert module.seen == 3
        wrapped.close()


def arguments_of_torchs_are_taken_and_told_once():
    from torch.distributed.device_mesh import init_device_mesh

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            wrapped = DistributedDataParallel(
                net(), [], 0, 0, None, True, dist.group.WORLD, 25, True, False, False, True, bucket_cap_mb_list=[1, 25],
                batched_grad_copy=True, skip_all_reduce_unused_params=True,
            )  # fmt: skip
            near_ = mean(wrapped, alone(wrapped, square))
            square(wrapped).backward()
            near(grads(wrapped), near_)
            assert wrapped.find_unused_parameters and wrapped.static_graph and not wrapped.gradient_as_bucket_view
            wrapped.close()
    said = [str(w.message) for w in said if "no effect" in str(w.message)]
    assert len(said) == (1 if ddp_checks.RANK == 0 else 0), said
    for name in ("output_device", "bucket_cap_mb", "bucket_cap_mb_list") if said else ():
        assert name + ": " in said[0]
    mesh = init_device_mesh("cpu", (2,))
    for named in ({"device_ids": ["cpu"]}, {"device_ids": [torch.device("cpu")]}, {"device_mesh": mesh}):
        wrapped = DistributedDataParallel(net(), "powersgd(rank=1)", **named)
        assert wrapped.engine.method.ops.contents.name == b"powersgd" and wrapped.process_group == dist.group.WORLD
        wrapped.close()


def arguments_that_cannot_be_are_refused():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.nn.parallel.distributed import _MixedPrecision

    group, mesh = dist.group.WORLD, init_device_mesh("cpu", (2, 1))
    for words, named in (
        ("the module's parameters are on cpu; move it there", {"device_ids": [0]}),
        ("a process trains on one device", {"device_ids": [0, 1]}),
        ("use torch.autocast", {"mixed_precision": _MixedPrecision(param_dtype=torch.bfloat16)}),
        ("has 2 dimensions", {"device_mesh": mesh}),
        ("give one of them", {"device_mesh": mesh, "process_group": group}),
        ("this rank is not in process_group", {"process_group": dist.GroupMember.NON_GROUP_MEMBER}),
    ):  # fmt: skip
        refused(ValueError, words, DistributedDataParallel, net(), **named)
    refused(TypeError, "no group of torch.distributed", DistributedDataParallel, net(), process_group="gloo")
    refused(TypeError, "'device_ids' is given twice", DistributedDataParallel, net(), [], device_ids=[])
    refused(TypeError, "there is no argument 'colective'", DistributedDataParallel, net(), colective="ring")
    refused(TypeError, "it is a spec", DistributedDataParallel, net(), method=[0])


def values_of_its_own_without_init_sync():
    module = net()
    module.register_buffer("own", torch.tensor(float(ddp_checks.RANK)))
    wrapped = DistributedDataParallel(module, init_sync=False, forward_sync_buffers=False)
    assert module.own == ddp_checks.RANK
    same_everywhere(wrapped, wrapped.parameters())
    wrapped.close()


def inputs_are_moved_to_the_device_of_device_ids():
    """Without a GPU: what torch's to_kwargs() gives is what the module gets."""
    wrapped = DistributedDataParallel(net())
    wrapped.device_ids = [7]
    wrapped.to_kwargs = lambda inputs, kwargs, device: (([inputs[0] + device],), (kwargs,))
    assert torch.equal(wrapped(data()), wrapped.module(data() + 7))
    wrapped.close()


def an_optimizer_within_backward_is_refused():
    from torch.distributed.optim import _apply_optimizer_in_backward

    module = net()
    _apply_optimizer_in_backward(torch.optim.SGD, module.parameters(), {"lr": 0.1})
    wrapped = DistributedDataParallel(module)
    for _ in range(2):
        refused(ValueError, "call step() after backward", wrapped, data())
    wrapped.close()


CHECKS = [
    a_distributed_checkpoint_has_the_modules_names, every_attribute_of_torchs_object_is_there,
    a_backward_is_armed_after_its_forward, it_joins_with_other_objects, join_ends_all_with_the_sentence_of_torchs,
    communication_hooks_of_torchs_are_called, a_hook_gets_each_parameter_and_unused_ones_stay,
    buffers_go_by_a_hook_of_torchs, arguments_of_torchs_are_taken_and_told_once, arguments_that_cannot_be_are_refused,
    values_of_its_own_without_init_sync, inputs_are_moved_to_the_device_of_device_ids,
    an_optimizer_within_backward_is_refused,
]  # fmt: skip


def begin(folder, n):
    torch.set_num_threads(1)
    ddp_checks.RANK = int(os.environ["TUTTI_RANK"] if "TUTTI_RANK" in os.environ else os.environ["RANK"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=ddp_checks.RANK, world_size=n)


def checked(folder, names):
    import gloo

    begin(folder, 2)
    warnings.simplefilter("ignore")
    wrong = {}
    for check in CHECKS:
        if names and check.__name__ not in names:
            continue
        try:
            check()
        except Exception:
            wrong[check.__name__] = traceback.format_exc()
            break  # the others may wait for a rank that is elsewhere
    gloo.leave()
    return wrong


def test_the_wrapper_is_torchs_class_to_all_that_ask(tmp_path):
    names = os.environ.get("TUTTI_CHECKS", "").split()
    for answer in forked.ranks(2, checked, str(tmp_path), names):
        assert answer.get("value") == {}, "\n".join(answer.get("value", answer).values())


# ---- parts of the ranks ----
def parted(folder, launched):
    import gloo

    if not launched:
        rank = os.environ["TUTTI_RANK"]
        for name in [n for n in os.environ if n.startswith("TUTTI_") and n != "TUTTI_LIBRARY"]:
            del os.environ[name]
        os.environ["TUTTI_RANK"] = rank
    begin(folder, 3)
    if not launched:
        del os.environ["TUTTI_RANK"]
    groups = [dist.new_group([0, 2]), dist.new_group([1])]
    mine = groups[ddp_checks.RANK % 2]
    refused(ValueError, "is not in process_group", DistributedDataParallel, net(),
            process_group=groups[1 - ddp_checks.RANK % 2])
    sizes = []
    for group in (mine, None, mine, dist.group.WORLD):
        wrapped = DistributedDataParallel(net(), process_group=group)
        assert wrapped.process_group == (group or dist.group.WORLD)
        assert (wrapped.rank, wrapped.world_size) == (dist.get_rank(group), dist.get_world_size(group))
        same_everywhere(wrapped, wrapped.parameters())
        wanted = mean(wrapped, alone(wrapped, square))
        square(wrapped).backward()
        near(grads(wrapped), wanted)
        sizes.append((wrapped.world_size, wrapped.world.transport))
        wrapped.close()
    gloo.leave()
    return sizes


@pytest.mark.parametrize("launched", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_workers_are_those_of_the_process_group(tmp_path, launched):
    answers = [a.get("value", a) for a in forked.ranks(3, parted, str(tmp_path), launched)]
    assert [[size for size, _ in a] for a in answers] == [[2, 3, 2, 3], [1, 3, 1, 3], [2, 3, 2, 3]]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [pytest.param("tutti", marks=pytest.mark.long), "torchrun"])
def test_real_launchers_have_parts_of_their_ranks(run, tmp_path, launcher):
    script = "import sys, json, as_torchs_test as t\nprint(json.dumps(t.parted(sys.argv[1], True)))"
    ranks = run(script, n=3, launcher=launcher, args=[tmp_path]).ranks
    assert [[size for size, _ in r.last] for r in ranks] == [[2, 3, 2, 3], [1, 3, 1, 3], [2, 3, 2, 3]]


# ---- without a process group ----
def without_a_group():
    wrapped = DistributedDataParallel(net())
    for name in ("process_group", "join_process_group", "device_mesh"):
        assert not hasattr(wrapped, name)
    with pytest.raises(StateError, match="call init_process_group first"):
        _ = wrapped.join_process_group
    with pytest.raises(StateError, match="wrapper.join()"):
        Join([wrapped])
    assert wrapped._get_ddp_logging_data()["backend_name"].startswith("tutti over ")
    return wrapped._distributed_rank


def test_missing_process_group_is_a_sentence():
    (answer,) = forked.ranks(1, without_a_group)
    assert answer == {"value": 0}
