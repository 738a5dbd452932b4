"""Ctrl-C at awkward moments: while others have not come, in an exchange, under a function that the library calls."""

import contextlib
import signal
import time

import pytest

START = """
import os, signal, threading, time
from tutti.engine import Engine, Param, World
rank = int(os.environ.get("TUTTI_RANK") or os.environ["RANK"])

def engine(n, **options):
    world = World()
    return Engine(world, [Param("b", (n,)), Param("a", (n,))], method="ddp", optimizer="client", **options)

def begin(e):
    e.pass_begin()
    e.grad_ready(0)

def end(e):
    e.grad_ready(1)
    e.pass_end()
    e.pass_begin()
    e.step()
"""


def ends(job, rank, seconds):
    """The process of a rank ends by itself, within `seconds` seconds."""
    until = time.monotonic() + seconds
    while job.alive(rank) and time.monotonic() < until:
        time.sleep(0.01)
    assert not job.alive(rank), f"rank {rank} is still there after {seconds} s\n{job.now()}"


def test_waiting_for_other_ranks_can_be_interrupted(run):
    job = run.start(START + """
print("began", flush=True)
if rank == 1:
    time.sleep(100)
World()
""", launcher="variables")
    for rank in range(2):
        job.says(rank, "began")
    time.sleep(0.5)
    job.kill(0, signal.SIGINT)
    ends(job, 0, 30)
    assert "KeyboardInterrupt" in job.now().ranks[0].err
    job.kill(1)
    job.wait(code=None)


def test_interrupt_during_exchange_is_raised_at_next_callback(run):
    """It comes while the library waits for the other rank, and the first Python that runs then is the update."""
    result = run(START + """
e = engine(4, update=lambda factor: print("updates", flush=True))
begin(e)
if rank == 1:
    time.sleep(1)
else:
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    end(e)
    print("no interrupt", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
""", launcher="variables")
    assert result.ranks[0].out == "interrupted\n" and "ignored" not in result.ranks[0].err, result
    assert result.ranks[1].out == "updates\nno interrupt\n", result


def test_user_signal_handlers_run_and_are_restored(run):
    result = run(START + """
def handler(number, frame):
    print(number == signal.SIGUSR1, flush=True)
signal.signal(signal.SIGUSR1, handler)
def update(factor):
    os.kill(os.getpid(), signal.SIGUSR1)
    print("updates", flush=True)
e = engine(4, update=update)
begin(e)
end(e)
assert signal.getsignal(signal.SIGUSR1) is handler and signal.getsignal(signal.SIGINT) is signal.default_int_handler
""", n=1, launcher="variables")
    assert result.ranks[0].out == "True\nupdates\n", result


@pytest.mark.torch
@pytest.mark.slow
def test_interrupted_rank_does_not_wait_for_a_pending_exchange(run):
    """The other rank is alive and will not come to it."""
    job = run.start(START + """
e = engine(1 << 20)
if rank == 0:
    begin(e)
print("began", flush=True)
time.sleep(100)
""", launcher="torchrun")
    for rank in range(2):
        job.says(rank, "began")
    time.sleep(0.5)
    job.kill(0, signal.SIGINT)
    ends(job, 0, 30)
    with contextlib.suppress(ProcessLookupError):  # torchrun may have ended it, since rank 0 has failed
        job.kill(1)
    job.wait(code=None)
