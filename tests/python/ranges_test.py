"""A profile of torch has ranges of this package: the engine's calls by method and tensor, the backend's by codec."""

import json

import dist_cases
import pytest
from distributed_test import on_ranks

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


def script():
    import json
    import sys

    import torch
    from torch.profiler import ProfilerActivity, profile

    import tutti.torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    if sys.argv[1] == "wrapper":
        model = tutti.torch.DistributedDataParallel(net)
    else:
        model, optimizer = tutti.torch.prepare(net, optimizer, batch=8, method=sys.argv[1])

    def step():
        optimizer.zero_grad()
        model(torch.ones(8, 8)).square().mean().backward()
        optimizer.step()

    step()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        step()
        step()
    step()
    if sys.argv[1] != "wrapper":
        optimizer.finish()
    counts = {e.key: e.count for e in profiled.key_averages() if e.key.startswith("tutti:")}
    print(json.dumps(counts), flush=True)


def ranges(run, how: str) -> list[dict[str, int]]:
    return [json.loads(rank.out) for rank in run(script, n=2, args=[how]).ranks]


TENSORS = ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_a_wrapper_s_step_is_its_gradients_and_its_exchange(run):
    for found in ranges(run, "wrapper"):
        assert {f"tutti:grad_ready ({name})": 2 for name in TENSORS}.items() <= found.items(), found
        assert found["tutti:step (ddp)"] == found["tutti:pass_end (ddp)"] == 2, found


@pytest.mark.slow
def test_a_prepared_script_s_ranges_have_its_method(run):
    for found in ranges(run, "local-sgd(period=2)"):
        assert {f"tutti:grad_ready ({name})": 2 for name in TENSORS}.items() <= found.items(), found
        assert found["tutti:step (local-sgd)"] == 2, found


@pytest.mark.slow
def test_units_are_named_by_their_tensors(run):
    for found in ranges(run, "zero(stage=3)"):
        for call in ("unit_acquire", "unit_release"):
            assert found[f"tutti:{call} (0.weight, 0.bias)"] == 2, found  # its input needs no gradient
            assert found[f"tutti:{call} (2.bias, 2.weight)"] == 4, found


def collectives(rank, n, folder):
    from torch import distributed as dist
    from torch.profiler import ProfilerActivity, profile

    from tutti.torch.distributed import gradients, options

    dist_cases.start(folder, rank, n, "tutti")
    group = dist.new_group(list(range(n)), pg_options=options(codec="qsgd(bits=8)", minimum=1))

    def calls(k):
        with gradients(group=group):
            dist.all_reduce(torch.ones(1000), dist.ReduceOp.AVG, group=group)
        dist.all_reduce(torch.ones(4))

    for k in range(3):  # the first two teach the codec the order of calls
        calls(k)
    other = 1 - rank
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        calls(3)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(3), other),
                                            dist.P2POp(dist.irecv, torch.ones(3), other)]):
            work.wait()
        late = dist.all_reduce(torch.ones(1000), async_op=True)
    late.wait()
    dist.destroy_process_group()
    return {e.key: e.count for e in profiled.key_averages() if e.key.startswith("tutti:")}


@pytest.mark.slow
def test_waits_of_the_backend_are_ranges(tmp_path):
    for rank, found in enumerate(on_ranks(2, collectives, str(tmp_path))):
        other = 1 - rank
        assert found == {"tutti:all_reduce (qsgd(bits=8))": 1, "tutti:all_reduce": 1,
                         f"tutti:send to rank {other} (tag 0)": 1, f"tutti:recv of rank {other} (tag 0)": 1}, found
