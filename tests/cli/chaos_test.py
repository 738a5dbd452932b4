"""A short form of `bench/run chaos`: workers are killed at drawn moments and others join, all by themselves. The model,
the lines of the record and the samples are those of a run that nothing disturbs, no step is lost, and all ends in time.
A run without progress is detected, with the operation in which each worker waits. No time is
judged."""
import json, os, random, signal, subprocess, sys, time, unittest, unittest.mock
from command import *

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench"))
import chaos  # noqa: E402

WORKERS, SHARES, BATCH = 5, 10, 4
TRAINED = ["--model", "mlp(hidden=24)", "--batch", BATCH, "--elastic-shares", SHARES, "--seed", "11", "--threads", "1",
           "--optimizer", "adamw(lr=0.002)", "--report-every", "1"]
SEED = int(os.environ.get("CHAOS_SEED", "1"))


def course(out):
    """Of each line: the step, what is in it of the training, and of an evaluation."""
    keys = ("step", "samples", "train_loss", "test_loss", "test_accuracy")
    with open(os.path.join(out, "metrics.jsonl")) as f:
        return [{k: line[k] for k in keys if k in line} for line in map(json.loads, f)]


class Chaos(Case):

    def trained(self):
        return [*TRAINED, "--data", self.data]

    def disturbed(self, name, *more):
        out = self.out(name)
        for path in (out + ".told", out + ".join"):
            if os.path.exists(path):
                os.remove(path)
        shutil.rmtree(out, ignore_errors=True)
        return chaos.Disturbed(TUTTI, out, [*self.trained(), *more], most=WORKERS)

    def test_killed_and_replaced_at_drawn_moments(self):
        steps, draw = 200, random.Random(SEED)
        kills = chaos.moments(SEED, 6, 1, WORKERS)
        print("seed", SEED, kills)
        with self.disturbed("run", "--slow", "*:%d" % (100 + draw.randrange(50))) as run:
            run.go(steps, kills, away=0.1 + 0.1 * draw.random())
        whole = chaos.whole(TUTTI, self.out("whole"), self.trained(), steps)
        self.assertEqual(self.model(run.out), self.model(whole))
        self.assertEqual(course(run.out), course(whole))
        self.assertEqual(run.lost, 0)
        self.assertEqual([line["step"] for line in course(run.out) if "train_loss" in line], [*range(1, steps + 1)])
        self.assertEqual(summary(run.out)["steps"], steps)
        self.assertEqual(summary(run.out)["samples"], course(whole)[-1]["samples"])
        self.assertGreaterEqual(len(run.kills), 3)
        epochs = [e["epoch"] for e in summary(run.out)["events"] if e["kind"] == "epoch"]
        self.assertGreater(len(epochs), len(run.kills), "a change for each loss")
        self.assertEqual(epochs, sorted(set(epochs)))

    def test_a_run_that_stands_still_is_noticed_and_leaves_nobody(self):
        with unittest.mock.patch.object(chaos, "STILL", 3), self.assertRaises(chaos.Hang) as hang:
            with self.disturbed("still", "--slow", "*:100") as run:
                run.kill = lambda slot: [os.kill(pid, signal.SIGSTOP) for pid in children_of(run.run.pid)]
                run.go(100000, [(0.1, 0)], away=1000)
        self.assertIn("no step was made for 3 s", str(hang.exception))
        self.assertRegex(str(hang.exception), r"(?s)\n0 .*stopped.*--- last lines of all ---")
        until = time.monotonic() + 10
        while any(map(alive, run.slots.values())) and time.monotonic() < until:
            time.sleep(0.01)
        self.assertFalse(any(map(alive, run.slots.values())))
        self.assertIsNotNone(run.run.poll())

    def test_the_same_seed_draws_the_same_moments(self):
        self.assertEqual(chaos.moments(7, 60, 15), chaos.moments(7, 60, 15))
        self.assertNotEqual(chaos.moments(7, 60, 15), chaos.moments(8, 60, 15))
        kills = chaos.moments(7, 60, 15)
        self.assertEqual([int(at // 15) for at, _ in kills], [0, 1, 2, 3])
        self.assertTrue(all(0 <= slot < chaos.WORKERS for _, slot in kills))

    def record(self, name, walls, epochs):
        """A run of 8 workers whose steps ended then, as if it had been written."""
        out = self.out(name)
        os.makedirs(out, exist_ok=True)
        with open(out + "/metrics.jsonl", "w") as f:
            for step, wall in enumerate(walls, 1):
                f.write(json.dumps({"step": step, "train_loss": 1.0, "wall_seconds": wall}) + "\n")
        with open(out + "/summary.json", "w") as f:
            json.dump({"samples": 12, "events": [{"kind": "epoch", "step": step, "workers": n} for step, n in epochs]},
                      f)
        with open(out + "/model.safetensors", "wb") as f:
            f.write(bytes(1000))
        run = chaos.Disturbed(TUTTI, out, [], most=8)
        return run

    def test_figures_of_a_record(self):
        """8 workers, a step of 0.1 s; one is lost in step 5, which takes 0.25 s more; one joins after 8, for 0.05 s."""
        wall, walls = 0.0, []
        for step in range(1, 13):
            wall += 0.1 + (0.25 if step == 5 else 0.05 if step == 9 else 0)
            walls.append(wall + (0.2 if step == 4 else 0))  # the line of step 4 is written again, after the loss
        run = self.record("record", walls, [(0, 8), (4, 7), (8, 7), (8, 8)])  # no step was made in the third
        run.kills, run.joins = [(0.42, 3)], [(0.9, 3)]
        found = chaos.figures(run, chaos.Course(run.out), 0.1, link=1e4)
        self.assertAlmostEqual(found["loss"][0], 250)
        self.assertAlmostEqual(found["join"][0], 0.5)
        self.assertAlmostEqual(found["newcomer"][0], 1.2 - 0.9 - 0.1)
        self.assertAlmostEqual(found["goodput"], 12 * 0.1 / 1.5)
        self.assertEqual((found["lost steps"], found["hangs"]), (0, 0))

    def test_a_loss_after_which_no_step_is_made_before_one_joins_counts_as_both(self):
        """Step 5 takes 1.5 s more, and one is lost and another joins in it; so it is once more, in step 10."""
        walls = [0.1 * step + (1.5 if step >= 5 else 0) + (0.3 if step >= 10 else 0) for step in range(1, 13)]
        run = self.record("both", walls, [(0, 8), (4, 7), (4, 8), (9, 7), (9, 8)])
        run.kills, run.joins = [(0.42, 3), (2.45, 1)], [(1.42, 3), (2.55, 1)]
        found = chaos.figures(run, chaos.Course(run.out), 0.1, link=1e4)
        for pause, expected in zip(found["loss"], (1500, 300), strict=True):
            self.assertAlmostEqual(pause, expected)
        self.assertEqual([round(steps, 6) for steps in found["join"]], [15, 3])
        self.assertEqual([round(s, 6) for s in found["newcomer"]], [0.48, 0.15])  # 2.0 - 1.42 - 0.1, and so on

    def test_each_join_has_a_growth_of_its_own(self):
        changes, wall = [chaos.Change(2, 1, 0.1, 0, 0, {}), chaos.Change(5, 2, 0.2, 0, 0, {})], {2: 0.2, 5: 0.5}
        moments = [(0.1, 0), (0.15, 1), (0.3, 2), (0.4, 3)]  # the last is in no epoch
        self.assertEqual([(t, change.pause) for t, change in chaos.changes_of(moments, changes, wall, True)],
                         [(0.1, 0.1), (0.15, 0.2), (0.3, 0.2)])

    def test_recovery_is_the_longest_time_without_a_new_step(self):
        """Workers 1 and 2 are left after 10.15; 4 comes for 3. Step 3 was made before, and is no progress."""
        path = self.out("log")
        lines = [(1, 2, 10.0), (2, 2, 10.0), (3, 2, 10.0), (1, 3, 10.1), (2, 3, 10.1), (1, 3, 11.0), (2, 3, 11.0),
                 (1, 4, 11.1), (2, 4, 11.1), (1, 5, 11.5), (2, 5, 11.5), (4, 5, 11.5)]
        with open(path, "w") as f:
            f.write("begins 1\n" + "".join(f"step {pid} {step} {when}\n" for pid, step, when in lines) + "step 1 6")
        log = chaos.recovery.Log(path).look()
        self.assertAlmostEqual(log.longest(10.15, 11.5), 0.95)
        self.assertEqual(log.working(10.15), {1: 11.0, 2: 11.0, 4: 11.5})

    def test_a_process_that_has_the_number_of_a_worker_is_not_ended(self):
        system = chaos.recovery.Tutti("tutti", sys.executable, TUTTI, self.folder)
        sleeps = [sys.executable, "-c", "import time; time.sleep(100)"]
        worker, other = subprocess.Popen([*sleeps, system.folder]), subprocess.Popen(sleeps)
        try:
            while system.folder.encode() not in read(f"/proc/{worker.pid}/cmdline"):  # empty within exec
                time.sleep(0.01)
            with open(system.log.path, "w") as f:
                f.write(f"step {worker.pid} 1 1.0\nstep {other.pid} 1 1.0\n")
            system.end()
            self.assertEqual(worker.wait(10), -signal.SIGKILL)
            with self.assertRaises(subprocess.TimeoutExpired):
                other.wait(0.2)
        finally:
            for process in (worker, other):
                process.kill()
                process.wait()


if __name__ == "__main__":
    unittest.main(verbosity=2)
