"""Every codec of `tutti codecs`, over every transport and through a checkpoint: a run over shared memory that saves half-way is the measure, and from that checkpoint the second half is made over the others. So
each is asked at once whether messages, sums and states give the same bits there. Two workers and four take different ways (all-gather, or the owners of parts). MPI: those launchers that TUTTI_MPI names."""
import json, os, unittest
from command import *
from mpi_test import LAUNCHERS, under

STEPS, HALF = 6, 3
COMMON = ("--model", "mlp(hidden=24)", "--batch", 4, "--seed", 7, "--threads", 1, "--final-eval", "off", "--quiet")
# What cannot go by its name alone: wrappers, and codecs that change within the run only if told. A wrapper of the list stands for all it may have inside.
SPECS = {
    "ef": ["ef(topk(ratio=0.05))", "ef(powersgd(rank=2),momentum=0.5)"], "ef21": ["ef21(sign,eta=0.5)"], "dgc": ["dgc(topk(ratio=0.02,warmup=1))"], "large": ["large(qsgd(bits=4),min=500)"],
    "accordion": ["ef(accordion(low=topk(ratio=0.2),high=topk(ratio=0.01),unit=step,interval=1,eta=0.5))"], "alq": ["alq(bucket=256,first=1,second=4)"], "amq": ["amq(bucket=256,first=1,second=4,coding=huffman)"],
    "qsgd": ["qsgd(bits=3,bucket=256,coding=elias)"], "randomk": ["randomk(ratio=0.1,block=8)"],
}
# Models through a codec, to neighbours.
GOSSIP = ["fp16", "topk(ratio=0.1)"]


class Codecs(Case):
    def agree(self, n, *words):
        """words through every transport from the checkpoint of a run over shared memory."""
        name = "-".join(str(w) for w in words[1::2]) + "-%d" % n
        common = (*COMMON, "--data", self.data, *words)
        whole = self.train(name, *common, "-n", n, "--steps", STEPS, "--checkpoint-every", HALF)
        model, half = read(os.path.join(whole, "model.safetensors")), os.path.join(whole, "checkpoints", "step-%08d" % HALF)
        half = half if os.path.exists(half) else sorted(os.path.join(whole, "checkpoints", c) for c in os.listdir(os.path.join(whole, "checkpoints")))[0]
        rest = (*common, "--steps", STEPS, "--checkpoint-every", HALF, "--resume", half, "--on-loss", "stop")
        for transport in ("tcp", "sim"):
            out = self.train(name + transport, *rest, "-n", n, "--transport", transport)
            self.assertEqual(read(os.path.join(out, "model.safetensors")), model, (transport, words))
            self.assertEqual(summary(out)["resumed_at_step"], HALF)
        for kind in LAUNCHERS:
            out = self.out(name + kind)
            done = under(kind, n, "train", *rest, "--transport", "mpi", "--out", out)
            self.assertEqual(done.returncode, 0, (kind, words, done.stderr + done.stdout))
            self.assertEqual(read(os.path.join(out, "model.safetensors")), model, (kind, words))
            self.assertEqual(summary(out)["transport"], "mpi")

    def test_each_gives_the_same_bytes_over_every_transport_and_after_a_checkpoint(self):
        names = [c["name"] for c in json.loads(tutti("codecs", "--json").stdout)]
        self.assertLessEqual(set(SPECS), set(names))
        for k, name in enumerate(names):
            for spec in SPECS.get(name, [name]):
                self.agree((2, 2, 4)[k % 3], "--codec", spec)

    def test_models_that_travel_to_neighbours_do_so_alike(self):
        for spec in GOSSIP:
            self.agree(3, "--method", "d-psgd", "--codec", spec)


if __name__ == "__main__":
    unittest.main()
