"""Training a GPT on a text: it learns, the number of workers does not change a bit, a run continues
where it stopped, and mismatches give an error message."""
import json, os, random, shutil, unittest

from command import read, scratch, summary, tutti

MODEL = "gpt(layers=1,dim=16,heads=2)"
ALL = "gpt(layers=1,dim=16,heads=2,dropout=0.2,positions=rotary,norm=rms,tied=on)"


class Gpt(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = scratch()
        cls.text = os.path.join(cls.folder, "text.txt")
        draw = random.Random(3)
        with open(cls.text, "w") as f: # each letter follows from the one before in two ways of three
            letters, at = "abcdefgh ", 0
            for _ in range(40000):
                at = (at + 1) % 9 if draw.random() < 2 / 3 else draw.randrange(9)
                f.write(letters[at])

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def out(self, name):
        return os.path.join(self.folder, name)

    def train(self, name, *more, model=MODEL, code=0):
        done = tutti("train", "--model", model, "--data", f"text(file={self.text},context=32,val_windows=16)",
                     "--optimizer", "adamw(lr=0.01)", "--threads", 1, "--out", self.out(name), *more)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr if code else summary(self.out(name))

    def test_loss_approaches_the_entropy_of_the_text(self):
        s = self.train("learns", "--batch", 16, "--steps", 150)
        # The text has 1.22 nats a letter, on these 512 letters give or take 0.06; an even guess
        # among nine letters costs 2.2, among 256 bytes 5.5.
        self.assertLess(s["final_test_loss"], 1.5)
        self.assertGreater(s["final_test_loss"], 1.0)
        self.assertGreater(s["final_test_accuracy"], 0.6)
        self.assertLessEqual(s["final_test_accuracy"], 1)

    def test_worker_count_does_not_change_a_bit(self):
        for n in (1, 2, 4):
            self.train(f"n{n}", "-n", n, "--batch", 128 // n, "--steps", 6)
        models = [read(os.path.join(self.out(f"n{n}"), "model.safetensors")) for n in (1, 2, 4)]
        self.assertEqual(models[0], models[1])
        self.assertEqual(models[0], models[2])

    def test_dropout_does_not_depend_on_the_worker_count(self):
        for n in (1, 2, 4):
            self.train(f"d{n}", "-n", n, "--batch", 128 // n, "--steps", 4, model=ALL)
        self.train("kept", "--batch", 128, "--steps", 4, model=ALL.replace("0.2", "0"))
        models = [read(os.path.join(self.out(name), "model.safetensors")) for name in ("d1", "d2", "d4", "kept")]
        self.assertEqual(models[0], models[1])
        self.assertEqual(models[0], models[2])
        self.assertNotEqual(models[0], models[3])

    def test_recomputation_changes_no_bit(self):
        """Also where values are updated as soon as no unit needs them."""
        for method in ("ddp", "bytescheduler"):
            for on in ("off", "on"):
                self.train(f"{method}-{on}", "-n", 2, "--batch", 64, "--steps", 4, "--method", method,
                           model=ALL.replace("layers=1", "layers=3").replace(")", f",recompute={on})"))
            models = [read(os.path.join(self.out(f"{method}-{on}"), "model.safetensors")) for on in ("off", "on")]
            self.assertEqual(models[0], models[1])

    def test_validation_uses_only_the_end_of_the_text(self):
        """The end is written in other letters: a model that has learnt the rest knows nothing of it."""
        two = os.path.join(self.folder, "two.txt")
        with open(two, "w") as f:
            f.write("ab" * 4750 + "yz" * 250)
        done = tutti("train", "--model", MODEL, "--data", f"text(file={two},context=16,val=0.05)",
                     "--optimizer", "adamw(lr=0.01)", "--threads", 1, "-n", 2, "--batch", 8, "--steps", 40,
                     "--out", self.out("two"))
        self.assertEqual(done.returncode, 0, done.stderr)
        s = summary(self.out("two"))
        self.assertLess(s["final_train_loss"], 0.5)
        self.assertGreater(s["final_test_loss"], 4)
        self.assertEqual(s["final_test_accuracy"], 0)

    def test_dropout_masks_are_never_repeated(self):
        """All windows are equal and the model does not change, so that only the masks can
        change a step's loss: without them it is one number, with them another in every step of
        every epoch."""
        same = os.path.join(self.folder, "same.txt")
        with open(same, "w") as f:
            f.write("abcdefgh" * 60)
        for k, (dropout, more) in enumerate(((0, ()), (0.2, ()), (0.2, ("-n", 2, "--batch", 4)),
                                             (0.2, ("--batch", 4, "--accumulate", 2)))):
            out = self.out("masks%d" % k)
            done = tutti("train", "--model", "gpt(layers=1,dim=8,heads=2,dropout=%g)" % dropout,
                         "--data", f"text(file={same},context=8,val_windows=2)", "--optimizer", "sgd(lr=0)",
                         "--threads", 1, "--batch", 8, "--epochs", 3, "--report-every", 1, "--final-eval", "off",
                         "--out", out, *more)
            self.assertEqual(done.returncode, 0, done.stderr)
            losses = [line["train_loss"] for line in map(json.loads,
                                                         read(os.path.join(out, "metrics.jsonl")).splitlines())
                      if "train_loss" in line]
            epoch = summary(out)["steps"] // 3
            self.assertTrue(epoch >= 4 and len(losses) == 3 * epoch, losses)
            # a tail of other samples rounds otherwise
            losses = [loss for k, loss in enumerate(losses) if (k + 1) % epoch != 0]
            self.assertEqual(len(set(losses)), len(losses) if dropout > 0 else 1, losses)

    def test_resumed_run_ends_with_the_same_model(self):
        self.train("whole", "-n", 2, "--batch", 4, "--steps", 20, model=ALL)
        self.train("first", "-n", 2, "--batch", 4, "--steps", 20, "--checkpoint-every", 10, model=ALL)
        checkpoints = os.path.join(self.out("first"), "checkpoints")
        self.train("rest", "-n", 2, "--batch", 4, "--steps", 20,
                   "--resume", os.path.join(checkpoints, sorted(os.listdir(checkpoints))[0]), model=ALL)
        self.assertEqual(read(os.path.join(self.out("whole"), "model.safetensors")),
                         read(os.path.join(self.out("rest"), "model.safetensors")))

    def test_mismatches_give_an_error_message(self):
        for model, data, sentence in ((MODEL, "mnist",
                                       "gpt needs windows of tokens; this task has samples of 1 x 28 x 28 values"),
                                      ("gpt(dim=10,heads=3)", self.text, "dim must be a multiple of heads"),
                                      ("gpt(dim=6,heads=2,positions=rotary)", self.text,
                                       "heads must be of an even width, not 3"),
                                      ("gpt(dropout=1)", self.text, "dropout"),
                                      ("gpt(context=64)", self.text, "gpt with context=64 on windows of 128 tokens"),
                                      ("cnn", self.text, "give a model of tokens (gpt, wordlm)")):
            done = tutti("train", "--model", model, "--data", data, "--steps", 1, "--out", self.out("refused"))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(sentence, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.train("unmade", code=2, model="gpt(layers=1,dim=16,heads=2,context=64)")
        self.assertFalse(os.path.exists(self.out("unmade"))) # the launcher has seen it, before it made anything


if __name__ == "__main__":
    unittest.main(verbosity=2)
