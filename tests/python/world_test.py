"""Worlds: how many a process may open, and what a forked child has of one."""

from __future__ import annotations

import os
import subprocess
import sys

import processes
import pytest
from tutti.engine import Engine, Param
from tutti.errors import StateError
from tutti.world import World

SECOND = """
import time
from tutti.errors import StateError
from tutti.world import World
first = World()
began = time.monotonic()
try:
    World()
    said = "it was opened"
except StateError as e:
    said = str(e)
assert time.monotonic() - began < 20, "the second world took too long"
assert "a process can open one world only in a run" in said, said
print(first.reduce([1.0]), flush=True)
"""


def test_a_second_world_over_tcp_is_refused_at_once(tmp_path):
    script = tmp_path / "second.py"
    script.write_text(SECOND)
    command = [processes.build() / "bin/tutti", "run", "-n", "2", "--transport", "tcp", "--", sys.executable, script]
    place = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, text=True, capture_output=True, timeout=60, env=place)
    assert (done.returncode, done.stdout.count("[2.0]")) == (0, 2), done


def test_a_forked_child_has_nothing_to_abandon():
    with World() as world:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                world.abandon()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert world.reduce([3.0]) == [3.0]


def test_a_closed_engine_has_no_memory_but_that_of_its_views():
    with World() as world:
        engine = Engine(world, [Param("a", (3,))], method="ddp", optimizer="client")
        seen = engine.gradients()
        seen[:] = [1.0, 2.0, 3.0]
        engine.close()
        for read in (engine.gradients, engine.vectors, engine.firsts, lambda: engine.values(0),
                     lambda: engine.method):
            with pytest.raises(StateError, match="the engine is closed"):
                read()
        assert list(seen) == [1.0, 2.0, 3.0]
