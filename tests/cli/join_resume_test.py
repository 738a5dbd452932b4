"""A run whose workers come and go is resumed as such a run (train --resume --workers): the model, byte for byte, and
the lines of a run that nothing disturbs."""
import os, signal, unittest
from elastic_runs import *


class JoinResume(ElasticRuns):

    def lose_all(self, name, steps, *arguments):
        """A run that is killed with all of its workers, as a machine that fails, after some checkpoints."""
        run, out = self.begin(name, steps, "--workers", "1:6", "--checkpoint-every", "4", *arguments)
        self.until(lambda: newest(out) >= 8, name)
        run.kill()  # and the kernel its workers
        run.wait()
        self.processes.remove(run)
        return out

    def lines_are_whole(self, out, steps):
        """Each report is there once, as if nothing had been lost."""
        with open(os.path.join(out, "metrics.jsonl")) as f:
            rows = [json.loads(line) for line in f]
        self.assertEqual([r["step"] for r in rows if "train_loss" in r], list(range(5, steps + 1, 5)))
        return [r["train_loss"] for r in rows if "train_loss" in r]

    def comes_and_goes(self, *more):
        out = self.lose_all("first", 120, "-n", "4", *more)
        first = newest(out)
        again = self.start("again", "train", "--resume", out, "--workers", "1:6", "-n", "3", "--restarts", "0",
                           "--slow", "*:60")
        self.until(lambda: " step %d/120 " % (first // 5 * 5 + 5) in self.said("again"), "again")
        os.kill(children_of(again.pid)[0], signal.SIGKILL)
        self.workers_become(2, "again")
        joined = self.start("joined", "join", out)
        self.workers_become(3, "again", "joined")
        self.ends(0, again, "again", "joined")
        self.ends(0, joined, "again", "joined")
        self.assertRegex(self.said("again"), r"resumed from \S+/step-%08d at step %d\n" % (first, first))
        self.same_as_undisturbed(120, out, *more)
        whole = self.train("lines", *COMMON, "--data", self.data, "--steps", 120, "-n", "1", *more)
        self.assertEqual(self.lines_are_whole(out, 120), self.lines_are_whole(whole, 120))
        self.assertEqual(summary(out)["events"][0]["step"], first)

    def test_workers_come_and_go_after_it(self):
        self.comes_and_goes()

    def test_each_has_a_part_of_the_state(self):
        self.comes_and_goes("--method", "zero", "--optimizer", "adamw(lr=0.01)")

    def test_one_command_begins_and_goes_on_and_a_lost_worker_comes_back(self):
        command = ["--resume", "auto", "--workers", "2:4", "-n", "3"]
        out = self.lose_all("auto", 120, *command)
        first = newest(out)
        again = self.start("again", "train", *COMMON, "--data", self.data, "--steps", "120", "--checkpoint-every", "4",
                           "--slow", "*:60", "--out", out, *command)
        self.until(lambda: " step %d/120 " % (first // 5 * 5 + 5) in self.said("again"), "again")
        os.kill(children_of(again.pid)[1], signal.SIGKILL)
        self.workers_become(2, "again")
        self.workers_become(3, "again")
        self.ends(0, again, "again")
        self.same_as_undisturbed(120, out)
        self.lines_are_whole(out, 120)

    def test_what_decides_the_numbers_stays(self):
        out = self.lose_all("first", 120, "-n", "2")
        for more, sentence in ((["--workers", "1:8"], "elastic-shares is 6, and workers '1:8' lets 8 take part"),
                               (["--workers", "1:4", "--batch", "5"], r"samples_per_step 24, this one 30"),
                               (["--workers", "1:4", "--method", "local-sgd(period=3)"], "method")):
            done = tutti("train", "--resume", out, *more)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(sentence, done.stderr)

    def test_a_damaged_checkpoint_is_passed_over(self):
        out = self.lose_all("first", 120, "-n", "2", "--checkpoint-keep", "3")
        last = newest(out)
        folder = os.path.join(out, "checkpoints", "step-%08d" % last)
        path = max((os.path.join(folder, name) for name in os.listdir(folder)), key=os.path.getsize)
        with open(path, "r+b") as f:
            f.seek(os.path.getsize(path) // 2)
            byte = f.read(1)
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([byte[0] ^ 1]))
        again = self.start("again", "train", "--resume", out, "--workers", "1:4", "-n", "2")
        self.ends(0, again, "again")
        self.assertRegex(self.said("again"), r"passed over a damaged checkpoint, step-%08d: " % last)
        self.assertRegex(summary(out)["events"][0]["text"], r"^step-%08d: " % last)
        self.same_as_undisturbed(120, out)


def newest(out):
    """The step of the newest checkpoint that is whole; 0: there is none."""
    try:
        return max((int(name[5:]) for name in os.listdir(os.path.join(out, "checkpoints"))
                    if re.fullmatch(r"step-\d+", name)), default=0)
    except FileNotFoundError:
        return 0


if __name__ == "__main__":
    unittest.main(verbosity=2)
