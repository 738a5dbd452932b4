"""A network on MNIST in a job that may be interrupted: SIGTERM saves it, and the same line
continues it to the bits of a run that nothing has disturbed.

    tutti run -n 2 --stop-timeout 120 -- python preempt.py runs/job [METHOD [EPOCHS]]
    torchrun --nproc-per-node 2 preempt.py runs/job
"""
import os
import sys

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import tutti.torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from trainer import mnist  # noqa: E402

directory = sys.argv[1]
method = sys.argv[2] if len(sys.argv) > 2 else "ddp"
epochs = int(sys.argv[3]) if len(sys.argv) > 3 else 2
torch.manual_seed(0)
train, test = mnist("train"), mnist("t10k").tensors
network = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
sampler = tutti.torch.sampler(train, batch=64)
model, optimizer = tutti.torch.prepare(
    network, optimizer, method, sampler=sampler, checkpoint=tutti.torch.Checkpoints(directory, every=200, keep=3))
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 200, 0.8)
optimizer.also(scheduler=scheduler)
# A launcher's SIGTERM ends processes that are not forked, and Python 3.14 forks only on demand.
loader = DataLoader(train, batch_sampler=sampler, num_workers=1, multiprocessing_context="fork")

epoch = optimizer.figures()["steps"] // len(sampler)  # 0, or where the checkpoint was made
while epoch < epochs:
    for images, labels in loader:  # of an epoch that was interrupted: what is left
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
        scheduler.step()
    epoch += 1
optimizer.finish()

if optimizer.world.rank == 0:
    model.eval()
    with torch.no_grad():
        print(f"epoch {epoch}  {method}  test loss {cross_entropy(model(test[0]), test[1]).item():.9f}", flush=True)
