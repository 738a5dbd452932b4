"""torch.distributed's all_reduce on Gloo, measured as `tutti bench allreduce` measures
(mpi_allreduce.c says how).

usage: RANK=r WORLD_SIZE=p INIT=file:///new/path python3 gloo_allreduce.py SIZES SECONDS
Prints BYTES MEDIAN_US P99_US CALLS on rank 0."""
import os, statistics, sys, time
import torch, torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
sizes, seconds = [int(s) for s in sys.argv[1].split(",")], float(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)


def call(x):
    x.fill_(rank + 1)
    dist.barrier()
    begin = time.perf_counter()
    dist.all_reduce(x)
    return 1e6 * (time.perf_counter() - begin)


for bytes in sizes:
    x = torch.empty(bytes // 4)
    middle = statistics.median(call(x) for _ in range(3))
    if not bool((x == size * (size + 1) / 2).all()):
        sys.exit(f"the sum of {bytes} bytes is wrong")
    count = torch.tensor([min(5000, max(7, int(seconds * 1e6 / (middle + 1))))])
    dist.all_reduce(count, op=dist.ReduceOp.MIN)
    times = torch.tensor([call(x) for _ in range(int(count))], dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    if rank == 0:
        ordered = sorted(times.tolist())
        print(bytes, f"{statistics.median(ordered):.4f} {ordered[(99 * len(ordered) + 99) // 100 - 1]:.4f}",
              len(ordered), flush=True)
dist.barrier()
dist.destroy_process_group()
