"""Data sets by name and options: what `tutti data` prints about them, that a distorted set is
harder than the plain one but can be learnt, parts of a set, and texts."""
import os, re, shutil, struct, subprocess, unittest
from command import *


class Data(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        small_mnist(os.path.join(cls.folder, "sets", "mnist"), train=2000, test=500)
        cls.sets = os.path.join(cls.folder, "sets")

    def inspect(self, text):
        done = tutti("data", "inspect", text, TUTTI_DATA=self.sets)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_distorted_set_is_harder_but_can_be_learnt(self):
        accuracy = {}
        for text in ("mnist", "mnist(distort=0)", "mnist(distort=1)"):
            out = self.train(re.sub(r"\W", "", text), "--model", "mlp(hidden=64)", "--data", text, "--batch", 20,
                             "--epochs", 1, "--threads", 1, TUTTI_DATA=self.sets)
            self.assertEqual(summary(out)["data"], text)
            accuracy[text] = summary(out)["final_test_accuracy"]
        self.assertEqual(accuracy["mnist"], accuracy["mnist(distort=0)"])
        self.assertGreater(accuracy["mnist"], accuracy["mnist(distort=1)"] + 0.1)
        self.assertGreater(accuracy["mnist(distort=1)"], 0.2)

    def test_workers_share_one_distorted_set(self):
        """All gradients come from the same pictures: two workers of 20 and one of 40 agree as on
        any data, and twice is the same."""
        runs = [self.train(str(k), "--model", "mlp(hidden=16)", "--data", "mnist(distort=0.5,seed=3)", "-n", n,
                           "--batch", 40 // n, "--threads", 1, TUTTI_DATA=self.sets) for k, n in enumerate((2, 2, 1))]
        self.assertEqual(read(os.path.join(runs[0], "model.safetensors")),
                         read(os.path.join(runs[1], "model.safetensors")))
        for a, b in zip(floats(os.path.join(runs[0], "model.safetensors")),
                        floats(os.path.join(runs[2], "model.safetensors"))):
            self.assertAlmostEqual(a, b, delta=1e-4)

    def test_run_does_not_resume_with_different_distortions(self):
        out = self.train("a", "--model", "mlp(hidden=16)", "--data", "mnist(distort=0.5)", "--steps", 4,
                         "--checkpoint-every", 2, TUTTI_DATA=self.sets)
        self.refused("data_hash", "train", "--model", "mlp(hidden=16)", "--data", "mnist(distort=0.6)", "--steps", 8,
                     "--resume", out, "--out", self.out("b"), TUTTI_DATA=self.sets)
        self.train("c", "--model", "mlp(hidden=16)", "--data", "mnist(0.5,0)", "--steps", 8, "--resume", out,
                   TUTTI_DATA=self.sets)

    def test_options_are_listed_and_change_the_contents(self):
        for arguments in (("data", "list"), ("data", "--help")):
            page = tutti(*arguments, TUTTI_DATA=self.sets).stdout
            self.assertRegex(page, r"(?m)^mnist: ")
            self.assertRegex(page, r"(?m)^  distort +real +0\s+strength")
            self.assertRegex(page, r"(?m)^  seed +int +0 ")
        self.assertIn(os.path.join(self.sets, "mnist"), tutti("data", "list", TUTTI_DATA=self.sets).stdout)
        alone = shutil.copy(TUTTI, os.path.join(self.folder, "tutti"))  # no data come with it
        elsewhere = subprocess.run([alone, "data", "list"], capture_output=True, text=True, cwd=self.folder,
                                   env=clean_environment(TUTTI_DATA="/nowhere"))
        self.assertIn("not found", elsewhere.stdout)
        self.assertIn("not made yet: tools/speech-data makes it", elsewhere.stdout)
        contents = {text: re.search(r"contents (\w+)", self.inspect(text)).group(1)
                    for text in ("mnist", "mnist(0)", "mnist(0.5)", "mnist(distort=0.5,seed=0)", "mnist(0.5,1)",
                                 "mnist(0.6)")}
        self.assertEqual(contents["mnist"], contents["mnist(0)"])
        self.assertEqual(contents["mnist(0.5)"], contents["mnist(distort=0.5,seed=0)"])
        self.assertEqual(len(set(contents.values())), 4)
        self.assertIn("mnist as mnist(0.5)\n", self.inspect("mnist(0.5)"))

    def test_a_directory_with_brackets_in_its_name_is_a_directory(self):
        path = small_mnist(os.path.join(self.folder, "mnist(distort=1)"), train=30, test=20)
        self.assertIn("training samples 30, test samples 20", self.inspect(path))
        self.train("a", "--model", "mlp(hidden=16)", "--data", path, "--batch", 10)

    def test_bad_specs_are_refused(self):
        where = ("--out", self.out("a"))
        self.refused("data 'mnist': option 'distort' is 2; it must be from 0 to 1", "train",
                     "--data", "mnist(distort=2)", *where)
        self.refused("data 'mnist': unknown option 'distrt'; did you mean 'distort'?", "train",
                     "--data", "mnist(distrt=1)", *where)
        self.refused("no data at 'minst(1)'; did you mean 'mnist'?; give 'mnist', 'speech', 'cifar10', 'images', "
                     "'moby-dick', 'text', 'tokens', 'clicks', 'quadratic', 'logistic', a directory of images", "train",
                     "--data", "minst(1)", *where)
        self.refused("missing ')' at the end", "data", "inspect", "mnist(distort=1")


PARTITION = "dirichlet(alpha=0.2,least=20)"


class Partition(Case):
    def model(self, out):
        return read(os.path.join(out, "model.safetensors"))

    def test_partition_table_matches_the_run_and_the_label_counts(self):
        done = tutti("data", "partition", self.data, PARTITION, "-n", 3, "--seed", 5)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [[float(v) for v in line.split()] for line in done.stdout.splitlines() if re.match(r" +\d+ +\d+ ", line)]
        out = self.train("a", "--data", self.data, "--model", "mlp(hidden=16)", "-n", 3, "--batch", 10, "--steps", 2,
                         "--seed", 5, "--threads", 1, "--partition", PARTITION)
        workers = summary(out)["by_worker"]
        self.assertEqual(summary(out)["partition"], PARTITION)
        self.assertEqual([w["part_classes"] for w in workers], [[int(v) for v in row[4:]] for row in rows])
        self.assertEqual([w["part_samples"] for w in workers], [int(row[1]) for row in rows])
        for w, row in zip(workers, rows):
            self.assertEqual(sum(w["part_classes"]), w["part_samples"])
            self.assertGreaterEqual(w["part_samples"], 20)
            self.assertAlmostEqual(w["part_distance"], row[3], delta=6e-4)
        labels = read(os.path.join(self.data, "train-labels-idx1-ubyte"))[8:]
        self.assertEqual([sum(w["part_classes"][c] for w in workers) for c in range(10)],
                         [labels.count(c) for c in range(10)])

    def test_skewed_partitions_train_and_differ_from_iid(self):
        plain = self.train("iid", "--data", self.data, "--model", "mlp(hidden=16)", "-n", 3, "--batch", 10,
                           "--threads", 1)
        self.assertNotIn("part_samples", summary(plain)["by_worker"][0])
        named = self.train("named", "--data", self.data, "--model", "mlp(hidden=16)", "-n", 3, "--batch", 10,
                           "--threads", 1, "--partition", "iid")
        self.assertEqual(self.model(plain), self.model(named))
        for method in ("ddp", "local-sgd", "d-psgd", "ad-psgd"):
            out = self.train(method, "--data", self.data, "--model", "mlp(hidden=16)", "-n", 3, "--batch", 10,
                             "--threads", 1, "--method", method, "--partition", "class(k=4)")
            self.assertEqual(summary(out)["samples"], 600)
            self.assertNotEqual(self.model(plain), self.model(out))
            self.assertEqual([sum(n > 0 for n in w["part_classes"]) for w in summary(out)["by_worker"]], [4, 4, 4])

    def test_single_worker_partition_has_no_skew(self):
        out = self.train("a", "--data", self.data, "--model", "mlp(hidden=32)", "-n", 1, "--batch", 20, "--epochs", 5,
                         "--threads", 1, "--optimizer", "sgd(lr=0.02,momentum=0.9)", "--partition", "class(k=10)")
        self.assertGreater(summary(out)["final_test_accuracy"], 0.5)
        self.assertEqual(summary(out)["by_worker"][0]["part_distance"], 0)

    def test_batches_can_follow_the_sizes_of_the_parts(self):
        out = self.train("a", "--data", self.data, "--model", "mlp(hidden=16)", "-n", 3, "--batch", 10, "--threads", 1,
                         "--partition", PARTITION, "--batch-share", "data")
        workers = summary(out)["by_worker"]
        self.assertEqual(sum(w["batch"] for w in workers), 30)
        for w in workers:
            self.assertLessEqual(abs(w["batch"] - max(1, 30 * w["part_samples"] / 600)), 1)

    def test_resumed_partitioned_run_is_bit_identical(self):
        common = ["--data", self.data, "--model", "mlp(hidden=16)", "-n", 3, "--batch", 10, "--threads", 1,
                  "--partition", "shard(k=2)"]
        whole = self.train("whole", *common, "--steps", 50)
        half = self.train("half", *common, "--steps", 30, "--checkpoint-every", 30)
        rest = self.train("rest", *common, "--steps", 50, "--resume", half)
        self.assertEqual(self.model(whole), self.model(rest))
        self.refused('its run has partition "shard(k=2)", this one "shard(k=3)"', "train", *common,
                     "--partition", "shard(k=3)", "--steps", 50, "--resume", half, "--out", self.out("b"))

    def test_simulated_workers_have_the_same_parts(self):
        if not os.path.exists(os.path.join(os.path.dirname(TUTTI), "..", "lib", "libtutti_transport_sim.so")):
            self.skipTest("built without SimGrid")
        common = ["--data", self.data, "--model", "mlp(hidden=16)", "-n", 3, "--batch", 10, "--threads", 1,
                  "--partition", PARTITION]
        real, simulated = self.train("real", *common), self.train("sim", *common, "--transport", "sim")
        self.assertEqual(self.model(real), self.model(simulated))

    def test_bad_partitions_are_refused(self):
        where = ("--data", self.data, "--out", self.out("a"))
        self.refused("partition 'dirichlet': option 'alpha' is -0.5; it must be from 1e-6 to 1000000", "train",
                     "--partition", "dirichlet(alpha=-0.5)", *where)
        self.refused("there is no partition 'dirichlett'; did you mean 'dirichlet'?", "train",
                     "--partition", "dirichlett", *where)
        self.refused("partition 'class': 2 workers with 2 classes each have 4 of the 10 classes, and no worker would "
                     "have the others; k must be at least 5", "train", "--partition", "class", "-n", 2, *where)
        self.refused("batch-share is 'auto', but with partition 'shard'", "train", "--partition", "shard",
                     "--batch-share", "auto", "-n", 2, *where)
        self.refused("batch-share is 'data', but with partition 'iid'", "train", "--batch-share", "data", "-n", 2,
                     *where)
        self.refused("method 'hetero-ring' hands work from worker to worker", "train", "--partition", "shard",
                     "--method", "hetero-ring", "-n", 2, *where)
        self.refused("partition takes a data set and a partition", "data", "partition", self.data)
        self.refused("-n needs a number", "data", "partition", self.data, "shard", "-n")


class Text(Case):
    def setUp(self):
        self.book = os.path.join(self.folder, "book.txt")
        with open(self.book, "w", encoding="utf-8") as f:
            f.write("Call me Ishmael. Some years ago, never mind how long precisely, “having little” or no money. "
                    * 200)

    def made(self, *arguments):
        done = tutti("data", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_an_encoding_is_learnt_and_tokens_are_made_with_it(self):
        bpe, tokens = self.out("x.bpe"), self.out("x.tok")
        self.assertRegex(self.made("bpe", self.book, "--vocab", 300, "--out", bpe),
                         r"300 ids learnt from 19400 bytes in [\d.]+ s; the text has \d+ tokens of [\d.]+ bytes")
        lines = read(bpe).decode().splitlines()
        self.assertEqual((lines[0], lines[1], len(lines)), ("tutti-bpe 1", "vocabulary 300", 2 + 44 + 1))
        self.assertRegex(self.made("tokens", self.book, "--bpe", bpe, "--out=" + tokens),
                         r"\d+ tokens of 300 kinds from 19400 bytes")
        raw = read(tokens)
        count = struct.unpack("<Q", raw[16:24])[0]
        ids = struct.unpack("<%dH" % count, raw[64:])
        table = [bytes([k]) for k in range(256)]
        for line in lines[2:-1]:
            left, right = map(int, line.split())
            table.append(table[left] + table[right])
        self.assertEqual(b"".join(table[i] for i in ids), read(self.book))
        self.assertIn("each 128 tokens of 300 kinds", self.made("inspect", tokens))
        self.assertIn("each 32 tokens of 300 kinds", self.made("inspect", f"tokens(file={tokens},context=32)"))

    def test_utf8_file_is_read_as_text(self):
        self.assertIn("each 128 tokens of 256 kinds", self.made("inspect", self.book))
        self.assertIn("as text(file=", self.made("inspect", f"text(file={self.book},context=16)"))
        self.assertIn("training windows 8821, validation windows 16", self.made("inspect", "moby-dick"))

    def test_models_without_token_input_reject_texts(self):
        for data in ("moby-dick", f"text(file={self.book})", self.book):
            self.refused("a text, whose samples are tokens, but model 'mlp' takes values (images, features)", "train",
                         "--data", data, "--out", self.out("a"))
        self.refused("is a text, which has no labels to cut it by", "data", "partition", self.book, "shard")

    def test_damage_in_a_token_file_is_located(self):
        tokens = self.out("x.tok")
        self.made("tokens", self.book, "--out", tokens)
        raw = bytearray(read(tokens))
        for place, sentence in ((20, "the hash of its header is wrong"), (5000, "the hash of its ids is wrong")):
            bad = bytearray(raw)
            bad[place] ^= 4
            with open(self.out("bad.tok"), "wb") as f:
                f.write(bad)
            self.refused(sentence, "data", "inspect", self.out("bad.tok"))
        with open(self.out("cut.tok"), "wb") as f:
            f.write(raw[:-3])
        self.refused("it was cut short or added to: make or fetch it again", "data", "inspect", self.out("cut.tok"))

    def test_a_click_log_is_made_and_read(self):
        log = self.out("c.tsv")
        said = self.made("clicks", "--samples", 2000, "--spread", 3, "--out", log)
        self.assertRegex(said, r"2000 clicks, [\d.]+ % of them positive, "
                         r"\d+ bytes\nBayes AUC 0\.[89]\d+ \(0\.[89]\d+ on these labels\)")
        lines = read(log).decode().splitlines()
        self.assertEqual((len(lines), {len(line.split("\t")) for line in lines}), (2000, {40}))
        self.assertNotEqual(read(log), read(self.more(log, "--seed", 1)))
        page = self.made("inspect", f"clicks(file={log},rows=500)")
        self.assertIn("training samples 1800, test samples 200\n  each 1 x 1 x 13 floats, "
                      "2 classes\n  and 26 categories, rows of tables of 500", page)
        self.refused("a click log, whose samples have categories, but model 'mlp' takes values only", "train",
                     "--data", f"clicks(file={log})", "--out", self.out("a"))
        self.refused("line 1: field 1 is 'Call me Ishmael. Some y'", "data", "inspect", f"clicks(file={self.short()})")
        self.refused("clicks takes options only, not 'x'", "data", "clicks", "x")
        self.refused("clicks: option 'missing' is 1; it must be from 0 to 0.99", "data", "clicks", "--missing", 1,
                     "--out", self.out("d"))

    def test_unfinished_file_does_not_have_the_final_name(self):
        log = self.out("killed.tsv")
        run = subprocess.Popen([TUTTI, "data", "clicks", "--samples", "100000000", "--out", log],
                               stdout=subprocess.DEVNULL, env=clean_environment())
        until = time.monotonic() + 30
        while not os.path.exists(log + ".part"):
            self.assertIsNone(run.poll())
            self.assertLess(time.monotonic(), until)
            time.sleep(0.005)
        run.kill()
        run.wait()
        self.assertFalse(os.path.exists(log))
        self.made("clicks", "--samples", 100, "--out", log)
        self.assertFalse(os.path.exists(log + ".part"))
        self.assertEqual(read(log).count(b"\n"), 100)

    def more(self, log, *arguments):
        self.made("clicks", "--samples", 2000, "--spread", 3, "--out", log + "2", *arguments)
        return log + "2"

    def short(self):
        path = self.out("short.txt")
        with open(path, "w") as f:
            f.write("Call me Ishmael. Some years ago\nnever mind\n")
        return path

    def test_bad_arguments_are_refused(self):
        self.refused("bpe needs a text and --out", "data", "bpe", self.book)
        self.refused("tokens has no option '--vocab'", "data", "tokens", self.book, "--vocab", 3)
        self.refused("a vocabulary of 100000 ids is more than the text gives", "data", "bpe", self.book,
                     "--vocab", 100000, "--out", self.out("x"))
        self.refused("is not written; remove it or choose another name (File exists)", "data", "tokens", self.book,
                     "--out", self.book)
        open(self.out("empty"), "w").close()
        self.refused("is empty; give a text", "data", "bpe", self.out("empty"), "--out", self.out("x"))
        self.refused("line 1 is not 'tutti-bpe 1'; it is damaged or no encoding made by `tutti data bpe`", "data",
                     "tokens", self.book, "--bpe", self.book, "--out", self.out("x"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
