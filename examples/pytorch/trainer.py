"""A trainer in the manner of Accelerate and Lightning, and a network that it trains by any method of Tutti.

    torchrun --nproc-per-node 2 trainer.py [METHOD [EPOCHS]]
    tutti run -n 2 -- python trainer.py 'ad-psgd(graph=exponential)'

The trainer knows nothing of the network, the network nothing of the workers. With one process it trains as any script.
"""
import gzip
import os
import sys
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, TensorDataset

import tutti.torch

MNIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/mnist")


class Trainer:
    """Puts a network, its optimizer and its data into a run of several workers, and has the loop."""

    def __init__(self, method: str = "ddp", codec: str | None = None, batch: int = 64):
        self.method, self.codec, self.batch = method, codec, batch

    def prepare(self, network: nn.Module, optimizer: torch.optim.Optimizer, data: Dataset) -> None:
        sampler = tutti.torch.sampler(data, self.batch)
        self.loader = DataLoader(data, batch_sampler=sampler)
        self.model, self.optimizer = tutti.torch.prepare(
            network, optimizer, method=self.method, codec=self.codec, sampler=sampler)

    def fit(self, epochs: int, loss_of: Callable[..., torch.Tensor], test: tuple[torch.Tensor, ...]) -> None:
        for epoch in range(epochs):
            self.model.train()
            for batch in self.loader:
                self.optimizer.zero_grad()
                loss_of(self.model, *batch).backward()
                self.optimizer.step()
            with self.optimizer.evaluate():  # the model that all workers agree on
                loss = self.loss(loss_of, test)
            self.optimizer.log(test_loss=loss)  # for the record of the run, if it has one
            self.say(f"epoch {epoch + 1}  {self.method}  test loss {loss:.4f}")
        self.optimizer.finish()

    @torch.no_grad()
    def loss(self, loss_of: Callable[..., torch.Tensor], test: tuple[torch.Tensor, ...]) -> float:
        self.model.eval()
        return loss_of(self.model, *test).item()

    def say(self, text: str) -> None:
        if self.optimizer.world.rank == 0:
            print(text, flush=True)


def idx(name: str) -> torch.Tensor:
    """An IDX file: its sizes, 4 bytes each, begin at byte 4; their number is byte 3."""
    with gzip.open(os.path.join(MNIST, name + ".gz")) as file:
        raw = file.read()
    sizes = [int.from_bytes(raw[4 + 4 * k : 8 + 4 * k], "big") for k in range(raw[3])]
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8, offset=4 + 4 * len(sizes)).view(sizes)


def mnist(part: str) -> TensorDataset:
    images, labels = idx(part + "-images-idx3-ubyte"), idx(part + "-labels-idx1-ubyte")
    return TensorDataset((images.float() / 255 - 0.1307) / 0.3081, labels.long())


if __name__ == "__main__":
    torch.manual_seed(0)
    trainer = Trainer(method=sys.argv[1] if len(sys.argv) > 1 else "ddp")
    network = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    trainer.prepare(network, torch.optim.SGD(network.parameters(), lr=0.05), mnist("train"))
    trainer.fit(int(sys.argv[2]) if len(sys.argv) > 2 else 1,
                lambda model, images, labels: cross_entropy(model(images), labels), mnist("t10k").tensors)
