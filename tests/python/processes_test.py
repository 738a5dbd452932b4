"""The fixture `run` itself, and forked ranks: what they give back and refuse, and that nothing is left of a run."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import forked
import processes
import pytest

PLACE = """
import os, sys
from tutti.engine import World
with World() as world:
    print(world.rank, world.size, *sys.argv[1:])
    print("of rank", world.rank, file=sys.stderr)
"""
ALL = [pytest.param("torchrun", marks=pytest.mark.torch), "tutti", "openmpi", "mpich", "variables"]


@pytest.mark.parametrize("launcher", ALL)
def test_each_launcher_sets_rank_and_size_and_separates_output(run, launcher):
    result = run(PLACE, n=2, launcher=launcher, args=["a", 1])
    assert [r.out for r in result.ranks] == ["0 2 a 1\n", "1 2 a 1\n"]
    assert [r.err for r in result.ranks] == ["of rank 0\n", "of rank 1\n"]


def test_a_function_runs_as_a_script_and_returns_json(run):
    def numbers():
        import json
        import os
        print(json.dumps({"rank": os.environ["TUTTI_RANK"], "said": os.environ.get("WORD")}))

    result = run(numbers, n=3, launcher="variables", env={"WORD": "x", "OMP_NUM_THREADS": None})
    assert [r.last for r in result.ranks] == [{"rank": str(r), "said": "x"} for r in range(3)]


def test_unexpected_exit_status_fails_with_all_output(run):
    with pytest.raises(AssertionError, match="(?s)wanted exit status 0.*exit status 3.*rank 1, stderr.*broken"):
        run("import os, sys\nprint('broken', file=sys.stderr)\nsys.exit(3 * int(os.environ['TUTTI_RANK']))",
            launcher="variables")
    assert run("import sys\nsys.exit(4)", launcher="variables", code=4).code == 4


def test_hanging_run_is_killed_and_its_stack_is_shown(run):
    began = time.monotonic()
    with pytest.raises(AssertionError, match="(?s)has not ended after 2 s.*in waits_for_ever"):
        run("import time\ndef waits_for_ever():\n    time.sleep(1000)\nwaits_for_ever()", launcher="variables",
            timeout=2)
    assert time.monotonic() - began < 20


def test_a_process_that_is_left_behind_is_found_whatever_its_session(run):
    with pytest.raises(AssertionError, match="(?s)left processes behind.*sleep 1000"):
        run("import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)", n=1,
            launcher="variables")
    assert processes.marked(processes.SESSION + "-") == []


def test_a_rank_can_be_killed_and_waited_for(run):
    job = run.start("import time\nprint('here')\ntime.sleep(1000)", n=2, launcher="variables")
    job.says(1, "here")
    job.kill(1)
    job.kill(0, signal.SIGTERM)
    assert job.wait(code=None).code != 0


def test_unfinished_runs_are_killed_when_the_runner_closes(tmp_path):
    runner = processes.Runner(tmp_path, pytest.skip)
    job = runner.start("import time\nprint('here')\ntime.sleep(1000)", n=2, launcher="variables")
    for rank in range(2):
        job.says(rank, "here")
    assert {job.pid(r) for r in range(2)} < set(processes.marked(job.mark))
    runner.close()
    assert processes.marked(job.mark) == []


def test_runs_end_with_a_session_that_is_killed(tmp_path):
    session = """
        import pathlib, sys, time
        import processes
        with processes.guard():
            runner = processes.Runner(pathlib.Path(sys.argv[1]), print)
            job = runner.start("import time\\nprint('here')\\ntime.sleep(1000)", n=2, launcher="variables")
            job.says(0, "here"), job.says(1, "here")
            print(job.mark, flush=True)
            time.sleep(1000)
    """
    with subprocess.Popen([sys.executable, "-B", "-c", textwrap.dedent(session), tmp_path], text=True,
                          env=processes.environment({"TUTTI_BUILD": processes.build()}),
                          stdout=subprocess.PIPE) as p:
        mark = p.stdout.readline().strip()
        assert len(processes.marked(mark)) >= 3
        p.kill()
    end = time.monotonic() + 20
    while processes.marked(mark) and time.monotonic() < end:
        time.sleep(0.05)
    assert processes.marked(mark) == []


def test_suite_is_skipped_with_a_message_without_pytorch(tmp_path):
    done = subprocess.run([processes.HERE / "suite", processes.build()], capture_output=True, text=True,
                          env=processes.environment({"TUTTI_PYTHON": tmp_path / "python"}))
    assert done.returncode == 77  # what CTest takes for skipped
    assert done.stdout == f"skipped: no PyTorch and pytest for {tmp_path}/python: tools/setup --python installs " \
        "them, TUTTI_PYTHON names others\n"


def loses_a_connection_once(folder):
    attempt, rank = os.environ["FORKED_ATTEMPT"], os.environ["TUTTI_RANK"]
    (pathlib.Path(folder) / f"{attempt}-{rank}").touch()
    if attempt == "0":
        if rank == "1":
            raise RuntimeError("Gloo connectFullMesh failed with [...] Connection closed by peer")
        time.sleep(600)  # as the other ranks, for its connection
    return attempt


@pytest.mark.torch
def test_forked_ranks_begin_again_where_gloo_did_not_connect_them(tmp_path):
    assert forked.ranks(3, loses_a_connection_once, str(tmp_path)) == [{"value": "1"}] * 3
    assert sorted(p.name for p in tmp_path.iterdir())[-3:] == ["1-0", "1-1", "1-2"]
