"""Goal: a script of prepare(elastic=True, checkpoint=DIR) whose workers are all lost, or all asked to leave, continues
when it is started again, with any number of workers: with the bits of a run that nothing disturbs, and each sample of
an epoch trained once. Method: runs of `tutti run --workers` as in elastic_test.py. Their model has a batch norm,
dropout, Adam and a scheduler, so a sample that is trained twice or not at all changes bits."""

import os
import re
import shutil
import signal
import subprocess

import pytest
import torch

import tutti.torch
from tutti.torch import _claim
from elastic_test import SCRIPT, STEPS, Elastic, assert_one_leaves, equal, undisturbed  # noqa: F401 (a fixture)
from processes import build

def saves(folder, **options):
    """The script, with checkpoints there."""
    words = "".join(f", {name}={value!r}" for name, value in options.items())
    return SCRIPT.replace("elastic=True)", f"elastic=True, checkpoint=tutti.torch.Checkpoints({str(folder)!r}{words}))")


def kill_all(run):
    """Kills launcher and workers at once."""
    run.process.send_signal(signal.SIGSTOP)  # it would start workers again
    for pid in run.pids():
        os.kill(pid, signal.SIGKILL)
    run.process.kill()
    run.process.communicate(timeout=60)


def newest(folder):
    return max(p for p in folder.glob("step-*") if not p.name.endswith("-optimizer"))


def starts_at(text):
    return {int(step) for step in re.findall(r"(?m)^begins \d+ (\d+)$", text)}


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """The folder of a run of three that were all killed within the second epoch, and has kept two checkpoints."""
    where = tmp_path_factory.mktemp("left")
    run = Elastic(where, "killed", 3, delay=0.1, script=saves(where / "saved", every=3, keep=2))
    run.until(r"^step \d+ 8$")
    kill_all(run)
    assert not run.out.exists()
    return where / "saved"


@pytest.fixture
def killed(tmp_path, left):
    return shutil.copytree(left, tmp_path / "saved")


