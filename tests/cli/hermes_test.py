"""hermes as a person runs it, and samples held out of training (--validation): traffic against the
formula, resuming to the bit under the simulator, sizes that follow from speeds, what an evaluation
costs, losses."""
import json, os, signal, subprocess, time, unittest
from command import *

MODEL = ("--model", "mlp(hidden=64)")
PARAMS = 784 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10
QUADRATIC = ("--model", "quadratic(dim=8,samples=4096)", "--validation", 64, "--transport", "sim",
             "--optimizer", "sgd(lr=0.001)")


def model(out):
    return read(os.path.join(out, "model.safetensors"))


def slow(factors):
    return ",".join("%d:%g" % (r, f) for r, f in enumerate(factors) if f > 1)


class Hermes(Case):
    def test_push_traffic_matches_the_wire_format_on_every_transport(self):
        for transport in and_sim("shm", "tcp"):
            for wire, size in (("fp16", 2), ("fp32", 4)):
                out = self.train("t", *MODEL, "--data", self.data, "--validation", 100, "-n", 3, "--batch", 10,
                                 "--steps", 12, "--seed", 1, "--transport", transport,
                                 "--optimizer", "sgd(lr=0.05)", "--method",
                                 "hermes(push=always,chunk=20,minibatch=5,local_passes=3,resize=off,wire=%s)" % wire)
                s = summary(out)
                figures = s["method_figures"]
                self.assertEqual((s["steps"], s["samples"]), (12, 12 * 3 * 10))
                self.assertEqual(figures["pushes"], figures["rounds"])
                self.assertEqual(figures["rounds"], [w["steps"] // 2 for w in s["by_worker"]])
                # at the end the server's model goes to the two others, and five figures of each to
                # all
                told = s["bytes_sent_total"] - sum(figures["pushes"][1:]) * 2 * size * PARAMS - 2 * 4 * PARAMS
                self.assertEqual(told, 3 * 2 * 5 * 4)
                self.assertLess(s["final_train_loss"], 2.2) # ln 10 at the beginning

    def test_server_may_be_a_dedicated_rank(self):
        common = (*MODEL, "--data", self.data, "--validation", 100, "--batch", 10, "--seed", 1, "--optimizer",
                  "sgd(lr=0.05)", "--servers", 1, "--method", "hermes(push=always,chunk=20,minibatch=5,local_passes=3)")
        for n in (1, 3):
            s = summary(self.train("t", *common, "-n", n, "--steps", 12, "--transport", and_sim("shm")[-1]))
            self.assertEqual((s["samples"], s["servers"]), (12 * n * 10, 1))
            self.assertLess(s["final_train_loss"], 2.2)
            if n > 1: # all workers' pushes cross the network; at the end the model goes to the three workers
                self.assertEqual(s["bytes_sent_total"],
                                 sum(s["method_figures"]["pushes"]) * 4 * PARAMS + 12 * PARAMS + 120)

    def test_selective_pushes_reduce_the_traffic(self):
        common = (*MODEL, "--data", self.data, "--validation", 100, "-n", 3, "--batch", 10, "--steps", 40, "--seed", 1,
                  "--optimizer", "sgd(lr=0.05)")
        s = summary(self.train("z", *common, "--method", "hermes(chunk=20,minibatch=5,local_passes=1)"))
        pushes, rounds = sum(s["method_figures"]["pushes"]), sum(s["method_figures"]["rounds"])
        self.assertTrue(0 < pushes <= rounds / 3, (pushes, rounds)) # z of -1.3 takes three losses
        self.assertEqual(s["bytes_sent_total"], sum(s["method_figures"]["pushes"][1:]) * 4 * PARAMS + 8 * PARAMS + 120)
        self.assertLess(s["final_train_loss"], 2.2)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_slow_link_does_not_delay_other_workers(self):
        """Every round is pushed, over links that take 0.0016 of a round for a model, each way. One is 1000 or 10000
        times slower. While its push is in progress the others push. With late_after=0 they wait for it."""
        common = ("--model", "quadratic(dim=100,samples=4096)", "--validation", 4, "--transport", "sim",
                  "--optimizer", "sgd(lr=0.001)", "-n", 4, "--batch", 4, "--step-time", 0.01,
                  "--final-eval", "off", "--seed", 1)
        mbit = 100 * 16 / 0.00016 / 1e6
        def pace(slower, late_after): # in the second half: the end waits for the slow one, whichever worker may push
            links = unequal_links(self.out("l%d.xml" % slower), [mbit] * 3 + [mbit / slower], latency="1us")
            done = []
            for steps in (2000, 4000):
                name = "%d-%d-%d" % (slower, late_after, steps)
                s = summary(self.train(name, *common, "--steps", steps, "--platform", links, "--method", "hermes"
                                       "(push=always,chunk=40,minibatch=4,local_passes=1,resize=off,late_after=%d)"
                                       % late_after))
                done.append((sum(w["steps"] for w in s["by_worker"][:3]), s["wall_seconds"]))
            return (done[1][0] - done[0][0]) / (done[1][1] - done[0][1]), model(self.out(name))
        even, trained = pace(1, 4)
        self.assertEqual(trained, pace(1, 0)[1]) # without a slow link nothing is another
        for slower in (1000, 10000):
            self.assertGreater(pace(slower, 4)[0], 0.9 * even, slower)
        self.assertLess(pace(1000, 0)[0], 0.75 * even)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_run_without_pushes_is_reported_and_changes_the_model(self):
        """Every worker has one class, so its loss on samples of all of them rises from round to
        round, and no alpha and no window lets it push."""
        common = ("--model", "mlp(hidden=12)", "--data", self.data, "--validation", 100, "--partition", "class(k=1)",
                  "-n", 10, "--batch", 10, "--steps", 24, "--seed", 1, "--transport", "sim", "--step-time", 0.01,
                  "--optimizer", "sgd(lr=0.1)", "--final-eval", "off")
        first = model(self.train("first", *common, "--steps", 1, "--optimizer", "sgd(lr=0)", "--method", "ddp"))
        for k, (servers, window) in enumerate(((0, 10), (1, 40))):
            out = self.out("n%d" % k)
            done = tutti("train", *common, "--servers", servers,
                         "--method", "hermes(chunk=20,minibatch=10,local_passes=2,window=%d)" % window,
                         "--eval-every", 12, "--out", out)
            s = summary(out)
            self.assertEqual((done.returncode, set(s["method_figures"]["pushes"]),
                              min(s["method_figures"]["rounds"]) >= 10), (0, {0}, True), done.stderr)
            told = [(e["step"], e["text"]) for e in s["events"] if e["kind"] == "never-pushed"]
            self.assertEqual((len(told), told[0][0]), (1, 24))
            self.assertIn("method 'hermes': no worker has pushed a model in 24 steps, "
                          "since no worker's loss on the held-out samples has become low", told[0][1])
            self.assertIn("note: " + told[0][1], done.stdout)
            self.assertNotEqual(model(out), first) # whose mean it is: method/hermes

    def test_run_with_stalled_loss_ends_early_and_reports_it(self):
        common = ("--model", "mlp(hidden=8)", "--data", self.data, "--validation", 50, "-n", 3, "--batch", 10,
                  "--steps", 4000, "--seed", 1, "--optimizer", "sgd(lr=0.5)", "--checkpoint-every", 1,
                  "--checkpoint-keep", 99)
        for k, transport in enumerate(and_sim("shm", "tcp")):
            out = self.train("p%d" % k, *common, "--transport", transport, "--servers", k % 2, "--method",
                             "hermes(push=always,chunk=10,minibatch=5,local_passes=2,resize=off,patience=4)")
            s, lines = summary(out), [json.loads(line)
                                      for line in read(os.path.join(out, "metrics.jsonl")).splitlines()]
            figures = s["method_figures"]
            self.assertTrue(5 <= sum(figures["pushes"]) < 4000 and s["samples"] == 10 * sum(figures["pushes"]), figures)
            self.assertEqual([e["text"] for e in s["events"] if e["kind"] == "ended"],
                             ["method 'hermes' ended the run after %d gradients" % sum(figures["pushes"])])
            self.assertEqual((s["steps"], lines[-1]["step"]), ((s["samples"] // 10 + 2) // 3,) * 2)
            self.assertLessEqual(figures["loss_min"], figures["loss"])
        if transport == "sim": # to the same end from each checkpoint
            for name in sorted(os.listdir(os.path.join(out, "checkpoints")))[-3:]:
                again = self.train("q" + name, *common, "--transport", "sim", "--servers", 0, "--method",
                                   "hermes(push=always,chunk=10,minibatch=5,local_passes=2,resize=off,patience=4)",
                                   "--resume", os.path.join(out, "checkpoints", name))
                self.assertEqual((model(again), summary(again)["method_figures"]), (model(out), figures), name)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_simulated_runs_repeat_and_resume_to_the_bit_under_random_pauses(self):
        methods = ("hermes(push=always,chunk=12,minibatch=3,local_passes=2)",
                   "hermes(chunk=18,minibatch=2,local_passes=3,window=4,alpha=-0.9,wire=fp32)",
                   "hermes(push=always,chunk=6,minibatch=6,resize=off,merge=mean)")
        for k, method in enumerate(methods):
            for partition in ("iid", "dirichlet(alpha=0.5)")[:1 + (k == 0)]:
                common = ("--model", "mlp(hidden=8)", "--data", self.data, "--validation", 50, "-n", 4, "--batch", 6,
                          "--method", method, "--seed", 2, "--steps", 30, "--checkpoint-every", 7,
                          "--checkpoint-keep", 9, "--slow", "0:1.31,2:6,*:2.2:0.4", "--transport", "sim",
                          "--servers", k % 2, "--optimizer", "sgd(lr=0.02,momentum=0.9)", "--step-time", 0.001,
                          "--partition", partition)
                whole = self.train("w%d%s" % (k, partition[:3]), *common)
                if (k, partition) == (0, "iid"): # from their checkpoints all repeat; from their beginning this one
                    self.assertEqual(model(whole), model(self.train("again", *common)))
                checkpoints = os.path.join(whole, "checkpoints")
                for name in sorted(os.listdir(checkpoints)):
                    resumed = self.train("r%d%s%s" % (k, partition[:3], name), *common,
                                         "--resume", os.path.join(checkpoints, name))
                    self.assertEqual(model(whole), model(resumed), (method, name))
                    self.assertEqual(summary(whole)["method_figures"], summary(resumed)["method_figures"],
                                     (method, name))

    def sizes(self, factors, method, batch=4):
        s = summary(self.train("s", *QUADRATIC, "-n", len(factors), "--batch", batch, "--step-time", 0.01,
                               "--slow", slow(factors), "--steps", 400, "--method", method))
        return list(zip(s["method_figures"]["chunk"], s["method_figures"]["minibatch"])), s

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_only_outlier_workers_are_resized_to_the_median_time(self):
        method, even = "hermes(chunk=80,minibatch=2,local_passes=2%s)", (1, 1, 1.25, 1.5, 1.5)
        # the median is 1.375; 17.6 in whole batches
        self.assertEqual(self.sizes((*even, 6.25), method % "")[0], [(80, 2)] * 5 + [(16, 2)])
        self.assertEqual(self.sizes((*(10 * f for f in even), 1), method % "")[0], [(80, 2)] * 5 + [(900, 2)]) # 11.25
        self.assertEqual(self.sizes((*(10 * f for f in even), 1), method % ",chunk_most=400")[0][5], (400, 2))
        # less than half a batch: more samples an update
        self.assertEqual(self.sizes((*even, 30), "hermes(chunk=16,minibatch=2,local_passes=2)")[0][5], (4, 4))
        self.assertEqual(self.sizes((*even, 6.25), method % ",resize=off")[0], [(80, 2)] * 6)
        self.assertEqual(self.sizes((*even, 1.5), method % "")[0], [(80, 2)] * 6)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_chunk_sizes_survive_resume_with_the_same_workers(self):
        """Worker 1 is slow, and has less than a fifth of the chunk when the run is saved. With the same
        number of workers the run continues with that size. With another number, all equally fast, no
        worker is far from the others, so a worker without the option's chunk has one from before."""
        def run(name, n, steps, *more):
            s = summary(self.train(name, *QUADRATIC, "-n", n, "--batch", 4, "--step-time", 0.01,
                                   "--method", "hermes(chunk=80,minibatch=2,local_passes=2)", "--steps", steps, *more))
            return list(zip(s["method_figures"]["chunk"], s["method_figures"]["minibatch"])), s
        save = ("--checkpoint-every", 200, "--checkpoint-keep", 2)
        sizes, _ = run("six", 6, 400, "--slow", "1:6.25", *save)
        self.assertEqual(sizes, [(80, 2), (12, 2)] + [(80, 2)] * 4)
        self.assertEqual(run("same", 6, 440, "--resume", self.out("six"))[0], sizes)
        for n in 3, 5, 8:
            after, s = run("n%d" % n, n, 420, "--slow", "1:1", "--resume", self.out("six"))
            self.assertEqual(after, [(80, 2)] * n)
            # the server has answered once: the next answer would correct a size from before
            self.assertEqual(s["method_figures"]["rounds"], [1] * n)
        # rounds took ten times as long, as was found six rounds before the end: not these workers'
        run("slow", 6, 440, "--slow", "*:10", "--checkpoint-every", 220)
        self.assertEqual(run("anew", 5, 555, "--slow", "1:6.25", "--resume", self.out("slow"))[0], sizes[:5])
        sizes, s = run("lost", 6, 400, "--servers", 1, "--slow", "1:6.25", "--fail", "0@6", *save)
        self.assertEqual((s["members"], sizes[1]), ([1, 2, 3, 4, 5], (12, 2)))
        self.assertEqual(run("left", 5, 440, "--servers", 1, "--slow", "0:6.25", "--resume", self.out("lost"))[0],
                         sizes[1:])

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_evaluating_costs_a_forward_pass_over_the_samples_held_out(self):
        seconds = []
        for held_out in (100, 200, 300):
            s = summary(self.train("e%d" % held_out, *MODEL, "--data", self.data, "--validation", held_out, "-n", 2,
                                   "--batch", 10, "--steps", 4, "--step-time", 0.01, "--transport", "sim",
                                   "--slow", "1:3", "--optimizer", "sgd(lr=0.01)",
                                   "--method", "hermes(push=always,chunk=20,minibatch=10,local_passes=1)"))
            seconds.append([w["compute_seconds"] for w in s["by_worker"]])
            self.assertEqual(s["method_figures"]["pushes"], [w["steps"] // 2 for w in s["by_worker"]])
        for r in range(2): # 1 / 3 of a pass's time and somewhat more, since the first layer's input has no gradient
            more = seconds[1][r] - seconds[0][r]
            self.assertAlmostEqual(seconds[2][r] - seconds[1][r], more, delta=1e-3 * more)
            evaluations = 2 * (s["by_worker"][r]["steps"] // 2)
            self.assertTrue(0.33 < more / (evaluations * 100 / 10 * 0.01 * (3 if r == 1 else 1)) < 0.5,
                            (r, more, evaluations))

    def test_reported_loss_is_that_of_the_held_out_samples(self):
        """The figure is the last reported loss of the model with which the run ends; it is computed
        once more without the program."""
        for n, validation in ((2, 100), (3, 50)):
            out = self.train("l%d" % n, "--model", "mlp(hidden=12)",
                             "--data", self.data, "--validation", validation, "-n", n, "--batch", 10, "--steps", 24,
                             "--seed", 1, "--transport", "sim" if SIMULATOR else "shm", "--optimizer", "sgd(lr=0.1)",
                             "--method", "hermes(push=always,chunk=20,minibatch=5,local_passes=3,wire=fp32)")
            end = os.path.join(out, "model.safetensors")
            held_out, first = mlp_evaluated(end, self.data, "train", 600 - validation,
                                            600), mlp_evaluated(end, self.data, "train", 0, validation)
            self.assertAlmostEqual(summary(out)["method_figures"]["loss"], held_out[0], delta=1e-5)
            self.assertGreater(abs(held_out[0] - first[0]), 1e-3) # else nothing would have been shown

    def swapped(self, name, a, b):
        """The data set with two of its training samples in each other's places: the same samples,
        so the same normalisation."""
        folder = os.path.join(self.folder, name)
        shutil.copytree(self.data, folder)
        for file, head, size in ((NAMES[0], 16, 784), (NAMES[1], 8, 1)):
            raw = bytearray(read(os.path.join(folder, file)))
            x, y = slice(head + a * size, head + (a + 1) * size), slice(head + b * size, head + (b + 1) * size)
            raw[x], raw[y] = raw[y], raw[x]
            with open(os.path.join(folder, file), "wb") as f:
                f.write(raw)
        return folder

    def test_nobody_trains_on_what_is_held_out(self):
        """The last samples in another order: the model is the same to the bit where they are held
        out, for each of several methods, and where one of them is trained on it is not."""
        among, across = self.swapped("among", 500, 599), self.swapped("across", 499, 500)
        for k, method in enumerate(("ddp", "d-psgd", "local-sgd(period=3)")):
            common = (*MODEL, "-n", 2, "--batch", 10, "--epochs", 1, "--method", method)
            plain, same, other = (read(os.path.join(self.train("%d%d" % (k, j), *common, "--data", data,
                                                               "--validation", 100), "model.safetensors"))
                                  for j, data in enumerate((self.data, among, across)))
            self.assertEqual(plain, same, method)
            self.assertNotEqual(plain, other, method)
        without = [read(os.path.join(self.train("w%d" % j, *common, "--data", data), "model.safetensors"))
                   for j, data in enumerate((self.data, among))]
        self.assertNotEqual(*without)  # so that they are looked at where nothing is held out

    def test_held_out_samples_are_excluded_and_validated(self):
        whole = summary(self.train("a", *MODEL, "--data", self.data, "-n", 2, "--batch", 10, "--epochs", 1))
        less = self.train("b", *MODEL, "--data", self.data, "-n", 2, "--batch", 10, "--epochs", 1, "--validation", 100)
        self.assertEqual((whole["samples"], summary(less)["samples"]), (600, 500))
        small = small_mnist(os.path.join(self.folder, "small"), train=500) # the same samples; normalised by other means
        self.assertEqual(summary(self.train("c", *MODEL, "--data", small, "-n", 2, "--batch", 10,
                                            "--epochs", 1))["samples"], 500)
        parts = summary(self.train("d", *MODEL, "--data", self.data, "-n", 2, "--batch", 10, "--epochs", 1,
                                   "--validation", 100, "--partition", "dirichlet(alpha=1)"))
        self.assertEqual(sum(w["part_samples"] for w in parts["by_worker"]), 500)
        self.refused("validation is 600, but the training set has 600 samples; leave some to train on", "train", *MODEL,
                     "--data", self.data, "--validation", 600, "--out", self.out("e"))
        self.refused("there are none; give --validation N", "train", *MODEL, "--data", self.data, "-n", 2,
                     "--method", "hermes", "--validation", 0, "--out", self.out("f"))
        saved = self.train("g", *MODEL, "--data", self.data, "-n", 2, "--batch", 10, "--steps", 4, "--validation", 100,
                           "--checkpoint-every", 2)
        self.refused("its run has validation 100, this one 50", "train", *MODEL, "--data", self.data, "-n", 2,
                     "--batch", 10, "--steps", 8, "--validation", 50, "--resume", saved, "--out", self.out("h"))

    def test_a_killed_server_ends_the_run_and_is_named(self):
        err, ranks = self.killed(3, 0, "-n", 3, "--method", "hermes(push=always,chunk=16,local_passes=1)",
                                 "--validation", 50)
        self.assertIn("worker 0 was lost: process %d was killed by signal 9 (SIGKILL)" % ranks[0], err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
