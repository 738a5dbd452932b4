"""`tutti train --codec` as a person uses it (every codec over every transport, and from a
checkpoint: transports_test.py): routes, checksums, hierarchies, costs, reports, and the
catalogue."""
import json, os, unittest
from command import *

COMMON = ("--model", "mlp(hidden=48)", "--batch", 16, "--seed", 7, "--threads", 1)
PARAMS = 784 * 48 + 48 + 48 * 48 + 48 + 48 * 10 + 10


def model(out):
    return read(os.path.join(out, "model.safetensors"))


class Codec(Case):
    def test_fp32_changes_nothing_and_fp16_halves_the_bytes(self):
        common = (*COMMON, "--data", self.data, "-n", 2, "--steps", 12)
        plain, fp32, fp16 = (self.train("plain", *common), self.train("fp32", *common, "--codec", "fp32"),
                             self.train("fp16", *common, "--codec", "fp16"))
        self.assertEqual(model(plain), model(fp32))
        self.assertNotEqual(model(plain), model(fp16))
        self.assertEqual(model(plain), model(self.train("none", *common, "--codec", "none")))
        self.assertEqual(summary(plain)["bytes_sent_total"], 12 * 2 * 4 * PARAMS)
        self.assertEqual(summary(fp32)["bytes_sent_total"], 12 * 2 * 4 * PARAMS)
        self.assertEqual(summary(fp16)["bytes_sent_total"], 12 * 2 * 2 * PARAMS)

    def test_messages_take_the_requested_route(self):
        common = (*COMMON, "--data", self.data, "-n", 4, "--steps", 3)
        sent = {way: summary(self.train(way, *common, "--method", "qsgd(exclude=*2.weight)", "--collective",
                                        way))["bytes_sent_total"] for way in ("auto", "alltoall", "allgather")}
        once = self.train("once", *common, "--method", "qsgd(exclude=*2.weight,requantize=off)")
        self.assertEqual(sent["auto"], sent["alltoall"])
        self.assertGreater(sent["allgather"], 1.5 * sent["auto"])
        self.assertEqual(summary(once)["bytes_sent_total"], sent["allgather"])
        self.assertEqual(model(once), model(self.out("allgather")))
        for out, sentence, more in (("d", "codec 'fp16' is summed; leave collective at auto",
                                     ("--codec", "fp16", "--collective", "allgather")),
                                    ("e", "exclude has 'nobody', and no tensor has such a name; there are ",
                                     ("--codec", "large(qsgd,exclude=nobody)"))):
            self.refused(sentence, "train", *common, *more, "--out", self.out(out))

    def test_checksums_cost_eight_bytes_a_message_and_change_no_model(self):
        common = (*COMMON, "--data", self.data, "--steps", 3)
        for method, codec, n, messages in (("ddp", "topk", 2, 6), ("nuqsgd(code=elias-gamma,skip_below=0)", None, 3, 6),
                                           ("d-psgd(ring)", "fp16", 3, 6)):
            more = ("-n", n, "--method", method, *(("--codec", codec) if codec else ()))
            plain, checked = self.train(method[:6], *common,
                                        *more), self.train(method[:6] + "+", *common, *more, "--codec-checksum")
            self.assertEqual(model(plain), model(checked), method)
            self.assertEqual(summary(checked)["bytes_sent_total"] - summary(plain)["bytes_sent_total"],
                             3 * n * (n - 1) * messages * 8, method)
        self.refused("codec-checksum is 'on', but what codec 'fp16' sends is summed on its way", "train", *common, "-n",
                     2, "--codec", "fp16", "--codec-checksum", "--out", self.out("r"))

    def test_resumed_run_is_bit_identical_with_checkpointed_residuals(self):
        """Of workers and of owners."""
        common = (*COMMON, "--data", self.data, "-n", 4, "--codec", "ef(sign,server=on)", "--checkpoint-every", 5)
        whole = self.train("whole", *common, "--steps", 12)
        self.train("half", *common, "--steps", 10)
        again = self.train("half", "--resume", self.out("half"), "--steps", 12)
        self.assertEqual(model(again), model(whole))
        self.assertEqual(summary(again)["resumed_at_step"], 10)

    def test_codec_hierarchy_is_bit_identical_over_every_transport(self):
        common = (*COMMON, "--data", self.data, "-n", 4, "--steps", 12, "--method", "dgc(ratio=0.01)",
                  "--optimizer", "sgd(lr=0.05)", "--checkpoint-every", 5)
        flat, shm = self.train("flat", *common), self.train("shm", *common, "--codec-hierarchy", 2)
        self.assertNotEqual(model(shm), model(flat))
        for transport in ("tcp", "sim"):
            out = self.train(transport, *common, "--codec-hierarchy", 2, "--transport", transport)
            self.assertEqual(model(out), model(shm), transport)
            self.assertEqual(summary(out)["bytes_sent_total"], summary(shm)["bytes_sent_total"], transport)
        self.train("half", *common, "--codec-hierarchy", 2, "--steps", 10)
        self.assertEqual(model(self.train("half", "--resume", self.out("half"), "--steps", 12)), model(shm))
        for sentence, more in (("codec-hierarchy is 'machine', and all 4 workers are one team",
                                ("--codec-hierarchy", "machine")),
                               ("codec-hierarchy is 3, which does not divide the 4 workers", ("--codec-hierarchy", 3)),
                               ("codec-hierarchy is 'host'; it must be machine, none, or a number",
                                ("--codec-hierarchy", "host"))):
            self.refused(sentence, "train", *common, *more, "--out", self.out("e"))

    def test_adaptive_codecs_report_their_changes(self):
        for n, codec, kind in ((3, "alq(bucket=512,first=3,second=7)", "levels"),
                               (2, "amq(bucket=256,bits=4,first=3,second=7,norm=max,coding=huffman)", "levels"),
                               (4, "ef(accordion(low=topk(ratio=0.1),high=sign,unit=step,interval=2),server=on)",
                                "accordion")):
            s = summary(self.train("shm" + codec[:5], *COMMON, "--data", self.data, "-n", n, "--codec", codec,
                                   "--steps", 10))
            said = [e["text"] for e in s["events"] if e["kind"] == kind]
            self.assertEqual((s["codec"], s["method"], len(said)), (codec, "ddp", {"levels": 3, "accordion": 4}[kind]),
                             said)
            if kind == "levels":  # psi falls, from what levels begin as on
                before, after = said[0].split("psi ")[1].split(",")[0].split(" -> ")
                self.assertLess(float(after), float(before))

    def test_accordion_report_of_many_layers_can_be_replayed(self):
        # gpt has a tensor for each of its many parts: the word at the end of the line has a letter
        # for each
        text = os.path.join(self.folder, "text.txt")
        with open(text, "w") as f:
            f.write("".join("abcdefgh "[i * i % 9] for i in range(20000)))
        common = ("--model", "gpt(layers=2,dim=16,heads=2)", "--data", f"text(file={text},context=16,val_windows=8)",
                  "--threads", 1, "-n", 2, "--batch", 2, "--steps", 9, "--seed", 3)
        said = [e["text"] for e in summary(self.train(
            "run", *common, "--method",
            "accordion(low=topk(ratio=0.5),high=topk(ratio=0.1),unit=step,interval=2,eta=0.3,min_numel=0)"))["events"]
                if e["kind"] == "accordion"]
        words = [line.split("; replay ")[1] for line in said]
        self.assertEqual([w.split(".")[0] for w in words], ["2", "4", "6", "8"], said)
        self.assertGreater(len(words[0].split(".")[1]), 24)
        self.assertEqual({len(w) for w in words}, {len(words[0])})
        again = self.train("again", *common,
                           "--method", "accordion(low=topk(ratio=0.5),high=topk(ratio=0.1),min_numel=0,replay=%s)"
                           % ":".join(words))
        self.assertEqual(model(again), model(self.out("run")))

    def test_predicted_codec_cost_matches_the_simulated_time(self):
        # Simulated time is the model's to predict: nothing overlapped, no other load. Elias codes
        # of gradients are shorter than those of the normal numbers that were measured.
        common = ("--model", "mlp(hidden=256)", "--data", self.data, "--batch", 8, "--threads", 1, "--steps", 3,
                  "--final-eval", "off", "--transport", "sim", "--lane", "off", "--step-time", 0.001, "-n", 4)
        plain = summary(self.train("plain", *common))
        self.assertIsNone(plain["payload_by_tensor"])
        for codec, within in (("fp16", 0.02), ("ef(topk)", 0.03), ("qsgd", 0.02), ("ef(powersgd(rank=2))", 0.25),
                              ("qsgd(coding=elias)", 0.1)):
            s = summary(self.train("x" + codec[:9], *common, "--codec", codec, "--codec-cost", "explain"))
            f = s["method_figures"]
            self.assertLess(abs(f["codec_cost_plain_seconds"] / (plain["exposed_comm_seconds"] / 3) - 1), 0.02,
                            (codec, f))
            self.assertLess(abs(f["codec_cost_seconds"] / (s["exposed_comm_seconds"] / 3) - 1), within,
                            (codec, f, s["exposed_comm_seconds"]))
            told = [e["text"] for e in s["events"] if e["kind"] == "codec-cost"]
            self.assertEqual(len(told), 4)
            self.assertRegex(told[0], r"^an exchange of 269322 numbers in 2 pieces by 4 workers, nothing overlapped; "
                             r"measured: all-reduce of fp32 5\d\.?\d* us a call, 1\d{3} MB/s a worker")
            self.assertRegex(told[3], "times as fast with the codec")
            layers = s["payload_by_tensor"]
            self.assertEqual(sum(t["params"] for t in layers), 269322)
            self.assertEqual({t["tensor"] for t in layers},
                             set(tensors(os.path.join(self.out("x" + codec[:9]), "model.safetensors"))))
            if codec == "fp16":
                self.assertTrue(all(t["bytes"] == 3 * 2 * t["params"] for t in layers), layers)

    def test_unprofitable_codec_is_disabled_and_reported(self):
        common = (*COMMON, "--data", self.data, "--transport", "sim", "-n", 2, "--checkpoint-every", 4)
        off = ("--codec", "ef(sign)", "--codec-cost", "auto-off")
        plain, coded, kept = self.train("plain", *common, "--steps", 8), self.train(
            "coded", *common, "--steps", 8, *off[:2]), self.train("kept", *common, "--steps", 8, *off)
        self.assertEqual((model(kept), summary(kept)["bytes_sent_total"]),
                         (model(coded), summary(coded)["bytes_sent_total"]))
        self.assertEqual(summary(kept)["method_figures"]["codec_cost_off"], 0)
        # eight bytes a number where four would do
        twice = ("--codec", "topk(ratio=1,index_code=int32)", "--codec-cost", "auto-off")
        out = self.train("off", *common, "--steps", 4, *twice)
        said = [e["text"] for e in summary(out)["events"] if e["kind"] == "codec"]
        self.assertRegex(said[-1], r"^codec 'topk\(ratio=1,index_code=int32\)' is not used in this run: "
                         r"an exchange is predicted to take \S+ ms with it and \S+ ms without \(codec-cost=auto-off\)$")
        self.assertEqual(summary(out)["bytes_sent_total"], 4 * 2 * 4 * PARAMS)
        self.assertTrue(all(t["bytes"] == 4 * 4 * t["params"] for t in summary(out)["payload_by_tensor"]))
        again = self.train("off", "--resume", out, "--steps", 8)  # as it was decided: nothing is measured again
        self.assertEqual(model(again), model(plain))
        self.assertNotIn("codec_cost_seconds", summary(again)["method_figures"])
        self.assertIn("codec 'topk(ratio=1,index_code=int32)' stays away, as was decided when the run began "
                      "(codec-cost=auto-off)", [e["text"] for e in summary(again)["events"]])
        self.refused("codec-cost is 'explain', but gradients travel as they are", "train", "--codec-cost", "explain",
                     "-n", 2, "--data", self.data, "--out", self.out("r"))

    def test_codec_report_describes_tensors_and_changes_no_bit(self):
        def told(out):
            return [line for line in map(json.loads, read(os.path.join(out, "metrics.jsonl")).decode().splitlines())
                    if "codec" in line]

        common = (*COMMON, "--data", self.data, "-n", 2, "--codec", "ef(topk(ratio=0.1))")
        plain, out = self.train("plain", *common,
                                "--steps", 12), self.train("told", *common, "--steps", 12, "--codec-report", 5)
        self.assertEqual(model(out), model(plain))
        self.assertEqual(summary(out)["bytes_sent_total"], summary(plain)["bytes_sent_total"])
        self.assertEqual((told(plain), summary(plain)["codec_report"]), ([], None))
        names = set(tensors(os.path.join(out, "model.safetensors")))
        lines = told(out)
        self.assertEqual([line["step"] for line in lines], [5] * len(names) + [10] * len(names))
        self.assertEqual({line["tensor"] for line in lines[len(names):]}, names)
        # lines have nine digits
        last = [{k: float("%.9g" % v) if isinstance(v, float) else v for k, v in row.items()}
                for row in summary(out)["codec_report"]]
        self.assertEqual(last, [{k: float("%.9g" % v) if isinstance(v, float) else v for k, v in line.items()}
                                for line in lines[len(names):]])
        for line in lines:
            k = -(-line["params"] // 10)
            self.assertEqual(line["codec"], "topk")
            self.assertAlmostEqual(line["density"], k / line["params"], 8)
            self.assertAlmostEqual(line["bits"], 8 * line["bytes"] / line["params"], 7)
            self.assertLessEqual(line["lost"], line["bound"] + 1e-6)
            self.assertLessEqual(line["density"], line["union_density"])
            self.assertGreater(line["residual"], 0)
        self.train("half", *common, "--steps", 6, "--checkpoint-every", 6, "--codec-report", 5)
        self.assertEqual(told(self.train("half", "--resume", self.out("half"), "--steps", 12)), lines)
        self.assertEqual(told(self.train("sim", *common, "--steps", 12, "--codec-report", 5, "--transport", "sim")),
                         lines)
        frozen = (*COMMON, "--data", self.data, "-n", 2, "--steps", 9, "--method", "onebit-adam(freeze_step=4)",
                  "--optimizer", "sgd(lr=0.001)", "--codec-report", 1)
        lines = told(self.train("onebit", *frozen))  # nothing is encoded before the switch
        self.assertEqual(sorted({line["step"] for line in lines}), [5, 6, 7, 8, 9])
        for line in lines:
            self.assertAlmostEqual(line["lost"], 1 - line["rho"] ** 2, 5)
            self.assertGreater(line["residual"], 0)
        levels = told(self.train("levels", *COMMON, "--data", self.data, "-n", 4, "--steps", 2, "--method", "nuqsgd",
                                 "--codec-report", 2))
        self.assertTrue(all(sum(line["levels"]) == line["params"] and len(line["levels"]) == 15 for line in levels
                            if line["codec"] == "nuqsgd"), levels)
        self.refused("codec-report is '3', but gradients travel as they are: there is no codec; give one, or leave "
                     "codec-report at 0", "train", "--codec-report", 3, "-n", 2, "--data", self.data, "--out",
                     self.out("r"))

    def test_training_with_codecs_reaches_similar_accuracy(self):
        common = ("--model", "mlp(hidden=64)", "--data", self.data, "-n", 4, "--batch", 10, "--epochs", 8, "--seed", 1,
                  "--optimizer", "sgd(lr=0.1)")
        plain = summary(self.train("plain", *common))["final_test_accuracy"]
        for codec in ("qsgd(bits=4)", "ef(topk(ratio=0.05))", "ef(sign,server=on)", "ef(powersgd(rank=2))"):
            accuracy = summary(self.train(codec[:7], *common, "--codec", codec))["final_test_accuracy"]
            self.assertGreater(accuracy, plain - 0.05, codec)  # 200 pictures: one is 0.5 %

    def test_unusable_codec_options_are_rejected(self):
        self.refused("unknown codec 'topkk'; did you mean 'topk'?", "train", "--codec", "topkk", "--data", self.data,
                     "--out", self.out("a"))
        self.refused("codec is 'topk', but method 'sgp' sends models or nothing", "train", "--codec", "topk",
                     "--method", "sgp", "--data", self.data, "--out", self.out("b"))
        self.refused("collective is 'direct'", "train", "--codec", "ef(topk)", "--collective", "direct", "-n", 2,
                     "--data", self.data, "--out", self.out("c"))

    def test_the_catalogue_and_help_come_from_the_same_tables(self):
        codecs = json.loads(tutti("codecs", "--json").stdout)
        self.assertLessEqual({"fp16", "qsgd", "topk", "powersgd", "ef", "large"}, {c["name"] for c in codecs})
        listed = tutti("codecs").stdout
        for c in codecs:
            self.assertEqual(set(c), {"name", "help", "paper", "form", "options"})
            self.assertIn(c["form"], ("summed", "message", "wrapper"))
            self.assertRegex(listed, r"(?m)^  %s +%s +" % (c["name"], c["form"]))
            page = tutti("codecs", c["name"]).stdout
            for o in c["options"]:
                self.assertIn(o["help"], page)
        self.refused("there is no codec 'topq'; did you mean 'topk'?", "codecs", "topq")


if __name__ == "__main__":
    unittest.main(verbosity=2)
