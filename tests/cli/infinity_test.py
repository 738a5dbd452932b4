"""More model than memory: a model whose states are four times what a process may use trains to the bits of the run
in memory, and the disk moves the bytes of the formula."""
import os, resource, signal, subprocess, time, unittest
from command import *

NET, STEPS = "gpt(layers=13,dim=512,heads=4)", 2
LARGEST = 512 * 2048 + 2048 # parameters of a layer


class Infinity(Case):
    def test_model_four_times_the_memory_trains_bit_identically(self):
        """The kernel enforces the limit on private memory, and the peak of what is resident is held to it as well."""
        if os.environ.get("TUTTI_SIMULATED") == "off":
            narrowed("a limit on memory: a sanitizer has its own")
            return
        disk = os.path.join(os.path.dirname(os.path.dirname(TUTTI)), "disk-%d" % os.getpid())
        os.makedirs(disk)
        self.addCleanup(os.rmdir, disk)
        common = ("--model", NET, "--data", "text(file=%s,context=16)" % small_text(self.folder), "--batch", 1,
                  "--steps", STEPS, "-n", 1, "--threads", 1, "--optimizer", "adamw", "--final-eval", "off", "--quiet")
        whole = self.train("whole", *common, "--method", "ddp")
        params = summary(whole)["params"]
        states = 16 * params # values, gradient and two buffers, 4 bytes each
        had = states // 4
        for direct in ("on", "off"):
            method = "zero-infinity(tier=nvme(path=%s,direct=%s),ahead=1,tile_mb=1,bucket_mb=1)" % (disk, direct)
            out = self.out("disk")
            began = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = self.run_limited(had, "train", *common, "--method", method, "--out", out)
            if done.returncode == 0:
                break
            self.assertIn("direct", done.stderr)
            narrowed("past the page cache: " + done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stderr)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertEqual(self.model(whole), self.model(out))
        s = summary(out)
        self.assertLess(s["peak_rss_bytes_per_worker"] - self.bare(), had)
        # not what forward ends and backward begins with, in two buffers, and the update has left
        saved = STEPS * 4 * params * (2 + 4) - s["method_figures"]["tier_read_bytes"]
        self.assertTrue(0 < saved <= 4 * LARGEST * (2 * STEPS + 1), saved)
        self.assertEqual(s["method_figures"]["tier_written_bytes"], STEPS * 4 * params * (1 + 3))
        refused = self.run_limited(had, "train", *common, "--method", "ddp", "--out", self.out("no"))
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("memory", refused.stderr)
        if direct == "on":
            read, written = (512 * (getattr(ended, of) - getattr(began, of)) for of in ("ru_inblock", "ru_oublock"))
            # buffers never written are no reads of the disk; ends of requests are whole blocks
            self.assertLess((STEPS * 6 - 2) * 4 * params * 0.97, read)
            self.assertLess(read, STEPS * 6 * 4 * params * 1.1)
            self.assertLess((STEPS * 4 + 1) * 4 * params * 0.97, written) # and the first values
            self.assertLess(written, (STEPS * 4 + 1) * 4 * params * 1.1)

    def test_killed_worker_is_reported_and_resume_is_bit_identical(self):
        """In the middle of a step, as a rule: there is nothing else. Stage 3 of zero, and a disk."""
        disk = "zero-infinity(tier=nvme(path=%s,direct=off),tile_mb=0.1)" % self.folder
        for k, method in enumerate(("zero(stage=3)", disk)):
            common = ("--model", "mlp(hidden=64)", "--data", self.data, "-n", 2, "--batch", 8, "--threads", 1,
                      "--optimizer", "adamw(lr=0.01)", "--clip-norm", 1, "--checkpoint-every", 20,
                      "--final-eval", "off", "--method", method)
            whole = self.train("whole%d" % k, *common, "--steps", 200, "--quiet")
            out = self.out("killed%d" % k)
            run = subprocess.Popen([TUTTI, "train", *map(str, common), "--steps", "200", "--out", out], text=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=clean_environment())
            checkpoints = os.path.join(out, "checkpoints")
            while not (os.path.isdir(checkpoints) and any(n.startswith("step-") for n in os.listdir(checkpoints))):
                self.assertIsNone(run.poll())
                time.sleep(0.002)
            victim = children_of(run.pid)[1]
            os.kill(victim, signal.SIGKILL)
            said = run.communicate(timeout=60)[1]
            self.assertEqual(run.returncode, 3, said)
            self.assertIn("worker 1 was lost: process %d was killed by signal 9 (SIGKILL)" % victim, said)
            again = tutti("train", "--resume", out, "--method", method) # its disk is not a folder's to name
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(self.model(out), self.model(whole))

    def test_a_model_in_tiles_has_less_of_a_layer_on_the_device(self):
        text, live, device, models = small_text(self.folder), {}, {}, {}
        for tiles in (1, 4):
            common = ("--model", "gpt(layers=1,dim=128,heads=4,tiles=%d)" % tiles, "--data",
                      "text(file=%s,context=16)" % text, "--batch", 2, "--steps", 3, "-n", 2, "--threads", 1,
                      "--optimizer", "adamw", "--final-eval", "off", "--quiet")
            whole = self.train("ddp%d" % tiles, *common, "--method", "ddp")
            out = self.train("tiles%d" % tiles, *common, "--method", "zero-infinity(ahead=0,bucket_mb=0.05)")
            self.assertEqual(self.model(whole), self.model(out))
            models[tiles] = self.model(out)
            figures = summary(out)["method_figures"]
            live[tiles], device[tiles] = figures["values_live"], figures["state_bytes_per_parameter"][0]
        self.assertEqual(live[1], 4 * 128 * 128 + 4 * 128) # f1 and its bias
        self.assertEqual(live[4], 256 * 128) # the embedding
        self.assertLess(device[4], device[1])
        self.assertIn(b'"b.0.qkv.3.weight"', models[4])
        done = tutti("train", "--model", "gpt(dim=8,heads=2,tiles=9)", "--data", "text(file=%s,context=16)" % text)
        self.assertIn("gpt with tiles=9 and dim=8: a tile has one output at least", done.stderr)
        self.assertEqual(done.returncode, 2)

    def test_bf16_training_is_bit_identical_with_sharded_parameters(self):
        """Units share the device's memory one after the other, so the address of a weight does not
        identify it."""
        for options in ("", ",tiles=4,recompute=on"):
            models = []
            for i, method in enumerate(("ddp", "zero(stage=3)", "zero-infinity(ahead=0)", "zero-infinity(ahead=2)")):
                out = self.train("bf16-%d" % i, "--model", "gpt(layers=2,dim=64,heads=4%s)" % options, "--data",
                                 "text(file=%s,context=16)" % small_text(self.folder), "--batch", 70, "--steps", 3,
                                 "-n", 2, "--threads", 1, "--optimizer", "adamw", "--precision", "bf16", "--quiet",
                                 "--method", method)
                models.append(self.model(out))
            self.assertEqual(models[1:], 3 * models[:1])

    def run_limited(self, bytes_, *arguments):
        limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (bytes_, bytes_))
        return subprocess.run([TUTTI, *map(str, arguments)], env=clean_environment(MALLOC_ARENA_MAX="1"),
                              capture_output=True, text=True, timeout=250, preexec_fn=limit)

    def bare(self):
        """What is resident of a process that trains a model of nothing."""
        out = self.train("bare", "--model", "mlp(hidden=1)", "--data", self.data, "--batch", 1, "--steps", 1, "-n", 1,
                         "--threads", 1, "--final-eval", "off", "--quiet")
        return summary(out)["peak_rss_bytes_per_worker"]


if __name__ == "__main__":
    unittest.main(verbosity=2)
