"""Data-parallel training in PyTorch, as far as `tutti bench step` compares it: the reference networks mlp and cnn on MNIST, SGD(0.05, momentum 0.9), the same number of
samples a worker a step. usage: RANK, WORLD_SIZE, INIT, STARTED (s since the epoch) in the environment; train.py MODEL N STEPS|epoch BATCH THREADS ddp|alone [SEED]
alone: nothing is exchanged between the workers. The first three steps are outside of the clock. Times of the slowest worker, memory of the largest.
epoch: one over the training set, then the accuracy on the test set; SEED (0) draws the initial values and the order."""
import gzip, json, os, resource, sys, time
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

WARM = 3
model, steps, batch, threads, kind, seed = sys.argv[1], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6], int((sys.argv[7:] or ["0"])[0])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
data = os.environ.get("TUTTI_DATA", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data"))
torch.set_num_threads(threads)
torch.manual_seed(seed)
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)


def idx(name):
    with gzip.open(os.path.join(data, "mnist", name + ".gz")) as f:
        raw = f.read()
    dims = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(raw[3])]
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8, offset=4 + 4 * raw[3]).reshape(dims)


def samples(which):
    images = idx(which + "-images-idx3-ubyte").float().div_(255).sub_(0.1307).div_(0.3081).unsqueeze(1)
    return images.flatten(1) if model == "mlp" else images, idx(which + "-labels-idx1-ubyte").long()


images, labels = samples("train")
if model == "mlp":
    net = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
elif model == "cnn":
    net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 25, 128), nn.ReLU(), nn.Linear(128, 10))
else:
    sys.exit(f"there is no model '{model}' here; mlp and cnn are")
if kind == "ddp" and size > 1:
    net = DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed + 1))
per_epoch = len(labels) // (batch * size)
whole = steps == "epoch"
steps = per_epoch - WARM if whole else int(steps)
for step in range(WARM + steps):
    if step == WARM:
        dist.barrier()
        begin = time.perf_counter()
    at = step % per_epoch * batch * size + rank * batch
    chosen = order[at:at + batch]
    optimizer.zero_grad(set_to_none=True)
    F.cross_entropy(net(images[chosen]), labels[chosen]).backward()
    optimizer.step()
wall = torch.tensor([time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0], dtype=torch.float64)
dist.all_reduce(wall, op=dist.ReduceOp.MAX)
if rank == 0:
    seconds, memory = wall.tolist()
    accuracy = None
    if whole:
        images, labels = samples("t10k")
        with torch.no_grad():
            accuracy = sum((net(images[i:i + 500]).argmax(1) == labels[i:i + 500]).sum().item() for i in range(0, len(labels), 500)) / len(labels)
    print(json.dumps(dict(samples_per_second=steps * batch * size / seconds, wall_seconds=seconds, exposed_comm_seconds=0.0, peak_rss_bytes_per_worker=memory,
                          host_seconds=time.time() - float(os.environ["STARTED"]), accuracy=accuracy, torch=torch.__version__)))
sys.stdout.flush()
dist.barrier()
os._exit(0)  # taking the process group down ends in "terminate called" now and then
