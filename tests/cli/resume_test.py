"""A killed run goes on as if nothing had happened, to the byte."""
import json, os, random, shutil, signal, subprocess, time, unittest
from command import *

SIMULATOR = os.path.exists(os.path.join(os.path.dirname(TUTTI), "../lib/libtutti_transport_sim.so"))
COMMON = ["--model", "mlp(hidden=48)", "--batch", "16", "--seed", "11", "--optimizer", "adamw(lr=0.002)", "--lr-schedule", "cosine(warmup=5)", "--report-every", "5"]

OWN_PACE = ("ad-psgd(exchanges=2,outstanding=3)", "ad-psgd(graph=ring)", "asr-adpsgd", "asr-adpsgd(mixing=random-ring,rounds=2)", "rand-psgd(pace=own)", "asgd", "asgd(softsync=2)", "asgd(lr_delay=inverse)", "ssp(staleness=0)",
            "backup-workers", "ringmaster-asgd", "ringmaster-asgd(max_delay=2,stops=on)", "ringleader-asgd", "dude-asgd", "dude-asgd(table=worker,group=2)", "hermes(push=always,chunk=12,minibatch=3,local_passes=2)", "oscars(interval=3)",
            "lasgd(local_steps=4,max_delay=3)")


def list_of(folder):
    return os.listdir(folder) if os.path.isdir(folder) else []


