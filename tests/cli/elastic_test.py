"""With logical shares (--elastic-shares) a run has the same bytes with any number of workers, on any
transport, and when it is resumed with another number: model, losses, evaluations. Which share a
sample is in, tails, traffic and refusals of the engine are in engine/logical."""
import json, os, unittest
from command import *

SHARES = 12
COMMON = ["--model", "mlp(hidden=24)", "--batch", "4", "--seed", "11", "--optimizer", "adamw(lr=0.002)",
          "--lr-schedule", "cosine(warmup=5)", "--report-every", "5", "--elastic-shares", SHARES]


def course(out):
    """What was computed, line by line: not times and bytes."""
    keys = ("step", "epoch", "samples", "train_loss", "lr", "test_loss", "test_accuracy", "test_auc")
    with open(os.path.join(out, "metrics.jsonl")) as f:
        return [{k: line[k] for k in keys if k in line} for line in map(json.loads, f)]


class Elastic(Case):

    def same(self, a, b, what):
        self.assertEqual(self.model(a), self.model(b), what)
        self.assertEqual(course(a), course(b), what)
        for key in ("samples", "steps", "final_test_loss", "final_test_accuracy", "final_train_loss"):
            self.assertEqual(summary(a)[key], summary(b)[key], what)

    def test_any_number_of_workers_leaves_the_same_bytes(self):
        """600 samples are 12 steps of 48 and one of 24 each epoch."""
        arguments = [*COMMON, "--data", self.data, "--epochs", "2"]
        whole = self.train("whole", *arguments, "-n", SHARES)
        plain = self.train("plain", *arguments, "-n", SHARES, "--elastic-shares", 0)
        self.assertEqual(self.model(whole), self.model(plain), "as many workers as shares")
        for n in (1, 2, 3, 4, 6):
            self.same(self.train("n%d" % n, *arguments, "-n", n), whole, n)

    def test_methods_transports_and_options(self):
        arguments = [*COMMON, "--data", self.data, "--steps", "15", "--clip-norm", "0.5"]
        whole = self.train("whole", *arguments, "-n", 1)
        for k, (n, more) in enumerate((
                (5, ("--method", "zero(bucket_mb=0.01,first_bucket_mb=0.01)")),
                (5, ("--method", "zero(stage=2,bucket_mb=0.01,first_bucket_mb=0.01)")),
                (5, ("--method", "zero(stage=3,bucket_mb=0.01,first_bucket_mb=0.01)")),
                (4, ("--method", "bytescheduler(partition_mb=0.01,cross_barrier=off)")),
                (4, ("--transport", "tcp")), (3, ("--nonfinite", "skip", "--lane", "off")),
                (4, ("--batch-share", "1:6:2:3")), (3, ("--batch-share", "1:100:0", "--transport", "tcp")),
                (5, ("--loss-scale", "dynamic(init=256,interval=4)")))):
            self.same(self.train("m%d" % k, *arguments, "-n", n, *more), whole, more)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_simulated_workers_leave_the_bytes_of_real_ones(self):
        arguments = [*COMMON, "--data", self.data, "--steps", "10", "--accumulate", "2"]
        whole = self.train("whole", *arguments, "-n", 2)
        for n in (1, 5, 12):
            self.same(self.train("s%d" % n, *arguments, "-n", n, "--transport", "sim"), whole, n)
        rounds = [*arguments, "--method", "diloco(period=2)"]
        whole = self.train("rounds", *rounds, "-n", 2)
        self.same(self.train("r5", *rounds, "-n", 5, "--transport", "sim"), whole, "rounds")

    def test_dropout_follows_the_sample(self):
        text = small_text(self.folder)
        arguments = ["--model", "gpt(layers=1,dim=8,heads=2,dropout=0.3)", "--data", text, "--batch", "2",
                     "--steps", "6", "--elastic-shares", "5", "--report-every", "2"]
        whole = self.train("whole", *arguments, "-n", 1)
        self.same(self.train("three", *arguments, "-n", 3), whole, 3)

    def test_tables_and_the_area_under_the_curve(self):
        clicks = "clicks(file=%s,rows=100)" % small_clicks(self.folder)
        arguments = ["--model", "ctr(dim=4,layers=1,hidden=8)", "--data", clicks, "--batch", "5", "--steps", "6",
                     "--elastic-shares", "7", "--report-every", "2"]
        whole = self.train("whole", *arguments, "-n", 1)
        self.same(self.train("three", *arguments, "-n", 3), whole, 3)

    def test_running_statistics_are_those_of_the_shares(self):
        """With convolutions the number of threads is part of the bits."""
        arguments = ["--model", "resnet(depth=8)", "--data", self.data, "--batch", "2", "--steps", "2", "--threads", 1,
                     "--elastic-shares", "5", "--report-every", "1", "--checkpoint-every", "1"]
        whole = self.train("whole", *arguments, "-n", 1)
        self.same(self.train("three", *arguments, "-n", 3), whole, 3)
        for stage in (2, 3):
            held = self.train("s%d" % stage, *arguments, "-n", 3, "--method", "zero(stage=%d)" % stage)
            self.same(held, whole, stage)
        first = os.path.join(whole, "checkpoints", "step-00000001")
        out = self.train("resumed", *arguments, "-n", 4, "--resume", first)
        self.assertEqual(self.model(out), self.model(whole))

    def test_resumed_with_other_numbers_of_workers_it_is_the_same_run(self):
        """4, 3, 2, then 6 workers, from checkpoints in the middle of an epoch."""
        arguments = [*COMMON, "--data", self.data, "--lr-schedule", "constant", "--checkpoint-every", "6"]
        whole = self.train("whole", *arguments, "-n", 1, "--steps", "30")
        for method in ("ddp", "zero", "zero(stage=2)", "zero(stage=3)"):
            out = self.train(method, *arguments, "-n", 4, "--steps", "6", "--method", method)
            for steps, n in ((12, 3), (18, 2), (30, 6)):
                done = tutti("train", "--resume", out, "--steps", steps, "-n", n)
                self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.model(out), self.model(whole), method)
            self.assertEqual(summary(out)["samples"], summary(whole)["samples"])

    def test_powersgd_with_a_residual_for_each_share(self):
        """Any number of workers, and resumed with others: 4, 3, 2, then 6."""
        arguments = [*COMMON, "--data", self.data, "--optimizer", "sgd(lr=0.02,momentum=0.9)", "--lr-schedule",
                     "constant", "--checkpoint-every", "6"]
        for method in ("powersgd", "powersgd(rank=2,iters_per_step=2,ef_rule=aggregated,bucket_mb=0.01,start_iter=4)"):
            whole = self.train("whole", *arguments, "-n", SHARES, "--steps", "30", "--method", method)
            plain = self.train("plain", *arguments, "-n", SHARES, "--steps", "30", "--method", method,
                               "--elastic-shares", 0)
            self.assertEqual(self.model(whole), self.model(plain), "as many workers as shares")
            for n, more in ((1, ()), (2, ("--transport", "tcp")), (3, ("--batch-share", "9:2:1")),
                            (5, ("--lane", "on"))):
                self.same(self.train("n%d" % n, *arguments, "-n", n, "--steps", "30", "--method", method, *more), whole,
                          n)
            out = self.train("cut", *arguments, "-n", 4, "--steps", "6", "--method", method)
            for steps, n in ((12, 3), (18, 2), (30, 6)):
                done = tutti("train", "--resume", out, "--steps", steps, "-n", n)
                self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.model(out), self.model(whole), "resumed")
            self.refused("its run has samples_per_step 48", "train", "--resume", out, "--elastic-shares", 6, "-n", 2,
                         "--steps", "36")

    def test_a_step_of_local_sgd_is_a_round(self):
        """600 samples are 4 rounds of 3 steps of 48 and a round of 24 each epoch."""
        arguments = [*COMMON, "--data", self.data, "--method", "local-sgd(period=3)", "--clip-norm", "0.5"]
        whole = self.train("whole", *arguments, "-n", SHARES, "--epochs", "2")
        self.assertEqual((summary(whole)["steps"], summary(whole)["samples"]), (10, 1200))
        for n in (1, 4, 5):
            self.same(self.train("n%d" % n, *arguments, "-n", n, "--epochs", "2"), whole, n)
        uneven = self.train("uneven", *arguments, "-n", 3, "--epochs", "2", "--batch-share", "9:2:1")
        self.same(uneven, whole, "9:2:1")
        self.assertEqual([w["passes"] for w in summary(uneven)["by_worker"]], [27, 6, 3])
        outer = [*arguments[:-4], "--method", "local-sgd(period=3,outer=sgd(lr=0.7,momentum=0.9,nesterov=true))",
                 "--lr-schedule", "constant", "--checkpoint-every", "3"]
        whole = self.train("outer", *outer, "-n", 1, "--steps", "11")
        out = self.train("cut", *outer, "-n", 4, "--steps", "3")
        for steps, n in ((6, 3), (11, 5)):
            done = tutti("train", "--resume", out, "--steps", steps, "-n", n)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.model(out), self.model(whole))
        self.refused("its run has samples_per_step 144, this one 48", "train", "--resume", out, "--elastic-shares", 0,
                     "-n", SHARES, "--steps", "12")

    def test_a_round_has_the_bits_of_the_local_steps_of_as_many_workers(self):
        """4 shares: the mean of 4 models is exact to the last bit in either way of making it."""
        arguments = [*COMMON[:-2], "--data", self.data, "--method", "local-sgd(period=3)", "--optimizer", "sgd(lr=0.1)",
                     "--lr-schedule", "constant"]
        plain = self.train("plain", *arguments, "-n", 4, "--steps", "24")
        rounds = self.train("rounds", *arguments, "-n", 2, "--elastic-shares", 4, "--steps", "8")
        self.assertEqual(self.model(rounds), self.model(plain))
        self.assertEqual(summary(rounds)["samples"], summary(plain)["samples"])

    def test_what_cuts_a_step_by_worker_is_refused_before_the_run(self):
        for sentence, more in (
                ("elastic-shares is 12 for 13 workers; it must be at least the number of workers, since each computes "
                 "at least one share", ("-n", "13")),
                ("elastic-shares is 12, and batch-share 'auto' is for workers that come and go then (workers); give "
                 "weights, as 2:1:1, or leave it at even", ("-n", "2", "--batch-share", "auto")),
                ("method 'zero' holds gradients by piece, so that shares are dealt to the workers in turn: omit "
                 "batch-share", ("-n", "2", "--method", "zero(stage=2)", "--batch-share", "2:1")),
                ("elastic-shares is 12, and partition 'shard(k=2)' would give each worker samples of its own; leave it "
                 "at iid", ("-n", "2", "--partition", "shard(k=2)")),
                ("elastic-shares is 12, but method 'd-psgd' does more in a step than to add gradients",
                 ("-n", "2", "--method", "d-psgd")),
                ("codec is 'bf16', and it would round sums to 16 bits on their way, and which sums travel depends on "
                 "the number of workers", ("-n", "2", "--codec", "bf16")),
                ("codec is 'ef(topk)', and it would encode the gradient of each worker",
                 ("-n", "2", "--codec", "ef(topk)")),
                ("send float32 (factor_dtype=fp32), or omit elastic-shares",
                 ("-n", "2", "--method", "powersgd(factor_dtype=fp16)"))):
            done = tutti("train", *COMMON, "--data", self.data, "--out", self.out("no"), "--steps", "9", *more)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
