"""parameter-server, asgd, ssp and backup-workers as a person runs them: bits, traffic, delays and
waiting against formulas, resuming to the bit under the simulator, a killed server."""
import math, os, signal, subprocess, time, unittest
from command import *

MODEL = ("--model", "mlp(hidden=64)")
PARAMS = 784 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10


def model(out):
    return read(os.path.join(out, "model.safetensors"))


class Servers(Case):
    def test_the_parameter_server_trains_ddp_to_the_bit_on_every_transport(self):
        common = (*MODEL, "--data", self.data, "--batch", 20, "--epochs", 2, "--seed", 3, "-n", 4, "--clip-norm", 2,
                  "--optimizer", "adamw(lr=0.003)")
        ddp = model(self.train("ddp", *common, "--method", "ddp"))
        for transport in and_sim("shm", "tcp"):
            out = self.train(transport, *common, "--method", "parameter-server(servers=3)", "--transport", transport)
            self.assertEqual(model(out), ddp)
            s = summary(out)
            self.assertEqual(s["bytes_sent_total"], s["steps"] * 4 * sum(2 * (4 - 1) * part for part in self.parts(3)))

    def parts(self, servers):
        """A bucket of the whole model, cut at multiples of 16."""
        cuts = [PARAMS // 16 * k // servers * 16 for k in range(servers)] + [PARAMS]
        return [b - a for a, b in zip(cuts, cuts[1:])]

    def test_server_methods_learn_over_tcp_with_expected_traffic(self):
        for method, ahead in (("asgd", True), ("ssp(staleness=2)", False), ("backup-workers(backup=0)", False)):
            out = self.train(method[:3], *MODEL, "--data", self.data, "--batch", 20, "--steps", 60, "--seed", 1, "-n",
                             3, "--method", method, "--transport", "tcp", "--optimizer", "sgd(lr=0.05)")
            s = summary(out)
            self.assertGreater(s["final_test_accuracy"], 0.4)
            pushes = sum(2 * 4 * (PARAMS - part) * w["steps"] for part, w in zip(self.parts(3), s["by_worker"]))
            self.assertEqual(s["bytes_sent_total"], pushes + (0 if method.startswith("backup") else 2 * 4 * PARAMS))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_simulated_runs_repeat_and_resume_to_the_bit_under_random_pauses(self):
        # equal workers on unequal links: no two workers arrive at the same time
        edge = self.out("edge.xml")
        with open(edge, "w") as f:
            f.write(tutti("platform", "edge(12)").stdout)
        for k, (n, method, slow) in enumerate(((5, "asgd(servers=2,lr_delay=inverse)", "0:1.31,*:2.2:0.4"),
                                               (3, "asgd(softsync=2,compensate=adaptive,lambda=0.1)", "*:3:0.3"),
                                               (4, "ssp(staleness=2)", "*:2:0.5"),
                                               (3, "ssp(staleness=0,staleness_max=3)", "1:2.3,*:1.5:0.3"),
                                               (4, "asgd(lr_time=on)", "2:3.1,*:2:0.4"),
                                               (5, "backup-workers(backup=2)", "3:2.7,*:1.7:0.4"))):
            common = (*MODEL, "--data", self.data, "-n", n, "--batch", 10, "--method", method, "--seed", 2,
                      "--steps", 30, "--checkpoint-every", 10, "--checkpoint-keep", 9, "--slow", slow,
                      "--transport", "sim", "--platform", edge, "--optimizer", "adamw(lr=0.002)")
            whole = self.train("w%d" % n + method[:3], *common)
            if k == 0: # from their checkpoints all repeat; from their beginning this one
                self.assertEqual(model(whole), model(self.train("again", *common)))
            checkpoints = os.path.join(whole, "checkpoints")
            for name in one_of(k, sorted(os.listdir(checkpoints))[:-1]):
                resumed = self.train("r%d%s%s" % (n, method[:3], name), *common,
                                     "--resume", os.path.join(checkpoints, name))
                self.assertEqual(model(whole), model(resumed), "%s from %s" % (method, name))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_equal_workers_see_delays_of_n_less_one(self):
        for n in (4, 8):
            s = summary(self.train("d%d" % n, "--model", "quadratic(dim=50)", "-n", n, "--steps", 100, "--batch", 16,
                                   "--transport", "sim", "--step-time", 0.01, "--method", "asgd",
                                   "--optimizer", "sgd(lr=0.001)"))
            self.assertAlmostEqual(s["staleness_mean"], n - 1, delta=0.1 * (n - 1))
            gradients, of_all = sum(w["steps"] for w in s["by_worker"]), dict(s["staleness"])
            self.assertEqual(of_all, {d: sum(dict(w["staleness"]).get(d, 0) for w in s["by_worker"]) for d in of_all})
            self.assertEqual((sum(of_all.values()), max(of_all)), (gradients, s["staleness_max"]))
            self.assertAlmostEqual(sum(d * k for d, k in of_all.items()) / gradients, s["staleness_mean"])

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_a_delay_is_stable_up_to_its_threshold_and_not_beyond(self):
        """On a quadratic with curvature 1 a rate converges under a delay of K exactly where it is
        below 2 sin(pi / (2 (2K + 1))); n equal workers have one of n - 1."""
        common = ("--model", "quadratic(dim=4,condition=1,noise=0)", "--batch", 1, "--transport", "sim",
                  "--step-time", 0.01, "--seed", 1)
        for n, method in ((2, "asgd"), (4, "asgd"), (9, "asgd"), (4, "ringmaster-asgd(max_delay=-1)")):
            edge = 2 * math.sin(math.pi / (2 * (2 * n - 1)))
            first, below, above = (summary(self.train("t", *common, "-n", n, "--method", method,
                                                      "--steps", 1 if part == 0 else 400, "--optimizer", "sgd(lr=%.17g)"
                                                      % (part * edge)))["final_test_loss"] for part in (0, 0.98, 1.02))
            self.assertLess(below, 0.1 * first, (n, method))
            self.assertGreater(above, 10 * first, (n, method))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_waiting_for_a_slow_worker_depends_on_the_method(self):
        """A gradient takes 10 ms, worker 3 takes five times as long. 100 steps of 8: ddp goes at
        its pace, asgd at that of all together; ssp is ahead by its bound and then waits; a spare
        worker makes up for it."""
        common = ("--model", "quadratic(dim=50)", "-n", 8, "--steps", 100, "--batch", 16, "--transport", "sim",
                  "--step-time", 0.01, "--slow", "3:5", "--optimizer", "sgd(lr=0.001)")
        seconds = {m: summary(self.train("s%d" % k, *common, "--method", m))["wall_seconds"]
                   for k, m in enumerate(("ddp", "ssp(staleness=10)", "asgd", "backup-workers(backup=1)"))}
        self.assertGreater(seconds["ddp"], 100 * 0.05)
        self.assertLess(seconds["asgd"], 1.1 * 0.01 * 800 / 7.2)
        self.assertLess(seconds["backup-workers(backup=1)"], 1.1 * 0.01 * 101 + 0.05)
        self.assertGreater(seconds["ssp(staleness=10)"], 100 * 0.05)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_adaptive_staleness_bound_follows_recent_speeds(self):
        """A worker 4.3 times as slow leaves time for the first step of the other and 3 more until
        it pushes; one 20 times as slow leaves time for all that are allowed. No worker is granted less
        than staleness, and equal workers are granted nothing more."""
        common = ("--model", "quadratic(dim=50)", "-n", 2, "--steps", 80, "--batch", 16, "--transport", "sim",
                  "--step-time", 0.01, "--optimizer", "sgd(lr=0.001)", "--final-eval", "off")
        for slow, method, most in (
            ("1:4.3", "staleness=0,staleness_max=8", 3), ("1:6.3", "staleness=0,staleness_max=8", 5),
            ("1:20", "staleness=0,staleness_max=8", 8), ("1:4.3", "staleness=0,staleness_max=2", 2),
            ("1:4.3", "staleness=4,staleness_max=5", 5), ("1:1", "staleness=0,staleness_max=8", 0)):
            s = summary(self.train("b", *common, "--slow", slow, "--method", "ssp(servers=1,%s)" % method))
            self.assertEqual((s["staleness_max"], s["steps"]), (most, 80), (slow, method))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_time_based_rates_weigh_unequal_workers_equally(self):
        """Two classes, a worker each, one 20 times slower: the model goes where both want it, and
        not where the fast one does; a gradient of the slow one counts like twenty of the other."""
        common = ("--model", "quadratic(dim=10,condition=1,classes=2,noise=0,skew=1,samples=64)",
                  "--partition", "class(k=1)", "-n", 2, "--batch", 8, "--transport", "sim", "--step-time", 0.01,
                  "--slow", "1:20", "--optimizer", "sgd(lr=0.02)")
        first = summary(self.train("first", *common, "--method", "ddp", "--steps", 1,
                                   "--optimizer", "sgd(lr=0)"))["final_train_loss"]
        loss = {o: summary(self.train("t", *common, "--steps", 1500, "--method", "asgd(%s)" % o))["final_train_loss"]
                for o in ("lr_time=off", "lr_time=on", "lr_time=on,softsync=2", "lr_time=on,servers=1")}
        self.assertGreater(loss.pop("lr_time=off"), 0.1 * first)
        for o in loss:
            self.assertLess(loss[o], 0.01 * first, o)

    def test_a_killed_worker_takes_its_slice_with_it_and_is_named(self):
        for method, victim in (("parameter-server(servers=1)", 0), ("asgd", 2), ("ssp(staleness=1000000)", 2),
                               ("backup-workers", 2), ("parallax", 2)):
            err, workers = self.killed(4, victim, "-n", 4, "--method", method)
            self.assertIn("worker %d was lost: process %d was killed by signal 9 (SIGKILL)" % (victim, workers[victim]),
                          err)

    def test_dedicated_server_memory_stays_within_its_bound(self):
        """Its peak of memory against that of a run with a small model, in MiB. Over shared memory it has mapped what
        it has read and written of the workers' windows: g, and x where values are kept."""
        if os.environ.get("TUTTI_SIMULATED") == "off":
            narrowed("peaks of memory: a sanitizer has its own")
            return
        n, hidden = 2, 1400
        model = (784 * hidden + hidden + hidden * hidden + hidden + hidden * 10 + 10) * 4 / 2 ** 20
        first = (hidden * hidden + hidden + hidden * 10 + 10) * 4 / 2 ** 20 # the larger of two buckets

        def peak(method, transport, hidden):
            out = self.train("p%d%s%s" % (hidden, transport, method[:4]), "--model", "mlp(hidden=%d)" % hidden,
                             "--data", self.data, "--batch", 4, "--steps", 3, "--final-eval", "off", "-n", n,
                             "--servers", 1, "--method", method, "--transport", transport, "--optimizer",
                             "sgd(lr=0.01,momentum=0.9)")
            return summary(out)["by_server"][0]["peak_rss_bytes"] / 2 ** 20

        least = {transport: peak("parameter-server", transport, 16) for transport in ("tcp", "shm")}
        for method, room, windows in (("parameter-server", n * 2 * first, n * model),
                                      ("bytescheduler(over=servers,partition_mb=1,credit_mb=2)", n * 3, n * model),
                                      ("asgd", (1 + 1 + n) * model, (1 + 1 + 2 * n) * model),
                                      ("backup-workers(backup=0)", (1 + 1 + n) * model, (1 + 1 + 2 * n) * model)):
            for transport, most in (("tcp", room), ("shm", windows)):
                beyond = peak(method, transport, hidden) - least[transport]
                self.assertLess(beyond, 1.05 * most + 4, (method, transport, beyond, most))

    def test_dedicated_servers_do_not_change_the_bits(self):
        common = (*MODEL, "--data", self.data, "--batch", 20, "--epochs", 2, "--seed", 3, "-n", 3, "--clip-norm", 2,
                  "--optimizer", "adamw(lr=0.003)", "--eval-every", 40, "--partition", "dirichlet(alpha=0.5)")
        ddp = self.train("ddp", *common, "--method", "ddp")
        for transport in and_sim("shm", "tcp"):
            out = self.train(transport, *common, "--method", "parameter-server", "--servers", 2,
                             "--transport", transport)
            self.assertEqual(model(out), model(ddp))
            s, d = summary(out), summary(ddp)
            self.assertEqual((s["workers"], s["servers"],
                              s["members"], len(s["by_worker"]), [(k["server"], k["rank"]) for k in s["by_server"]]),
                             (3, 2, [0, 1, 2], 3, [(0, 3), (1, 4)]))
            for key in ("samples", "steps", "final_test_loss", "final_test_accuracy", "final_train_loss"):
                self.assertEqual(s[key], d[key], key)
            # a gradient up and a mean down each
            self.assertEqual(s["bytes_sent_total"], s["steps"] * 4 * 3 * 2 * PARAMS)
            self.assertEqual([k["bytes_sent"] for k in s["by_server"]],
                             [s["steps"] * 4 * 3 * part for part in self.parts(2)])

    def test_methods_with_dedicated_servers_learn_and_reach_targets(self):
        for k, (method, servers) in enumerate((("asgd(lr_delay=inverse)", 2), ("ssp(staleness=2)", 2),
                                               ("backup-workers(backup=1)", 2), ("ringmaster-asgd(stops=on)", 1),
                                               ("ringleader-asgd", 1), ("dude-asgd(table=worker)", 1),
                                               ("oscars(interval=4)", 1))):
            s = summary(self.train("m%d" % k, *MODEL, "--data", self.data, "--batch", 20, "--steps", 400, "--seed", 1,
                                   "-n", 3, "--servers", servers, "--method", method, "--optimizer", "sgd(lr=0.03)",
                                   "--target", "accuracy=0.4", "--eval-every", 20))
            self.assertGreaterEqual(s["final_test_accuracy"], 0.4)
            self.assertIsNotNone(s["time_to_target_seconds"])
            self.assertEqual(s["events"], [])
            if servers == 1: # figures of the server, which a worker writes
                self.assertIn("updates" if "dude" in method or "leader" in method else "applied_delay_max",
                              s["method_figures"])

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_links_to_dedicated_servers_are_busy_both_ways(self):
        """A gradient of 5 MB in dozens of pieces, 4 workers, 4 servers: what is sent one after the other comes back
        while the next is sent."""
        links = self.out("platform.xml")
        with open(links, "w") as f:
            f.write(tutti("platform", "cluster(n=8,rate=1Gbps,latency=10us)").stdout)
        of = {}
        for method in ("parameter-server(bucket_mb=0.1,first_bucket_mb=0.1)",
                       "herring(node=none,fusion_mb=0.1,min_shard_kb=0)", "byteps(partition_bytes=102400)",
                       "bytescheduler(over=servers,partition_mb=0.1,credit_mb=0.8,fuse_mb=0.1)"):
            s = summary(self.train("e", "--model", "gpt(layers=6,dim=128)", "--data", "moby-dick", "-n", 4, "--servers",
                                   4, "--batch", 1, "--transport", "sim", "--platform", links, "--step-time", 0.001,
                                   "--steps", 2, "--final-eval", "off", "--eval-every", 100, "--method", method))
            of[method] = s["wall_seconds"] / 2 / (4 * s["params"] / 1.25e8)
        self.assertTrue(all(1 <= ratio < 1.3 for ratio in of.values()), of)

    def test_run_resumes_with_a_different_server_count(self):
        """With as many as before to the bit; with others where replicas are equal; else from the
        servers' model."""
        common = (*MODEL, "--data", self.data, "-n", 3, "--batch", 10, "--seed", 2, "--checkpoint-every", 10,
                  "--checkpoint-keep", 9, "--transport", "sim", "--slow", "*:2:0.5", "--optimizer", "adamw(lr=0.002)",
                  "--steps", 20)
        for k, (method, equal) in enumerate((("parameter-server", True), ("asgd(softsync=2)", False),
                                             ("ringmaster-asgd", False), ("oscars", False),
                                             ("decoupled-diloco(period=4,quorum=2)", False))):
            one = method.startswith(("ring", "oscars", "decoupled"))
            whole = self.train("w%d" % k, *common, "--method", method, "--servers", 1 if one else 2)
            first = os.path.join(whole, "checkpoints", sorted(os.listdir(os.path.join(whole, "checkpoints")))[0])
            self.assertTrue(first.endswith("step-00000010"), first)
            for servers in (0, 1) if one else (0, 1, 2, 3):
                out = self.train("r%d%d" % (k, servers), *common, "--method", method, "--servers", servers,
                                 "--resume", first)
                if equal or servers == (1 if one else 2):
                    self.assertEqual(model(out), model(whole), "%s with %d" % (method, servers))
                self.assertEqual(summary(out)["samples"], summary(whole)["samples"])

    def test_a_killed_server_is_named_and_ends_the_run(self):
        for method in ("parameter-server", "asgd"):
            err, ranks = self.killed(4, 3, "-n", 2, "--servers", 2, "--method", method)
            self.assertIn("worker 3 was lost: process %d was killed by signal 9 (SIGKILL); it was server 1 of 2, "
                          "and its slice of the model is gone with it" % ranks[3], err)

    def test_lost_rank_with_tables_at_servers_ends_the_run(self):
        log = small_clicks(self.folder)
        for victim, servers, last in ((1, (), ""), (0, ("--servers", 1), ""),
                                      (2, ("--servers", 1), "; it was server 0 of 1, and its slice of the model is "
                                                            "gone with it")):
            n = 2 if servers else 3
            err, ranks = self.killed(3, victim, "-n", n, *servers, "--method", "parallax(profile=0)",
                                     of=("ctr", "clicks(file=%s,rows=100)" % log))
            self.assertIn("worker %d was lost: process %d was killed by signal 9 (SIGKILL)%s"
                          % (victim, ranks[victim], last), err)

    def kill_one(self, name, victim, method, transport, *options, stopped=None):
        """Three workers and a server train until the file of reports has lines, and some more; then
        one is killed, while another is stopped for a moment. Gives exit code, errors and folder."""
        out = self.out(name)
        run = subprocess.Popen([TUTTI, "train", *MODEL, "--data", self.data, "-n", "3", "--servers", "1", "--batch",
                                "16", "--report-every", "5", "--quiet", "--method", method, "--transport", transport,
                                "--out", out, "--optimizer", "sgd(lr=0.02)", *map(str, options)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment())
        deadline = time.monotonic() + 30
        while lines_told(out) == 0 and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        ranks = children_of(run.pid)
        pid = ranks[victim]
        if stopped is not None:
            os.kill(ranks[stopped], signal.SIGSTOP)
            time.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
        if stopped is not None:
            time.sleep(0.2)
            os.kill(ranks[stopped], signal.SIGCONT)
        _, err = run.communicate(timeout=60)
        self.assertIn("worker %d was lost: process %d was killed by signal 9 (SIGKILL)" % (victim, pid), err)
        return run.returncode, err, out

    def test_run_continues_without_a_worker_that_has_no_shard(self):
        for k, (method, transport, victim) in enumerate((("parameter-server", "shm", 0), ("asgd", "tcp", 2),
                                                         ("ssp(staleness=1)", "shm", 1), ("backup-workers", "tcp", 0),
                                                         ("dude-asgd", "shm", 0), ("ringleader-asgd", "shm", 2),
                                                         ("oscars", "tcp", 0),
                                                         ("decoupled-diloco(period=8,quorum=2,outer=none)", "shm", 0),
                                                         ("hermes(push=always,chunk=64,local_passes=1)", "shm", 0))):
            code, err, out = self.kill_one("g%d" % k, victim, method, transport, "--steps", 300, "--checkpoint-every",
                                           150, *(("--validation", 50) if "hermes" in method else ()))
            self.assertEqual(code, 0, method + err)
            self.assertIn("the run continues with 2 workers", err)
            s = summary(out)
            self.assertEqual((s["workers"], s["members"], s["steps"]), (3, [r for r in range(3) if r != victim], 300))
            self.assertEqual([(e["kind"], e["rank"]) for e in s["events"]], [("lost", victim)])
            self.assertGreater(s["final_test_accuracy"], 0.4)
            n = 2 + k % 2 # as many as were left, and as many as there were; cli/resume has both of each
            again = summary(self.train("g%d-%d" % (k, n), "--resume", out, "-n", n, "--steps", 340))
            self.assertEqual((again["workers"], again["steps"], again["resumed_at_step"], again["events"]),
                             (n, 340, 300, []))
            self.assertGreater(again["final_test_accuracy"], 0.4)

    def test_run_survives_a_worker_killed_with_a_pending_gradient(self):
        """Over shared memory a server reads gradients where they are: the killed one's has been
        asked about, and is summed when the one that was stopped has sent its own."""
        code, err, out = self.kill_one("window", 2, "parameter-server", "shm", "--steps", 300, stopped=1)
        self.assertEqual(code, 0, err)
        s = summary(out)
        self.assertEqual((s["members"], s["steps"]), ([0, 1], 300))
        self.assertGreater(s["final_test_accuracy"], 0.4)

    def test_loss_ends_the_run_if_requested_or_required(self):
        code, err, _ = self.kill_one("stop", 1, "asgd", "shm", "--steps", 1000000, "--on-loss", "stop")
        self.assertEqual(code, 3, err)
        code, err, _ = self.kill_one("votes", 1, "parameter-server", "shm", "--steps", 1000000, "--nonfinite", "skip")
        self.assertEqual(code, 3, err)
        code, err, _ = self.kill_one("few", 1, "asgd", "shm", "--steps", 1000000, "--min-workers", 3)
        self.assertEqual(code, 3, err)
        self.assertIn("2 of 3 workers were left, fewer than the 3 of min-workers", err)

    def test_hogwild_needs_shared_memory(self):
        for locks in "none", "row", "full":
            out = self.train("hogwild" + locks, *MODEL, "--data", self.data, "--batch", 20, "--steps", 60, "--seed", 1,
                             "-n", 3, "--method", "asgd(hogwild=on,locks=%s)" % locks)
            self.assertGreater(summary(out)["final_test_accuracy"], 0.4, locks)
        self.refused("the 3 workers have 3 memories, not one in common; run them on one host with --transport shm, "
                     "or omit hogwild", "train", *MODEL, "--data", self.data, "-n", 3, "--out", self.out("no"),
                     "--method", "asgd(hogwild=on)", "--transport", "tcp")

    def test_unsupported_combinations_are_rejected(self):
        for args, sentence in (
            (("--method", "asgd(servers=4)"), "servers is 4, but there are 3 workers"),
            (("--method", "ssp(staleness=-1)"), "staleness"),
            (("--method", "asgd", "--batch-share", "auto"), "batch-share cuts a step by worker"),
            (("--method", "parameter-server", "--codec", "qsgd"), "has an exchange of its own, of float32"),
            (("--method", "backup-workers(backup=3)"), "leaves none to wait for"),
            (("--method", "asgd", "--collective", "doubling"), "exchanges no gradients, for which it would be taken"),
            (("--method", "ddp", "--servers", 2), "servers is 2, but method 'ddp' has no servers; leave servers at 0, "
             "or take a method that has (parameter-server, herring, byteps, asgd, ssp,"),
            (("--method", "asgd(hogwild=on)", "--servers", 1), "hogwild has no servers"),
            (("--method", "dude-asgd", "--servers", 2),
             "has 1 server, but 2 ranks only serve (servers); give --servers 1"),
            (("--method", "asgd", "--on-loss", "continue"), "on-loss is 'continue', but with 'asgd' every worker has "
             "a slice of the model, which is lost with it; use on-loss=stop, or --servers S"),
            (("--method", "parameter-server", "--servers", 1, "--on-loss", "continue", "--nonfinite", "skip"),
             "on-loss is 'continue', but with nonfinite=skip the workers of 'parameter-server' have a word among all"),
            (("--method", "asgd", "--servers", 1022), "3 workers and 1022 servers; at most 1024 ranks"),
            (("--method", "asgd", "--servers", -1), "servers")):
            self.refused(sentence, "train", *MODEL, "--data", self.data, "-n", 3, "--out", self.out("no"), *args)


if __name__ == "__main__":
    unittest.main(verbosity=2)
