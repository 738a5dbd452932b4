"""Data-parallel training in PyTorch, as far as `tutti bench step` and bench/curves.py compare it.

The networks: mlp and cnn and those of images.py on MNIST; gpt(layers,dim,heads,context) on the bytes
of Moby Dick, and wordlm(vocab,dim,hidden,context) there, too; blstm(layers,hidden) on speech;
ctr(dim,layers,hidden) on the log that TUTTI_PEER_DATA names, clicks(file=PATH,rows=R). The same
number of samples a worker a step.

usage: train.py MODEL N STEPS|epoch BATCH THREADS KIND [SEED [OPTIMIZER [EVERY [TARGET [MOST]]]]]
with RANK, WORLD_SIZE, INIT, STARTED (s since the epoch) in the environment

STEPS      the first three are outside of the clock. Times of the slowest worker, memory of the
           largest; `empty`: what that process had before it read data or made a network
epoch      one over the training set, then the accuracy on the test set
KIND       ddp; with a hook of it: fp16, bf16, powersgd (rank 2, from step 2 on, the earliest that
           it takes, and one bucket: with several its collectives meet in different orders on Gloo),
           post-local (local after step 20, averaged each 8); alone: nothing is exchanged between
           the workers
SEED       (0) draws the initial values and the order
OPTIMIZER  sgd(...) or adamw(...) with the options of `tutti train` that PyTorch calls the same
EVERY      the loss on the validation set, of images the test set, and there the accuracy, after
           every EVERY steps, not counted in the time
TARGET     stop when a worker's has come to it, of images the accuracy, else the loss, or after MOST
           seconds. `reached`: steps, seconds and bytes that the interface eth0 has sent until then,
           null if it was not

TUTTI_PEER_SETTINGS: a list by commas: fused (the optimiser's step as one loop), compile
(torch.compile), channels-last (images and convolutions so in memory), and of ddp bucket-view
(gradients are views of what is sent), static-graph and one-bucket; what `tuned` makes of it besides:
there. TUTTI_PEER_SCHEDULE=cosine: the rate falls as half a cosine from step 0 to the last, as
tutti's."""
import gzip, json, math, os, re, resource, sys, time
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import nets
from images import VGG, ResNet

WARM = 3
more = sys.argv[7:]
model, steps, batch, threads, kind = sys.argv[1], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6]
seed = int((more or ["0"])[0])
optimizer_spec, every = (more[1:] or ["sgd(lr=0.05,momentum=0.9)"])[0], int((more[2:] or ["0"])[0])
target, most = float((more[3:] or ["nan"])[0]), float((more[4:] or ["inf"])[0])
given_data = os.environ.get("TUTTI_PEER_DATA", "")
settings = [word for word in os.environ.get("TUTTI_PEER_SETTINGS", "").split(",") if word]
SETTINGS = ("fused", "compile", "channels-last", "bucket-view", "static-graph", "one-bucket", "keep-memory",
            "own-kernels", "sleep")
if wrong := [word for word in settings if word not in SETTINGS]:
    sys.exit(f"TUTTI_PEER_SETTINGS: there is no setting '{wrong[0]}' here; {', '.join(SETTINGS)} are")
