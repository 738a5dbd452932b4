"""Goal: `tutti join PASS -- COMMAND` starts one more worker of a run of a script, from any directory: it gets the
state, trains, and leaves or ends as the launcher's own do, and the model keeps its bits. One whose script is another,
or whose command line does not go with the run, is refused by name before it takes part, and the others do not notice.
Method: as elastic_test, whose script this has, with more steps. They are slow until the test lets the run go."""

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
import torch
from torch import nn

import tutti.torch
from elastic_test import SCRIPT as ONE
from elastic_test import Elastic, equal
from processes import build, environment
from tutti.torch import _facts

TUTTI = f"{build()}/bin/tutti"
SCRIPT = ONE.replace("int(sys.argv[3])", "20").replace(
    'os.path.exists(out + ".came")', "os.path.exists(os.path.dirname(out) + '/go')")
assert "/go" in SCRIPT
STEPS = 20 * 5
HERE = "sh -c 'eval \"$1\"'"  # RSH HOST COMMAND: the command, here
SLOW = 0.7  # seconds of a step: 70 for a run, more than it takes until a newcomer is there


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    run = Elastic(tmp_path_factory.mktemp("join"), "one", 1, script=SCRIPT)
    run.end()
    return run.model()


def join(where, *words, cwd=None, options=()):
    return subprocess.Popen([TUTTI, "join", *options, str(where), *(["--"] if words else []), *map(str, words)],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd, env=environment())


def same_script(folder):
    """The command of the run, with results of its own."""
    return sys.executable, folder / "run.py", folder / "joined.pt", SLOW, 0


def go(folder):
    (folder / "go").touch()


def until(process, what):
    seen = []
    for line in process.stdout:
        seen.append(line)
        if found := re.search(what, line):
            return found
    raise AssertionError(f"no line like {what}:\n" + "".join(seen))


def ends(process, code):
    text, _ = process.communicate(timeout=120)
    assert process.returncode == code, text
    return text


def begun(folder, n, **more):
    run = Elastic(folder, "run", n, **{"delay": SLOW, "script": SCRIPT} | more)
    for _ in range(n):
        run.until(r"^begins")
    run.until(r"^step \d+ 2$")
    return run


def test_one_joins_from_another_directory_and_trains_to_the_end(tmp_path, undisturbed):
    run = begun(tmp_path, 1)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    joined = join("../run.join", *same_script(tmp_path), cwd=elsewhere)
    first = int(until(joined, r"^begins \d+ (\d+)")[1])
    assert 2 <= first < STEPS
    go(tmp_path)
    text = ends(joined, 0)
    assert f"{STEPS}\n" in text and "ended" in text and "tutti:" not in text
    assert "lost" not in run.end() and equal(run.model(), undisturbed)
    assert not (tmp_path / "joined.pt").exists(), "rank 0 writes the results"
    assert not (tmp_path / "run.join").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_the_one_that_has_joined_leaves_by_a_signal(tmp_path, undisturbed, number):
    run = begun(tmp_path, 1)
    joined = join(tmp_path / "run.join", *same_script(tmp_path))
    until(joined, r"^step \d+ \d+")
    joined.send_signal(number)
    assert "tutti: this worker has left the run" in ends(joined, 0)
    assert (tmp_path / "run.join").exists(), "the pass is the launcher's"
    go(tmp_path)
    assert "lost" not in run.end() and equal(run.model(), undisturbed)


@pytest.mark.slow
def test_the_one_that_has_joined_is_killed_and_the_others_go_on(tmp_path, undisturbed):
    run = begun(tmp_path, 1)
    joined = join(tmp_path / "run.join", *same_script(tmp_path))
    os.kill(int(until(joined, r"^step (\d+) \d+")[1]), signal.SIGKILL)
    assert re.search(r"tutti: this worker was lost: process \d+ was killed by signal 9 \(SIGKILL\)\n", ends(joined, 3))
    go(tmp_path)
    run.end()
    assert equal(run.model(), undisturbed)


