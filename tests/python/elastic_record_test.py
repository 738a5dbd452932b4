"""Goal: a script of prepare(elastic=True, trace=DIR) has a record of each membership, whose steps follow each other,
and what gets its figures gets all of them; a record that cannot be does not end a run that has begun. Method: runs of
`tutti run --workers` as in elastic_test.py, with a stand-in for W&B that notes its calls."""

import json
import os
import re
import signal
import subprocess

import torch  # noqa: F401 (elastic_test needs it)

from elastic_test import SCRIPT, STEPS, Elastic, assert_one_leaves, equal, undisturbed  # noqa: F401 (a fixture)
from processes import build

WANDB = """
import types
def note(*words):
    with open(sys.argv[1] + ".wandb", "a") as f:
        print(os.getpid(), *words, file=f)
wandb = sys.modules["wandb"] = types.ModuleType("wandb")
wandb.run = None
def init(name, config):
    wandb.run = name
    note("init", name)
wandb.init, wandb.define_metric = init, lambda *_, **__: None
wandb.log = lambda figures: note("log", figures["tutti_step"])
wandb.finish = lambda exit_code: note("finish", exit_code)
"""


def records(folder, **options):
    """The script, with records there."""
    words = "".join(f", {name}={value!r}" for name, value in {"trace": str(folder), **options}.items())
    script = SCRIPT.replace("elastic=True)", f"elastic=True{words})")
    return script.replace("\nout, delay", WANDB + "\nout, delay", 1)


def lines(part):
    return [json.loads(line) for line in (part / "metrics.jsonl").read_text().splitlines()]


def parts(folder):
    """The records in the order of their memberships."""
    return sorted(folder.glob("members-*"), key=lambda part: int(part.name.partition("-")[2]))


def workers(part):
    return json.loads((part / "config.json").read_text())["n"]


def logged(run):
    """The steps that W&B got. Each process that was rank 0 has one run of it."""
    calls = [line.split() for line in run.out.with_name(run.out.name + ".wandb").read_text().splitlines()]
    for process in {pid for pid, *_ in calls}:
        mine = [call for pid, *call in calls if pid == process]
        assert mine[0] == ["init", "runs"] and mine[-1] == ["finish", "0"]
        assert {call[0] for call in mine[1:-1]} <= {"log"}
    return [call[1] for _, *call in calls if call[0] == "log"]


def test_where_a_worker_leaves_both_records_are_whole_and_steps_go_on(tmp_path, undisturbed):  # noqa: F811
    folder = tmp_path / "runs"
    run = Elastic(tmp_path, "left", 2, delay=0.1, script=records(folder, log_to=["csv", "wandb"]))
    assert_one_leaves(run, undisturbed)
    of = parts(folder)
    assert [(part.name, workers(part)) for part in of] == [("members-1", 2), ("members-2", 1)]
    first, last = (json.loads((part / "summary.json").read_text()) for part in of)
    assert 0 < first["steps"] < last["steps"] == STEPS
    steps = [[line["step"] for line in lines(part)] for part in of]
    assert steps[0][0] == 1 and steps[0][-1] == first["steps"]
    assert steps[1][0] == first["steps"] + 1 and steps[1][-1] == STEPS
    for part in of:
        events = json.loads((part / "trace.json").read_text())
        assert {event["pid"] for event in events} == set(range(workers(part)))
        assert (part / "metrics.csv").read_text().startswith("step,")
    assert logged(run) == [str(step) for step in sum(steps, [])]


def test_of_a_membership_in_which_one_is_killed_there_is_what_each_has_written(tmp_path, undisturbed):  # noqa: F811
    """The one that comes has the next record with the others."""
    folder = tmp_path / "runs"
    run = Elastic(tmp_path, "killed", 3, delay=0.6, script=records(folder))
    for _ in range(3):
        run.until(r"^begins")
    run.until(r"^step \d+ 2$")
    os.kill(run.pids()[1], signal.SIGKILL)
    assert int(run.until(r"^begins \d+ (\d+)")[1]) > 0
    text = run.end()
    assert text.count("ended") == 3 and equal(run.model(), undisturbed) and "no record" not in text
    of = parts(folder)
    assert [workers(part) for part in of] == [3, 2, 3]
    assert [(part / "summary.json").exists() for part in of] == [False, True, True]
    assert json.loads((of[2] / "summary.json").read_text())["steps"] == STEPS
    done = subprocess.run([f"{build()}/bin/tutti", "report", str(of[0])], capture_output=True, text=True)
    assert done.returncode == 0 and (of[0] / "report.html").exists(), done.stderr
    made = [line["step"] for part in of for line in lines(part)]
    assert made == sorted(set(made)) and made[-1] == STEPS, "no line is of a step that was made again"


def test_a_first_record_that_is_refused_ends_the_script(tmp_path):
    folder = tmp_path / "runs"
    (folder / "members-1").mkdir(parents=True)
    (folder / "members-1/metrics.jsonl").write_text("{}\n")
    run = Elastic(tmp_path, "refused", 2, more=["--restarts", "0"], script=records(folder))
    text = run.end(1)
    assert re.search(r"ValueError: .*members-1.*trace_overwrite=True", text), text
    assert "begins" not in text and (folder / "members-1/metrics.jsonl").read_text() == "{}\n"


def test_a_later_record_that_is_refused_is_a_warning(tmp_path, undisturbed):  # noqa: F811
    folder = tmp_path / "runs"
    (folder / "members-2").mkdir(parents=True)
    (folder / "members-2/metrics.jsonl").write_text("{}\n")
    run = Elastic(tmp_path, "later", 2, delay=0.1, script=records(folder, log_to="wandb"))
    assert_one_leaves(run, undisturbed)
    assert re.search(r"UserWarning: these steps have no record: .*members-2", "".join(run.seen))
    assert (folder / "members-2/metrics.jsonl").read_text() == "{}\n"
    made = [line["step"] for line in lines(folder / "members-1")]
    assert made[-1] < STEPS and logged(run) == [str(step) for step in made]
