"""`tutti train --codec` as a person uses it: the same bytes over every transport, killed and resumed, and the catalogue."""
import json, os, unittest
from command import *

COMMON = ("--model", "mlp(hidden=48)", "--batch", 16, "--seed", 7, "--threads", 1)
PARAMS = 784 * 48 + 48 + 48 * 48 + 48 + 48 * 10 + 10


def model(out):
    return read(os.path.join(out, "model.safetensors"))


class Codec(Case):
    def test_every_transport_gives_the_same_bytes_and_the_same_traffic(self):
        for n, codec in ((2, "ef(topk)"), (4, "qsgd(bits=4)"), (4, "ef(sign,server=on)"), (3, "ef(powersgd(rank=2))"), (4, "wangni")):
            common = (*COMMON, "--data", self.data, "-n", n, "--steps", 12, "--codec", codec)
            shm = self.train("shm%d%s" % (n, codec[:5]), *common)
            for transport in ("tcp", "sim"):
                out = self.train("%s%d%s" % (transport, n, codec[:5]), *common, "--transport", transport)
                self.assertEqual(model(out), model(shm), (transport, codec))
                self.assertEqual(summary(out)["bytes_sent_total"], summary(shm)["bytes_sent_total"], (transport, codec))
            self.assertEqual(summary(shm)["codec"], codec)
            self.assertEqual(summary(shm)["method"], "ddp")

    def test_fp32_is_no_codec_and_half_of_it_is_half_the_bytes(self):
        common = (*COMMON, "--data", self.data, "-n", 2, "--steps", 12)
        plain, fp32, fp16 = self.train("plain", *common), self.train("fp32", *common, "--codec", "fp32"), self.train("fp16", *common, "--codec", "fp16")
        self.assertEqual(model(plain), model(fp32))
        self.assertNotEqual(model(plain), model(fp16))
        self.assertEqual(summary(plain)["bytes_sent_total"], 12 * 2 * 4 * PARAMS)
        self.assertEqual(summary(fp32)["bytes_sent_total"], 12 * 2 * 4 * PARAMS)
        self.assertEqual(summary(fp16)["bytes_sent_total"], 12 * 2 * 2 * PARAMS)

    def test_messages_go_by_the_way_that_is_asked_for(self):
        common = (*COMMON, "--data", self.data, "-n", 4, "--steps", 3)
        sent = {way: summary(self.train(way, *common, "--method", "qsgd(exclude=*2.weight)", "--collective", way))["bytes_sent_total"] for way in ("auto", "alltoall", "allgather")}
        once = self.train("once", *common, "--method", "qsgd(exclude=*2.weight,requantize=off)")
        self.assertEqual(sent["auto"], sent["alltoall"])
        self.assertGreater(sent["allgather"], 1.5 * sent["auto"])
        self.assertEqual(summary(once)["bytes_sent_total"], sent["allgather"])
        self.assertEqual(model(once), model(self.out("allgather")))
        for out, sentence, more in (("d", "codec 'fp16' is summed; leave collective at auto", ("--codec", "fp16", "--collective", "allgather")),
                                    ("e", "exclude has 'nobody', and no tensor has such a name; there are ", ("--codec", "large(qsgd,exclude=nobody)"))):
            self.refused(sentence, "train", *common, *more, "--out", self.out(out))

    def test_a_resumed_run_ends_with_the_same_bytes_since_residuals_are_in_the_checkpoint(self):
        for n, codec in ((2, "ef(topk)"), (4, "ef(sign,server=on)")):
            common = (*COMMON, "--data", self.data, "-n", n, "--codec", codec, "--checkpoint-every", 5)
            whole = self.train("w%d" % n, *common, "--steps", 12)
            self.train("h%d" % n, *common, "--steps", 10)
            again = self.train("h%d" % n, "--resume", self.out("h%d" % n), "--steps", 12)
            self.assertEqual(model(again), model(whole))
            self.assertEqual(summary(again)["resumed_at_step"], 10)

    def test_codecs_that_adapt_do_so_alike_everywhere_and_go_on_after_a_resume(self):
        for n, codec, kind in ((3, "alq(bucket=512,first=3,second=7)", "levels"), (2, "amq(bucket=256,bits=4,first=3,second=7,norm=max,coding=huffman)", "levels"),
                               (4, "ef(accordion(low=topk(ratio=0.1),high=sign,unit=step,interval=2),server=on)", "accordion"),
                               (2, "dgc(topk(ratio=0.01,warmup=1))", None), (4, "ef21(topk(ratio=0.05),eta=0.5)", None)):
            common = (*COMMON, "--data", self.data, "-n", n, "--codec", codec)
            name = codec[:5]
            shm, sim = self.train("shm" + name, *common, "--steps", 10), self.train("sim" + name, *common, "--steps", 10, "--transport", "sim")
            self.assertEqual(model(shm), model(sim), codec)
            self.train("half" + name, *common, "--steps", 6, "--checkpoint-every", 6)
            again = self.train("half" + name, "--resume", self.out("half" + name), "--steps", 10)
            self.assertEqual(model(again), model(shm), codec)
            said = [e["text"] for e in summary(shm)["events"] if e["kind"] == kind]
            self.assertEqual(len(said), {"levels": 3, "accordion": 4, None: 0}[kind], (codec, said))
            if kind == "levels":  # psi falls, from what levels begin as on
                before, after = said[0].split("psi ")[1].split(",")[0].split(" -> ")
                self.assertLess(float(after), float(before))

    def test_a_line_of_many_layers_is_whole_and_can_be_replayed(self):
        # gpt has a tensor for each of its many parts: the word at the end of the line has a letter for each
        text = os.path.join(self.folder, "text.txt")
        with open(text, "w") as f:
            f.write("".join("abcdefgh "[i * i % 9] for i in range(20000)))
        common = ("--model", "gpt(layers=2,dim=16,heads=2)", "--data", f"text(file={text},context=16,val_windows=8)", "--threads", 1, "-n", 2, "--batch", 2, "--steps", 9, "--seed", 3)
        said = [e["text"] for e in summary(self.train("run", *common, "--method", "accordion(low=topk(ratio=0.5),high=topk(ratio=0.1),unit=step,interval=2,eta=0.3,min_numel=0)"))["events"] if e["kind"] == "accordion"]
        words = [line.split("; replay ")[1] for line in said]
        self.assertEqual([w.split(".")[0] for w in words], ["2", "4", "6", "8"], said)
        self.assertGreater(len(words[0].split(".")[1]), 24)
        self.assertEqual({len(w) for w in words}, {len(words[0])})
        again = self.train("again", *common, "--method", "accordion(low=topk(ratio=0.5),high=topk(ratio=0.1),min_numel=0,replay=%s)" % ":".join(words))
        self.assertEqual(model(again), model(self.out("run")))

    def test_a_network_learns_through_it(self):
        common = ("--model", "mlp(hidden=64)", "--data", self.data, "-n", 4, "--batch", 10, "--epochs", 8, "--seed", 1, "--optimizer", "sgd(lr=0.1)")
        plain = summary(self.train("plain", *common))["final_test_accuracy"]
        for codec in ("qsgd(bits=4)", "ef(topk(ratio=0.05))", "ef(sign,server=on)", "ef(powersgd(rank=2))"):
            accuracy = summary(self.train(codec[:7], *common, "--codec", codec))["final_test_accuracy"]
            self.assertGreater(accuracy, plain - 0.05, codec)  # 200 pictures: one is 0.5 %

    def test_what_makes_no_sense_is_refused_before_anything_starts(self):
        self.refused("unknown codec 'topkk'; did you mean 'topk'?", "train", "--codec", "topkk", "--data", self.data, "--out", self.out("a"))
        self.refused("codec is 'topk', but method 'sgp' sends models or nothing", "train", "--codec", "topk", "--method", "sgp", "--data", self.data, "--out", self.out("b"))
        self.refused("collective is 'direct'", "train", "--codec", "ef(topk)", "--collective", "direct", "-n", 2, "--data", self.data, "--out", self.out("c"))

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
    unittest.main()
