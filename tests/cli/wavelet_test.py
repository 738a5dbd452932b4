"""wavelet by the command: one wave leaves `ddp`'s bytes, waves send what `ddp` sends and hold little more memory than
one; bare names train, runs continue from checkpoints without a change of a bit; impossible options give an error
message; a killed worker ends the run, and a late one only delays it."""
import os, signal, subprocess, time, unittest
from command import *

RULE = ("--optimizer", "sgd(lr=0.05,momentum=0.9)")
MLP = ("--model", "mlp(hidden=32)", "--seed", 3, "--threads", 1, "--quiet")
GPT = "gpt(layers=2,dim=16,heads=2)"
MODES = ("wavelet", "wavelet(waves=3)", "wavelet(sync_mode=average)", "wavelet(sync_mode=average,sync_rounds=3)",
         "wavelet(sync_mode=accumulate)", "wavelet(stages=2)", "wavelet(stages=2,sync_mode=average,sync_rounds=2)")
# In virtual time units take equally long every time, and exchanges are short, whatever else runs.
STEADY = ("--transport", "sim", "--step-time", 0.01) if SIMULATOR else ()
PARAMS = 784 * 32 + 32 + 32 * 32 + 32 + 32 * 10 + 10


def parts_of(out):
    """Of each worker the parts that it computed, in their order: forward or not, the micro-batch."""
    found = {}
    with open(os.path.join(out, "trace.json")) as f:
        events = [e for e in json.load(f) if e.get("cat") in ("stage forward", "stage backward")]
    for e in sorted(events, key=lambda e: e["ts"]):
        found.setdefault(e["pid"], []).append((e["cat"] == "stage forward", e["args"]["step"],
                                               int(e["name"].split()[-1])))
    return found