@pytest.mark.slow
def test_who_has_joined_writes_the_results_when_the_first_are_gone(tmp_path, undisturbed):
    """Of two one is killed, and comes back with a later rank than the one that has joined; the other leaves."""
    run = begun(tmp_path, 2)
    joined = join(tmp_path / "run.join", *same_script(tmp_path))
    until(joined, r"^step \d+ \d+")
    first, second = run.pids()
    os.kill(first, signal.SIGKILL)
    run.until(r"^begins")
    os.kill(second, signal.SIGTERM)
    run.until(f"^step {run.pids()[2]} ")
    go(tmp_path)
    ends(joined, 0)
    assert "rank 0 at the end was a worker that has joined: what it has written is on its machine" in run.end()
    run.out = tmp_path / "joined.pt"
    assert equal(run.model(), undisturbed)


@pytest.mark.slow
def test_who_misses_the_end_does_not_wait_for_those_that_are_gone(tmp_path, undisturbed):
    """The one that has joined stands still behind the last barrier until the other one has ended without it."""
    stops = """
if "joined" in out:
    import subprocess, tutti.torch._elastic_run
    def stops(self, results):
        self._between("finish()")
        self.world.barrier()
        print("stops\\n", end="", flush=True)
        subprocess.Popen(["sh", "-c", f"sleep 6; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), 19)
        raise tutti.PeerError("rank 0 has left", 0)
    tutti.torch._elastic_run.ElasticRun._end_together = stops
"""
    run = begun(tmp_path, 1, script=SCRIPT.replace("optimizer.finish(", stops[1:] + "optimizer.finish(", 1))
    joined = join(tmp_path / "run.join", *same_script(tmp_path))
    until(joined, r"^step \d+ \d+")
    go(tmp_path)
    run.end()
    text = ends(joined, 0)  # --workers-timeout is 10 minutes
    assert text.count("stops") == 1 and "tutti: this worker has left the run" in text
    assert equal(run.model(), undisturbed)


@pytest.mark.slow
def test_the_pass_has_those_who_are_left(tmp_path, undisturbed):
    """The launcher that began the run is asked to end: its worker leaves, and the one that has joined goes on."""
    run, file = begun(tmp_path, 1), tmp_path / "run.join"
    joined = join(file, *same_script(tmp_path))
    until(joined, r"^step \d+ \d+")
    assert len(re.findall("^at ", file.read_text(), re.M)) == 2
    run.process.send_signal(signal.SIGTERM)
    run.end(128 + signal.SIGTERM)
    until(joined, r"^step \d+ \d+")
    (only,) = re.findall(r"^at (\S+)", file.read_text(), re.M)
    taken = subprocess.run([TUTTI, "run", "--workers", "1:2", "-n", "1", "--pass", file, "--", "true"],
                           capture_output=True, text=True, check=False)
    assert taken.returncode == 2 and "is under way, and its workers answer; take part by" in taken.stderr
    second = join(file, *same_script(tmp_path))
    until(second, r"^step \d+ \d+")
    joined.send_signal(signal.SIGTERM)
    ends(joined, 0)
    while only in file.read_text():  # the next line may be of the epoch before
        until(second, r"^step \d+ \d+")
    assert len(re.findall("^at ", file.read_text(), re.M)) == 1
    go(tmp_path)
    ends(second, 0)
    run.out = tmp_path / "joined.pt"
    assert equal(run.model(), undisturbed)


@pytest.mark.slow
def test_workers_of_other_hosts_come_by_the_launcher_and_by_hand(tmp_path, undisturbed):
    run = Elastic(tmp_path, "run", 2, SLOW, ["-H", "localhost:2,127.0.0.1:1", "--rsh", HERE], SCRIPT)
    run.until(r"^begins \d+ [1-9]")
    one = join(tmp_path / "run.join", *same_script(tmp_path), options=("--host", "127.0.0.1", "--rsh", HERE))
    until(one, r"^begins \d+ [1-9]")
    go(tmp_path)
    ends(one, 0)
    text = run.end()
    assert len(run.pids()) == 3 and "was lost" not in text and equal(run.model(), undisturbed)


