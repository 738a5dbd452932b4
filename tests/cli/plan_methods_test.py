"""`tutti plan`: short simulated runs of methods, in order of the time of a step. What it predicts is
what a run of `tutti train` under the same conditions counts; table and JSON have the same figures;
what a method refuses is listed with its message, and what no method can do is refused at once."""
import json, os, re, shlex, unittest
from command import *

MLP = ("--model", "mlp(hidden=16)")
METHODS = "ddp,zero,powersgd,local-sgd(period=4),ad-psgd,pipe-sgd,backup-workers"
EFFECTS = {"ddp": "exact", "zero": "exact", "powersgd": "compressed", "local-sgd(period=4)": "local",
           "ad-psgd": "stale", "pipe-sgd": "delayed", "backup-workers": "partial"}


class PlanMethods(Case):
    def plan(self, *arguments, code=0, **environment):
        done = tutti("plan", *MLP, "--data", self.data, *arguments, **environment)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done

    def platform(self, spec):
        path = os.path.join(self.folder, "platform.xml")
        with open(path, "w") as f:
            f.write(tutti("platform", spec).stdout)
        return path

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_plan_lists_methods_in_order_with_reasons_and_commands(self):
        out = self.out("plan")
        conditions = ("-n", 4, "--platform", self.platform("cluster(n=4,rate=100Mbps,latency=100us)"),
                      "--step-time", 0.003, "--slow", "3:2")
        done = self.plan(*conditions, "--batch", 16, "--methods", METHODS + ",h-adpsgd(super_learner=3),"
                         "onebit-adam(freeze_step=9)", "--codecs", "none,fp16", "--over", 12, "--out", out)
        with open(os.path.join(out, "plan.json")) as f:
            p = json.load(f)
        self.assertEqual((p["schema"], p["workers"], p["batch"], p["steps"], p["slow"], p["measured"]),
                         ("tutti-plan-methods-1", 4, 16, 12, "3:2", None))
        # a worker is slower, so shares by speed are tried too, and come first
        self.assertEqual([(m["method"], m["codec"]) for m in p["methods"] if m["condition"]], [("ddp", "")])
        self.assertEqual(p["methods"][0]["condition"], "batch-share=auto")
        rows = {(m["method"], m["codec"]): m for m in p["methods"][1:]}
        seconds = [m["seconds_a_step"] for m in p["methods"][1:]]
        self.assertEqual(seconds, sorted(seconds))
        self.assertLess(p["methods"][0]["seconds_a_step"], 0.98 * rows["ddp", ""]["seconds_a_step"])
        least = min(p["methods"], key=lambda m: m["seconds_a_step"])
        self.assertEqual((p["fastest"]["method"], p["fastest"]["codec"]), (least["method"], least["codec"]))
        first = min((m for m in p["methods"] if m["effect"] in ("exact", "synchronous")),
                    key=lambda m: m["seconds_a_step"])
        self.assertEqual(p["fastest_synchronous"], {"method": first["method"], "codec": first["codec"]})
        for method, effect in EFFECTS.items():
            self.assertEqual(rows[method, ""]["effect"], effect)
        self.assertEqual(rows["ddp", "fp16"]["effect"], "compressed")
        self.assertLess(rows["ddp", "fp16"]["bytes_sent_a_step"], 0.6 * rows["ddp", ""]["bytes_sent_a_step"])
        # refused: with a message each, as from the run itself
        refused = {(m["method"], m["codec"]): m["why"] for m in p["refused"]}
        self.assertIn("omit codec", refused["zero", "fp16"])
        self.assertEqual(len(rows) + len(refused), 2 * 9)
        said = tutti("train", *MLP, "--data", self.data, "-n", 4, "--method", "zero", "--codec", "fp16", "--out",
                     self.out("refused"))
        self.assertEqual(said.returncode, 2)
        self.assertTrue(said.stderr.endswith(refused["zero", "fp16"] + "\n"), said.stderr)
        # the table has these figures, to its digits, in this order; then reasons and commands
        table = re.findall(r"(?m)^(\S+(?: with \S+| --batch-share auto)?)" + 4 * r" +([\d.]+)" + r" +(\w+) *$",
                           done.stdout)
        self.assertEqual(len(table), len(p["methods"]))
        for shown, m in zip(table, p["methods"]):
            self.assertEqual(shown[0], m["method"] + (" with " + m["codec"] if m["codec"] else "") +
                             (" --batch-share auto" if m["condition"] else ""))
            self.assertEqual(shown[5], m["effect"])
            for text, value in zip(shown[1:5], (m["seconds_a_step"] * 1e3, m["exposed_share"] * 100,
                                                m["memory_bytes"] / 2 ** 20, m["bytes_sent_a_step"] * 1e-6)):
                digits = len(text.partition(".")[2])
                self.assertLessEqual(abs(float(text) - value), 0.51 * 10 ** -digits, (shown, m))
        flat = " ".join(done.stdout.split())
        for m in p["methods"]:
            self.assertIn(m["reason"], flat)
            self.assertEqual(m["reason"][-1], ".")
            self.assertIn("  " + " ".join(map(shlex.quote, m["command"])) + "\n", done.stdout)
            self.assertEqual([w for w in ("sim", "--platform", "--step-time", "--slow") if w in m["command"]], [])
        self.assertIn("without its first 10 steps, which are other ones", rows["pipe-sgd", ""]["reason"])
        self.assertNotIn("steps, which", rows["ddp", ""]["reason"])
        for why in refused.values():
            self.assertIn(" ".join(why.split()), flat)
        # what is predicted is what such a run counts; a longer one, of another seed, is near
        for steps, seed, near in ((12, 0, 1e-9), (48, 7, 0.05)):
            s = summary(self.train("ddp", *rows["ddp", ""]["command"][2:], "--transport", "sim", *conditions[2:],
                                   "--steps", steps, "--seed", seed, "--final-eval", "off", "--quiet"))
            step = s["wall_seconds"] * 4 * 16 / s["samples"]
            self.assertLessEqual(abs(rows["ddp", ""]["seconds_a_step"] / step - 1), near)
        again = self.plan("--methods", "ddp", *conditions, "--out", out, code=2)
        self.assertEqual(again.stderr, f"tutti: {out} holds runs already; give another --out\n")

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_plan_skips_the_warm_up_steps_of_methods(self):
        """Or reports that it has not: with hetero-ring before it first compares the times, with
        warm-ups by steps, by epochs and by a share of the run, with methods that decide while they
        train."""
        conditions = ("-n", 8, "--transport", "sim", "--step-time", 0.02, "--slow", "0:5", "--batch", 16)
        methods = {"hetero-ring": 100, "hetero-ring(adapt_every=10)": 10, "hetero-ring(allocation=equal)": 0,
                   "lasgd(warmup=50)": 58, "pipe-sgd": 5, "dgc(warmup=2)": 10, "qadam(warmup_steps=0.2)": 6,
                   "bagua(algorithm=async,warmup_steps=20)": 20, "local-sgd(warmup=30)": 30, "alq": 100,
                   "powersgd(start_iter=12)": 12,
                   "onebit-adam": None, "accordion": None, "qadam(warmup_steps=5000)": None}
        p = json.loads(self.plan(*conditions, "--methods", ",".join(methods) + ",ddp", "--json").stdout)
        rows = {m["method"]: m for m in p["methods"] if not m["condition"]}
        self.assertEqual({name: rows[name]["settled"] for name in methods},
                         {name: steps or 0 for name, steps in methods.items()})
        for name, steps in methods.items():
            reason = rows[name]["reason"]
            self.assertEqual("without its first %s steps" % steps in reason, bool(steps), reason)
            self.assertEqual("too short" in reason, steps is None, reason)
        self.assertIn("its first 5000 steps are other ones, so this look at 24 was too short: the figures are of those "
                      "(--over 501 looks beyond them)", rows["qadam(warmup_steps=5000)"]["reason"])
        for name in ("hetero-ring", "hetero-ring(adapt_every=10)"):
            self.assertLess(rows[name]["seconds_a_step"], 0.4 * rows["ddp"]["seconds_a_step"])
        # the first steps are not counted: the difference of two runs gives the same, up to the time
        # of the end
        name = "hetero-ring(adapt_every=10)"
        s = [summary(self.train("ring%d" % n, *rows[name]["command"][2:], "--steps", n, "--final-eval", "off",
                                "--quiet")) for n in (10, 34)]
        step = (s[1]["wall_seconds"] - s[0]["wall_seconds"]) / 24
        self.assertLess(abs(rows[name]["seconds_a_step"] / step - 1), 0.1)
        self.assertGreater(s[1]["wall_seconds"] / 34, 1.5 * step)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_plan_looks_at_whole_periods_of_methods(self):
        """At the least that has --over steps. Bytes are those of the steps to the byte, without the mean
        of the models at the end, which diloco with mix and noloco make."""
        n, over, first, others = 4, 6, 784 * 16 + 16, 16 * 16 + 16 + 16 * 10 + 10
        all_reduce, pairs = 2 * (n - 1) * 4 * (first + others), n * 2 * 4 * (first + others)
        fragments = 2 * (n - 1) * 4 * first + n * (n - 1) * 4 * others  # the second is small: each sends it to all
        methods = {"ddp": (6, 6 * all_reduce), "local-sgd(period=2)": (6, 3 * all_reduce),
                   "local-sgd(period=5,warmup=3)": (10, 2 * all_reduce), "local-sgd(period=100001)": (6, 0),
                   "diloco(period=16,fragments=2,delay=2,mix=0.5)": (16, fragments),
                   "noloco(period=9)": (9, pairs), "slowmo(beta=0)": (12, all_reduce)}
        p = json.loads(self.plan("-n", n, "--transport", "sim", "--step-time", 0.01, "--batch", 15, "--over", over,
                                 "--methods", ",".join(methods), "--json").stdout)
        rows = {m["method"]: m for m in p["methods"] if not m["condition"]}
        self.assertEqual({name: (row["steps"], round(n * row["steps"] * row["bytes_sent_a_step"]))
                          for name, row in rows.items()}, methods)
        self.assertEqual(p["steps"], over)
        for name, (steps, _) in methods.items():
            reason, long = rows[name]["reason"], "100001" in name
            self.assertEqual("; of %d steps, in whole periods of" % steps in reason,
                             steps != over, reason)
            self.assertEqual("; its period is 100001 steps, so this look at 6 was too short" in reason, long, reason)
        # with logical shares a step of such a run is a round, and so a whole period
        out = os.path.join(self.folder, "rounds")
        p = json.loads(self.plan("-n", 2, "--transport", "sim", "--step-time", 0.01, "--batch", 15, "--over", 6,
                                 "--elastic-shares", 2, "--methods", "local-sgd(period=5),ddp", "--json", "--out",
                                 out).stdout)
        self.assertEqual({m["method"]: m["steps"] for m in p["methods"]}, {"local-sgd(period=5)": 10, "ddp": 6})
        self.assertEqual([summary(os.path.join(out, "runs", name))["steps"] for name in ("0000", "0001")], [2, 6])
        # waiting is of whole periods, too: an exchange each, whatever its length
        share = [json.loads(self.plan("-n", n, "--platform", self.platform("cluster(n=4,rate=10Mbps)"), "--step-time",
                                      0.01, "--batch", 15, "--over", 1, "--methods", "diloco(period=%d)" % h,
                                      "--json").stdout)["methods"][0] for h in (8, 16)]
        waited = [m["exposed_share"] * m["seconds_a_step"] * m["steps"] for m in share]
        self.assertEqual([m["steps"] for m in share], [8, 16])
        self.assertGreater(waited[0], 0.01)
        self.assertLess(abs(waited[1] / waited[0] - 1), 0.01)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_plan_begins_with_a_compare_command(self):
        done = self.plan("-n", 4, "--platform", self.platform("cluster(n=4,rate=100Mbps)"), "--step-time", 0.003,
                         "--methods", "ddp,powersgd,signum,local-sgd(period=4)", "--codecs", "none,fp16", "--batch", 16,
                         "--optimizer", "sgd(lr=0.04)", "--over", 8)
        before, command, after = re.split(r"(?m)^  (tutti compare .*)$", done.stdout)
        self.assertIn("The order below is that of the time per step.", before)
        self.assertIn("ms/step", after)
        self.assertNotIn("oonest", after)
        words = shlex.split(command)
        self.assertEqual(set(re.split(r",(?![^(]*\))", words[words.index("--methods") + 1])),
                         {"ddp", "powersgd", "signum", "local-sgd(period=4)"})
        self.assertEqual(words[words.index("--codecs") + 1], "none,fp16")
        self.assertEqual(words[words.index("--optimizer") + 1], "sgd(lr=0.04)")
        out = self.out("compared")
        compared = tutti(*words[1:], "--seeds", 1, "--steps", 20, "--pictures", "off", "--out", out)
        self.assertEqual(compared.returncode, 0, compared.stderr)
        with open(out + "/plan.json") as f:
            runs = json.load(f)["runs"]
        for w in (r["words"] for r in runs):
            self.assertEqual([w[w.index(k) + 1] for k in ("-n", "--step-time", "--batch", "--transport")],
                             ["4", "0.003", "16", "sim"])
            self.assertTrue(w[w.index("--platform") + 1].endswith("platform.xml"))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_shares_by_speed_are_tried_where_workers_are_unequal(self):
        """By --slow or by the speeds of a platform's hosts; not where they are equal, nor where shares
        were given, nor without ddp."""
        equal = ("-n", 4, "--transport", "sim", "--step-time", 0.01)
        for more, there in ((("--slow", "1:4"), True), ((), False),
                            (("--slow", "1:4", "--batch-share", "4:1:4:4"), False),
                            (("--slow", "1:4", "--methods", "zero,powersgd"), False)):
            p = json.loads(self.plan(*equal, "--methods", "ddp,zero", *more, "--json").stdout)
            self.assertEqual([m["condition"] for m in p["methods"]].count("batch-share=auto"), there, more)
            self.assertEqual(p["methods"][0]["condition"] == "batch-share=auto", there)
            if there:
                self.assertIn("--batch-share auto", " ".join(p["methods"][0]["command"]))
                self.assertEqual(p["compare"][p["compare"].index("--vary") + 1], "batch-share=even;auto")
            given = p["compare"][p["compare"].index("--batch-share") + 1] if "--batch-share" in p["compare"] else None
            self.assertEqual(given, "4:1:4:4" if "--batch-share" in more else None)
        done = self.plan(*equal, "--slow", "1:4", "--methods", "ddp,zero")
        self.assertIn("Workers are unequal: try ddp --batch-share auto first.", " ".join(done.stdout.split()))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_plan_without_a_platform_measures_this_machine(self):
        p = json.loads(self.plan("-n", 2, "--methods", "ddp,local-sgd", "--over", 8, "--json").stdout)
        self.assertEqual({m["method"] for m in p["methods"]}, {"ddp", "local-sgd"})
        self.assertGreater(p["measured"]["pass_seconds"], 0)
        self.assertRegex(p["measured"]["platform"], r"^cluster\(n=2,rate=\d+bps,latency=\d+ns,speed=\d+f\)$")
        ddp = next(m for m in p["methods"] if m["method"] == "ddp")
        self.assertGreaterEqual(ddp["seconds_a_step"], p["measured"]["pass_seconds"])
        p = json.loads(self.plan("-n", 2, "--methods", "ddp", "--over", 8, "--json", "--profile", "--platform",
                                 self.platform("cluster(n=2,rate=1Mbps)")).stdout)
        self.assertIsNone(p["measured"]["platform"])
        self.assertGreater(p["methods"][0]["exposed_share"], 0.5)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_timed_out_plan_reports_what_is_missing(self):
        why = self.plan("-n", 4, "--transport", "sim", "--step-time", 0.01, "--over", 5000, "--methods", "ddp,zero",
                        "--minutes", 0.01, code=2).stderr
        self.assertIn("no method was simulated; ddp: its simulation had not ended", why)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_stopped_plan_leaves_nothing_behind(self):
        temporary = self.out("tmp")
        os.mkdir(temporary)
        plan = subprocess.Popen([TUTTI, "plan", *MLP, "--data", self.data, "-n", "4", "--transport", "sim",
                                 "--step-time", "0.01", "--over", "100000", "--quiet"], stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True, env=clean_environment(TMPDIR=temporary))
        deadline = time.monotonic() + 30
        while not children_of(plan.pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        children = children_of(plan.pid)
        plan.send_signal(signal.SIGINT)
        said = plan.communicate(timeout=30)[1]
        self.assertEqual((plan.returncode, said),
                         (130, "tutti: stopped by signal 2 (SIGINT), before there was a plan\n"))
        self.assertEqual((os.listdir(temporary), [c for c in children if alive(c)]), ([], []))

    def test_invalid_plan_options_are_rejected(self):
        for words, said in ((("--method", "ddp"), "--method is a list here: --methods, --codecs"),
                            (("--seed", 3), "--seed is none of a plan"),
                            (("--methods", "ddq"), "there is no method 'ddq'"),
                            (("--methods", "ddp,ddp"), "methods has 'ddp' twice"),
                            (("--over", 0), "over is 0; it must be from 1"),
                            (("--modle", "mlp"), "did you mean 'model'?"),
                            (("--platform", "nowhere.xml"), "there is no platform file 'nowhere.xml'"),
                            (("-H", "a:2,b:2"), "a plan is made on this machine alone"),
                            (("--batch", 0), "batch is 0")):
            self.assertIn(said, self.plan(*words, code=2).stderr)
        self.assertEqual(tutti("help", "plan").stdout, tutti("plan", "--help").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
