"""One rank of a training in PyTorch that computes on command: bench/peers/turns runs several such
trainings alternately.

usage: pytorch.py WHO MODEL SEED PLACE
with torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) in the environment, and BENCH_PACKAGE for
another folder of the package tutti than this tree's

WHO    the wrapper of the model; nothing else differs:
         bare             none
         meet             none, but after each backward the ranks wait for each other, in memory that
                          they share: what every exchange on one machine costs before it moves a byte
         torch            torch.nn.parallel.DistributedDataParallel on Gloo
         torch-view       the same with gradient_as_bucket_view=True
         torch-powersgd   the same as torch with its hook of rank 4, in one bucket (with several its
                          collectives meet in different orders on Gloo), from step 2 on, the earliest
                          that it takes
         tutti            tutti.torch.DistributedDataParallel
         tutti-local      the same with local_group=, a Gloo group of the ranks of each host
         tutti-SPEC       the same with method=SPEC
         prepare-SPEC     tutti.torch.prepare with method SPEC; prepare-SPEC@CODEC: and codec=CODEC
         torchft-PERIOD   torchft's DiLoCo, each rank a group of its own: all parameters as one fragment,
                          in buckets, outer SGD of rate 0.7 with a Nesterov momentum of 0.9, as
                          diloco has. torchft-PERIOD-DELAY: with fragment_sync_delay. Rank 0 starts
                          torchft's lighthouse
MODEL  mlp, cnn (MNIST, 64 samples a rank, SGD with momentum) or gpt (gpt(4,256,4,128) on the bytes of
       Moby Dick, 8 windows a rank, AdamW)
PLACE  a Unix socket, on which turns listens. The rank sends its name, then answers each line:
         run K    K steps, the next K of its share of the samples: seconds
         loss     of samples that are not trained on, by rank 0: nats
         bits     a hash of all parameters, which in the midst of a period differ between ranks
       and ends with the connection."""
import gzip
import hashlib
import json
import mmap
import os
import socket
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.environ.get("BENCH_PACKAGE") or os.path.join(HERE, "../../python")]
import nets  # noqa: E402

DATA = os.environ.get("TUTTI_DATA", os.path.join(HERE, "../../data"))


def idx(name):
    with gzip.open(os.path.join(DATA, "mnist", name + ".gz")) as f:
        raw = f.read()
    dims = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(raw[3])]
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8, offset=4 + 4 * raw[3]).reshape(dims)