@pytest.mark.slow
def test_by_address_and_a_copy_of_the_pass(tmp_path, undisturbed):
    run = begun(tmp_path, 1, more=["--meet", "127.0.0.1"])
    copy = shutil.copy(tmp_path / "run.join", tmp_path / "copy")
    address = re.search(r"at (\S+)", (tmp_path / "run.join").read_text())[1]
    joined = join(address, *same_script(tmp_path), options=["--key", copy, "--threads", "1"])
    until(joined, r"^step \d+ \d+")
    go(tmp_path)
    ends(joined, 0)
    run.end()
    assert equal(run.model(), undisturbed)


@pytest.mark.slow
def test_nodes_listen_where_meet_says(tmp_path):
    """Each address of 127/8 is this machine's own."""
    run = begun(tmp_path, 2, more=["--meet", "127.0.0.7"])
    at = re.findall(r"at (\S+):\d+", (tmp_path / "run.join").read_text())
    assert at == ["127.0.0.7"] * 2
    joined = join(tmp_path / "run.join", *same_script(tmp_path), options=["--meet", "127.0.0.9"])
    until(joined, r"^step \d+ \d+")
    listed = subprocess.run([TUTTI, "leave", str(tmp_path / "run.join")], capture_output=True, text=True, check=True)
    assert re.search(r"worker 2 at 127\.0\.0\.9:\d+\n", listed.stdout), listed.stdout
    go(tmp_path)
    ends(joined, 0)
    run.end()


def test_another_script_is_refused_by_name_and_the_run_does_not_notice(tmp_path):
    run = begun(tmp_path, 1)
    other = tmp_path / "other.py"
    other.write_text(SCRIPT.replace("nn.Linear(6, 2)", "nn.Linear(6, 3)", 1))
    text = ends(join(tmp_path / "run.join", sys.executable, other, tmp_path / "x.pt", 0, 0), 2)
    assert text == ("tutti: this worker does not fit the run: it has 'parameter 4.weight: float32 [3, 6]', and the "
                    "others have 'parameter 4.weight: float32 [2, 6]'; all run the same program with the same "
                    "arguments\n")
    other.write_text("import sys; sys.exit(2)")
    text = ends(join(tmp_path / "run.join", sys.executable, other), 2)
    assert re.fullmatch(r"tutti: this worker was lost: process \d+ exited with code 2\n", text)
    listed = subprocess.run([TUTTI, "leave", str(tmp_path / "run.join")], capture_output=True, text=True, check=True)
    assert "epoch 1: 1 worker from step 0\n" in listed.stdout, "it was no member"
    run.process.send_signal(signal.SIGTERM)
    assert "lost" not in run.end(128 + signal.SIGTERM)


def facts(width=6, out=2, kind=torch.optim.Adam, lr=0.01, dtype=torch.float32, frozen=False, apart=False, method="ddp",
          batch=3, seed=1, transposed=False, **options):
    model = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Linear(width, out)).to(dtype)
    model[0].bias.requires_grad_(not frozen)
    if transposed:
        model[0].weight.data = model[0].weight.data.t().contiguous().t()
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = kind([{"params": params[:1]}, {"params": params[1:]}] if apart else params, lr=lr)
    given = {"elastic_shares": 4, "collective": None, "clip_norm": 0.0, "nonfinite": "stop", "steps": 0,
             "codec_cost": "off"} | options
    return _facts.of(model, optimizer, method, tutti.torch.sampler(56, batch, seed=seed), given)


