"""`tutti plan memory`: its prediction is what the run then counts. A short run of each case is
compared with its plan: every kind of every rank within 5 %, and to the byte where it depends on
nothing but the options; likewise what is sent."""
import json, os, re, tempfile, unittest
from command import *

KINDS = ("values", "gradients", "states", "activations", "buffers")
OVER = 6
MLP = ("--model", "mlp(hidden=64)")
PARAMS = 784 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10


class Plan(Case):
    def plan(self, *arguments, **environment):
        done = tutti("plan", "memory", "--json", *arguments, **environment)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return json.loads(done.stdout)

    def compared(self, name, *arguments, exact=True, sent=True):
        """sent: the bytes sent follow from the options, too; False: from the order of arrival or from losses."""
        if "--data" not in arguments:
            arguments += ("--data", self.data)
        arguments += ("--steps", OVER)
        p = self.plan("--over", OVER, *arguments)
        s = summary(self.train(name, "--quiet", *arguments))
        self.assertEqual(p["params"], s["params"])
        self.assertEqual(len(p["ranks"]), s["workers"] + s["servers"])
        for w in s["by_worker"] + s["by_server"]:
            planned, counted = p["ranks"][w["rank" if "server" in w else "worker"]]["memory"], w["memory"]
            self.assertEqual(set(planned), {*KINDS, "total"})
            self.assertEqual(sum(counted[k] for k in KINDS), counted["total"])
            for kind in counted:
                self.assertLessEqual(abs(planned[kind] - counted[kind]), 0.05 * counted[kind], (arguments, kind, w))
            if exact:
                self.assertEqual(planned, counted, arguments)
        self.assertEqual(s["memory"], max((w["memory"] for w in s["by_worker"]), key=lambda m: m["total"]))
        if sent:
            self.assertEqual(p["steps"], s["steps"])
            self.assertEqual(p["bytes_sent_total"], s["bytes_sent_total"], arguments)
            self.assertAlmostEqual(p["messages_sent_total"],
                                   p["steps"] * sum(r["messages_sent_a_step"] for r in p["ranks"]), places=6)
        return p, s

    def test_plan_matches_runs_of_all_reduce_methods(self):
        for k, (n, method, *more) in enumerate((
                (1, "single"), (2, "ddp", "--batch", 100, "--accumulate", 2), (3, "zero"),
                (3, "zero(stage=2)", "--optimizer", "adamw"), (2, "pipe-sgd", "--batch", 8), (3, "bytescheduler"),
                (2, "powersgd"), (3, "qsgd", "--lane", "on"), (2, "onebit-adam"), (2, "zero-offload(delayed=on)"),
                (2, "zero-offload(tier=nvme(path=%s,direct=off),tile_mb=0.1)" % tempfile.gettempdir()),
                (3, "ddp", "--codec", "ef(topk(ratio=0.01))"), (3, "ddp", "--batch-share", "1:2:5"))):
            p, s = self.compared("a%d" % k, *MLP, "-n", n, "--method", method, *more)
            if method == "zero":
                self.assertEqual(p["bytes_sent_total"], OVER * 2 * (n - 1) * 4 * PARAMS)
            if "nvme" in method:  # masters and momentum are on the disk, and three tiles of each in memory
                self.assertLess(s["memory"]["states"], 100)
                self.assertGreater(s["memory"]["buffers"], 2 * 3 * 0.1 * 2 ** 20)

    def test_plan_matches_runs_of_averaging_and_gossip_methods(self):
        for k, (n, method) in enumerate(((3, "local-sgd(period=3)"), (2, "slowmo"), (4, "d-psgd"), (4, "sgp"),
                                         (4, "gut"), (5, "hop"))):
            self.compared("g%d" % k, *MLP, "-n", n, "--method", method)
        self.compared("prague", *MLP, "-n", 4, "--method", "prague", sent=False)

    def test_plan_matches_runs_of_pipelines(self):
        """A rank has the values of its stage only."""
        for k, (n, method, copies) in enumerate(((3, "hetpipe", 1), (4, "hetpipe(stages=2,in_flight=4)", 2),
                                                 (3, "wavelet(sync_mode=average,sync_rounds=2)", 3),
                                                 (4, "wavelet(stages=2)", 2), (2, "wavelet", 2),
                                                 (3, "heterps(stages=3)", 1),
                                                 (2, "heterps", 2))):
            p, s = self.compared("p%d" % k, *MLP, "-n", n, "--method", method)
            self.assertEqual(sum(r["memory"]["values"] for r in p["ranks"]), 4 * PARAMS * copies)

    def test_plan_matches_runs_with_tables_in_a_stage(self):
        """Rows that go are those of the data."""
        path, model = os.path.join(self.folder, "stages.json"), "ctr(dim=4,layers=1,hidden=16)"
        with open(path, "w") as f:
            json.dump({"schema": "tutti-stages-1", "model": model, "stages": [
                {"type": t, "first_layer": q, "end_layer": q + 1, "units": 2 - q, "sparse": q == 0,
                 "first_unit": q, "end_unit": 1 + 2 * q} for q, t in enumerate("ab")]}, f)
        data = "clicks(file=%s,rows=200)" % small_clicks(self.folder)
        self.compared("tables", "--model", model, "--data", data, "-n", 3, "--batch", 16, "--method",
                      "heterps(schedule=%s)" % path)

    def test_plan_matches_runs_with_shared_and_dedicated_servers(self):
        for k, (n, servers, method, transport) in enumerate((
                (3, 0, "parameter-server", "shm"), (2, 1, "ssp", "shm"), (3, 2, "asgd", "tcp"),
                (3, 1, "byteps", "tcp"))):
            p, s = self.compared("s%d" % k, *MLP, "-n", n, "--servers", servers, "--method", method,
                                 "--transport", transport, sent=servers > 0 or method == "parameter-server")
            self.assertEqual([r["role"] for r in p["ranks"]], n * ["worker"] + servers * ["server"])
            for r in p["ranks"][n:]:
                self.assertEqual((r["memory"]["values"], r["memory"]["gradients"], r["memory"]["activations"]),
                                 (0, 0, 0))
                self.assertGreater(r["memory"]["states"] + r["memory"]["buffers"], 0)
        # the order of arrival does not follow from the plan, unlike the bytes that a gradient sends
        p, s = self.compared("asgd", *MLP, "-n", 3, "--method", "asgd", sent=False)
        self.assertLess(abs(p["bytes_sent_total"] - s["bytes_sent_total"]), 0.05 * s["bytes_sent_total"])

    def test_plan_matches_other_networks_data_and_precisions(self):
        for k, (n, *more) in enumerate((
                (2, "--model", "cnn", "--method", "local-sgd", "--batch", 20),
                (2, "--model", "resnet(recompute=on)", "--method", "ddp", "--batch", 8),
                (3, *MLP, "--method", "ddp", "--precision", "bf16", "--batch", 70),
                (2, *MLP, "--method", "zero(stage=2)", "--precision", "fp16"),
                (2, "--model", "gpt(layers=1,dim=32,heads=2)", "--data", "moby-dick", "--method", "zero(stage=2)",
                 "--batch", 10, "--optimizer", "adamw"),
                (3, "--model", "quadratic", "--data", "quadratic", "--method", "d-psgd"),
                (3, *MLP, "--method", "ddp", "--partition", "dirichlet(alpha=0.5)", "--final-eval", "off"),
                (3, *MLP, "--method", "ddp", "--final-eval", "off", "--eval-every", 9))):
            self.compared("n%d" % k, "-n", n, *more)

    def test_plan_counts_the_table_rows_in_the_data(self):
        self.compared("rows", "--model", "wordlm(dim=32)", "--data", "moby-dick", "--method", "parallax", "-n", 2,
                      "--batch", 4)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_plan_matches_simulated_runs(self):
        self.compared("ring", *MLP, "-n", 8, "--method", "d-psgd", "--transport", "sim")
        self.compared("asgd", *MLP, "-n", 4, "--servers", 1, "--method", "asgd", "--transport", "sim")
        p = self.plan(*MLP, "--data", self.data, "-n", 4, "--transport", "sim", "--stream", 1000, "--slow", "1:5",
                      "--fail", "2@0.1", "--step-time", "9", "--steps", 99)
        self.assertEqual(p["steps"], 16) # what only takes time changes nothing

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_plan_larger_than_this_machine_runs_no_steps(self):
        common = ("--model", "mlp(hidden=8192)", "--data", self.data, "-n", 300, "--transport", "sim")
        with open("/proc/meminfo") as f:
            if int(f.readline().split()[1]) > 300 << 20:
                self.skipTest("this machine has room for 300 of them")
        p = self.plan(*common)
        values = 4 * p["params"]
        for r in p["ranks"]:
            for kind in ("values", "gradients", "states"):
                self.assertLess(abs(r["memory"][kind] - values), 0.001 * values)
            self.assertIsNone(r["bytes_sent_a_step"])
        self.assertEqual((p["steps"], p["bytes_sent_total"], p["messages_sent_total"]), (0, None, None))
        self.assertRegex(p["unmeasured"], r"^the ranks together take \d+\.\d GiB, and steps are run only where")
        said = tutti("plan", "memory", *common).stdout
        self.assertIn("wire: not counted; the ranks together take", said)
        self.assertNotIn("sent/step", said)

    def test_plan_json_has_all_members_and_matches_the_table(self):
        common = (*MLP, "--data", self.data, "-n", 4, "--servers", 2, "--method", "asgd", "--transport", "tcp",
                  "--steps", 20)
        p = self.plan(*common, "--over", 5)
        self.assertEqual(set(p), {"schema", "version", "model", "data", "method", "transport", "optimizer", "codec",
                                  "workers", "servers", "batch", "accumulate", "params", "data_bytes", "steps",
                                  "unmeasured", "bytes_sent_total", "messages_sent_total", "groups", "ranks"})
        self.assertEqual((p["schema"], p["workers"], p["servers"], p["params"], p["unmeasured"]),
                         ("tutti-plan-memory-1", 4, 2, PARAMS, None))
        self.assertEqual([(g["role"], g["first_rank"], g["last_rank"]) for g in p["groups"]],
                         [("worker", 0, 3), ("server", 4, 5)])
        for g in p["groups"]:
            self.assertEqual(set(g), {"role", "first_rank", "last_rank", "memory", "bytes_sent_a_step", "parts"})
            for kind in KINDS:
                if kind != "activations":
                    self.assertEqual(sum(part["bytes"] for part in g["parts"] if part["kind"] == kind),
                                     g["memory"][kind])
        for k, r in enumerate(p["ranks"]):
            self.assertEqual(set(r), {"rank", "role", "memory", "bytes_sent_a_step", "messages_sent_a_step"})
            self.assertEqual(r["rank"], k)
        done = tutti("plan", "memory", *common, "--over=5")
        self.assertEqual(done.stderr, "")
        self.assertRegex(done.stdout, r"(?m)^KiB +values gradients +states activations +buffers +total sent/step$")
        for name, g in zip(("worker 0-3", "server 0-1"), p["groups"]):
            row = next(line for line in done.stdout.splitlines() if line.startswith(name + " "))
            self.assertEqual([float(v) for v in row[len(name):].split()][:6],
                             [round(g["memory"][k] / 1024, 2) for k in (*KINDS, "total")])
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 120)

    def test_plan_goes_through_whole_periods(self):
        """Unless --over says how many steps, and at most as many as the run has."""
        for more, steps in (((), 20), (("--over", 7), 7), (("--steps", 12), 12)):
            p = self.plan(*MLP, "--data", self.data, "-n", 2, "--method", "local-sgd(period=10)", "--steps", 99, *more)
            self.assertEqual(p["steps"], steps)
            if steps == 20:
                self.assertEqual(p["bytes_sent_total"], 2 * 2 * 4 * PARAMS)
        # with logical shares a step is a round of 10 local steps, and so a period
        p = self.plan(*MLP, "--data", self.data, "-n", 2, "--method", "local-sgd(period=10)", "--elastic-shares", 2,
                      "--steps", 99)
        self.assertEqual(p["steps"], 16)

    def test_plan_of_an_existing_run_writes_nothing(self):
        out = self.train("was", *MLP, "--data", self.data, "-n", 3, "--method", "d-psgd", "--steps", 5)
        before, here, segments = self.files(out), set(os.listdir(".")), shm_entries()
        for p in (self.plan("--resume", out), self.plan(os.path.join(out, "config.json"))):
            self.assertEqual((p["method"], p["workers"], p["steps"]), ("d-psgd", 3, 5))
            self.assertEqual(p["ranks"][0]["memory"], summary(out)["by_worker"][0]["memory"])
        self.assertEqual((self.files(out), set(os.listdir(".")), shm_entries()), (before, here, segments))

    def test_plan_and_run_reject_options_with_the_same_message(self):
        for arguments in (("--method", "dpp"), ("--method", "scadles", "--accumulate", 2, "-n", 2),
                          ("--method", "ddp", "--servers", 1), ("--data", "nowhere"), ("--model", "gpt"),
                          ("--method", "prague(group_size=5)", "-n", 3), ("--batch", 0), ("--optimizer", "adma"),
                          ("--codec", "ef(", "-n", 2)):
            data = () if "--data" in arguments else ("--data", self.data)
            planned = tutti("plan", "memory", *arguments, *data)
            run = tutti("train", *arguments, *data, "--steps", 1, "--out", self.out("refused"))
            said = re.sub(r"^tutti: worker \d+: ", "tutti: ", run.stderr)
            self.assertEqual((planned.returncode, planned.stderr.splitlines()[:1], planned.stdout),
                             (2, said.splitlines()[:1], ""), arguments)

    def test_plan_has_its_own_error_messages(self):
        for arguments, sentence in (
                (("memory", "--over", "0"), "tutti: over is '0'; it must be a number of steps, 1 to 100000\n"),
                (("memory", "--over"), "tutti: over is ''; it must be a number of steps, 1 to 100000\n"),
                (("memory", "-H", "a:2"), "tutti: hosts is 'a:2', and a plan is made on this machine alone; give -n, "
                                          "and --transport tcp\n"),
                (("memroy",), "tutti plan: there is no plan of 'memroy'; did you mean 'memory'?; see `tutti plan "
                              "--help`\n")):
            done = tutti("plan", *arguments)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", sentence))
        self.assertEqual(tutti("plan").returncode, 2)
        done = tutti("plan", "memory", "--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 80)
        self.assertEqual(tutti("help", "plan", "memory").stdout, tutti("plan", "memory", "--help").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
