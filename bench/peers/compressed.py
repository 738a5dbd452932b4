"""PowerSGD and top-k with error feedback once more, in PyTorch and from the papers' algorithms alone
(Vogels et al., NeurIPS 2019, algorithms 1 and 2; Stich et al., NeurIPS 2018). What they lose here
too, our code has not lost.

usage: compressed.py fp32|topk|powersgd EPOCHS SEED [RATIO|RANK]; MNIST in $TUTTI_DATA or data.
Prints the accuracy on the test images in per cent.

The setting of bench/margins.py: network cnn, 4 workers of 16 samples, here one after the other in one
process, sgd with lr 0.05 and a momentum of 0.9 applied to the decompressed mean, lr falling as half a
cosine over the run. Selections are by tensor, k = ceil(ratio n); of PowerSGD's tensors those of one
dimension travel as they are. Images are distorted as in src/data/distort.c, by draws of NumPy's, so
they are others than mnist(distort=1)'s."""
import gzip, math, os, sys
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F

WORKERS, BATCH, LR, MOMENTUM = 4, 16, 0.05, 0.9
codec, epochs, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
setting = float(sys.argv[4]) if len(sys.argv) > 4 else 1
if codec not in ("fp32", "topk", "powersgd"):
    sys.exit(f"there is no codec '{codec}' here; fp32, topk and powersgd are")
here = os.path.dirname(os.path.abspath(__file__))
folder = os.path.join(os.environ.get("TUTTI_DATA", os.path.join(here, "../../data")), "mnist")
torch.set_num_threads(1)


def idx(name):
    path = os.path.join(folder, name)
    if not os.path.exists(path) and not os.path.exists(path + ".gz"):
        sys.exit(f"there is no '{path}'")
    with open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz") as f:
        raw = f.read()
    dims = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(raw[3])]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(dims)


def distorted(images, draws):
    rng, n = np.random.default_rng(draws), len(images)
    angle, right, down = np.radians(rng.uniform(-30, 30, n)), rng.integers(-4, 5, n), rng.integers(-4, 5, n)
    out, c, s = np.empty((n, 28, 28), np.float32), np.cos(angle), np.sin(angle)
    for b in range(0, n, 5000):
        part = slice(b, min(n, b + 5000))
        turn = np.zeros((part.stop - b, 2, 3), np.float32)
        turn[:, 0, 0], turn[:, 0, 1], turn[:, 1, 0], turn[:, 1, 1] = c[part], -s[part], s[part], c[part]
        turn[:, 0, 2] = -(c[part] * right[part] - s[part] * down[part]) / 14
        turn[:, 1, 2] = -(s[part] * right[part] + c[part] * down[part]) / 14
        grid = F.affine_grid(torch.from_numpy(turn), (part.stop - b, 1, 28, 28), align_corners=False)
        out[part] = F.grid_sample(torch.from_numpy(images[part].astype(np.float32))[:, None], grid,
                                  align_corners=False)[:, 0].numpy()
    rows, cols = np.mgrid[0:28, 0:28].astype(np.float32)
    strokes = rng.integers(0, 7, n)
    for i in range(n):
        for _ in range(strokes[i]):
            x, y = rng.integers(0, 28, 2)
            t, half, brightness = rng.uniform(0, math.pi), rng.uniform(1.5, 4.5), rng.uniform(128, 255)
            along = np.abs(math.cos(t) * (cols - x) + math.sin(t) * (rows - y))
            across = math.cos(t) * (rows - y) - math.sin(t) * (cols - x)
            distance2 = np.maximum(along - half, 0) ** 2 + across ** 2
            out[i] = np.maximum(out[i], np.where(distance2 < 2.25, brightness * (1 - distance2 / 2.25), 0))
    return out


def labels(which):
    return torch.from_numpy(idx(which + "-labels-idx1-ubyte").astype(np.int64))


train, test = distorted(idx("train-images-idx3-ubyte"), 100), distorted(idx("t10k-images-idx3-ubyte"), 101)
mean, deviation = train.mean(), train.std()
x, y = torch.from_numpy((train - mean) / deviation)[:, None], labels("train")
test_x, test_y = torch.from_numpy((test - mean) / deviation)[:, None], labels("t10k")
torch.manual_seed(seed)
net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                    nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10))
weights = list(net.parameters())
residual = [[torch.zeros_like(w) for w in weights] for _ in range(WORKERS)]
momentum = [torch.zeros_like(w) for w in weights]
factor = [torch.randn(w[0].numel(), min(int(setting) or 1, w.shape[0], w[0].numel())) if w.dim() > 1 else None
          for w in weights]


def exchanged(j, gradients):
    """The decompressed mean of tensor j; residuals become what it has left."""
    if codec == "fp32" or (codec == "powersgd" and factor[j] is None):
        return sum(gradients) / WORKERS
    owed = [e[j] + g for e, g in zip(residual, gradients)]
    if codec == "topk":
        mean, k = torch.zeros_like(owed[0]).view(-1), max(1, math.ceil(setting * owed[0].numel()))
        for d in owed:
            largest = d.view(-1).abs().topk(k).indices
            mean[largest] += d.view(-1)[largest] / WORKERS
            d.view(-1)[largest] = 0
        for e, d in zip(residual, owed):
            e[j] = d
        return mean.view_as(owed[0])
    matrices = [d.view(d.shape[0], -1) for d in owed]
    p = torch.linalg.qr(sum(m @ factor[j] for m in matrices) / WORKERS)[0]
    own = [m.t() @ p for m in matrices]
    factor[j] = sum(own) / WORKERS
    for e, m, q in zip(residual, matrices, own):
        e[j] = (m - p @ q.t()).view_as(owed[0])
    return (p @ factor[j].t()).view_as(owed[0])


steps, step = math.ceil(len(x) / (WORKERS * BATCH)), 0
for _ in range(epochs):
    order = torch.randperm(len(x))
    for b in range(steps):
        samples = order[b * WORKERS * BATCH:(b + 1) * WORKERS * BATCH].split(BATCH)
        gradients = [torch.autograd.grad(F.cross_entropy(net(x[i]), y[i]), weights) for i in samples]
        # the last batch of an epoch is smaller
        gradients += [[torch.zeros_like(w) for w in weights]] * (WORKERS - len(gradients))
        lr = LR * (1 + math.cos(math.pi * step / (epochs * steps))) / 2
        with torch.no_grad():
            for j, w in enumerate(weights):
                momentum[j].mul_(MOMENTUM).add_(exchanged(j, [g[j] for g in gradients]))
                w.sub_(lr * momentum[j])
        step += 1
with torch.no_grad():
    right = sum((net(test_x[b:b + 1000]).argmax(1) == test_y[b:b + 1000]).sum().item()
                for b in range(0, len(test_x), 1000))
print(f"{100 * right / len(test_x):.2f}")
