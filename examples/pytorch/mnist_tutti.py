"""A convolutional network on MNIST, trained by several processes with PyTorch's DistributedDataParallel.

    torchrun --nproc-per-node 2 mnist.py [EPOCHS]
"""
import gzip
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from tutti.torch import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

MNIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/mnist")


def idx(name: str) -> torch.Tensor:
    """An IDX file: its sizes, 4 bytes each, begin at byte 4; their number is byte 3."""
    with gzip.open(os.path.join(MNIST, name + ".gz")) as file:
        raw = file.read()
    sizes = [int.from_bytes(raw[4 + 4 * k : 8 + 4 * k], "big") for k in range(raw[3])]
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8, offset=4 + 4 * len(sizes)).view(sizes)


def mnist(part: str) -> TensorDataset:
    images, labels = idx(part + "-images-idx3-ubyte"), idx(part + "-labels-idx1-ubyte")
    return TensorDataset(((images.float() / 255 - 0.1307) / 0.3081).unsqueeze(1), labels.long())


epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 1
torch.manual_seed(0)
dist.init_process_group("gloo")
train, test = mnist("train"), mnist("t10k")
sampler = DistributedSampler(train)
loader = DataLoader(train, batch_size=64, sampler=sampler, drop_last=True)

network = nn.Sequential(
    nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten(),
    nn.Linear(32 * 36, 64), nn.ReLU(), nn.Linear(64, 10))
model = DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

for epoch in range(epochs):
    sampler.set_epoch(epoch)
    for images, labels in loader:
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
    if dist.get_rank() == 0:
        with torch.no_grad():
            logits = network(test.tensors[0])
        loss, hits = cross_entropy(logits, test.tensors[1]), (logits.argmax(1) == test.tensors[1]).float().mean()
        print(f"epoch {epoch + 1}  test loss {loss:.6f}  test accuracy {100 * hits:.2f} %", flush=True)
dist.destroy_process_group()
