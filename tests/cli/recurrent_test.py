"""Training networks with LSTMs, wordlm on a text and blstm on frames: they learn what only the
order of the samples' rows shows, the number of workers does not change a bit, a run continues where
it stopped, and mismatches give an error message."""
import os, random, shutil, unittest

from command import NAMES, idx_bytes, read, scratch, summary, tutti

FRAMES, WIDTH, CLASSES = 10, 6, 4


def write_frames(folder, train, test):
    """Class c: after noise, a bump that wanders c % 2 ? up : down through the features, slowly or
    (c >= 2) twice: the mean over the frames does not show the direction."""
    draw = random.Random(11)
    os.makedirs(folder)
    for k, n in enumerate((train, test)):
        body, labels = bytearray(), bytearray()
        for _ in range(n):
            c, phase = draw.randrange(CLASSES), draw.randrange(WIDTH)
            speed = (1 + c // 2) * (1 if c % 2 else -1)
            for f in range(FRAMES):
                at = (phase + speed * f) % WIDTH
                body += bytes(draw.randrange(60) + (150 if j == at else 0) for j in range(WIDTH))
            labels.append(c)
        for name, data in ((NAMES[2 * k], idx_bytes(0x803, (n, FRAMES, WIDTH), bytes(body))),
                           (NAMES[2 * k + 1], idx_bytes(0x801, (n,), bytes(labels)))):
            with open(os.path.join(folder, name), "wb") as f:
                f.write(data)


class Recurrent(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = scratch()
        cls.text = os.path.join(cls.folder, "text.txt")
        draw = random.Random(3)
        with open(cls.text, "w") as f:  # words of three letters; the first determines the last, two places on
            for _ in range(10000):
                f.write(draw.choice(("abx", "cby", "dbz")) + " ")
        cls.frames = os.path.join(cls.folder, "frames")
        write_frames(cls.frames, 768, 200)  # three full steps of 256
        cls.models = (("wordlm(dim=12,hidden=16)", f"text(file={cls.text},context=32,val_windows=16)"),
                      ("blstm(layers=2,hidden=12)", cls.frames))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def out(self, name):
        return os.path.join(self.folder, name)

    def train(self, which, name, *more):
        model, data = self.models[which]
        done = tutti("train", "--model", model, "--data", data, "--optimizer", "adamw(lr=0.01)", "--threads", 1,
                     "--out", self.out(name), *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return summary(self.out(name))

    def test_a_text_is_learnt_down_to_its_entropy(self):
        s = self.train(0, "learns", "--batch", 16, "--steps", 200)
        # One letter of four is drawn among three, the others follow, the last of a word from the
        # one two places before: ln(3) / 4 = 0.275 nats. Without memory "b" could be followed by
        # three letters, and the loss would be 0.549.
        self.assertLess(s["final_test_loss"], 0.33)
        self.assertGreater(s["final_test_loss"], 0.25)

    def test_blstm_learns_the_order_of_frames(self):
        s = self.train(1, "frames-learn", "--batch", 32, "--steps", 300)
        self.assertGreater(s["final_test_accuracy"], 0.95)
        self.assertLessEqual(s["final_test_accuracy"], 1)

    def test_worker_count_does_not_change_a_bit(self):
        for which, batch in ((0, 128), (1, 256)):
            for n in (1, 2, 4):
                self.train(which, f"{which}-n{n}", "-n", n, "--batch", batch // n, "--steps", 5)
            models = [read(os.path.join(self.out(f"{which}-n{n}"), "model.safetensors")) for n in (1, 2, 4)]
            self.assertEqual(models[0], models[1])
            self.assertEqual(models[0], models[2])

    def test_resumed_run_ends_with_the_same_model(self):
        for which in (0, 1):
            self.train(which, f"{which}-whole", "-n", 2, "--batch", 8, "--steps", 12)
            self.train(which, f"{which}-first", "-n", 2, "--batch", 8, "--steps", 12, "--checkpoint-every", 6)
            checkpoints = os.path.join(self.out(f"{which}-first"), "checkpoints")
            self.train(which, f"{which}-rest", "-n", 2, "--batch", 8, "--steps", 12,
                       "--resume", os.path.join(checkpoints, sorted(os.listdir(checkpoints))[0]))
            self.assertEqual(read(os.path.join(self.out(f"{which}-whole"), "model.safetensors")),
                             read(os.path.join(self.out(f"{which}-rest"), "model.safetensors")))

    def test_mismatches_give_an_error_message(self):
        for model, data, sentence in (
            ("wordlm", "mnist", "wordlm needs windows of tokens; this task has samples of 1 x 28 x 28 values"),
            ("wordlm(vocab=1000)", self.text, "wordlm with vocab=1000 on data of 256 different tokens; "
             "leave vocab out"), ("wordlm(hidden=0)", self.text, "hidden"),
            ("wordlm", f"text(file={self.text},context=50000)", "give a smaller context, a longer text or another val"),
            ("blstm", self.text, "a text, whose samples are tokens, but model 'blstm' takes values"),
            ("blstm", "logistic(dim=8)",
             "blstm needs samples of several frames; this task has samples of 1 x 1 x 8 values")):
            done = tutti("train", "--model", model, "--data", data, "--steps", 1, "--out", self.out("refused"))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
