"""`tutti plan`: short simulated runs of methods, in order of the time of a step. What it predicts is
what a run of `tutti train` under the same conditions counts; table and JSON have the same figures;
what a method refuses is listed with its sentence, and what nobody can do is refused at once."""
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
    def test_methods_in_order_with_reasons_commands_and_what_is_refused(self):
        out = self.out("plan")
        conditions = ("-n", 4, "--platform", self.platform("cluster(n=4,rate=100Mbps,latency=100us)"),
                      "--step-time", 0.003, "--slow", "3:2")
        done = self.plan(*conditions, "--batch", 16, "--methods", METHODS + ",h-adpsgd(super_learner=3),"
                         "onebit-adam(freeze_step=9)", "--codecs", "none,fp16", "--over", 12, "--out", out)
        with open(os.path.join(out, "plan.json")) as f:
            p = json.load(f)
        self.assertEqual((p["schema"], p["workers"], p["batch"], p["steps"], p["slow"], p["measured"]),
                         ("tutti-plan-methods-1", 4, 16, 12, "3:2", None))
        rows = {(m["method"], m["codec"]): m for m in p["methods"]}
        seconds = [m["seconds_a_step"] for m in p["methods"]]
        self.assertEqual(seconds, sorted(seconds))
        self.assertEqual((p["fastest"]["method"], p["fastest"]["codec"]),
                         (p["methods"][0]["method"], p["methods"][0]["codec"]))
        first = next(m for m in p["methods"] if m["effect"] in ("exact", "synchronous"))
        self.assertEqual(p["fastest_synchronous"], {"method": first["method"], "codec": first["codec"]})
        for method, effect in EFFECTS.items():
            self.assertEqual(rows[method, ""]["effect"], effect)
        self.assertEqual(rows["ddp", "fp16"]["effect"], "compressed")
        self.assertLess(rows["ddp", "fp16"]["bytes_sent_a_step"], 0.6 * rows["ddp", ""]["bytes_sent_a_step"])
        # refused: with a sentence each, which the run itself would say
        refused = {(m["method"], m["codec"]): m["why"] for m in p["refused"]}
        self.assertIn("leave codec away", refused["zero", "fp16"])
        self.assertEqual(len(rows) + len(refused), 2 * 9)
        said = tutti("train", *MLP, "--data", self.data, "-n", 4, "--method", "zero", "--codec", "fp16", "--out",
                     self.out("refused"))
        self.assertEqual(said.returncode, 2)
        self.assertTrue(said.stderr.endswith(refused["zero", "fp16"] + "\n"), said.stderr)
        # the table has these figures, to its digits, in this order; then reasons and commands
        table = re.findall(r"(?m)^(\S+(?: with \S+)?) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +(\w+) *$", done.stdout)
        self.assertEqual(len(table), len(rows))
        for shown, m in zip(table, p["methods"]):
            self.assertEqual(shown[0], m["method"] + (" with " + m["codec"] if m["codec"] else ""))
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
        self.assertIn("beware of warmup=-1", rows["pipe-sgd", ""]["reason"])
        self.assertNotIn("beware", rows["ddp", ""]["reason"])
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
    def test_of_this_machine(self):
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
    def test_that_is_cut_says_what_is_missing(self):
        why = self.plan("-n", 4, "--transport", "sim", "--step-time", 0.01, "--over", 5000, "--methods", "ddp,zero",
                        "--minutes", 0.01, code=2).stderr
        self.assertIn("no method was simulated; ddp: its simulation had not ended", why)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_that_is_stopped_leaves_nothing_behind(self):
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

    def test_what_nobody_can_do_is_refused_at_once(self):
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