class Resume(Case):
    def model(self, out):
        return read(os.path.join(out, "model.safetensors"))

    def test_a_run_killed_anywhere_and_resumed_ends_with_the_same_bytes(self):
        """Random moments over the whole run, the launcher and all workers killed at once; checkpoints every 7 steps, so mid-epoch."""
        arguments = [*COMMON, "--data", self.data, "-n", "3", "--epochs", "12", "--checkpoint-every", "7"]
        whole = self.train("whole", *arguments)
        seconds = summary(whole)["host_seconds"]
        rng = random.Random(5)
        resumed = 0
        for k in range(20):
            out = self.out("k%d" % k)
            run = subprocess.Popen([TUTTI, "train", "--out", out, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment())
            if k > 0:  # the first is killed wherever it is, perhaps before its first checkpoint
                while run.poll() is None and not any(f.startswith("step-") for f in list_of(os.path.join(out, "checkpoints"))):
                    time.sleep(0.002)
            time.sleep(seconds * rng.uniform(0.0, 0.7))
            run.kill()
            run.wait()
            if os.path.exists(os.path.join(out, "summary.json")):
                continue  # it was already over
            again = tutti("train", "--resume", out)
            if "checkpoint" in again.stderr and again.returncode == 2:
                continue  # killed before the first checkpoint: said so, nothing to resume
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(self.model(out), self.model(whole))
            resumed += 1
            if resumed == 6:
                break
        self.assertGreaterEqual(resumed, 3, "too few kills fell between the first checkpoint and the end")

    def test_resume_at_every_checkpoint_of_a_run_gives_the_same_bytes(self):
        arguments = [*COMMON, "--data", self.data, "-n", "2", "--epochs", "3", "--checkpoint-every", "4", "--checkpoint-keep", "100"]
        whole = self.train("whole", *arguments)
        with open(os.path.join(whole, "metrics.jsonl")) as f:
            lines = [json.loads(l) for l in f]
        steps = sorted(os.listdir(os.path.join(whole, "checkpoints")))
        self.assertEqual(len(steps), summary(whole)["steps"] // 4)
        for name in steps[::3]:
            out = self.train(name, *arguments, "--resume", os.path.join(whole, "checkpoints", name))
            self.assertEqual(self.model(out), self.model(whole), name)
            self.assertEqual(summary(out)["resumed_at_step"], int(name[5:]))
            self.assertEqual(summary(out)["steps"], summary(whole)["steps"])
            self.assertEqual(summary(out)["samples"], summary(whole)["samples"])

    def test_metrics_of_a_resumed_run_have_each_step_once(self):
        arguments = [*COMMON, "--data", self.data, "-n", "2", "--checkpoint-every", "8"]
        out = self.train("a", *arguments, "--steps", "20")
        done = tutti("train", "--resume", out, "--steps", "40")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(out, "metrics.jsonl")) as f:
            steps = [json.loads(l)["step"] for l in f if "train_loss" in l]
        self.assertEqual(steps, [5, 10, 15, 20, 25, 30, 35, 40])
        self.assertEqual(summary(out)["steps"], 40)

    def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(self):
        arguments = [*COMMON, "--data", self.data, "-n", "2", "--epochs", "2", "--checkpoint-every", "10"]
        out = self.train("a", *arguments)
        whole = self.model(out)
        newest = os.path.join(out, "checkpoints", sorted(os.listdir(os.path.join(out, "checkpoints")))[-1])
        os.truncate(os.path.join(newest, "manifest.json"), 100)
        done = tutti("check", out)
        self.assertEqual(done.returncode, 1)
        self.assertIn("damaged", done.stdout)
        again = tutti("train", "--resume", out)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("passed over", again.stdout)
        self.assertEqual(self.model(out), whole)

    def test_a_flipped_bit_is_named_and_nothing_is_trained_on_it(self):
        arguments = [*COMMON, "--data", self.data, "-n", "2", "--epochs", "1", "--checkpoint-every", "10"]
        out = self.train("a", *arguments)
        newest = os.path.join(out, "checkpoints", sorted(os.listdir(os.path.join(out, "checkpoints")))[-1])
        shard = os.path.join(newest, sorted(f for f in os.listdir(newest) if f.endswith(".safetensors"))[1])
        with open(shard, "rb+") as f:
            f.seek(os.path.getsize(shard) - 100)
            byte = f.read(1)
            f.seek(os.path.getsize(shard) - 100)
            f.write(bytes([byte[0] ^ 4]))
        self.assertEqual(tutti("check", newest).returncode, 1)
        done = tutti("train", "--resume", newest, "--out", self.out("b"), "--epochs", "2")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(os.path.basename(shard), done.stderr)

    def test_what_decides_the_numbers_may_not_change(self):
        out = self.train("a", *COMMON, "--data", self.data, "-n", "2", "--epochs", "1", "--checkpoint-every", "10")
        for change, key in ((["--seed", "12"], "seed"), (["--model", "mlp(hidden=49)"], "model"), (["--batch", "17"], "samples_per_step"), (["--method", "single"], "method")):
            done = tutti("train", "--resume", out, *change, "--out", self.out(key))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"its run has {key}", done.stderr)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_a_run_that_would_go_on_after_losses_is_resumed_where_none_can(self):
        out = self.train("a", *COMMON, "--data", self.data, "-n", "2", "--method", "d-psgd", "--epochs", "1", "--checkpoint-every", "10")
        with open(os.path.join(out, "config.json")) as f:
            self.assertEqual(json.load(f)["on-loss"], "auto")
        same = self.train("b", "--resume", out, "--epochs", "2")
        self.assertEqual(read(os.path.join(same, "model.safetensors")), read(os.path.join(self.train("c", "--resume", out, "--epochs", "2", "--transport", "sim"), "model.safetensors")))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_simulated_runs_at_everybodys_own_pace_are_resumed_to_the_bit(self):
        """Whatever is served in order of arrival. Equal links, where many things happen in one nanosecond, and unequal ones, which workers leave one after the other."""
        edge = self.out("edge.xml")
        with open(edge, "w") as f:
            f.write(tutti("platform", "edge(12)").stdout)
        pauses, links, slow = ("--slow", "0:1.31,*:2.2:0.4"), ("--platform", edge, "--slow", "1:5,*:2:0.3"), ("--step-time", 0.001, "--slow", "1:2")
        small, large = ("--model", "quadratic(dim=50)", "--steps", 40, "--checkpoint-every", 10), ("--model", "mlp(hidden=64)", "--data", self.data, "--steps", 60, "--checkpoint-every", 15)
        cases = [("ssp", 8, large, pauses), ("ssp(staleness=1)", 8, small, pauses), ("ad-psgd", 8, large, ("--slow", "2:5"))]
        for k, method in enumerate(OWN_PACE):
            cases += [(method, 2 + k % 7, small, ((), links)[k % 2]), (method, 8 - k % 6, small, (pauses, slow)[k // 2 % 2])]
        for k, (method, n, how, where) in enumerate(cases):
            common = (*how, "-n", n, "--batch", 6, "--method", method, "--seed", 2 + k, "--checkpoint-keep", 9, "--transport", "sim", "--optimizer", "sgd(lr=0.02)", "--final-eval", "off", "--quiet",
                      *where, *(("--validation", 50) if method.startswith("hermes") else ()))
            whole = self.train("w%d" % k, *common)
            name = sorted(os.listdir(os.path.join(whole, "checkpoints")))[k % 2]
            resumed = self.train("r%d" % k, *common, "--resume", os.path.join(whole, "checkpoints", name))
            self.assertEqual(self.model(whole), self.model(resumed), (method, n, name, where))

    def test_a_directory_with_checkpoints_is_not_overwritten_by_another_run(self):
        out = self.train("a", *COMMON, "--data", self.data, "-n", "2", "--epochs", "1", "--checkpoint-every", "10")
        done = tutti("train", *COMMON, "--data", self.data, "--out", out)
        self.assertEqual(done.returncode, 2)
        self.assertIn("already holds a run with checkpoints", done.stderr)

    def test_resume_from_nothing_is_refused(self):
        self.refused("checkpoint", "train", "--data", self.data, "--resume", self.folder, "--out", self.out("a"))


if __name__ == "__main__":
    unittest.main(verbosity=1)
