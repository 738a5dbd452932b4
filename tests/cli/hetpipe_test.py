"""hetpipe by the command: models in stages give `single`'s bytes, train by a bare name, are evaluated and continue
from checkpoints without a change of a bit; impossible options give an error message; a killed worker ends the
run."""
import os, signal, subprocess, time, unittest
from command import *

RULE = ("--optimizer", "sgd(lr=0.05,momentum=0.9)")
MLP = ("--model", "mlp(hidden=32)", "--seed", 3, "--threads", 1, "--quiet", *RULE)


class Hetpipe(Case):
    def model(self, out):
        return read(os.path.join(out, "model.safetensors"))

    def text(self):
        path = os.path.join(self.folder, "text.txt")
        with open(path, "w") as f:
            f.write("".join("%d bottles of beer on the wall\n" % (k * k % 97) for k in range(1500)))
        return ("--data", "text(file=%s,context=16,val_windows=16)" % path)

    def test_one_micro_batch_is_single_to_the_bit(self):
        """An mlp in three stages and a gpt in two."""
        gpt = ("--model", "gpt(layers=2,dim=16,heads=2)", *self.text(), "--threads", 1, "--quiet", "--steps", 5, *RULE)
        for name, n, common, batch in (("mlp", 3, (*MLP, "--data", self.data, "--steps", 7), 6), ("gpt", 2, gpt, 4)):
            one = self.train(name + "-one", *common, "-n", 1, "--method", "single", "--batch", n * batch)
            cut = self.train(name + "-cut", *common, "-n", n, "--batch", batch,
                             "--method", "hetpipe(stages=%d,in_flight=1)" % n)
            self.assertEqual(self.model(one), self.model(cut), name)
            a, b = summary(one), summary(cut)
            self.assertEqual((a["final_test_loss"], a["samples"]), (b["final_test_loss"], b["samples"]), name)

    def test_method_trains_a_gpt_with_default_options(self):
        """An mlp and a cnn: cli/defaults."""
        for n in (2, 4):
            losses = [summary(self.train("gpt-%d-%d" % (n, steps), "--model", "gpt(layers=2,dim=16,heads=2)",
                                         *self.text(), "-n", n, "--batch", 8, "--steps", steps, "--method", "hetpipe",
                                         "--quiet"))["final_test_loss"] for steps in (1, 60)]
            self.assertLess(losses[1], losses[0] - 0.5)

    def test_evaluating_saving_and_reporting_change_nothing(self):
        common = (*MLP, "--data", self.data, "-n", 4, "--batch", 8, "--steps", 12,
                  "--method", "hetpipe(stages=2,in_flight=4)")
        whole = self.train("whole", *common)
        often = self.train("often", *common, "--report-every", 1, "--eval-every", 5, "--checkpoint-every", 4)
        self.assertEqual(self.model(whole), self.model(often))
        rest = self.train("rest", *common, "--resume", os.path.join(often, "checkpoints", "step-00000008"))
        self.assertEqual(self.model(whole), self.model(rest))
        other = (*MLP, "--data", self.data, "--steps", 12, "--method", "hetpipe(in_flight=2)", "--checkpoint-every", 4)
        two = self.train("two", *other, "-n", 2, "--batch", 12)
        three = self.train("three", *other, "-n", 3, "--batch", 8, "--resume",
                           os.path.join(two, "checkpoints", "step-00000008"))
        self.assertEqual(self.model(two), self.model(three))

    def test_checkpoint_resumes_with_a_different_number_of_stages(self):
        """With the number given, and other options that determine the cuts; W and D must stay."""
        other = (*MLP, "--data", self.data, "--steps", 12, "--checkpoint-every", 4)
        two = self.train("two", *other, "-n", 2, "--batch", 12, "--method", "hetpipe(stages=2,in_flight=2)")
        half = ("--resume", os.path.join(two, "checkpoints", "step-00000008"))
        for k, more in enumerate(("stages=3,in_flight=2", "in_flight=2,stages=3,speeds=1:3:2,allocation=np",
                                  "stages=3,in_flight=2,profile=measured")):
            three = self.train("three%d" % k, *other, "-n", 3, "--batch", 8, "--method", "hetpipe(%s)" % more, *half)
            self.assertEqual(self.model(two), self.model(three), more)
        for more in ("stages=3,in_flight=4", "stages=3", "stages=3,in_flight=2,clock_distance=1",
                     "stages=3,in_flight=2,update=sum"):
            done = tutti("train", *other, "-n", 3, "--batch", 8, "--method", "hetpipe(%s)" % more, *half, "--out",
                         self.out("refused"))
            self.assertEqual(done.returncode, 2, more)
            self.assertIn('its run has method "hetpipe(stages=2,in_flight=2)"', done.stderr)

    def test_unequal_cuts_change_no_bit(self):
        """Two virtual workers with unequal cuts, evaluated and resumed, compared with two that have equal cuts."""
        common = (*MLP, "--data", self.data, "-n", 4, "--batch", 8, "--steps", 12)
        alike, unlike = (("--method", "hetpipe(stages=2,in_flight=4%s)" % more) for more in ("", ",speeds=1:1:40:1"))
        whole = self.train("alike", *common, *alike, "--checkpoint-every", 4)
        often = self.train("unlike", *common, *unlike, "--report-every", 1, "--eval-every", 5, "--checkpoint-every", 4)
        self.assertEqual(self.model(whole), self.model(often))
        self.assertEqual(summary(whole)["final_test_loss"], summary(often)["final_test_loss"])
        for out, same in ((whole, True), (often, False)):
            values = [w["memory"]["values"] for w in summary(out)["by_worker"]]
            self.assertEqual({values[0], values[2]} == {values[1], values[3]}, same)
        rest = self.train("rest", *common, *unlike, "--resume", os.path.join(often, "checkpoints", "step-00000008"))
        self.assertEqual(self.model(whole), self.model(rest))

    def test_pipeline_resumes_single_and_ddp_checkpoints(self):
        """One micro-batch at a time, one virtual worker: single's steps, to the bit in any number of stages."""
        common = (*MLP, "--data", self.data, "--checkpoint-every", 4)
        whole = self.train("whole", *common, "--steps", 12, "-n", 1, "--batch", 12, "--method", "single")
        last = None
        for steps, n, method in ((4, 1, "single"), (8, 3, "hetpipe(stages=3,in_flight=1,speeds=1:3:2)"),
                                 (12, 1, "single")):
            resume = ("--resume", last) if last else ()
            last = self.train("to%d" % steps, *common, "--steps", steps, "-n", n, "--batch", 12 // n, "--method",
                              method, *resume)
        self.assertEqual(self.model(whole), self.model(last))
        half = self.train("ddp", *common, "--steps", 4, "-n", 2, "--batch", 6, "--method", "ddp")
        self.train("cut", *common, "--steps", 8, "-n", 2, "--batch", 6, "--method", "hetpipe(in_flight=1)", "--resume",
                   half)
        done = tutti("train", *common, "--steps", 8, "-n", 2, "--batch", 6, "--method", "hetpipe(in_flight=2)",
                     "--resume", half, "--out", self.out("refused"))
        self.assertEqual(done.returncode, 2)
        self.assertIn('its run has method "ddp"', done.stderr)

    def test_stages_are_reported_in_figures_and_trace(self):
        out = self.train("told", *MLP, "--data", self.data, "-n", 4, "--batch", 8, "--steps", 6, "--trace",
                         "--method", "hetpipe(stages=2,clock_distance=1)")
        s = summary(out)
        figures = s["method_figures"]
        self.assertEqual((figures["stages"], figures["virtual_workers"], figures["in_flight"]), (2, 2, 2))
        self.assertLessEqual(figures["missing_most"][0], 2 * 3 - 2)
        self.assertLessEqual(figures["waves_apart"][0], 2)
        self.assertEqual(s["staleness_max"], 1)
        with open(os.path.join(out, "trace.json")) as f:
            events = json.load(f)
        for what in ("stage forward", "stage backward"):
            of = [(e["pid"], e["args"]["step"], e["name"]) for e in events if e.get("cat") == what]
            self.assertEqual(len(of), 4 * 6 * 2) # workers x steps x micro-batches
            self.assertEqual(len(set(of)), len(of))

    def test_measured_stages_change_no_bit(self):
        """An mlp, a cnn, a gpt and tables, on workers that are slowed."""
        for name, *common in (
                ("mlp", *MLP, "--data", self.data), ("cnn", "--model", "cnn", "--data", self.data),
                ("gpt", "--model", "gpt(layers=2,dim=16,heads=2)", *self.text()),
                ("ctr", "--model", "ctr(dim=4,layers=1,hidden=16)", "--data",
                 "clicks(file=%s,rows=2000,val=0.25)" % small_clicks(self.folder))):
            models = [self.model(self.train(name + how, *common, "-n", 2, "--batch", 8, "--steps", 4, "--quiet",
                                            "--slow", "1:3", "--method",
                                            "hetpipe(in_flight=4,profile=%s)" % how))
                      for how in ("modelled", "measured")]
            self.assertEqual(*models, name)

    def test_measured_stages_match_the_known_speeds(self):
        """In virtual time, where --slow and --step-time are all that a worker takes."""
        if not SIMULATOR:
            return narrowed("what a worker measures: the simulator is not built")
        common = ("--model", "gpt(layers=2,dim=16,heads=2)", *self.text(), "-n", 4, "--batch", 8, "--steps", 5,
                  "--threads", 1, "--transport", "sim", "--step-time", 0.1, "--slow", "1:2,2:3,3:4", "--quiet")
        alike, known, measured = (summary(self.train("speeds%d" % k, *common, "--method", "hetpipe(stages=4%s)" % more))
                                  for k, more in enumerate((",in_flight=4", ",in_flight=4,speeds=12:6:4:3",
                                                            ",in_flight=4,profile=measured")))
        self.assertEqual(known["wall_seconds"], measured["wall_seconds"])
        self.assertLess(measured["wall_seconds"], 0.8 * alike["wall_seconds"])
        predicted = 5 * 4 * measured["method_figures"]["predicted_stage_seconds"]
        self.assertLess(abs(max(w["compute_seconds"] for w in measured["by_worker"]) - predicted), 0.001 * predicted)

    def test_a_plan_measures_nothing(self):
        """It assumes that all workers are equal, and reports what a run without profile=measured needs."""
        plans = [tutti("plan", "memory", "--json", "--model", "mlp(hidden=32)", "--data", self.data, "-n", 2, "--batch",
                       8, "--steps", 4, "--method", "hetpipe(in_flight=2%s)" % more)
                 for more in ("", ",profile=measured")]
        for done in plans:
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(*(json.loads(done.stdout)["ranks"] for done in plans))

    def test_invalid_options_are_rejected(self):
        for model, data, words, says in (
                ("mlp(hidden=8)", self.data, ("-n", 4, "--method", "hetpipe(stages=4)"), "cut into 3 at most"),
                ("quadratic", None, ("-n", 2, "--method", "hetpipe"), "a quadratic is one layer and has no stages"),
                ("resnet(depth=8)", self.data, ("-n", 2, "--method", "hetpipe"), "batch norms"),
                ("mlp(hidden=8)", self.data, ("-n", 2, "--method", "hetpipe(memory=0.001:0.001)"), "stage"),
                ("mlp(hidden=8)", self.data, ("-n", 2, "--method", "hetpipe", "--clip-norm", 1), "clip-norm is 1"),
                ("mlp(hidden=8)", self.data, ("-n", 2, "--method", "hetpipe", "--codec", "topk"), "codec"),
                ("mlp(hidden=8)", self.data, ("-n", 2, "--method", "hetpipe", "--partition", "dirichlet(alpha=0.5)"),
                 "partition")):
            done = tutti("train", "--model", model, *(("--data", data) if data else ()), *words, "--steps", 2,
                         "--batch", 8, "--out", self.out("refused"))
            self.assertEqual(done.returncode, 2, (words, done.stderr))
            self.assertIn(says, done.stderr)

    def test_a_killed_worker_ends_the_run(self):
        """That of the first stage, then that of the last, over shared memory and over tcp."""
        for transport, victim in (("shm", 0), ("tcp", 3)):
            run = subprocess.Popen([TUTTI, "train", *map(str, MLP), "--data", self.data, "-n", "4", "--batch", "8",
                                    "--steps", "10000000", "--method", "hetpipe", "--transport", transport, "--out",
                                    self.out("killed")], env=clean_environment(), stderr=subprocess.PIPE, text=True)
            end, workers = time.time() + 30, []
            while len(workers) < 4 and time.time() < end:
                time.sleep(0.05)
                workers = sorted(children_of(run.pid))
            time.sleep(0.5)
            os.kill(workers[victim], signal.SIGKILL)
            told = run.communicate(timeout=60)[1]
            self.assertNotEqual(run.returncode, 0)
            self.assertIn("was killed by signal 9", told)


if __name__ == "__main__":
    unittest.main(verbosity=2)