name, given = re.fullmatch(r"([\w-]+)(?:\((.*)\))?", model).groups()
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
data = os.environ.get("TUTTI_DATA", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data"))
torch.set_num_threads(threads)
torch.manual_seed(seed)
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
empty = peak()


def options(text, names, allowed):
    """Of a spec, by place or by name."""
    found = {}
    for place, word in enumerate(w for w in (text or "").split(",") if w):
        key, _, value = word.rpartition("=")
        found[key or names[place]] = float(value)
        if (key or names[place]) not in allowed:
            sys.exit(f"the peer knows no option '{key}' of '{model}' and '{optimizer_spec}'")
    return found


def optimizer_of(parameters):
    kind, words = re.fullmatch(r"(\w+)(?:\((.*)\))?", optimizer_spec).groups()
    fused = dict(fused=True) if "fused" in settings else {}
    if kind == "sgd":
        return torch.optim.SGD(parameters, **options(words, ["lr", "momentum"], ["lr", "momentum", "weight_decay"]),
                               **fused)
    if kind == "adamw":
        return torch.optim.AdamW(parameters, **options(words, ["lr"], ["lr", "weight_decay"]), **fused)
    sys.exit(f"there is no optimizer '{kind}' here; sgd and adamw are")


class WordLM(nn.Module):
    def __init__(self, dim, hidden, vocabulary=256):
        super().__init__()
        self.e, self.lstm = nn.Embedding(vocabulary, dim), nn.LSTM(dim, hidden, batch_first=True)
        self.head = nn.Linear(dim, vocabulary)
        self.p = nn.Linear(hidden, dim) if dim != hidden else nn.Identity()

    def forward(self, tokens):
        return self.head(self.p(self.lstm(self.e(tokens))[0]))


class BLSTM(nn.Module):
    def __init__(self, layers, hidden, features=120, classes=10):
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, num_layers=layers, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, frames):
        return self.head(self.lstm(frames)[0].mean(1))


class CTR(nn.Module):
    """One table of all fields, as tutti has it.

    Its gradient is sparse where the optimiser takes that: otherwise each step goes over the whole
    table."""

    def __init__(self, rows, dim, layers, hidden):
        super().__init__()
        self.tables = nn.Embedding(26 * rows, dim, sparse=optimizer_spec.startswith("sgd")
                                   and "momentum" not in optimizer_spec and "decay" not in optimizer_spec)
        nn.init.normal_(self.tables.weight, 0, 0.05)
        wide = [26 * dim + 13] + layers * [hidden]
        self.mlp = nn.Sequential(*(part for a, b in zip(wide, wide[1:]) for part in (nn.Linear(a, b), nn.ReLU())),
                                 nn.Linear(wide[-1], 1))

    def forward(self, x, rows):
        return self.mlp(torch.cat((self.tables(rows).flatten(1), x), 1)).squeeze(1)


def idx(name, folder="mnist"):
    path = os.path.join(data, folder, name)
    if not os.path.exists(path) and not os.path.exists(path + ".gz"):
        sys.exit(f"there is no '{path}'" + ("; tools/speech-data makes it" if folder == "speech" else ""))
    with open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz") as f:
        raw = f.read()
    dims = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(raw[3])]
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8, offset=4 + 4 * raw[3]).reshape(dims)


def samples(which):
    images = idx(which + "-images-idx3-ubyte").float().div_(255).sub_(0.1307).div_(0.3081).unsqueeze(1)
    return images.flatten(1) if model == "mlp" else images, idx(which + "-labels-idx1-ubyte").long()


def speech(which):
    frames = idx(which + "-images-idx3-ubyte", "speech").float()
    return frames.sub_(128).div_(32), idx(which + "-labels-idx1-ubyte", "speech").long()


class Images:
    def __init__(self, samples):
        self.samples = samples
        self.images, self.labels = samples("train")
        self.order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(seed + 1))
        self.per_epoch = len(self.labels) // (batch * size)

    def loss(self, net, step):
        at = step % self.per_epoch * batch * size + rank * batch
        chosen = self.order[at:at + batch]
        return F.cross_entropy(net(self.images[chosen]), self.labels[chosen])

    def validate(self, net):
        images, labels = self.samples("t10k")
        loss = hits = 0.0
        net.eval()
        with torch.no_grad():
            for i in range(0, len(labels), 500):
                logits = net(images[i:i + 500])
                loss += F.cross_entropy(logits, labels[i:i + 500], reduction="sum").item()
                hits += (logits.argmax(1) == labels[i:i + 500]).sum().item()
        net.train()
        return [loss / len(labels), hits / len(labels)]


