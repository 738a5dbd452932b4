"""heterps by the command: a schedule of `tutti plan stages` runs; one worker a stage gives `single`'s bytes and equal
widths ddp's, of tables too; the bytes sent are those of the page; evaluations, checkpoints and resumes change no bit;
impossible options give an error message; a killed worker ends the run."""
import json, os, signal, subprocess, time, unittest
from command import *

RULE = ("--optimizer", "sgd(lr=0.05,momentum=0.9)")
MLP = ("--model", "mlp(hidden=32)", "--seed", 3, "--threads", 1, "--quiet", *RULE)
CTR = "ctr(dim=4,layers=1,hidden=16)"
ROWS, DIM = 26 * 2000, 4
ENTERS = 26 * DIM + 13      # behind the tables: a row of each, and the numbers
DENSE = (ENTERS + 1) * 16 + 16 + 1


class Heterps(Case):
    def model(self, out):
        return read(os.path.join(out, "model.safetensors"))

    def text(self):
        path = os.path.join(self.folder, "text.txt")
        with open(path, "w") as f:
            f.write("".join("%d bottles of beer on the wall\n" % (k * k % 97) for k in range(1500)))
        return ("--data", "text(file=%s,context=16,val_windows=16)" % path)

    def clicks(self):
        path = os.path.join(self.folder, "clicks.tsv")
        if not os.path.exists(path):
            small_clicks(self.folder, 2000)
        return ("--model", CTR, "--data", "clicks(file=%s,rows=2000,val=0.25)" % path, "--threads", 1, "--seed", 3,
                "--quiet")

    def schedule(self, name, model, firsts, units, widths):
        """A file as `tutti plan stages` writes it."""
        path = os.path.join(self.folder, name + ".json")
        stages = [{"type": "ab"[q % 2], "first_layer": q, "end_layer": q + 1, "units": k, "sparse": q == 0,
                   "first_unit": f, "end_unit": e} for q, (f, e, k) in enumerate(zip(firsts, firsts[1:] + [units],
                                                                                     widths))]
        with open(path, "w") as f:
            json.dump({"schema": "tutti-stages-1", "model": model, "stages": stages}, f)
        return "heterps(schedule=%s)" % path

    def test_one_worker_a_stage_is_single_to_the_bit(self):
        """An mlp in three stages, and a gpt in two: its tokens are a table."""
        gpt = ("--model", "gpt(layers=2,dim=16,heads=2)", *self.text(), "--threads", 1, "--quiet", "--steps", 5, *RULE)
        for name, n, common, method in (("mlp", 3, (*MLP, "--data", self.data, "--steps", 7), "heterps(stages=3)"),
                                        ("gpt", 2, gpt, "heterps"), ("one", 1, gpt, "heterps")):
            one = self.train(name + "-one", *common, "-n", 1, "--method", "single", "--batch", 4, "--accumulate", n)
            cut = self.train(name + "-cut", *common, "-n", n, "--batch", 4, "--method", method)
            self.assertEqual(self.model(one), self.model(cut), name)
            a, b = summary(one), summary(cut)
            self.assertEqual((a["final_test_loss"], a["samples"]), (b["final_test_loss"], b["samples"]), name)

    def test_equal_widths_are_ddp_to_the_bit(self):
        """Rows of tables at two and four workers, over each transport."""
        for k, (optimizer, transport) in enumerate((("sgd(lr=0.1)", "shm"), ("adam(lr=0.005,lazy=on)", "tcp"),
                                                    ("sgd(lr=0.1,momentum=0.9)", "shm"),
                                                    *((("adam(lr=0.005)", "sim"),) if SIMULATOR else ()))):
            width = 4 if k == 0 else 2
            common = (*self.clicks(), "--steps", 8, "--batch", 16, "--optimizer", optimizer)
            cut = self.train("cut%d" % k, *common, "-n", 2 * width, "--transport", transport, "--method",
                             self.schedule("equal", CTR, [0, 1], 3, [width, width]))
            ddp = self.train("ddp%d" % k, *common, "-n", width, "--accumulate", 2, "--method", "ddp")
            self.assertEqual(self.model(cut), self.model(ddp), optimizer)
            self.assertGreater(summary(cut)["method_figures"]["rows_pulled"], 0)

    def test_method_trains_with_default_options(self):
        """An mlp and a cnn: cli/defaults."""
        for n in (2, 4):
            losses = [summary(self.train("gpt-%d-%d" % (n, steps), "--model", "gpt(layers=2,dim=16,heads=2)",
                                         *self.text(), "-n", n, "--batch", 8, "--steps", steps, "--method", "heterps",
                                         "--optimizer", "sgd(lr=0.1,momentum=0.9)",
                                         "--quiet"))["final_test_loss"] for steps in (1, 60)]
            self.assertLess(losses[1], losses[0] - 0.5)
            s = summary(self.train("ctr-%d" % n, *self.clicks(), "-n", n, "--batch", 16, "--steps", 4, "--method",
                                   "heterps"))
            self.assertEqual((s["method_figures"]["stages"], s["method_figures"]["stage"]), (2, [0] + [1] * (n - 1)))

    def test_a_schedule_that_was_planned_runs(self):
        resources, path = (os.path.join(self.folder, name) for name in ("resources.json", "stages.json"))
        model = self.clicks()[:4]
        with open(resources, "w") as f: # a cpu moves bytes as fast and computes a hundredth
            json.dump({"schema": "tutti-resources-1", "examples": 1e8, "floor": 100000, "types": [
                {"name": "cpu", "price": 0.01, "units": 8, "flops": 2e9, "bandwidth": 1e8},
                {"name": "gpu", "price": 1, "units": 8, "flops": 2e11, "bandwidth": 1e8}]}, f)
        done = tutti("plan", "stages", "--resources", resources, *model, "--batch", 64, "--search", "dp", "--schedule",
                     path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        with open(path) as f:
            stages = json.load(f)["stages"]
        n = sum(s["units"] for s in stages)
        figures = summary(self.train("planned", *self.clicks(), "-n", n, "--batch", 8, "--steps", 3, "--method",
                                     "heterps(schedule=%s)" % path))["method_figures"]
        self.assertEqual(figures["stage"], [q for q, s in enumerate(stages) for _ in range(s["units"])])
        done = tutti("train", *self.clicks(), "-n", n + 1, "--batch", 8, "--steps", 3, "--method",
                     "heterps(schedule=%s)" % path, "--out", self.out("refused"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("its stages have %d units in all, and there are %d workers; give -n %d" % (n, n + 1, n),
                      done.stderr)

    def test_traffic_matches_the_documented_formula(self):
        """Four steps more, of three workers for the tables and two for the rest."""
        batch, n, told = 16, 5, []
        method = self.schedule("sent", CTR, [0, 1], 3, [3, 2])
        for steps in (4, 8):
            s = summary(self.train("sent-%d" % steps, *self.clicks(), "-n", n, "--batch", batch, "--steps", steps,
                                   "--optimizer", "sgd(lr=0.1)", "--method", method))
            figures = s["method_figures"]
            self.assertEqual(figures["micro_batches"], n)
            told.append([s["bytes_sent_total"], figures["rows_pulled"], figures["rows_pushed"]])
        sent, pulled, pushed = (b - a for a, b in zip(*told))
        steps = 4
        between = 2 * 4 * ENTERS * batch * n * steps
        rows = pulled * (4 + 4 * DIM) + pushed * (4 + 4 * DIM) + 3 * 2 * 4 * steps
        self.assertGreater(min(pulled, pushed), 0)
        self.assertEqual(sent, between + rows + 2 * 4 * DENSE * steps)

    def test_evaluating_saving_and_resuming_change_nothing(self):
        for name, method, n, common in (
                ("mlp", "heterps(stages=2)", 3, (*MLP, "--data", self.data)),
                ("ctr", self.schedule("looks", CTR, [0, 1], 3, [2, 1]), 3, (*self.clicks(), *RULE))):
            common = (*common, "-n", n, "--batch", 8, "--steps", 12, "--method", method)
            whole = self.train(name + "-whole", *common)
            often = self.train(name + "-often", *common, "--report-every", 1, "--eval-every", 5,
                               "--checkpoint-every", 4)
            self.assertEqual(self.model(whole), self.model(often))
            rest = self.train(name + "-rest", *common, "--resume",
                              os.path.join(often, "checkpoints", "step-00000008"))
            self.assertEqual(self.model(whole), self.model(rest))

    def test_checkpoints_are_interchangeable_with_single_and_ddp(self):
        """To the bit: single, one worker a stage, two workers a stage as ddp on two."""
        common = (*self.clicks(), "--checkpoint-every", 4, "--optimizer", "sgd(lr=0.1,momentum=0.9)")
        equal = self.schedule("on", CTR, [0, 1], 3, [2, 2])
        for others in ((2, 2, "ddp"), (1, 4, "single")):
            width, accumulate, method = others
            mine = (4, 1, equal) if width == 2 else (2, 2, "heterps")
            last = None
            whole = self.train(method + "-whole", *common, "--steps", 12, "-n", width, "--batch", 8, "--accumulate",
                               accumulate, "--method", method)
            for steps, (n, passes, name) in ((4, others), (8, mine), (12, others)):
                resume = ("--resume", last) if last else ()
                last = self.train("%s-to%d" % (method, steps), *common, "--steps", steps, "-n", n, "--batch", 8,
                                  "--accumulate", passes, "--method", name, *resume)
            self.assertEqual(self.model(whole), self.model(last), method)

    def test_a_trace_has_stages_bubbles_rows_and_sums(self):
        out = self.train("told", *self.clicks(), "-n", 4, "--batch", 8, "--steps", 6, "--trace", "--method",
                         self.schedule("trace", CTR, [0, 1], 3, [2, 2]))
        with open(os.path.join(out, "trace.json")) as f:
            events = json.load(f)
        for what in ("stage forward", "stage backward"):
            of = [(e["pid"], e["args"]["step"], e["name"]) for e in events if e.get("cat") == what]
            self.assertEqual(len(of), 2 * 6 * 4) # stages x steps x micro-batches
            self.assertEqual(len(set(of)), len(of))
            for pid in range(4): # micro-batches take turns
                self.assertEqual(len([e for e in of if e[0] == pid]), 6 * 2)
        kinds = {e.get("cat") for e in events} | {e.get("name") for e in events}
        for what in ("bubble", "rows", "push rows", "stage sum"):
            self.assertIn(what, kinds)

    def test_invalid_options_are_rejected(self):
        bare = ("-n", 2, "--method", "heterps")
        other = self.schedule("other", "mlp(hidden=9)", [0, 1], 3, [1, 1])
        for model, data, words, says in (
                ("mlp(hidden=8)", self.data, ("-n", 4, "--method", "heterps(stages=4)"), "cut into 3 at most"),
                ("quadratic", None, bare, "a quadratic is one layer and has no stages"),
                ("resnet(depth=8)", self.data, bare, "batch norms"),
                ("mlp(hidden=8)", self.data, (*bare, "--clip-norm", 1), "clip-norm is 1"),
                ("mlp(hidden=8)", self.data, (*bare, "--codec", "topk"), "codec"),
                ("mlp(hidden=8)", self.data, (*bare, "--partition", "dirichlet(alpha=0.5)"), "partition"),
                ("mlp(hidden=8)", self.data, (*bare, "--servers", 1), "servers"),
                ("mlp(hidden=8)", self.data, ("-n", 2, "--method", other), "it is for --model 'mlp(hidden=9)'"),
                ("mlp(hidden=8)", self.data, ("-n", 2, "--method", "heterps(schedule=nowhere.json)"), "nowhere.json")):
            done = tutti("train", "--model", model, *(("--data", data) if data else ()), *words, "--steps", 2,
                         "--batch", 8, "--out", self.out("refused"))
            self.assertIn(done.returncode, (1, 2), (words, done.stderr))
            self.assertIn(says, done.stderr)
            self.assertFalse(os.path.exists(os.path.join(self.out("refused"), "summary.json")))

    def test_a_killed_worker_ends_the_run(self):
        """One that has rows of the tables, then one of the other stage, over shared memory and over tcp."""
        method = self.schedule("killed", CTR, [0, 1], 3, [2, 2])
        for transport, victim in (("shm", 0), ("tcp", 3)):
            run = subprocess.Popen([TUTTI, "train", *map(str, self.clicks()), "-n", "4", "--batch", "8", "--steps",
                                    "10000000", "--method", method, "--transport", transport, "--out",
                                    self.out("killed")], env=clean_environment(), stderr=subprocess.PIPE, text=True)
            end, workers = time.time() + 30, []
            while len(workers) < 4 and time.time() < end:
                time.sleep(0.05)
                workers = sorted(children_of(run.pid))
            time.sleep(0.5)
            os.kill(workers[victim], signal.SIGKILL)
            told = run.communicate(timeout=60)[1]
            self.assertEqual(run.returncode, 3)
            self.assertIn("worker %d" % victim, told)
            self.assertIn("was killed by signal 9", told)


if __name__ == "__main__":
    unittest.main(verbosity=2)
