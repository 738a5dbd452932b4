"""A script whose workers are killed: bench/recovery.py runs it by `tutti run`, by torchrun, and under torchft.

    elastic.py tutti|torchrun|torchft LOG FOLDER

Appends a line to LOG once its worker trains, "begins PID", and at each step that is made: "step PID STEP TIME", in s of
the monotonic clock. Trains until it is ended. torchrun: saves a checkpoint in FOLDER after every step, from which the
workers begin when they are started again."""
import datetime, os, sys, time

import torch
import torch.distributed as dist
from torch import nn

SHARES, BATCH, PAUSE = 4, 16, 0.1  # PAUSE: s of a step in which nothing is computed, as on a card
SAMPLES = 4096


def trained():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    draw = torch.Generator().manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.randn(SAMPLES, 784, generator=draw),
                                          torch.randint(0, 10, (SAMPLES,), generator=draw))
    return model, torch.optim.AdamW(model.parameters(), lr=0.001), data


class Log:
    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def line(self, *words):
        os.write(self.file, (" ".join(map(str, words)) + "\n").encode())

    def begins(self):
        self.line("begins", os.getpid())

    def step(self, number):
        self.line("step", os.getpid(), number, time.monotonic())


def backward(model, x, y):
    nn.functional.cross_entropy(model(x), y).backward()
    time.sleep(PAUSE)


def by_tutti(log, _):
    import tutti.torch
    model, optimizer, data = trained()
    sampler = tutti.torch.sampler(data, batch=BATCH, seed=1)
    model, optimizer = tutti.torch.prepare(model, optimizer, sampler=sampler, elastic=True)
    log.begins()
    made = int(optimizer.figures()["steps"])
    while True:
        for x, y in torch.utils.data.DataLoader(data, batch_sampler=sampler):
            backward(model, x, y)
            optimizer.step()
            optimizer.zero_grad()
            if int(optimizer.figures()["steps"]) > made:
                made = int(optimizer.figures()["steps"])
                log.step(made)


def batches(data, rank, step):
    """Any: what a worker computes does not matter here."""
    while True:
        at = torch.arange(BATCH) + (step * SHARES + rank) * BATCH
        yield [t[at % SAMPLES] for t in data.tensors]
        step += 1


def by_torchrun(log, folder):
    """In PyTorch 2.13 all attempts share a store, which has the addresses of the dead, and Gloo tries those."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    dist.init_process_group("gloo", store=dist.PrefixStore(os.environ["TORCHELASTIC_RESTART_COUNT"], store),
                            rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    model, optimizer, data = trained()
    path, step = os.path.join(folder, "checkpoint.pt"), 0
    if os.path.exists(path):
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    model = nn.parallel.DistributedDataParallel(model)
    log.begins()
    for x, y in batches(data, dist.get_rank(), step):
        backward(model, x, y)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if dist.get_rank() == 0:
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
                       path + ".new")
            os.replace(path + ".new", path)
        log.step(step)


def by_torchft(log, _):
    import torchft
    model, optimizer, data = trained()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def load(state):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=datetime.timedelta(seconds=5)), min_replica_size=1, load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, rank=0, world_size=1,
        store_addr="127.0.0.1", store_port=store.port, hostname="127.0.0.1",
        timeout=datetime.timedelta(seconds=10))
    managed, committing = torchft.DistributedDataParallel(manager, model), torchft.Optimizer(manager, optimizer)
    log.begins()
    for x, y in batches(data, 0, 0):
        committing.zero_grad()
        before = manager.current_step()
        backward(managed, x, y)
        committing.step()
        if manager.current_step() > before:
            log.step(manager.current_step())


def main():
    how, log, folder = sys.argv[1:]
    {"tutti": by_tutti, "torchrun": by_torchrun, "torchft": by_torchft}[how](Log(log), folder)


if __name__ == "__main__":
    main()