class Wavelet(Case):
    def text(self):
        return ("--data", "text(file=%s,context=16,val_windows=16)" % small_text(self.folder))

    def test_one_wave_gives_the_same_bytes_as_ddp(self):
        """Over each transport, with a last step that is cut, accumulation and waves of one micro-batch of many."""
        gpt, mlp = (*self.text(), "--batch", 4, "--steps", 5), ("--data", self.data, "--batch", 24, "--epochs", 2)
        for name, words, transports in (("mlp(hidden=32)", mlp, and_sim("shm", "tcp")),
                                        ("mlp(hidden=32)", (*mlp, "--accumulate", 2), ("shm",)),
                                        ("cnn", ("--data", self.data, "--batch", 8, "--steps", 3), ("shm",)),
                                        (GPT, gpt, and_sim("shm"))):
            common = ("--model", name, *words, *RULE, "-n", 4, "--threads", 1, "--quiet", "--seed", 3)
            ddp = self.train("ddp", *common, "--method", "ddp")
            for transport in transports:
                one = self.train("one", *common, "--method", "wavelet(waves=1)", "--transport", transport)
                self.assertEqual(self.model(one), self.model(ddp), (words, transport))
                a, b = summary(one), summary(ddp)
                self.assertEqual((a["final_test_loss"], a["samples"], a["steps"], a["staleness_max"]),
                                 (b["final_test_loss"], b["samples"], b["steps"], b["staleness_max"]))

    def test_method_trains_each_kind_of_model_by_default(self):
        """An mlp and a cnn: cli/defaults, too."""
        clicks = ("--data", "clicks(file=%s,rows=100)" % small_clicks(self.folder, 3000), "--batch", 32)
        for n, name, words, steps, drop in ((2, "mlp(hidden=32)", ("--data", self.data, "--batch", 16), 40, 1),
                                            (4, "cnn", ("--data", self.data, "--batch", 16), 30, 0.15),
                                            (2, GPT, (*self.text(), "--batch", 8), 60, 0.5),
                                            (4, GPT, (*self.text(), "--batch", 8), 60, 0.5),
                                            (2, "wordlm(dim=16,hidden=16)", (*self.text(), "--batch", 8), 60, 0.5),
                                            (4, "ctr(dim=4,layers=1,hidden=16)", clicks, 40, 0.05)):
            losses = [summary(self.train("bare", "--model", name, *words, "-n", n, "--steps", k, "--method", "wavelet",
                                         "--quiet"))["final_test_loss"] for k in (1, steps)]
            self.assertLess(losses[1], losses[0] - drop, (name, n, losses))

    def test_evaluating_saving_resuming_and_reporting_change_nothing(self):
        """Each stops where a wave would be in progress: after odd steps, too, and between means of
        models."""
        for k, method in enumerate(MODES):
            common = (*MLP, "--data", self.data, "-n", 4, "--batch", 8, "--epochs", 1, "--method", method)
            whole = self.train("whole%d" % k, *common)
            often = self.train("often%d" % k, *common, "--report-every", 1, "--eval-every", 4, "--checkpoint-every", 5,
                               "--checkpoint-keep", 9)
            self.assertEqual(self.model(whole), self.model(often), method)
            for at in (5, 10) if LONG else (5 + 5 * (k % 2),):
                rest = self.train("rest%d-%d" % (k, at), *common, "--resume",
                                  os.path.join(often, "checkpoints", "step-%08d" % at))
                self.assertEqual(self.model(whole), self.model(rest), (method, at))
                self.assertEqual((summary(rest)["resumed_at_step"], summary(rest)["samples"]),
                                 (at, summary(whole)["samples"]))

    def test_checkpoint_resumes_with_a_different_number_of_stages(self):
        """Sums are in another order then, so it is near and not the same."""
        for k, mode in enumerate(("shared", "average", "average,sync_rounds=3", "accumulate")):
            common = (*MLP, "--data", self.data, "-n", 2, "--batch", 8, "--steps", 10, "--checkpoint-every", 5)
            whole = self.train("one%d" % k, *common, "--method", "wavelet(sync_mode=%s)" % mode)
            half = ("--resume", os.path.join(whole, "checkpoints", "step-00000005"))
            rest = self.train("two%d" % k, *common, "--method", "wavelet(stages=2,sync_mode=%s)" % mode, *half)
            self.assertAlmostEqual(summary(rest)["final_test_loss"], summary(whole)["final_test_loss"], 4, mode)
            self.refused("its run has method", "train", *common, "--method", "wavelet(waves=4,sync_mode=%s)" % mode,
                         *half, "--out", self.out("refused"))

    def test_one_wave_checkpoints_are_interchangeable_with_ddp(self):
        common = (*MLP, *RULE, "--data", self.data, "--checkpoint-every", 4, "--checkpoint-keep", 9, "--batch", 6)
        whole = self.train("whole", *common, "--steps", 12, "-n", 2, "--method", "ddp")
        last = None
        for steps, method in ((4, "ddp"), (8, "wavelet(waves=1)"), (12, "ddp")):
            last = self.train("to%d" % steps, *common, "--steps", steps, "-n", 2, "--method", method,
                              *(("--resume", last) if last else ()))
        self.assertEqual(self.model(whole), self.model(last))
        self.refused('its run has method "ddp"', "train", *common, "--steps", 8, "-n", 2, "--method", "wavelet",
                     "--resume", os.path.join(whole, "checkpoints", "step-00000004"), "--out", self.out("refused"))

    def sent(self, n, method):
        """Bytes of each worker, and messages, of six steps: what nine send more than three, since the model is sent
        once to be shown."""
        few, many = (summary(self.train("sent%d" % steps, *MLP, "--data", self.data, "-n", n, "--batch", 8, "--steps",
                                        steps, "--method", method, "--final-eval", "off")) for steps in (3, 9))
        return ([b["bytes_sent"] - a["bytes_sent"] for a, b in zip(few["by_worker"], many["by_worker"])],
                many["messages_sent_per_worker"] - few["messages_sent_per_worker"])

    def test_each_worker_sends_what_it_does_under_ddp(self):
        """To the byte and the message; with a model a wave a sum for each of them."""
        for n in (2, 4):
            each, messages = self.sent(n, "ddp")
            self.assertEqual(sum(each), 6 * 2 * (n - 1) * 4 * PARAMS)
            for method in ("wavelet", "wavelet(waves=3)", "wavelet(waves=1)", "wavelet(sync_mode=accumulate)"):
                self.assertEqual(self.sent(n, method), (each, messages), (n, method))
            self.assertEqual(self.sent(n, "wavelet(sync_mode=average,sync_rounds=4)"),
                             ([2 * b for b in each], 2 * messages), n)

    def test_stage_traffic_matches_the_formula(self):
        """A step has 8 samples of each worker: 32 floats of each cross the cut, and come back."""
        for n in (2, 4):
            self.assertEqual(sum(self.sent(n, "wavelet(stages=2)")[0]),
                             6 * (2 * n * 8 * 32 * 4 + 2 * (n // 2 - 1) * 4 * PARAMS), n)

    def test_waves_take_turns_and_no_two_are_in_forward(self):
        """Units of one between those of another; two are begun and not over at a time, never three."""
        for method, waves in (("wavelet", 2), ("wavelet(waves=3)", 3), ("wavelet(sync_mode=accumulate)", 2)):
            out = self.train("traced", "--model", "gpt(layers=4,dim=16,heads=2)", *self.text(), "--threads", 1,
                             "--quiet", "-n", 2, "--batch", 4, "--steps", 12, "--method", method, "--trace", *STEADY)
            for parts in parts_of(out).values():
                units = max(sum(p == (forward, *parts[0][1:]) for p in parts) for forward in (True, False))
                done, under_way, most, between = {}, [], 0, 0
                for forward, *micro in parts:
                    micro = tuple(micro)
                    if micro not in under_way:
                        climbing = [m for m in under_way if done[m] < units]
                        self.assertEqual(climbing, [], "two in forward")
                        under_way.append(micro)
                        done[micro] = 0
                    between += len(under_way) > 1 and micro != under_way[-1]
                    self.assertEqual(forward, done[micro] < units)
                    done[micro] += 1
                    most = max(most, len(under_way))
                    if done[micro] == 2 * units:
                        under_way.remove(micro)
                self.assertEqual((most, under_way), (waves, []), method)
                self.assertGreater(between, 0)
                self.assertEqual(set(done.values()), {2 * units})

    def test_two_waves_peak_little_above_one(self):
        """By the profile, and as it came: more than one wave has, less than one and a half."""
        common = ("--model", "gpt(layers=8,dim=16,heads=2)", *self.text(), "--threads", 1, "--quiet", "-n", 2,
                  "--batch", 8, "--steps", 40, "--final-eval", "off")
        self.peaks(*common) # on a busy machine an exchange may take so long that waves do not overlap
        self.assertGreater(*self.peaks(*common, *STEADY, filled=0.3 if STEADY else 0))

    def peaks(self, *common, filled=0):
        peak = {}
        for method in ("wavelet(waves=1)", "wavelet"):
            figures = summary(self.train("peak", *common, "--method", method))["method_figures"]
            peak[method] = figures["peak_bytes"][0]
            self.assertLessEqual(peak[method], 1.05 * figures["predicted_peak_bytes"][0])
            self.assertTrue(filled < figures["valley_fill"][0] <= 1, figures)
        self.assertLess(peak["wavelet"], 1.5 * peak["wavelet(waves=1)"])
        return peak["wavelet"], peak["wavelet(waves=1)"]

    def test_invalid_options_are_rejected(self):
        for model, data, method, more, says in (
                ("mlp", True, "wavelet(memory_limit=0.001)", (), "memory_limit is 0.001 MiB, and worker "),
                ("mlp", True, "wavelet(memory_limit=36)", ("--batch", 64), "micro-batches of 32 samples fit"),
                ("mlp", True, "wavelet(sync_mode=average)", ("--batch", 7), "batch is 7, which 2 waves do not divide"),
                ("mlp", True, "wavelet(stages=3)", (), "stages is 3, and 4 workers make no whole number of sets"),
                ("mlp", True, "wavelet(stages=4)", (), "can be cut into 3 at most"),
                ("resnet(depth=8)", True, "wavelet", (), "batch norms"),
                ("quadratic", False, "wavelet", (), "a quadratic is one layer and has no stages"),
                ("mlp", True, "wavelet", ("--clip-norm", 1), "clip-norm is 1"),
                ("mlp", True, "wavelet", ("--codec", "topk"), "codec"),
                ("mlp", True, "wavelet", ("--partition", "dirichlet(alpha=0.5)"), "partition")):
            self.refused(says, "train", "--model", model, *(("--data", self.data) if data else ()), "-n", 4, "--steps",
                         2, "--method", method, *more, "--out", self.out("refused"))

    def test_a_killed_worker_ends_the_run(self):
        for transport, victim, method in (("shm", 0, "wavelet"), ("tcp", 3, "wavelet(stages=2)")):
            err, _ = self.killed(4, victim, "--method", method, "-n", 4, "--transport", transport)
            self.assertIn("worker %d was lost" % victim, err)

    def test_late_or_briefly_stopped_worker_only_delays_the_run(self):
        common = (*MLP, "--data", self.data, "-n", 3, "--batch", 8, "--method", "wavelet", "--steps", 1000,
                  "--report-every", 100)
        plain = self.train("plain", *common)
        out = self.out("stopped")
        run = subprocess.Popen([TUTTI, "train", *map(str, common), "--out", out], env=clean_environment(),
                               stderr=subprocess.PIPE, text=True)
        while lines_told(out) == 0 and run.poll() is None:
            time.sleep(0.005)
        workers = children_of(run.pid)
        os.kill(workers[1], signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(workers[1], signal.SIGCONT)
        self.assertEqual((run.communicate(timeout=60)[1], run.returncode), ("", 0))
        self.assertEqual(self.model(out), self.model(plain))
        slow = self.train("slow", *common[:-4], "--steps", 20, "--slow", "1:3")
        self.assertEqual(self.model(slow), self.model(self.train("same", *common[:-4], "--steps", 20)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