class Text:
    """Windows at any place of the first nineteen twentieths; validated on 16 of the rest, one every 3000 bytes."""

    def __init__(self, context):
        with open(os.path.join(data, "moby-dick/moby-dick.txt"), "rb") as f:
            text = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8)
        cut = int(len(text) * 0.95)
        self.text, self.context, self.draw = text[:cut], context, torch.Generator().manual_seed(seed + 1)
        self.held_out = torch.stack([text[cut + 3000 * i:cut + 3000 * i + context + 1] for i in range(16)]).long()
        self.per_epoch = len(self.text) // context // (batch * size)

    def of(self, net, windows):
        logits = net(windows[:, :-1])
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), windows[:, 1:].reshape(-1))

    def loss(self, net, step):
        at = torch.randint(len(self.text) - self.context - 1, (batch * size,),
                           generator=self.draw)[rank * batch:(rank + 1) * batch]
        return self.of(net, torch.stack([self.text[i:i + self.context + 1] for i in at.tolist()]).long())

    def validate(self, net):
        with torch.no_grad():
            return [self.of(net, self.held_out).item()]


class Clicks:
    """The first nine tenths of a log. Categories are hashed, if not as tutti does it."""

    def __init__(self, path, rows):
        x, ids, labels = [], [], []
        with open(path) as f:
            for line in f:
                fields = line.rstrip("\n").split("\t")
                labels.append(float(fields[0]))
                x.append([math.log1p(int(v)) if v and int(v) > 0 else 0.0 for v in fields[1:14]])
                ids.append([t * rows + (1 + int(v, 16) * 0x9E3779B1 % (rows - 1) if v else 0)
                            for t, v in enumerate(fields[14:40])])
        cut = int(len(labels) * 0.9)
        self.x, self.ids, self.labels = torch.tensor(x[:cut]), torch.tensor(ids[:cut]), torch.tensor(labels[:cut])
        self.x = (self.x - self.x.mean(0)) / self.x.std(0)
        self.order = torch.randperm(cut, generator=torch.Generator().manual_seed(seed + 1))
        self.per_epoch = cut // (batch * size)

    def loss(self, net, step):
        at = step % self.per_epoch * batch * size + rank * batch
        chosen = self.order[at:at + batch]
        return F.binary_cross_entropy_with_logits(net(self.x[chosen], self.ids[chosen]), self.labels[chosen])


if name == "gpt":
    words = ["layers", "dim", "heads", "context"]
    shape = dict(layers=4, dim=256, heads=4, context=128) | options(given, words, words)
    task = Text(int(shape["context"]))
    net = nets.GPT(**{k: int(v) for k, v in shape.items()})
elif name == "mlp":
    task = Images(samples)
    net = nets.mlp()
elif name == "cnn":
    task = Images(samples)
    net = nets.cnn()
elif name == "resnet":
    task = Images(samples)
    net = ResNet(int(options(given, ["depth"], ["depth"]).get("depth", 20)))
elif name == "vgg" and given in (None, "small", "size=small"):
    task = Images(samples)
    net = VGG()
elif name == "wordlm":
    shape = dict(dim=256, hidden=512, context=128)
    shape |= options(given, ["vocab", "dim", "hidden"], ["vocab", "dim", "hidden", "context"])
    task = Text(int(shape["context"]))
    net = WordLM(int(shape["dim"]), int(shape["hidden"]))
elif name == "blstm":
    shape = dict(layers=2, hidden=128) | options(given, ["layers", "hidden"], ["layers", "hidden"])
    task = Images(speech)
    net = BLSTM(int(shape["layers"]), int(shape["hidden"]))
elif name == "ctr" and (file := re.search(r"file=([^,)]+)", given_data)):
    shape = dict(dim=16, layers=2, hidden=128)
    shape |= options(given, ["tables", "rows", "dim", "layers", "hidden"], ["dim", "layers", "hidden"])
    rows = int((re.search(r"rows=(\d+)", given_data) or [0, 100000])[1])
    task = Clicks(file[1], rows)
    net = CTR(rows, *(int(shape[k]) for k in ("dim", "layers", "hidden")))
elif name == "ctr":
    sys.exit(f"ctr needs a log: TUTTI_PEER_DATA is '{given_data}'; write clicks(file=PATH,rows=R)")
else:
    sys.exit(f"there is no model '{name}' here; mlp, cnn, resnet(depth), vgg(small), gpt, wordlm, blstm and ctr are")