@pytest.mark.parametrize(("change", "names"), [
    ({"width": 7}, {"parameter 0.weight", "parameter 0.bias", "parameter 1.weight", "parameter 1.bias",
                    "parameter 2.weight", "buffer 1.running_mean", "buffer 1.running_var"}),
    ({"out": 3}, {"parameter 2.weight", "parameter 2.bias"}),
    ({"dtype": torch.bfloat16}, {f"parameter {k}.{n}" for k in range(3) for n in ("weight", "bias")} | {
        "buffer 1.running_mean", "buffer 1.running_var"}),
    ({"kind": torch.optim.AdamW, "weight_decay": 0}, {"optimizer", "group 0"}),
    ({"kind": torch.optim.SGD}, {"optimizer", "group 0"}),
    ({"lr": 0.02}, {"group 0"}),
    ({"lr": torch.tensor(0.02)}, {"group 0"}),
    ({"frozen": True}, {"parameter 0.bias", "parameters of group 0"}),
    ({"apart": True}, {"parameters of group 0", "group 1", "parameters of group 1"}),
    ({"method": "bytescheduler(tune=off)"}, {"method"}),
    ({"elastic_shares": 6}, {"elastic_shares"}),
    ({"clip_norm": 1.0}, {"clip_norm"}),
    ({"nonfinite": "skip"}, {"nonfinite"}),
    ({"collective": "ring"}, {"collective"}),
    ({"codec_cost": "explain"}, {"codec_cost"}),
    ({"transposed": True}, {"parameter 0.weight"}),
    ({"batch": 2}, {"sampler"}),
    ({"seed": 2}, {"sampler"}),
    ({}, set()),
])
def test_what_differs_between_scripts_is_in_the_facts(change, names):
    a, b = facts(), facts(**change)
    assert {name for name in a.keys() | b.keys() if a.get(name) != b.get(name)} == names
    assert all("\n" not in value and " at 0x" not in value for value in b.values())


def test_a_command_that_ends_by_a_code_of_tuttis_is_told(tmp_path):
    """The script has printed nothing. Code 3 is also that of a worker that is left alone."""
    run = begun(tmp_path, 1)
    for code, what in (1, "\n"), (3, "; too few others were left, as a"):
        text = ends(join(tmp_path / "run.join", sys.executable, "-c", f"import sys; sys.exit({code})"), code)
        assert re.search(rf"\Atutti: this worker was lost: process \d+ exited with code {code}{what}", text), text
    go(tmp_path)
    assert "lost" not in run.end()


def test_another_version_of_the_library_is_in_the_facts():
    assert facts()["version of tutti"] == tutti.__version__


def test_the_command_line_has_to_go_with_the_run(tmp_path):
    def refused(why, code, *words, **more):
        assert why in ends(join(*words, **more), code)

    run = begun(tmp_path, 1)
    here = tmp_path / "run.join"
    refused("is of a script, which this command starts here: tutti join", 2, here)
    refused("--quiet is for runs of `tutti train`", 2, here, "true", options=["--quiet"])
    refused("there is no command 'no-such-command' in PATH", 2, here, "no-such-command")
    refused("the command has ended without having taken part in the run", 1, here, "true")
    refused("this worker was lost: process", 7, here, "sh", "-c", "exit 7")
    run.process.send_signal(signal.SIGTERM)
    run.end(128 + signal.SIGTERM)
    refused("cannot read", 2, here, "true")


def test_a_file_that_is_no_pass_is_not_replaced(tmp_path):
    kept = tmp_path / "x"
    kept.write_text("results\n")
    done = subprocess.run([TUTTI, "run", "--workers", "1:2", "--pass", str(tmp_path / "x"), "--", "touch",
                           str(tmp_path / "ran")], capture_output=True, text=True)
    assert done.returncode == 2 and f"--pass '{kept}' is a file that is no pass" in done.stderr
    assert kept.read_text() == "results\n" and not (tmp_path / "ran").exists()


def test_a_pass_of_a_run_that_was_killed_is_replaced(tmp_path):
    (tmp_path / "run.join").write_text(f"run {'1' * 32}\nkey {'2' * 64}\n")
    go(tmp_path)
    begun(tmp_path, 1).end()
    assert not (tmp_path / "run.join").exists()
