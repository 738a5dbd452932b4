"""checkpoint=: one run at a time writes to a folder. A second one is refused on all ranks before its first step. The
claim of a run ends with its process."""

import os
import signal
import subprocess
import sys
import time

import processes
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from tutti.torch import _claim  # noqa: E402


def refused(folder):
    with pytest.raises(ValueError, match="a run that is under way writes its checkpoints to") as e:
        _claim.Claim(str(folder), wait=0)
    return str(e.value)


def test_a_folder_has_one_run_at_a_time(tmp_path):
    folder = tmp_path / "a/b"
    first = _claim.Claim(str(folder))
    assert f"process {os.getpid()} on host '" in refused(folder)
    first.close()
    first.close()
    assert not folder.exists()  # it was made, and has nothing
    second = _claim.Claim(str(folder))
    (folder / "step-1").mkdir()
    second.close()
    assert os.listdir(folder) == ["step-1"]
    third = _claim.Claim(str(folder))
    del third
    _claim.Claim(str(folder), wait=0).close()


def test_a_killed_run_keeps_nobody_out_and_is_waited_for(tmp_path):
    code = ("import sys, time; sys.path.insert(0, sys.argv[2]); from tutti.torch import _claim; "
            "c = _claim.Claim(sys.argv[1]); print('has it', flush=True); time.sleep(60)")
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "c"), str(processes.ROOT / "python")],
                             stdout=subprocess.PIPE, text=True, env=processes.environment())
    try:
        assert other.stdout.readline() == "has it\n"
        assert f"process {other.pid} on" in refused(tmp_path / "c")
        subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {other.pid}"])
        began = time.monotonic()
        _claim.Claim(str(tmp_path / "c"), wait=50).close()  # the file that it has left is no claim
        assert time.monotonic() - began < 30
    finally:
        other.kill()
        other.communicate()
    assert other.returncode == -signal.SIGKILL


def test_a_claim_of_the_same_run_is_told_from_that_of_another(tmp_path):
    first = _claim.Claim(str(tmp_path), run="one")
    with pytest.raises(_claim.OfThisRun, match="a run that is under way"):
        _claim.Claim(str(tmp_path), wait=0, run="one")
    for other in "two", "on", "":
        with pytest.raises(ValueError) as e:
            _claim.Claim(str(tmp_path), wait=0, run=other)
        assert type(e.value) is _claim.Taken
    first.close()
    _claim.Claim(str(tmp_path), wait=0, run="two").close()


def test_a_forked_child_does_not_keep_it(tmp_path):
    first = _claim.Claim(str(tmp_path))
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        first.close()
        os.write(into, b"x")
        time.sleep(60)
        os._exit(0)
    assert os.read(out, 1) == b"x"
    refused(tmp_path)  # its parent has it still
    os.close(first._fd)  # as a parent that is killed
    first._fd = -1
    _claim.Claim(str(tmp_path), wait=0).close()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_folder_that_cannot_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="checkpoints cannot be written to '.*file/x'"):
        _claim.Claim(str(tmp_path / "file/x"))
    (tmp_path / "d").mkdir()
    (tmp_path / "d/lock").symlink_to(tmp_path / "file")
    with pytest.raises(ValueError, match="checkpoints cannot be written to"):
        _claim.Claim(str(tmp_path / "d"))


def test_a_file_system_without_locks_is_a_warning(tmp_path, monkeypatch):
    def none(fd, how):
        raise OSError(_claim.errno.ENOLCK, "No locks available")

    monkeypatch.setattr(_claim.fcntl, "flock", none)
    with pytest.warns(UserWarning, match="has no locks .No locks available.: it is not noticed if another run writes"):
        _claim.Claim(str(tmp_path / "c"))
    assert not (tmp_path / "c/lock").exists()


def script():
    import sys

    import torch

    import tutti.torch

    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    try:
        if sys.argv[2] == "wrapper":
            tutti.torch.DistributedDataParallel(net, checkpoint=sys.argv[1])
        else:
            tutti.torch.prepare(net, optimizer, checkpoint=sys.argv[1])
    except ValueError as e:
        print("refused", e, flush=True)


@pytest.mark.parametrize("way", ["wrapper", "prepare"])
def test_a_second_run_is_refused_on_all_ranks_and_tutti_train_too(run, tmp_path, way):
    folder = tmp_path / "c"
    first = _claim.Claim(str(folder))
    for rank in run(script, args=[folder, way], code=None).ranks:
        assert rank.out.startswith(f"refused a run that is under way writes its checkpoints to '{folder}' (proc"), rank
    if way == "wrapper":
        done = subprocess.run([processes.build() / "bin/tutti", "train", "--model", "linear", "--steps", "1", "-n", "1",
                               "--out", folder], capture_output=True, text=True, env=processes.environment())
        assert done.returncode == 2 and "is written by a run that is under way (process" in done.stderr, done.stderr
    assert os.listdir(folder) == ["lock"]
    first.close()
    assert not any("refused" in rank.out for rank in run(script, args=[folder, way], code=None).ranks)