def sent():
    """Bytes that this host's interface has sent, of hosts that have one."""
    with open("/proc/net/dev") as f:
        rows = dict(line.strip().split(":", 1) for line in f if ":" in line)
    return int(rows["eth0"].split()[8]) if "eth0" in rows else 0


def buckets(one):
    """Options of DistributedDataParallel: one bucket for all gradients, or its own choice."""
    if one:
        dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 30
    return dict(bucket_cap_mb=1024 if one else 25)


def compressed(net, optimizer):
    """DDP with a communication hook."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    net = DistributedDataParallel(net, **buckets(kind == "powersgd"))
    if kind in ("fp16", "bf16"):
        net.register_comm_hook(None, default_hooks.fp16_compress_hook if kind == "fp16"
                               else default_hooks.bf16_compress_hook)
    elif kind == "powersgd":
        net.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2),
                               powerSGD_hook.powerSGD_hook)
    else:
        alone = [dist.new_group([i]) for i in range(size)][rank]
        net.register_comm_hook(post_localSGD_hook.PostLocalSGDState(None, alone, 20),
                               post_localSGD_hook.post_localSGD_hook)
        optimizer = PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(period=8, warmup_steps=20))
    return net, optimizer


if "channels-last" in settings:
    net = net.to(memory_format=torch.channels_last)
    task.images = task.images.to(memory_format=torch.channels_last)
plain = net
optimizer = optimizer_of(net.parameters())
schedule = os.environ.get("TUTTI_PEER_SCHEDULE", "constant")
if kind == "ddp" and size > 1:
    net = DistributedDataParallel(net, gradient_as_bucket_view="bucket-view" in settings,
                                  static_graph="static-graph" in settings, **buckets("one-bucket" in settings))
elif kind in ("fp16", "bf16", "powersgd", "post-local"):
    net, optimizer = compressed(net, optimizer)
elif kind not in ("ddp", "alone"):
    sys.exit(f"there is no kind '{kind}' here; ddp, fp16, bf16, powersgd, post-local and alone are")
if "compile" in settings:
    net = torch.compile(net)
whole = steps == "epoch"
warm = 0 if every else WARM
steps = task.per_epoch - warm if whole else int(steps)
curve, outside, reached, sent_before = [], 0.0, None, 0
for step in range(warm + steps):
    if step == warm:
        dist.barrier()
        sent_before = sent()
        begin = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    task.loss(net, step).backward()
    for group in optimizer.param_groups if schedule == "cosine" else ():
        group["lr"] = group.setdefault("base", group["lr"]) * 0.5 * (1 + math.cos(math.pi * step / steps))
    optimizer.step()
    if every and (step + 1) % every == 0:
        since, so_far = time.perf_counter(), sent() - sent_before
        curve.append([step + 1, *task.validate(plain)])
        if target == target:
            value = curve[-1][-1]
            told = torch.tensor([float(value >= target if isinstance(task, Images) else value <= target),
                                 since - begin - outside])
            dist.all_reduce(told, op=dist.ReduceOp.MAX)
            if told[0] > 0:
                reached = dict(steps=step + 1, seconds=told[1].item(), bytes=so_far)
        outside += time.perf_counter() - since
        if target == target and (reached or told[1] > most):
            steps = step + 1 - warm
            break
figures = torch.tensor([time.perf_counter() - begin - outside, peak(), empty], dtype=torch.float64)
dist.all_reduce(figures, op=dist.ReduceOp.MAX)
if rank == 0:
    seconds, memory, empty = figures.tolist()
    accuracy = None
    if whole:
        accuracy = task.validate(plain)[1]
    print(json.dumps(dict(samples_per_second=steps * batch * size / seconds, wall_seconds=seconds,
                          exposed_comm_seconds=0.0, peak_rss_bytes_per_worker=memory, empty_bytes=empty,
                          host_seconds=time.time() - float(os.environ["STARTED"]), accuracy=accuracy, curve=curve,
                          reached=reached, settings=",".join(settings), torch=torch.__version__)))
sys.stdout.flush()
dist.barrier()
os._exit(0)  # taking the process group down ends in "terminate called" now and then