@pytest.mark.parametrize("workers", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 4))])
def test_all_are_killed_and_it_continues_with_the_same_bits(tmp_path, killed, undisturbed, workers):  # noqa: F811
    done = subprocess.run([f"{build()}/bin/tutti", "check", str(newest(killed))], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    run = Elastic(tmp_path, "again", workers, script=saves(killed, every=3, keep=2))
    text = run.end()
    assert f"continues from checkpoint '{killed}/step-00000006'" in text and starts_at(text) == {6}
    assert equal(run.model(), undisturbed)
    assert sorted(p.name for p in killed.iterdir()) == [
        "step-00000018", "step-00000018-optimizer", f"step-{STEPS:08d}", f"step-{STEPS:08d}-optimizer"]


@pytest.mark.slow
def test_under_zero_it_continues_with_another_number_of_workers(tmp_path):
    """Each worker saves its part of the optimizer's state, and one is lost after they have continued."""
    def script(folder):
        return saves(folder, every=3, keep=2).replace("elastic=True", "elastic=True, method='zero(stage=2)'")

    alone = Elastic(tmp_path, "one", 1, script=script(tmp_path / "of-one"))
    alone.end()
    folder = tmp_path / "saved"
    run = Elastic(tmp_path, "killed", 3, delay=0.1, script=script(folder))
    run.until(r"^step \d+ 8$")
    kill_all(run)
    run = Elastic(tmp_path, "again", 4, delay=0.7, script=script(folder), first=6)
    run.until(r"^step \d+ 8$")
    os.kill(run.pids()[2], signal.SIGKILL)
    text = run.end()
    assert f"continues from checkpoint '{folder}/step-00000006'" in text and "killed by signal 9" in text
    assert equal(run.model(), alone.model())


def test_one_is_lost_after_it_has_continued(tmp_path, killed, undisturbed):  # noqa: F811
    """The newcomer's state has the steps of the checkpoint, too; and rank 0 has the folder's claim."""
    run = Elastic(tmp_path, "again", 3, delay=2, script=saves(killed, every=3), first=6)
    for _ in range(3):
        run.until(r"^begins \d+ 6$")
    run.until(r"^step \d+ 7$")
    first, = (p for p in run.pids() if b"TUTTI_RANK=0\0" in open(f"/proc/{p}/environ", "rb").read())
    os.kill(first, signal.SIGKILL)
    assert int(run.until(r"^begins \d+ (\d+)")[1]) > 6
    text = run.end()
    assert text.count("ended") == 3 and equal(run.model(), undisturbed) and newest(killed).name == f"step-{STEPS:08d}"


@pytest.mark.slow
def test_a_run_goes_on_where_its_folder_cannot_be_claimed_anew(tmp_path, undisturbed):  # noqa: F811
    folder = tmp_path / "saved"
    run = Elastic(tmp_path, "claims", 3, delay=0.2, script=saves(folder, every=6))
    run.until(r"^step \d+ 2$")
    (folder / "lock").unlink()
    (folder / "lock").mkdir()  # for the next rank 0
    first, = (p for p in run.pids() if b"TUTTI_RANK=0\0" in open(f"/proc/{p}/environ", "rb").read())
    os.kill(first, signal.SIGKILL)
    text = run.end()
    assert "checkpoints cannot be written to" in text and "Traceback" not in text
    assert equal(run.model(), undisturbed)


@pytest.mark.parametrize("victim", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_one_is_lost_within_a_save(tmp_path, undisturbed, victim):  # noqa: F811
    """The others save the step again, and a newcomer does not know that it was saved."""
    folder = tmp_path / "saved"
    dies = f"""
import signal
from tutti.torch import _saved
saves = _saved.save_module

def save(run, directory):
    saves(run, directory)
    if run.world.rank == {victim} and run.first + run.steps == 6 and not os.path.exists(out + ".died"):
        open(out + ".died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)

_saved.save_module = save
"""
    at = "for epoch in range(epochs):"
    run = Elastic(tmp_path, "within", 3, delay=0.7, script=saves(folder, every=3).replace(at, dies + at, 1))
    assert int(run.until(r"^begins \d+ ([1-9]\d*)$")[1]) >= 5  # it comes while they wait for it, not after the end
    text = run.end()
    assert "killed by signal 9" in text and "Error" not in text and equal(run.model(), undisturbed)
    done = subprocess.run([f"{build()}/bin/tutti", "check", str(folder / "step-00000006")], capture_output=True)
    assert done.returncode == 0


def test_sigterm_to_all_saves_the_step_at_which_it_comes(tmp_path, undisturbed):  # noqa: F811
    folder = tmp_path / "saved"
    run = Elastic(tmp_path, "stopped", 3, delay=0.1, script=saves(folder))
    run.until(r"^step \d+ 3$")
    run.process.send_signal(signal.SIGTERM)
    text = run.end(128 + signal.SIGTERM)
    step = int(newest(folder).name.removeprefix("step-"))
    assert step >= 3 and f"the script continues from checkpoint '{newest(folder)}'" in text and "ended" not in text
    assert max(int(n) for n in re.findall(r"(?m)^step \d+ (\d+)$", text)) == step  # nothing is lost
    again = Elastic(tmp_path, "again", 2, script=saves(folder))
    assert starts_at(again.end()) == {step} and equal(again.model(), undisturbed)


def without_a_majority(tmp_path, folder, *more):
    """A run of two whose first worker is lost for good. Returns it once the other one waits, and says so."""
    run = Elastic(tmp_path, "half", 2, delay=0.2, more=["--restarts", "0", *more], script=saves(folder))
    for _ in range(2):
        run.until(r"^begins")
    run.until(r"^step \d+ 2$")
    first, = (p for p in run.pids() if b"TUTTI_RANK=0\0" in open(f"/proc/{p}/environ", "rb").read())
    os.kill(first, signal.SIGKILL)
    run.until("1 of 2 workers answers, which is no majority.*a script with checkpoints saves its last step")
    return run


@pytest.mark.parametrize("how", ["timeout", pytest.param("signal", marks=pytest.mark.slow)])
def test_a_run_that_ends_outside_of_an_epoch_saves_its_last_step(tmp_path, undisturbed, how):  # noqa: F811
    folder = tmp_path / "saved"
    run = without_a_majority(tmp_path, folder, "--workers-timeout", "2" if how == "timeout" else "60")
    if how == "signal":
        run.process.send_signal(signal.SIGTERM)
    text = run.end(3 if how == "timeout" else 128 + signal.SIGTERM)
    step = max(int(n) for n in re.findall(r"(?m)^step \d+ (\d+)$", text))
    assert newest(folder).name == f"step-{step:08d}" and "Traceback" not in text
    assert f"the script continues from checkpoint '{newest(folder)}'" in text
    done = subprocess.run([f"{build()}/bin/tutti", "check", str(newest(folder))], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    again = Elastic(tmp_path, "again", 2, script=saves(folder))
    assert starts_at(again.end()) == {step} and equal(again.model(), undisturbed)


@pytest.mark.slow
def test_a_last_step_does_not_replace_a_newer_one(tmp_path, left):
    folder = tmp_path / "saved"
    run = without_a_majority(tmp_path, folder, "--workers-timeout", "3")
    shutil.copytree(newest(left), folder / "step-00000006")
    text = run.end(3)
    assert "is not saved: the folder has one of step 6 already" in text and "Traceback" not in text
    assert [p.name for p in folder.glob("step-*")] == ["step-00000006"]


@pytest.mark.slow
def test_a_folder_that_is_no_checkpoint_does_not_keep_a_last_step_away(tmp_path):
    folder = tmp_path / "saved"
    run = without_a_majority(tmp_path, folder, "--workers-timeout", "3")
    (folder / "step-00000019").mkdir(parents=True)
    text = run.end(3)
    saved = re.search(r"has saved step (\d+), the last one", text)
    assert saved and (folder / f"step-{int(saved[1]):08d}" / "manifest.json").exists()


@pytest.mark.slow
def test_a_last_step_that_cannot_be_saved_is_told(tmp_path):
    folder = tmp_path / "saved"
    run = without_a_majority(tmp_path, folder, "--workers-timeout", "3")
    claim = _claim.Claim(str(folder))
    text = run.end(3)
    claim.close()
    assert "the last one, could not be saved" in text and "under way writes its checkpoints to" in text
    assert "Traceback" not in text and not list(folder.glob("step-*"))


@pytest.mark.slow
def test_sigterm_to_one_saves_nothing(tmp_path, undisturbed):  # noqa: F811
    folder = tmp_path / "saved"
    assert_one_leaves(Elastic(tmp_path, "left", 2, delay=0.2, script=saves(folder)), undisturbed)
    assert not folder.exists() or not list(folder.iterdir())


def test_an_older_checkpoint_is_taken_where_the_newest_is_not_whole(tmp_path, killed, undisturbed):  # noqa: F811
    for path in newest(killed).iterdir():
        if path.suffix == ".json":
            path.write_bytes(path.read_bytes()[:-20])
    run = Elastic(tmp_path, "older", 2, script=saves(killed, every=3))
    text = run.end()
    assert starts_at(text) == {3} and equal(run.model(), undisturbed)


@pytest.mark.slow
def test_a_damaged_state_of_the_optimizer_is_refused_by_name(tmp_path, killed):
    path = killed / f"{newest(killed).name}-optimizer" / "rank-00000.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    run = Elastic(tmp_path, "damaged", 2, more=["--restarts", "0"], script=saves(killed))
    text = run.end(1)
    assert "CorruptError" in text and "does not have the hash that is written in the file" in text
    assert "step " not in text


@pytest.mark.parametrize(("change", "why"), [
    pytest.param("begins", "resume='' begins a run, and there are checkpoints of an earlier", marks=pytest.mark.slow),
    pytest.param("cut", "is of a run with sampler '?56 samples, batch 3, seed 1", marks=pytest.mark.slow),
    pytest.param("rate", "group 0 of the optimizer has lr=0.02 here, and 0.01 ", marks=pytest.mark.slow),
    ("optimizer", "is of a run with optimizer torch.optim.adam.Adam, and this one has torch.optim.adam.*AdamW"),
    pytest.param("clip", "is of a run with clip_norm 0.0, and this one has 0.5", marks=pytest.mark.slow),
    ("fixed", "is of a run whose workers come and go; continue it by `tutti run --workers`"),
])
def test_what_would_have_other_bits_is_refused(tmp_path, killed, change, why):
    script = saves(killed, **({"resume": ""} if change == "begins" else {}))
    if change == "cut":
        script = script.replace("sampler(data, 3, seed=1)", "sampler(data, 3, seed=2)")
    if change == "rate":
        script = script.replace("lr=0.01", "lr=0.02")
    if change == "optimizer":
        script = script.replace("torch.optim.Adam(", "torch.optim.AdamW(")
    if change == "clip":
        script = script.replace("elastic=True", "elastic=True, clip_norm=0.5")
    if change == "fixed":
        model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(),
                                    torch.nn.Dropout(0.2), torch.nn.Linear(6, 2))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        with pytest.raises(ValueError, match=re.escape(why)):
            tutti.torch.prepare(model, optimizer, checkpoint=killed)
        return
    before = sorted(p.name for p in killed.iterdir())
    run = Elastic(tmp_path, change, 2, more=["--restarts", "0"], script=script)
    assert re.search(why, run.end(1))
    assert sorted(p.name for p in killed.iterdir() if p.name != "lock") == [n for n in before if n != "lock"]


def test_a_second_run_of_the_folder_is_refused_before_its_first_step(tmp_path):
    folder = tmp_path / "saved"
    first = Elastic(tmp_path, "first", 1, delay=0.5, script=saves(folder, every=1))
    first.until(r"^step \d+ 1$")
    second = Elastic(tmp_path, "second", 1, more=["--restarts", "0"], script=saves(folder, every=1))
    text = second.end(1)
    assert "a run that is under way writes its checkpoints to" in text and not re.search(r"(?m)^begins", text)
    kill_all(first)


@pytest.mark.slow
def test_a_folder_that_another_run_takes_while_rank_0_changes_is_not_written(tmp_path):
    """A claim ends with its process. Until the next rank 0 has one, the folder is free."""
    folder = tmp_path / "saved"
    run = Elastic(tmp_path, "first", 3, delay=0.3, more=("--restarts", "0"), script=saves(folder, every=2))
    run.until(r"^step \d+ 3$")
    owner = int(re.match(r"process (\d+) on host .*\nrun \S+\n$", (folder / "lock").read_text())[1])
    os.kill(owner, signal.SIGSTOP)  # no save ends without it
    (folder / "lock").unlink()
    claim = _claim.Claim(str(folder), wait=0)
    there = sorted(folder.glob("step-*"))
    os.kill(owner, signal.SIGKILL)
    text = run.end(None)
    assert run.process.returncode != 0 and not run.out.exists()
    assert f"writes its checkpoints to '{folder}' (process {os.getpid()} on host" in text
    assert sorted(folder.glob("step-*")) == there
    claim.close()


@pytest.mark.parametrize(("plan", "why"), [
    (tutti.torch.Checkpoints("runs", wait=False), "Checkpoints(wait=False) with elastic=True"),
])
def test_what_cannot_be_is_refused_in_a_sentence(plan, why):
    model = torch.nn.Linear(2, 1)
    with pytest.raises(ValueError, match=re.escape(why)):
        tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), elastic=True, checkpoint=plan,
                            sampler=tutti.torch.sampler(8, 2))
    assert not os.path.exists("runs")
