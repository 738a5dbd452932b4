"""Methods by their names alone: every method of the catalogue, by its name alone, on 2, 4 and 8
workers; and whose word a value is."""
import json, os, sys

sys.path[:0] = [os.path.join(os.path.dirname(__file__), "..")]
from command import *
from together import together

METHODS = json.loads(tutti("methods", "--json").stdout)
NAMES = [m["name"] for m in METHODS]
# Test loss of mlp(hidden=32) after 80 steps of each worker on 4096 pictures, a whole number of
# steps for any number of workers. Ten classes by chance have 2.303, a run that has diverged has
# that or more, ddp reaches 0.3 or 0.4.
BOUND = 1.5
# What has defaults of its own, on the network whose convolutions are the first to go beyond float:
# steps of a worker.
ON_IMAGES = {m["name"]: 32 if m["name"] == "gradient-sparsification" else 16 for m in METHODS if m["defaults"]}


def explained(*arguments, **environment):
    """Option: its value and where that comes from, as `tutti config --explain` has them."""
    done = tutti("config", "--explain", *arguments, **environment)
    assert done.returncode == 0, done.stderr
    return {line.split()[0]: (line.split()[1], " ".join(line.split()[2:])) for line in done.stdout.splitlines()}


class Defaults(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pictures = small_mnist(os.path.join(cls.folder, "pictures"), 4096, 500)

    def bare(self, runs):
        """Runs methods with numbers of workers, simulated; all that do not come below the bound are named
        with their losses. Computing a gradient takes longer than sending it to a server, so that all
        workers make about as many, the one on the server's rank too."""
        losses = {}
        for name, n in runs:
            out = self.train("%s-%d" % (name, n), "--model", "mlp(hidden=32)", "--data", self.pictures, "-n", n,
                             "--method", name, "--steps", 80, "--transport", "sim", "--step-time", 0.01, "--quiet")
            losses[name, n] = summary(out)["final_test_loss"]
        self.assertEqual({k: v for k, v in losses.items() if v is None or not v < BOUND}, {}, losses)

    def test_every_method_trains_by_name_first_half(self):
        """On 2, 4 or 8 workers, and in `make check-long` on each of them."""
        self.bare([(name, n) for k, name in enumerate(NAMES) if k % 2 == 0 for n in one_of(k, (2, 4, 8))])

    def test_every_method_trains_by_name_second_half(self):
        self.bare([(name, n) for k, name in enumerate(NAMES) if k % 2 == 1 for n in one_of(k, (2, 4, 8))])

    def test_methods_with_own_defaults_train_a_cnn(self):
        """Steps of each worker, so an asynchronous method makes four times as many updates."""
        for name, steps in list(ON_IMAGES.items())[::1 if LONG else 3]:
            out = self.train(name, "--model", "cnn", "--data", self.data, "-n", 4, "--batch", 16, "--method", name,
                             "--steps", steps, "--transport", "sim", "--quiet")
            self.assertLess(summary(out)["final_test_loss"], 2.2, name)

    def test_user_options_win_and_explain_shows_each_origin(self):
        run = os.path.join(self.folder, "run.yaml")
        with open(run, "w") as f:
            f.write("method: asgd\noptimizer: sgd(lr=0.01)\n")
        for arguments, environment, value in (
            (("--method", "asgd", "-n", 4), {}, ("sgd(lr=0.025)", "default of asgd")),
            (("--method", "asgd(softsync=2)", "-n", 2), {}, ("sgd(lr=0.05)", "default of asgd")),
            (("--method", "asgd", "-H", "a:4,b:4"), {}, ("sgd(lr=0.0125)", "default of asgd")),
            (("--method", "asgd", "-H", "a:4,b:4", "-n", 8), {}, ("sgd(lr=0.0125)", "default of asgd")),
            (("-n", 4), {"TUTTI_METHOD": "asgd"}, ("sgd(lr=0.025)", "default of asgd")),
            (("--method", "asgd", "-n", 4, "--optimizer", "adam"), {}, ("adam", "flag --optimizer")),
            (("--optimizer", "sgd(lr=0.05,momentum=0.9)", "--method", "asgd"),
             {}, ("sgd(lr=0.05,momentum=0.9)", "flag --optimizer")),
            (("--method", "asgd", "-n", 4), {"TUTTI_OPTIMIZER": "adam"}, ("adam", "environment TUTTI_OPTIMIZER")),
            ((run, "-n", 4), {}, ("sgd(lr=0.01)", "file %s:2" % run)),
            (("--method", "ddp", "-n", 4), {}, ("sgd(lr=0.05,momentum=0.9)", "default"))):
            self.assertEqual(explained(*arguments, **environment)["optimizer"], value)
        self.assertEqual(explained("--method", "hermes")["validation"], ("0.02", "default of hermes"))
        self.assertEqual(explained("--method", "hermes", "--validation", 0)["validation"], ("0", "flag --validation"))
        self.assertEqual(json.loads(tutti("config", "--method", "asgd", "-n", 4).stdout)["optimizer"], "sgd(lr=0.025)")

    def test_conditional_defaults_complete_the_given_options(self):
        """Defaults under a condition on the method, and on what is given."""
        for arguments, value in (
            (("--method", "bagua(algorithm=qadam)"), ("sgd(lr=0.001)", "default of bagua")),
            (("--method", "bagua"), ("sgd(lr=0.05,momentum=0.9)", "default")),
            (("--method", "bagua(algorithm=qadam)", "--optimizer", "sgd(lr=1)"), ("sgd(lr=1)", "flag --optimizer")),
            (("--method", "qg-dsgdm", "--optimizer", "adam(lr=0.1)"),
             ("adam(lr=0.1,eps=0.0001)", "flag --optimizer and default of qg-dsgdm")),
            (("--method", "qg-dsgdm", "--optimizer", "adam(eps=1e-8)"), ("adam(eps=1e-8)", "flag --optimizer")),
            (("--method", "ddp", "--optimizer", "adam"), ("adam", "flag --optimizer"))):
            self.assertEqual(explained(*arguments)["optimizer"], value)
        conditional = {m["name"]: m["conditional_defaults"] for m in METHODS}
        self.assertEqual(conditional["bagua"],
                         [{"option": "optimizer", "value": "sgd(lr=0.001)", "when": "algorithm=qadam"}])
        self.assertIn("  --%-18s %s\n" % ("optimizer", "sgd(lr=0.001) with algorithm=qadam"),
                      tutti("methods", "bagua").stdout)
        self.assertIn("  --%-18s %s\n" % ("optimizer", "adam(eps=0.0001) with optimizer=adam"),
                      tutti("methods", "qg-dsgdm").stdout)
        common = ("--data", self.pictures, "-n", 4, "--model", "mlp(hidden=32)", "--transport", "sim", "--quiet")
        run = self.train("qadam", *common, "--method", "bagua(algorithm=qadam,warmup_steps=20)", "--steps", 80)
        self.assertLess(summary(run)["final_test_loss"], BOUND)
        run = self.train("eps", *common, "--method", "qg-dsgdm", "--optimizer", "adam", "--batch", 8, "--steps", 30,
                         "--partition", "dirichlet(alpha=0.1)")
        with open(os.path.join(run, "config.json")) as f:
            self.assertEqual(json.load(f)["optimizer"], "adam(eps=0.0001)")

    def test_catalogue_shows_the_defaults_a_run_uses(self):
        """With /n for the workers, and as each table has it: what config makes of it for four of
        them."""
        for m in METHODS:
            here = explained("--method", m["name"], "-n", 4)
            of_method = {option: value for option, (value, whence) in here.items()
                         if whence == "default of " + m["name"]}
            self.assertEqual(of_method.keys(), m["defaults"].keys())
            shown = tutti("methods", m["name"]).stdout if m["defaults"] else ""
            for option, value in m["defaults"].items():
                self.assertIn("  --%-18s %s\n" % (option, value), shown)
                if "/n" not in value:
                    self.assertEqual(of_method[option], value)
        self.assertEqual(next(m["defaults"] for m in METHODS if m["name"] == "ddp"), {})
        self.assertEqual(next(m["defaults"] for m in METHODS if m["name"] == "asgd"), {"optimizer": "sgd(lr=0.1/n)"})

    def test_run_uses_defaults_and_keeps_them_on_resume(self):
        common = ("--model", "mlp(hidden=16)", "--data", self.data, "--transport", "sim", "--batch", 16, "--quiet")
        run = self.train("r", *common, "--method", "asgd", "-n", 4, "--steps", 4, "--checkpoint-every", 4)
        with open(os.path.join(run, "config.json")) as f:
            self.assertEqual(json.load(f)["optimizer"], "sgd(lr=0.025)")
        with open(os.path.join(run, "metrics.jsonl")) as f:
            self.assertEqual({json.loads(line)["lr"] for line in f if "train_loss" in line and "\"lr\"" in line},
                             {0.025})
        self.assertEqual(explained("--resume", run)["optimizer"],
                         ("sgd(lr=0.025)", "file %s/config.json:%d" % (run, self.line_of(run, "optimizer"))))
        # for two workers it would have been 0.05
        done = tutti("train", "--resume", run, "-n", 2, "--batch", 32, "--steps", 8)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(run, "config.json")) as f:
            self.assertEqual(json.load(f)["optimizer"], "sgd(lr=0.025)")

    def test_client_optimizer_is_rejected_by_the_trainer(self):
        self.refused("optimizer is 'client', which is for programs with an optimiser of their own (tutti.h), and the "
                     "trainer has none; give sgd, adam or adamw", "train", "--optimizer", "client", "-n", 2)

    def line_of(self, run, key):
        with open(os.path.join(run, "config.json")) as f:
            return 1 + next(i for i, line in enumerate(f) if line.strip().startswith('"%s"' % key))

    def test_a_share_of_the_training_set_may_be_held_out(self):
        """A fiftieth of 600 pictures is 12; under a method that asks for none, too."""
        for asked, trained in ((0.02, 588), (12, 588), (0.5, 300), (0.0001, 599), (0, 600)):
            s = summary(self.train("v", "--model", "mlp(hidden=16)", "--data", self.data, "--transport", "sim",
                                   "--validation", asked, "--epochs", 1, "--quiet"))
            self.assertEqual(s["samples"], trained)
        self.refused("validation is 2.5, which is neither a whole number of samples nor a share of the training set, "
                     "below 1", "train", "--data", self.data, "--validation", 2.5, "--out", self.out("x"))
        self.refused("validation is 600, but the training set has 600 samples; leave some to train on", "train",
                     "--data", self.data, "--validation", 600, "--out", self.out("y"))


if __name__ == "__main__":
    together(3, seconds=400)
