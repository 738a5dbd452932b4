"""A small network under Ray Train, which starts the workers on its cluster, and starts them again when one is lost.

The key of the run is made here and reaches the workers through Ray. Give a folder that all nodes can write.

When a node is taken the others' steps fail, Ray starts all workers again on what is left or comes back, and they
continue after the last epoch that was saved. Ray has ranks run in a thread: a signal reaches no script there, and
`checkpoint=` of prepare() is refused with a sentence that says so. Hence save() and load() here.
"""
import glob
import os
import secrets
import sys

import ray
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tutti.torch


def train(config):
    torch.manual_seed(0)
    inputs = torch.randn(4096, 20)
    data = TensorDataset(inputs, inputs[:, :4].argmax(1))
    network = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    sampler = tutti.torch.sampler(data, batch=32)
    # Ray has made the process group: rank, size and where to meet are its own.
    model, optimizer = tutti.torch.prepare(network, optimizer, config["method"], sampler=sampler)
    if glob.glob(os.path.join(config["folder"], "step-*")):
        optimizer.load(config["folder"])
    loader = DataLoader(data, batch_sampler=sampler)
    epoch = optimizer.figures()["steps"] // len(sampler)
    while epoch < config["epochs"]:
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
        epoch += 1
        optimizer.save(config["folder"], keep=2)
        ray.train.report({"epoch": epoch, "loss": loss.item()})
    optimizer.finish()


if __name__ == "__main__":
    ray.init(runtime_env={"env_vars": {"TUTTI_RUN_KEY": secrets.token_hex(32)}})
    trainer = TorchTrainer(
        train,
        train_loop_config={"folder": os.path.abspath(sys.argv[1]), "method": "ddp", "epochs": 10},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=4),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=8)),
    )
    trainer.fit()
