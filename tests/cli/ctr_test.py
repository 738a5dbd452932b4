"""Training click-through rates on a generated log: it comes near what the best possible ranking
reaches, the number of workers does not change a bit, a run continues where it stopped, and
mismatches give an error message."""
import json, os, re, shutil, unittest

from command import SIMULATOR, TUTTI, read, scratch, summary, tutti

MODEL = "ctr(dim=4,layers=1,hidden=16)"
TABLE = 26 * 2000 * 4


class Ctr(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = scratch()
        cls.log = os.path.join(cls.folder, "clicks.tsv")
        made = tutti("data", "clicks", "--samples", 40000, "--values", 10, "--spread", 2, "--out", cls.log)
        cls.bayes = float(re.search(r"Bayes AUC (0\.\d+)", made.stdout).group(1))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def out(self, name):
        return os.path.join(self.folder, name)

    def train(self, name, *more, rows=2000, code=0):
        done = tutti("train", "--model", MODEL, "--data", f"clicks(file={self.log},rows={rows},val=0.25)",
                     "--threads", 1, "--overwrite", "--out", self.out(name), *more)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr if code else summary(self.out(name))

    def test_it_ranks_clicks_nearly_as_well_as_can_be(self):
        for n in (1, 4):
            s = self.train(f"auc{n}", "-n", n, "--batch", 128 // n, "--epochs", 2, "--optimizer", "adam(lr=0.005)",
                           "--lr-schedule", "cosine")
            # 10,000 test clicks: the best ranking's own area there strays by 0.004.
            self.assertGreater(s["final_test_auc"], self.bayes - 0.01)
            self.assertLess(s["final_test_auc"], self.bayes + 0.012)
            self.assertLess(s["final_test_loss"], 0.40)
            lines = [json.loads(line) for line in read(os.path.join(self.out(f"auc{n}"), "metrics.jsonl")).splitlines()]
            self.assertEqual([line["test_auc"] for line in lines if "test_auc" in line][-1],
                             round(s["final_test_auc"], 9))

    def test_worker_count_does_not_change_a_bit(self):
        for n in (1, 2, 4):
            self.train(f"n{n}", "-n", n, "--batch", 256 // n, "--steps", 8)
        runs = [(read(os.path.join(self.out(f"n{n}"), "model.safetensors")),
                 summary(self.out(f"n{n}"))["final_test_auc"]) for n in (1, 2, 4)]
        self.assertEqual(runs[0], runs[1])
        self.assertEqual(runs[0], runs[2])

    def test_resumed_run_ends_with_the_same_model(self):
        how = ("-n", 2, "--batch", 32, "--steps", 20, "--accumulate", 2)
        self.train("whole", *how)
        self.train("first", *how, "--checkpoint-every", 10)
        checkpoints = os.path.join(self.out("first"), "checkpoints")
        self.train("rest", *how, "--resume", os.path.join(checkpoints, sorted(os.listdir(checkpoints))[0]))
        self.assertEqual(read(os.path.join(self.out("whole"), "model.safetensors")),
                         read(os.path.join(self.out("rest"), "model.safetensors")))

    def test_servers_exchange_only_the_requested_table_rows(self):
        """The table has 52,000 rows, and a batch names a few hundred of them: whole shards would be
        about 850 KB a worker and step, each way."""
        how = ("-n", 3, "--batch", 16, "--steps", 20, "--seed", 4)
        self.train("ps-ddp", *how, "--optimizer", "adam(lr=0.005,lazy=on)")
        for transport in ("shm", "tcp"):
            same = self.train("ps-" + transport, *how, "--optimizer", "adam(lr=0.005,lazy=on)",
                              "--method", "parameter-server", "--transport", transport)
            self.assertEqual(read(os.path.join(self.out("ps-" + transport), "model.safetensors")),
                             read(os.path.join(self.out("ps-ddp"), "model.safetensors")))
            self.assertLess(same["bytes_sent_total"], 0.1 * 20 * 3 * 2 * 4 * TABLE)
        self.train("ps-own", *how, "--optimizer", "adam(lr=0.005,lazy=on)", "--method", "parameter-server",
                   "--servers", 2)
        self.assertEqual(read(os.path.join(self.out("ps-own"), "model.safetensors")),
                         read(os.path.join(self.out("ps-ddp"), "model.safetensors")))
        for k, over in enumerate(("", ",over=servers")): # an update and an exchange of rows, part by part
            self.train("parts%d" % k, *how, "--optimizer", "adam(lr=0.005,lazy=on)",
                       "--method", "bytescheduler(partition_mb=0.01,credit_mb=0.03,fuse_mb=0.01%s)" % over)
            self.assertEqual(read(os.path.join(self.out("parts%d" % k), "model.safetensors")),
                             read(os.path.join(self.out("ps-ddp"), "model.safetensors")))
        for k, more in enumerate((("--transport", "shm"), ("--transport", "tcp"), ("--servers", 2))): # tables alone
            s = self.train("tables%d" % k, *how, "--optimizer", "adam(lr=0.005,lazy=on)", "--method",
                           "parallax(profile=10)", *more)
            self.assertEqual(read(os.path.join(self.out("tables%d" % k), "model.safetensors")),
                             read(os.path.join(self.out("ps-ddp"), "model.safetensors")))
            self.assertEqual(s["method_figures"]["tables_at_servers"], 1)
        for method, transport in (("asgd", "shm"), ("asgd(softsync=2,servers=1)", "tcp"), ("ssp(staleness=2)", "tcp"),
                                  ("asgd(hogwild=on)", "shm")):
            s = self.train("async", *how[:4], "--steps", 300, "--method", method, "--transport", transport,
                           "--optimizer", "adam(lr=0.005,lazy=on)")
            self.assertGreater(s["final_test_auc"], 0.63, method)
            self.assertLess(s["bytes_sent_total"], 0.05 * 300 * 3 * 2 * 4 * TABLE + 2 * 4 * TABLE, method)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_simulated_runs_with_servers_resume_to_the_bit(self):
        edge = self.out("edge.xml")
        with open(edge, "w") as f:
            f.write(tutti("platform", "edge(12)").stdout)
        for n, method in ((4, "asgd(servers=2)"), (3, "asgd(softsync=2)"), (4, "ssp(staleness=2)"),
                          (4, "backup-workers(backup=1)")):
            how = ("-n", n, "--batch", 9, "--steps", 12, "--seed", 2, "--slow", "0:1.31,*:2.2:0.4",
                   "--transport", "sim", "--platform", edge, "--checkpoint-every", 5, "--checkpoint-keep", 9,
                   "--method", method, "--optimizer", "sgd(lr=0.1,momentum=0.5,lazy=on)")
            self.train("sim", *how)
            whole = read(os.path.join(self.out("sim"), "model.safetensors"))
            for name in sorted(os.listdir(os.path.join(self.out("sim"), "checkpoints")))[:-1]:
                self.train("on", *how, "--resume", os.path.join(self.out("sim"), "checkpoints", name))
                self.assertEqual(whole, read(os.path.join(self.out("on"), "model.safetensors")),
                                 f"{method} from {name}")
            for name in ("sim", "on"):
                shutil.rmtree(self.out(name))

    def test_a_step_is_measured_layer_by_layer(self):
        done = tutti("bench", "step", "--model", MODEL, "--data", f"clicks(file={self.log},rows=2000)", "-n", 1,
                     "--steps", 2, "--repeat", 1, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        names = [json.loads(line)["name"].rsplit("/", 1)[1] for line in done.stdout.splitlines()]
        self.assertEqual(sorted(name for name in names if name.startswith("layer ")),
                         ["layer linear mlp.0", "layer linear mlp.2", "layer relu", "layer tables tables"])

    def test_auc_target_stops_the_run(self):
        s = self.train("target", "--batch", 64, "--epochs", 5, "--optimizer", "adam(lr=0.005)", "--eval-every", 100,
                       "--target", "auc=0.7")
        self.assertLess(s["steps"], 2000)
        self.assertGreaterEqual(s["final_test_auc"], 0.7)
        self.assertIsNotNone(s["time_to_target_seconds"])

    def test_mismatches_give_an_error_message(self):
        for more, sentence in (
            (("--model", "ctr(tables=3)"), "ctr with tables=3 on data of 26 categories; leave tables out"),
            (("--model", "ctr(rows=9)"), "ctr with rows=9 on categories that are hashed to 2000 rows"),
            (("--model", "gpt"), "a click log, whose samples have categories, but model 'gpt' takes tokens only; "
             "give a model of categories (ctr)"),
            (("--data", "mnist"), "ctr needs samples with categories, and this task's have none; a click log has"),
            (("--model", "mlp", "--data", "mnist", "--target", "auc=0.9"),
             "only models of categories (ctr) do; write accuracy=A or loss=L"),
            (("--target", "auc=1.5"),
             "target is 'auc=1.5'; write accuracy=A with A from 0 to 1, loss=L with L above 0, or, of clicks, auc=A")):
            done = tutti("train", "--model", MODEL, "--data", f"clicks(file={self.log},rows=2000)", "--steps", 1,
                         "--out", self.out("refused"), *more)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
