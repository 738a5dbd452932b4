"""ringmaster-asgd, ringleader-asgd, dude-asgd and ata as a user runs them: traffic against the
formula, resuming to the bit under the simulator, skewed data, delays and allocations in virtual
time, lost workers."""
import json, os, signal, subprocess, time, unittest
from command import *

MODEL = ("--model", "mlp(hidden=64)")
PARAMS = 784 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10
ONE_SERVER = ("ringmaster-asgd", "ringmaster-asgd(max_delay=2,stops=on)",
              "ringmaster-asgd(max_delay=1,collect=3,stops=on)", "ringmaster-asgd(adapt=on)", "ringleader-asgd",
              "ringleader-asgd(table=worker,point=fresh)", "ringleader-asgd(table_dtype=bf16)", "dude-asgd",
              "dude-asgd(table=worker,group=2)")


def model(out):
    return read(os.path.join(out, "model.safetensors"))


def steps(s):
    return [w["steps"] for w in s["by_worker"]]


def of_gradients(s):
    """The figures of the gradients of the whole run, and those of each worker."""
    return [s[k] for k in ("staleness", "staleness_max", "staleness_mean",
                           "restarts")] + [(w["steps"], w["staleness"]) for w in s["by_worker"]]


class Arrivals(Case):
    def single(self, updates):
        """The loss of a single worker after `updates` steps."""
        if updates not in self.after:
            out = self.train("s%d" % updates, *MODEL, "--data", self.data, "-n", 1, "--batch", 20, "--steps", updates,
                             "--method", "single", "--seed", 1, "--optimizer", "sgd(lr=0.02)")
            self.after[updates] = summary(out)["final_train_loss"]
        return self.after[updates]

    def test_traffic_and_loss_are_as_expected_on_every_transport(self):
        self.after = {}
        for transport in and_sim("shm", "tcp"):
            for method in ("ringmaster-asgd(max_delay=-1)", "dude-asgd(table=worker)", "ringleader-asgd"):
                out = self.train("t", *MODEL, "--data", self.data, "-n", 3, "--batch", 20, "--steps", 60,
                                 "--method", method, "--seed", 1, "--transport", transport,
                                 "--optimizer", "sgd(lr=0.02)")
                s = summary(out)
                self.assertEqual((s["steps"], s["samples"], sum(steps(s))), (60, 60 * 3 * 20, 180))
                up = sum(steps(s)[1:])
                if method == "ringleader-asgd": # a model for the worker that is served, an empty answer for the others
                    self.assertLessEqual(s["bytes_sent_total"], (up + s["method_figures"]["updates"] + 3) * 4 * PARAMS)
                    self.assertGreater(s["bytes_sent_total"], up * 4 * PARAMS)
                else:
                    self.assertEqual(s["bytes_sent_total"], (2 * up + 2) * 4 * PARAMS)
                # The number of updates depends on the machine. But whichever workers make them,
                # and however late, they take the loss to where about as many steps of one worker
                # take it. After a few updates the loss shows little; after 180 it shows whether
                # late gradients are lost (2.05 in place of 0.52), or all count twice.
                updates = int(s["method_figures"]["updates"] if "updates" in s["method_figures"]
                              else sum(s["method_figures"]["applied"]))
                self.assertTrue(1 <= updates <= 180, (method, updates))
                self.assertLess(s["final_train_loss"], self.single(3 * updates // 4 + 1) + 0.05,
                                (transport, method, updates))
                self.assertGreater(s["final_train_loss"], self.single(5 * updates // 4 + 1) - 0.02,
                                   (transport, method, updates))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_simulated_runs_repeat_and_resume_to_the_bit_under_random_pauses(self):
        for k, method in enumerate(ONE_SERVER + ("ata(tasks=12)",)):
            common = ("--model", "mlp(hidden=8)", "--data", self.data, "-n", 4, "--batch", 6, "--method", method,
                      "--seed", 2, "--steps", 24, "--checkpoint-every", 8, "--checkpoint-keep", 9,
                      "--slow", "0:1.31,*:2.2:0.4", "--transport", "sim", "--optimizer", "sgd(lr=0.02,momentum=0.9)",
                      "--step-time", 0.001)
            whole = self.train("w%d" % k, *common)
            if k == 0: # from their checkpoints all repeat; from their beginning this one
                self.assertEqual(model(whole), model(self.train("again", *common)))
            checkpoints = os.path.join(whole, "checkpoints")
            for name in one_of(k, sorted(os.listdir(checkpoints))[:-1]):
                resumed = self.train("r%d%s" % (k, name), *common, "--resume", os.path.join(checkpoints, name))
                self.assertEqual(model(whole), model(resumed), (method, name))
                self.assertEqual(summary(whole)["method_figures"], summary(resumed)["method_figures"], (method, name))
                self.assertEqual(of_gradients(summary(whole)), of_gradients(summary(resumed)), (method, name))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_delay_histogram_is_exact_and_bin_edges_are_reported(self):
        """A worker 57.5 times as slow as the other sees 57 or 58 updates; one 1500 times as slow sees
        more than 1,024, where several delays share a bin."""
        common = ("--model", "quadratic(dim=8,samples=4096)", "-n", 2, "--batch", 1, "--transport", "sim",
                  "--step-time", 0.01, "--optimizer", "sgd(lr=0.01)", "--final-eval", "off")
        s = summary(self.train("exact", *common, "--method", "ringmaster-asgd(max_delay=-1)", "--steps", 600,
                               "--slow", "1:57.5"))
        slow = dict(s["by_worker"][1]["staleness"])
        self.assertEqual((sum(slow.values()), s["histogram_edges"]), (s["by_worker"][1]["steps"], []))
        self.assertEqual(slow[57] + slow[58], s["by_worker"][1]["steps"] - 1) # and one at the end
        s = summary(self.train("dude", *common, "--method", "dude-asgd", "--steps", 600, "--slow", "1:57.5"))
        ages = [age for age, _ in s["method_figures"]["data_age"][1]]
        self.assertEqual((ages, ages[-1] in (57, 58)), (list(range(len(ages))), True)) # its entry gets older one by one
        s = summary(self.train("edges", *common, "--method", "asgd(servers=1)", "--steps", 1600, "--slow", "1:1500"))
        self.assertEqual(([1280], s["histogram_edges"]),
                         ([d for d, _ in s["by_worker"][1]["staleness"] if d > 1024], [1025, 1280, 1536]))
        self.assertTrue(1480 < s["staleness_max"] < 1520, s["staleness_max"])

    def lost_or_paused(self, method, *how):
        common = ("--model", "quadratic(dim=8,samples=4096)", "-n", 4, "--batch", 1, "--transport", "sim",
                  "--step-time", 0.01, "--optimizer", "sgd(lr=0.01)", "--final-eval", "off", "--steps", 150)
        return summary(self.train("l", *common, "--method", method, *how))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_a_worker_that_is_lost_costs_a_round_of_ringleader_few_gradients(self):
        """Four equal workers, 600 gradients; one dies after 0.5 s, which is detected 3 s later. Three
        gradients arrive while one is computed, so the round that waits for the lost worker gets
        31 more before all other workers stop computing."""
        whole, lost = self.lost_or_paused("ringleader-asgd"), self.lost_or_paused("ringleader-asgd", "--fail", "3@0.5")
        self.assertEqual((lost["members"], [e["kind"] for e in lost["events"]]), ([0, 1, 2], ["lost"]))
        # worker 0 is on the server's rank, and one gradient ahead at the end
        self.assertLessEqual(max(b for counts in whole["method_figures"]["counts"] for b, _ in counts), 3)
        self.assertLessEqual(max(b for counts in lost["method_figures"]["counts"] for b, _ in counts), 31 // 3 + 2)
        # n updates of 2 n - 1 gradients, 4 of 7 and then 3 of 5
        self.assertGreaterEqual(lost["method_figures"]["updates"], whole["method_figures"]["updates"] - 31)
        self.assertLess(lost["wall_seconds"], whole["wall_seconds"] * 4 / 3 + 3.1)
        never = self.lost_or_paused("ringleader-asgd(overdue=0)", "--fail", "3@0.5") # the paper's: they compute on
        self.assertLess(never["method_figures"]["updates"], whole["method_figures"]["updates"] / 2)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_a_worker_that_pauses_costs_a_round_of_ringleader_few_gradients(self):
        """One gradient in twenty takes 400 times as long. Speeds that are constant, or change less
        than tenfold, make no worker wait: the run is the paper's, to the bit."""
        paused = self.lost_or_paused("ringleader-asgd", "--slow", "3:400:0.05")
        compute = paused["by_worker"][3]
        pauses = round((compute["compute_seconds"] - 0.01 * compute["steps"]) / 3.99)
        self.assertGreater(pauses, 0)
        self.assertGreaterEqual(paused["method_figures"]["updates"], 4 / 7 * (600 - 31 * pauses) - 4)
        for slow in "3:40", "1:2.3,2:9.1", "*:9:0.2":
            a, b = (self.train(o, "--model", "quadratic(dim=8,samples=4096)", "-n", 4,
                               "--batch", 1, "--transport", "sim", "--step-time", 0.01,
                               "--optimizer", "sgd(lr=0.01)", "--final-eval", "off", "--steps", 150, "--slow", slow,
                               "--method", "ringleader-asgd(overdue=%s)" % o) for o in ("10", "0"))
            self.assertEqual(model(a), model(b), slow)
            self.assertAlmostEqual(summary(a)["wall_seconds"], summary(b)["wall_seconds"], delta=1e-6)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_dude_evicts_entries_of_lost_or_paused_workers(self):
        """Ten times its usual updates after it came: three of four equal workers, and one a worker
        at least, so forty."""
        lost = self.lost_or_paused("dude-asgd", "--fail", "3@0.5")
        figures = lost["method_figures"]
        self.assertEqual((lost["members"], figures["evicted"], figures["data_age"][3][-1][0]), ([0, 1, 2], 1, 40))
        never = self.lost_or_paused("dude-asgd(evict_after=0)", "--fail", "3@0.5")["method_figures"]
        self.assertEqual(never["evicted"], 0)
        self.assertGreater(never["data_age"][3][-1][0], 200)
        paused = self.lost_or_paused("dude-asgd", "--slow", "3:400:0.02")
        figures = paused["method_figures"]
        self.assertGreater(figures["evicted"], 0)
        self.assertEqual((figures["data_age"][3][0][0], figures["data_age"][3][-1][0]), (0, 40))
        self.assertGreater(dict(figures["data_age"][3])[0], figures["evicted"]) # it comes back
        for slow in "3:40", "1:2.3,2:9.1":
            a, b = (self.train(o, "--model", "quadratic(dim=8,samples=4096)", "-n", 4,
                               "--batch", 1, "--transport", "sim", "--step-time", 0.01,
                               "--optimizer", "sgd(lr=0.01)", "--final-eval", "off", "--steps", 150, "--slow", slow,
                               "--method", "dude-asgd(evict_after=%s)" % o) for o in ("-1", "0"))
            self.assertEqual((model(a), summary(a)["method_figures"]), (model(b), summary(b)["method_figures"]), slow)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_gradient_tables_converge_on_skewed_data_unlike_plain_asgd(self):
        """Two classes, a worker each, one 100 times slower: the defining test of dude-asgd. The
        server's and the workers' tables give the same run."""
        common = ("--model", "quadratic(dim=10,condition=1,classes=2,noise=0,skew=1,samples=64)",
                  "--partition", "class(k=1)", "-n", 2, "--batch", 8, "--transport", "sim", "--step-time", 0.01,
                  "--slow", "1:100", "--optimizer", "sgd(lr=0.02)")
        first = summary(self.train("first", *common, "--method", "ddp", "--steps", 1,
                                   "--optimizer", "sgd(lr=0)"))["final_train_loss"]
        for method, count in (("dude-asgd", 1500), ("dude-asgd(table=worker)", 1500), ("ringleader-asgd", 12000),
                              ("ringleader-asgd(table=worker)", 12000)):
            self.assertLess(summary(self.train("m", *common, "--method", method, "--steps", count))["final_train_loss"],
                            1e-6 * first, method)
        half = [self.train("h", *common, "--method", "ringleader-asgd(table_dtype=bf16,table=%s)" % table,
                           "--steps", 12000) for table in ("server", "worker")]
        self.assertEqual(*map(model, half)) # to nearest: at the optimum gradients of unlike workers are not 0
        self.assertLess(summary(half[0])["final_train_loss"], 1e-5 * first)
        noisy = ("--model", "quadratic(dim=50,noise=1,classes=4,skew=1,samples=4096)", "--partition", "class(k=1)",
                 "-n", 4, "--batch", 1, "--transport", "sim", "--step-time", 0.01, "--slow", "1:30,2:3",
                 "--optimizer", "sgd(lr=0.002,momentum=0.9)", "--steps", 500)
        # several gradients an entry
        of = {d: self.train(d, *noisy, "--method", "ringleader-asgd(table_dtype=%s)" % d) for d in ("f32", "bf16")}
        self.assertNotEqual(model(of["f32"]), model(of["bf16"]))
        self.assertAlmostEqual(summary(of["bf16"])["final_train_loss"], summary(of["f32"])["final_train_loss"],
                               delta=0.01 * summary(of["f32"])["final_train_loss"])
        plain = self.train("p", *common, "--method", "ringmaster-asgd(max_delay=-1)", "--steps", 1500,
                           "--eval-every", 500)
        # evaluations use snapshots; figures are reported where all have synchronised: at the end
        told = [line["method_figures"] for line in map(json.loads,
                                                       read(os.path.join(plain, "metrics.jsonl")).splitlines())
                if "method_figures" in line]
        self.assertEqual([sum(t["applied"]) for t in told], [3000])
        self.assertEqual((told[-1]["applied_share"], told[-1]["applied"]),
                         ([1, 1], summary(plain)["method_figures"]["applied"]))
        self.assertGreater(summary(plain)["final_train_loss"], 0.1 * first)
        self.assertIn("skewed", [e["kind"] for e in summary(plain)["events"]])

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_old_entries_are_evicted_and_both_tables_agree_bitwise(self):
        common = ("--model", "quadratic(dim=10,condition=1,classes=2,noise=0,skew=1,samples=64)",
                  "--partition", "class(k=1)", "-n", 2, "--batch", 8, "--transport", "sim", "--step-time", 0.01,
                  "--slow", "1:30", "--optimizer", "sgd(lr=0.05)", "--steps", 300)
        first = summary(self.train("first", *common, "--method", "ddp", "--steps", 1,
                                   "--optimizer", "sgd(lr=0)"))["final_train_loss"]
        ages = {}
        for k in (0, 5, 100):
            s = summary(self.train("e%d" % k, *common, "--method", "dude-asgd(evict_after=%d)" % k))
            ages[k] = s["method_figures"]["entry_age_max"]
            if k == 0: # figures of a dedicated server reach the worker that writes the summary
                self.assertEqual(summary(self.train("d", *common, "--servers", 1, "--steps", 20,
                                                    "--method", "dude-asgd"))["method_figures"].keys(),
                                 s["method_figures"].keys())
            # an entry's sample came after its model had been sent
            for model_age, data_age in zip(s["method_figures"]["model_age"], s["method_figures"]["data_age"]):
                self.assertEqual(sum(n for _, n in model_age), sum(n for _, n in data_age))
                self.assertLessEqual(sum(age * n for age, n in data_age), sum(age * n for age, n in model_age))
                self.assertLessEqual(model_age[-1][0], ages[k])
            self.assertEqual(s["method_figures"]["data_age"][0][0][0], 0) # of the worker that has just sent
            self.assertLess(sum(age * n for age, n in s["method_figures"]["model_age"][0]),
                            0.2 * sum(age * n for age, n in s["method_figures"]["model_age"][1]) if k != 5 else 1e9)
            self.assertEqual(s["method_figures"].get("evicted", 0) > 10, k == 5)
            # without the slow worker's entry for five sixths of the time: away from the optimum
            self.assertEqual(s["final_train_loss"] < 0.01 * first, k != 5)
        self.assertEqual((ages[5], ages[100]), (5, ages[0]))
        self.assertGreater(ages[0], 20)
        server, worker = (model(self.train(t, *common, "--method", "dude-asgd(table=%s%s)" % (t, more)))
                          for t, more in (("server", ",refresh_mean=0"), ("worker", "")))
        self.assertEqual(server, worker)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_delays_reach_their_bound_and_do_not_exceed_it(self):
        for n, slow in ((2, "1:3.7"), (3, "1:2.3,2:9.1"), (5, "*:4:0.3"), (16, "*:9:0.2")):
            common = ("--model", "quadratic(dim=8,samples=4096)", "-n", n, "--batch", 1, "--transport", "sim",
                      "--step-time", 0.01, "--slow", slow, "--steps", 150, "--optimizer", "sgd(lr=0.01)")
            for point in ("sticky", "fresh"):
                most = summary(self.train("l", *common, "--method",
                                          "ringleader-asgd(point=%s)" % point))["method_figures"]["delay_max"]
                self.assertLessEqual(most, 2 * n - 2)
                self.assertTrue(most == 2 * n - 2 or point == "fresh", (n, most))
            for limit in (1, 2, n):
                s = summary(self.train("m", *common, "--method", "ringmaster-asgd(max_delay=%d)" % limit))
                most = s["method_figures"]["applied_delay_max"]
                # not every pattern of speeds has them all
                self.assertTrue(most == limit - 1 or (most < limit and (n < 5 or limit == 16)), (n, limit, most))
                self.assertEqual(sum(s["method_figures"]["applied"]) + sum(s["method_figures"]["dropped"]), 150 * n)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_unlimited_delay_equals_asgd_and_minimal_delay_equals_single(self):
        """ringmaster-asgd.md, 2 and 3. R = 1: each update is of the model just before it, so
        without noise what k of them leave is one worker's model after k steps, to the bit."""
        common = ("--model", "quadratic(dim=8,noise=0,samples=4096)", "--batch", 1, "--transport", "sim",
                  "--step-time", 0.01, "--optimizer", "sgd(lr=0.05)", "--final-eval", "off")
        slow = ("--slow", "1:1.7,2:3.1")
        free = [model(self.train(name, *common, "-n", 3, *slow, "--steps", 40, "--method", name))
                for name in ("asgd(servers=1)", "ringmaster-asgd(max_delay=-1)")]
        self.assertEqual(*free)
        for n in 2, 3:
            chain = self.train("chain%d" % n, *common, "-n", n, *slow[:1], slow[1] if n == 3 else "1:1.7",
                               "--steps", 40, "--method", "ringmaster-asgd(max_delay=1)")
            applied = int(sum(summary(chain)["method_figures"]["applied"]))
            self.assertTrue(0 < applied < 40 * n)
            self.assertEqual(model(chain), model(self.train("single%d" % n, *common, "-n", 1, "--steps", applied,
                                                            "--method", "single")))
            for stops in "off", "on": # two gradients of one model, whosever: their mean is either of them
                pairs = self.train("pairs%d%s" % (n, stops), *common, "-n", n, *slow[:1],
                                   slow[1] if n == 3 else "1:1.7", "--steps", 40,
                                   "--method", "ringmaster-asgd(max_delay=1,collect=2,stops=%s)" % stops)
                figures = summary(pairs)["method_figures"]
                updates, rest = divmod(int(sum(figures["applied"])), 2)
                self.assertTrue(rest == 0 and 0 < updates <= 20 * n and sum(figures["collected"]) < 2
                                and figures["applied_delay_max"] == 0, figures)
                # a worker that was too late gets the newest model, and is in time again
                self.assertGreater(min(figures["applied"][:2]), 5)
                self.assertEqual(model(pairs), model(self.train("mean%d%s" % (n, stops), *common, "-n", 1,
                                                                "--steps", updates, "--method", "single")))
                up = sum(w["steps"] for w in summary(pairs)["by_worker"][1:])
                # a worker that has the model already continues without another
                self.assertLess(summary(pairs)["bytes_sent_total"],
                                (2 * up + n - 1) * 4 * 8 + (sum(figures["stopped"]) * 4 * 8 if stops == "on" else 0))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_round_durations_stay_within_the_papers_bounds(self):
        """ringleader-asgd.md: a round takes at most twice the slowest worker's time and has n
        updates, its harmonic count is at least tau_n / (2 tau_mean); ringmaster-asgd.md: R updates
        in a row take at most t(R), and gradients of a worker that needs more time than R updates
        are never applied. Messages take some microseconds of the 10 ms of a gradient."""
        for factors in ((1, 1, 1, 1), (1, 2, 3, 5), (1, 1.3, 2.9, 9.7), (1, 1, 1, 20)):
            n, tau = len(factors), [0.01 * f for f in factors]
            common = ("--model", "quadratic(dim=8,samples=4096)", "-n", n, "--batch", 1, "--transport", "sim",
                      "--step-time", 0.01, "--slow", ",".join("%d:%g" % (r, f) for r, f in enumerate(factors)),
                      "--steps", 100, "--optimizer", "sgd(lr=0.01)", "--final-eval", "off")
            s = summary(self.train("l", *common, "--method", "ringleader-asgd"))
            figures = s["method_figures"]
            self.assertLessEqual(s["wall_seconds"], 1.01 * (figures["rounds"] + 1) * 2 * tau[-1])
            self.assertTrue(n * figures["rounds"] <= figures["updates"] <= n * figures["rounds"] + n, figures)
            self.assertGreaterEqual(figures["harmonic_count_min"], 0.99 * tau[-1] / (2 * sum(tau) / n), factors)
            self.assertLessEqual(figures["round_seconds_max"], 2 * tau[-1] + 0.0005) # and what 2 n messages take
            self.assertTrue(0.99 * tau[-1] <= figures["round_seconds_mean"] <= figures["round_seconds_max"])
            for counts, delays in zip(figures["counts"], figures["delays"]):
                self.assertEqual((sum(k for _, k in counts), sum(k for _, k in delays)),
                                 (figures["rounds"], figures["updates"]))
                self.assertLessEqual(delays[-1][0], 2 * n - 2)
            self.assertEqual(max(delays[-1][0] for delays in figures["delays"]), figures["delay_max"])
            # a gradient of the slow one a round, and of each other about twenty, or forty where it
            # has come just before the round began
            if factors[-1] == 20:
                self.assertEqual(figures["counts"][-1], [[1, figures["rounds"]]])
                self.assertTrue(all(19 <= sum(b * k for b, k in counts) / figures["rounds"] <= 41
                                    for counts in figures["counts"][:-1]), figures["counts"])
            for limit in (1, 2, 5):
                most = 1.01 * min(2 * (limit + m) / sum(1 / t for t in tau[:m]) for m in range(1, n + 1))
                figures = summary(self.train("m", *common,
                                             "--method", "ringmaster-asgd(max_delay=%d)" % limit))["method_figures"]
                self.assertLessEqual(figures["limit_updates_seconds_max"], most, (factors, limit))
                if factors[-1] == 20: # the others make 57 updates meanwhile
                    self.assertEqual((figures["applied"][-1], figures["dropped"][-1] > 0), (0, True))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_adaptive_delay_limit_moves_away_from_both_extremes(self):
        common = ("--model", "quadratic(dim=8,samples=4096)", "-n", 8, "--batch", 1, "--transport", "sim",
                  "--step-time", 0.01, "--slow", ",".join("%d:%g" % (r, 1 + 0.3 * r) for r in range(8)), "--steps", 200,
                  "--optimizer", "sgd(lr=0.01)")
        for stops in ("off", "on"):
            for first in (1, 4096):
                figures = {a: summary(self.train(a, *common,
                                                 "--method", "ringmaster-asgd(max_delay=%d,stops=%s,adapt=%s)"
                                                 % (first, stops, a)))["method_figures"] for a in ("off", "on")}
                self.assertLess(figures["on"]["applied_delay_max"], figures["on"]["limit_max"])
                self.assertTrue(4 <= figures["on"]["limit"] <= 32, figures["on"])
                part = {a: sum(f["applied"]) / sum(f["applied"] + f["dropped"] + f.get("stopped", []))
                        for a, f in figures.items()}
                self.assertTrue(part["off"] < 0.3 if first == 1 else part["off"] == 1)
                self.assertTrue(0.6 < part["on"] <= 1, part)
                self.assertEqual(sum(figures["on"]["applied"]) + sum(figures["on"]["dropped"]), 200 * 8)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_stops_avoid_computing_gradients_that_would_be_dropped(self):
        """A gradient of the slow worker takes longer than R updates of the others. When it is stopped
        it begins again, at a newer model, and in the end its gradients count or are few."""
        common = ("--model", "mlp(hidden=8)", "--data", self.data, "-n", 4, "--batch", 4, "--transport", "sim",
                  "--step-time", 0.01, "--slow", "3:3.3", "--steps", 60, "--optimizer", "sgd(lr=0.02)", "--seed", 3)
        off, on = (summary(self.train(w, *common, "--method", "ringmaster-asgd(max_delay=6,stops=%s)" % w))
                   for w in ("off", "on"))
        self.assertGreater(off["method_figures"]["dropped"][3], 10)
        self.assertEqual((off["restarts"], sum(on["method_figures"]["dropped"])), (0, 0))
        self.assertGreater(on["restarts"], 10)
        self.assertLess(steps(on)[3], steps(off)[3])
        self.assertEqual(sum(on["method_figures"]["applied"]), 240)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_ata_finds_the_allocation_that_is_best_for_these_speeds(self):
        seconds = (1, 1, 2, 4, 8, 3)
        common = ("--model", "quadratic(dim=8,samples=4096)", "-n", 6, "--batch", 8, "--transport", "sim",
                  "--step-time", 0.01, "--slow", ",".join("%d:%g" % (r, t) for r, t in enumerate(seconds)),
                  "--optimizer", "sgd(lr=0.1)")
        tasks = 48
        best = [0] * 6
        for _ in range(tasks): # the published greedy, which is optimal (step 3)
            best[min(range(6), key=lambda r: (best[r] + 1) * seconds[r])] += 1
        s = summary(self.train("a", *common, "--steps", 80, "--method", "ata(tasks=%d)" % tasks))
        dealt, figures = s["method_figures"]["tasks"], s["method_figures"]
        self.assertEqual(sum(dealt), tasks)
        self.assertEqual(max(a * t for a, t in zip(dealt, seconds)), max(a * t for a, t in zip(best, seconds)))
        for r, t in enumerate(seconds): # a task is an eighth of a pass
            self.assertAlmostEqual(figures["task_seconds"][r], 0.01 * t / 8, delta=1e-4 * t)
        even = summary(self.train("e", *common, "--steps", 80, "--method", "ata(tasks=%d,allocation=uniform)" % tasks))
        self.assertLess(figures["slowest_seconds"], 0.6 * even["method_figures"]["slowest_seconds"])
        self.assertEqual(s["samples"], even["samples"])

    def test_a_killed_server_ends_the_run_and_is_named(self):
        for method in ("dude-asgd(group=3)", "ringleader-asgd", "ringmaster-asgd(stops=on)"):
            err, ranks = self.killed(4, 0, "-n", 4, "--method", method)
            self.assertIn("worker 0 was lost: process %d was killed by signal 9 (SIGKILL)" % ranks[0], err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