class Images:
    batch, looked_at = 64, 2000

    def __init__(self, flat, rank, size, seed):
        self.rank, self.size, self.step, both = rank, size, 0, []
        for part in ("train", "t10k"):
            images = idx(part + "-images-idx3-ubyte").float().div_(255).sub_(0.1307).div_(0.3081).unsqueeze(1)
            both += [images.flatten(1) if flat else images, idx(part + "-labels-idx1-ubyte").long()]
        self.images, self.labels, self.test_images, self.test_labels = both
        self.order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(seed + 1))

    def loss(self, net):
        of_all = self.batch * self.size
        at = self.step % (len(self.order) // of_all) * of_all + self.rank * self.batch
        chosen = self.order[at:at + self.batch]
        self.step += 1
        return F.cross_entropy(net(self.images[chosen]), self.labels[chosen])

    def validation(self, net):
        return F.cross_entropy(net(self.test_images[:self.looked_at]), self.test_labels[:self.looked_at])


class Text:
    batch, context = 8, 128

    def __init__(self, rank, size, seed):
        with open(os.path.join(DATA, "moby-dick/moby-dick.txt"), "rb") as f:
            text = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8)
        cut = len(text) * 19 // 20
        self.rank, self.size, self.text = rank, size, text[:cut]
        self.draw = torch.Generator().manual_seed(seed + 1)
        self.held_out = torch.stack([text[cut + 3000 * i:cut + 3000 * i + self.context + 1] for i in range(16)]).long()

    def of(self, net, windows):
        return F.cross_entropy(net(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())

    def loss(self, net):
        at = torch.randint(len(self.text) - self.context - 1, (self.batch * self.size,), generator=self.draw)
        mine = at[self.rank * self.batch:(self.rank + 1) * self.batch].tolist()
        return self.of(net, torch.stack([self.text[i:i + self.context + 1] for i in mine]).long())

    def validation(self, net):
        return self.of(net, self.held_out)


class Meeting:
    """A counter a rank in a file that all map. wait() is over when all ranks have called it as often."""

    def __init__(self, path, rank, size):
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(file, 64 * size)  # a cache line each
        self.counts = memoryview(mmap.mmap(file, 64 * size)).cast("Q")
        os.close(file)
        self.rank, self.size = rank, size

    def wait(self):
        self.counts[8 * self.rank] += 1
        mine = self.counts[8 * self.rank]
        while any(self.counts[8 * r] < mine for r in range(self.size)):
            pass


def of_host():
    """The group of this host's ranks."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    many = int(os.environ["LOCAL_WORLD_SIZE"])
    return dist.new_subgroups(group_size=many)[0]


def by_torchft(net, optimizer, period, delay, rank, size):
    """What has to live as long as the training."""
    import datetime
    import torch.distributed as dist
    import torchft
    from torchft.local_sgd import DiLoCo

    master, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 1
    lighthouse = None
    if rank == 0:  # it ends with this process
        lighthouse = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", os.path.join(os.path.dirname(sys.executable), "torchft_lighthouse"),
             "--min_replicas", str(size), "--bind", f"{master}:{port}"])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((master, port))
        own = s.getsockname()[0]
    store = dist.TCPStore(own, 0, is_master=True, wait_for_workers=False)
    minute = datetime.timedelta(seconds=60)
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=minute), min_replica_size=size, load_state_dict=net.load_state_dict,
        state_dict=net.state_dict, use_async_quorum=False, rank=0, world_size=1, store_addr=own, store_port=store.port,
        hostname=own, lighthouse_addr=f"http://{master}:{port}", replica_id=str(rank), init_sync=False, timeout=minute)
    outer = torch.optim.SGD(net.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    running = DiLoCo(manager, [net], optimizer, outer, sync_every=period, fragment_sync_delay=delay,
                     use_bucketization=True, pin_memory=False)
    return running.__enter__(), store, lighthouse


def with_optimizer(net, optimizer, who, rank, size):
    """The model, the optimiser and what has to live as long, of methods which are more than a wrapper."""
    kind, _, of = who.partition("-")
    if kind == "torchft":
        period, _, delay = of.partition("-")
        return net, optimizer, by_torchft(net, optimizer, int(period), int(delay or 0), rank, size)
    if kind == "prepare":
        import tutti.torch

        method, _, codec = of.partition("@")
        return *tutti.torch.prepare(net, optimizer, method, codec=codec or None), None
    return net, optimizer, None


def wrapped(net, who):
    if who in ("bare", "meet") or who.partition("-")[0] in ("prepare", "torchft"):
        return net
    if who == "tutti-local":
        import tutti.torch

        return tutti.torch.DistributedDataParallel(net, local_group=of_host())
    if who.partition("-")[0] == "tutti":
        import tutti.torch

        method = who.partition("-")[2]
        return tutti.torch.DistributedDataParallel(net, **(dict(method=method) if method else {}))
    import torch.distributed as dist

    dist.init_process_group("gloo")
    if who == "torch-powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

        dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 30
        net = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=1024)
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
        net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return net
    if who not in ("torch", "torch-view"):
        sys.exit(f"pytorch.py: there is no '{who}'; see its first lines")
    return torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=who == "torch-view")


def main():
    who, model, seed, place = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    if model == "gpt":
        plain, task = nets.GPT(4, 256, 4, 128), Text(rank, size, seed)
    elif model in ("mlp", "cnn"):
        plain, task = (nets.mlp if model == "mlp" else nets.cnn)(), Images(model == "mlp", rank, size, seed)
    else:
        sys.exit(f"pytorch.py: there is no model '{model}' here; mlp, cnn and gpt are")
    net = wrapped(plain, who)
    meeting = Meeting(place + ".meet", rank, size) if who == "meet" else None
    if model == "gpt":
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.0003)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    net, optimizer, _kept = with_optimizer(net, optimizer, who, rank, size)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        lines = connection.makefile("rw")

        def answer(**what):
            print(json.dumps(what), file=lines, flush=True)

        answer(rank=rank, torch=torch.__version__)
        for line in lines:
            word, _, count = line.strip().partition(" ")
            if word == "run":
                begin = time.perf_counter()
                for _ in range(int(count)):
                    optimizer.zero_grad()
                    task.loss(net).backward()
                    if meeting:
                        meeting.wait()
                    optimizer.step()
                answer(seconds=time.perf_counter() - begin)
            elif word == "loss":
                with torch.no_grad():
                    answer(loss=task.validation(plain).item() if rank == 0 else None)
            elif word == "bits":
                parameters = b"".join(p.detach().contiguous().numpy().tobytes() for p in plain.parameters())
                answer(bits=hashlib.sha256(parameters).hexdigest())
    sys.stdout.flush()
    os._exit(0)  # taking the process group down ends in "terminate called" now and then


main()
