"""A script whose method is an argument, for `tutti compare`:

    tutti compare ddp powersgd -n 2 -- python methods.py --method {method} --seed {seed}

`tutti compare` names the folder of each run's record, by TUTTI_TRACE_DIR.
"""
import argparse

import torch
import tutti.torch
from torch import nn
from torch.nn.functional import cross_entropy

arguments = argparse.ArgumentParser()
arguments.add_argument("--method", default="ddp")
arguments.add_argument("--seed", type=int, default=0)
arguments.add_argument("--steps", type=int, default=200)
given = arguments.parse_args()

BATCH = 32
torch.manual_seed(given.seed)
network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
teacher = nn.Linear(64, 10)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
images = torch.randn(4096, 64)
labels = teacher(images).argmax(1)
sampler = tutti.torch.sampler(images, batch=BATCH, seed=given.seed)
network, optimizer = tutti.torch.prepare(network, optimizer, method=given.method, sampler=sampler)

step = 0
while step < given.steps:
    for indices in sampler:
        loss = cross_entropy(network(images[indices]), labels[indices])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(loss=loss)
        step += 1
        if step == given.steps:
            break
optimizer.finish()
