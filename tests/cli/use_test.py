"""The files of a run in use: eval gives the run's own numbers, from its files alone; predict sees what
training saw; generate continues a text according to the logits; --init begins at the values of a file.
And training on folders of pictures, whose classes predict names."""
import json, os, random, re, struct, subprocess, unittest, zlib

from command import Case, TUTTI, clean_environment, idx_body, mlp_evaluated, read, summary, tensors, tutti

MLP, GPT = "mlp(hidden=24)", "gpt(layers=1,dim=16,heads=2)"


def png(path, width, height, rgb):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + rgb[3 * y * width:3 * (y + 1) * width] for y in range(height))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
                chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def safetensors(path, all_tensors):
    """{name: (dtype, shape, bytes)} as a file."""
    header, body = {}, b""
    for name, (dtype, shape, data) in sorted(all_tensors.items()):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body + data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)
    return path


def argmax(row):
    return max(range(len(row)), key=lambda k: (row[k], -k))


class Use(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = os.path.join(cls.folder, "text.txt")
        draw = random.Random(3)
        with open(cls.text, "w") as f: # each letter follows from the one before in two ways of three
            letters, at = "abcdefgh ", 0
            for _ in range(20000):
                at = (at + 1) % 9 if draw.random() < 2 / 3 else draw.randrange(9)
                f.write(letters[at])
        cls.windows = f"text(file={cls.text},context=16,val_windows=40)"
        cls.pictures = os.path.join(cls.folder, "pictures")
        for name, colour in (("red", (200, 30, 30)), ("green", (30, 200, 30)), ("blue sky", (30, 30, 200))):
            os.makedirs(os.path.join(cls.pictures, name))
            for k in range(12):
                width, height = draw.randint(8, 30), draw.randint(8, 30)
                png(os.path.join(cls.pictures, name, "%02d.png" % k), width, height,
                    bytes(min(255, max(0, c + draw.randint(-25, 25))) for _ in range(width * height) for c in colour))

    def run_of(self, name, model, data, *more):
        out = self.out(name)
        done = tutti("train", "--model", model, "--data", data, "--threads", 1, "--quiet", "--out", out, "--batch", 16,
                     *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return out

    def told(self, *words):
        done = tutti(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def eval(self, run, *more):
        return json.loads(self.told("eval", run, "--threads", 1, "--json", *more))

    # ---- eval

    def test_eval_and_generate_limit_the_openmp_spin_count(self):
        """libgomp's own count is 300000 spins, some ms at each end of a layer where other processes
        use the machine as well. A value set by the user is kept."""
        run = self.run_of("run", GPT, self.windows, "--steps", 1)
        for words in (("eval", run, "--samples", 4), ("generate", run, "--prompt", "ab", "--length", 1)):
            told = lambda **more: re.findall(rb"GOMP_SPINCOUNT = '(.*)'", subprocess.run(
                [TUTTI, *map(str, words)], capture_output=True, check=True,
                env=clean_environment(OMP_DISPLAY_ENV="verbose", **more)).stderr)
            if told() == []:
                self.skipTest("OpenMP is another than GCC's")
            self.assertLessEqual(int(told()[-1]), 30000)
            self.assertEqual(told(GOMP_SPINCOUNT="77")[-1], b"77")
            self.assertEqual(told(OMP_WAIT_POLICY="passive")[-1], b"0")

    def test_eval_reproduces_the_runs_final_figures(self):
        clicks = os.path.join(self.folder, "clicks.tsv")
        self.told("data", "clicks", "--samples", 400, "--out", clicks)
        for name, model, data in (("mlp", MLP, self.data), ("resnet", "resnet(depth=8)", self.data),
                                  ("gpt", GPT, self.windows), ("ctr", "ctr(dim=4,hidden=8)",
                                                               f"clicks(file={clicks},rows=50)")):
            out = self.run_of(name, model, data, "--steps", 5)
            s, e = summary(out), self.eval(out)
            self.assertEqual((e["loss"], e["accuracy"], e["auc"]),
                             (s["final_test_loss"], s["final_test_accuracy"], s["final_test_auc"]), name)
            self.assertEqual(e["perplexity"] is None, name != "gpt")
            self.assertEqual(e["params"], s["params"])
        self.assertAlmostEqual(self.eval(self.out("gpt"))["perplexity"], 2.718281828459045 ** summary(
            self.out("gpt"))["final_test_loss"], places=6)
        self.assertIn("  perplexity  ", self.told("eval", self.out("gpt")))

    def test_eval_is_right_about_a_few_samples(self):
        out = self.run_of("r", MLP, self.data, "--steps", 20)
        for split, folder in (("train", "train"), ("test", "t10k")):
            loss, accuracy = mlp_evaluated(os.path.join(out, "model.safetensors"), self.data, folder, 0, 30)
            e = self.eval(out, "--split", split, "--samples", 30)
            self.assertEqual(e["samples"], 30)
            self.assertAlmostEqual(e["loss"], loss, places=5)
            self.assertAlmostEqual(e["accuracy"], accuracy, places=9)
        both, one, other = (self.eval(out, "--split", s) for s in ("all", "train", "test"))
        self.assertEqual((both["samples"], one["samples"], other["samples"]), (800, 600, 200))
        self.assertAlmostEqual(both["loss"], (600 * one["loss"] + 200 * other["loss"]) / 800, places=9)

    def test_other_data_are_normalised_like_the_run(self):
        """The same pictures in a set of other moments: the loss must not move."""
        out = self.run_of("r", MLP, self.data, "--steps", 10)
        other = self.out("set")
        os.makedirs(other)
        for name in os.listdir(self.data):
            raw = read(os.path.join(self.data, name))
            if name == "train-images-idx3-ubyte":
                raw = raw[:16] + bytes(255 - b for b in raw[16:])
            with open(os.path.join(other, name), "wb") as f:
                f.write(raw)
        self.assertEqual(self.eval(out, "--data", other)["loss"], summary(out)["final_test_loss"])

    def test_eval_of_a_checkpoint_uses_the_final_model(self):
        """At the last step a checkpoint has what the run ends with: replicas, workers' own models (the mean), servers'
        values, shards."""
        for method in ("ddp", "local-sgd(period=3)", "d-psgd", "parameter-server", "asgd", "zero"):
            out = self.run_of(method, MLP, self.data, "--steps", 8, "-n", 2, "--method", method, "--checkpoint-every",
                              4)
            s = summary(out)
            newest = os.path.join(out, "checkpoints", "step-00000008")
            for run in (newest, os.path.join(out, "checkpoints")):
                e = self.eval(run)
                self.assertEqual(e["weights"], newest)
                self.assertAlmostEqual(e["loss"], s["final_test_loss"], places=6, msg=method)
            self.assertNotEqual(self.eval(os.path.join(out, "checkpoints", "step-00000004"))["loss"], e["loss"])
            os.remove(os.path.join(out, "model.safetensors")) # a run that has not ended yet
            self.assertEqual(self.eval(out)["weights"], newest)
        out = self.run_of("norms", "resnet(depth=8)", self.data, "--steps", 4, "-n", 2, "--checkpoint-every", 4)
        self.assertAlmostEqual(self.eval(os.path.join(out, "checkpoints"))["loss"], summary(out)["final_test_loss"],
                               places=6)

    def test_logits_file_has_shapes_and_labels(self):
        out = self.run_of("r", MLP, self.data, "--steps", 5)
        self.eval(out, "--samples", 3, "--logits", self.out("l"))
        t = tensors(self.out("l"))
        self.assertEqual((t["logits"][:2], t["labels"][:2]), (("F32", [3, 10]), ("I64", [3])))
        self.assertEqual(list(struct.unpack("<3q", t["labels"][2])),
                         list(idx_body(os.path.join(self.data, "t10k-labels-idx1-ubyte"))[:3]))

    def test_eval_rejects_mismatched_runs_and_data(self):
        out = self.run_of("r", MLP, self.data, "--steps", 1)
        gpt = self.run_of("g", GPT, self.windows, "--steps", 1)
        self.refused("there is no run at 'nowhere'", "eval", "nowhere")
        self.refused("has no model.json, in it or above it", "eval", self.data)
        self.refused("which run?", "eval")
        self.refused("there is no option '--dat'; did you mean 'data'", "eval", out, "--dat", "x")
        self.refused("(a text), and model 'mlp(hidden=24)' was trained on", "eval", out, "--data", self.windows)
        self.refused("(no text), and model", "eval", gpt, "--data", self.data)
        self.refused("(a text of another context), and model", "eval", gpt, "--data", self.text)
        self.refused("takes 1 x 28 x 28; folders of pictures come in any size", "eval", out, "--data", self.pictures)
        with open(os.path.join(out, "model.json"), "a") as f:
            f.write("x")
        self.refused("it is no model.json of a run, or is damaged", "eval", out, code=1)
        os.remove(os.path.join(gpt, "model.safetensors"))
        self.refused("has neither model.safetensors, which a run writes when it ends, nor a valid checkpoint", "eval",
                     gpt)

    # ---- pictures

    def test_image_folders_are_trained_on_and_predicted(self):
        data = f"images(dir={self.pictures},size=12,test=0.25)"
        outs = [self.run_of(name, "cnn", data, "-n", 2, "--batch", 8, "--epochs", 6, *more)
                for name, more in (("shm", ()), ("tcp", ("--transport", "tcp")))]
        self.assertEqual(self.model(outs[0]), self.model(outs[1]))
        self.assertGreater(summary(outs[0])["final_test_accuracy"], 0.8)
        with open(os.path.join(outs[0], "model.json")) as f:
            facts = json.load(f)
        self.assertEqual(facts["classes"], ["blue sky", "green", "red"])
        self.assertEqual((facts["task"]["channels"], facts["task"]["height"], facts["task"]["classes"]), (3, 12, 3))
        self.assertEqual(self.eval(outs[0])["loss"], summary(outs[0])["final_test_loss"])
        self.assertIn("classes: blue sky, green, red", self.told("data", "inspect", data))
        files = [os.path.join(self.pictures, name, "00.png") for name in ("red", "green", "blue sky")]
        lines = [json.loads(x) for x in self.told("predict", outs[0], *files, "--json", "--top", 3).splitlines()]
        self.assertEqual([x["class"] for x in lines], ["red", "green", "blue sky"])
        for line, file in zip(lines, files):
            p = [x["probability"] for x in line["top"]]
            self.assertEqual(line["file"], file)
            self.assertEqual(sorted(p, reverse=True), p)
            self.assertAlmostEqual(sum(p), 1, places=6)
        self.assertRegex(self.told("predict", outs[0], files[0]), r"00.png: red [01]\.\d{4}\n$")

    def test_predict_and_eval_give_the_same_logits(self):
        """Logits of pictures one by one are those of the set that they make."""
        data = f"images(dir={self.pictures},size=12,grey=on,test=0.25)"
        out = self.run_of("r", MLP, data, "--steps", 3)
        self.eval(out, "--split", "all", "--logits", self.out("l"))
        t = tensors(self.out("l"))["logits"]
        rows = [struct.unpack_from("<3f", t[2], 12 * k) for k in range(36)]
        files = [os.path.join(self.pictures, c, "%02d.png" % k) for c in ("blue sky", "green", "red")
                 for k in range(12)]
        lines = [json.loads(x) for x in self.told("predict", out, *files, "--json", "--logits").splitlines()]
        seen = [tuple(struct.unpack("<3f", struct.pack("<3f", *x["logits"]))) for x in lines]
        self.assertEqual(sorted(seen), sorted(rows))

    def test_a_picture_that_cannot_be_used_is_named(self):
        out = self.run_of("r", MLP, f"images(dir={self.pictures},size=12)", "--steps", 1)
        good = os.path.join(self.pictures, "red", "00.png")
        bad = os.path.join(self.folder, "bad.png")
        with open(bad, "wb") as f:
            f.write(read(good)[:60])
        done = tutti("predict", out, bad, good)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"'{bad}' is no whole PNG file", done.stderr)
        self.assertIn(f"{good}: red", done.stdout) # which keeps no other from being looked at
        folder = self.out("set")
        for name in ("a", "b"):
            os.makedirs(os.path.join(folder, name))
            for k in range(9):
                with open(os.path.join(folder, name, "%d.png" % k), "wb") as f:
                    f.write(read(good)[:60] if (name, k) == ("b", 2) else read(good))
        self.refused(f"'{folder}/b/2.png' is no whole PNG file", "train", "--model", MLP, "--data", folder, "--out",
                     self.out("o"))
        self.assertEqual(os.listdir(self.out("o")) if os.path.isdir(self.out("o")) else [], [])
        self.refused("whose class 0 is 'a', while that of the model is 'blue sky'", "eval", out, "--data",
                     f"images(dir={self.good_folder()},size=12)")

    def good_folder(self):
        folder = self.out("good")
        for name in ("a", "b"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
            for k in range(9):
                with open(os.path.join(folder, name, "%d.png" % k), "wb") as f:
                    f.write(read(os.path.join(self.pictures, "red", "%02d.png" % k)))
        return folder

    def test_predict_rejects_models_without_image_input(self):
        gpt = self.run_of("g", GPT, self.windows, "--steps", 1)
        out = self.run_of("r", MLP, self.data, "--steps", 1)
        self.refused("whose samples are no images", "predict", gpt, "x.png")
        self.refused("which pictures? give PNG or JPEG files behind the run", "predict", out)
        self.refused("--logits is for --json", "predict", out, "x.png", "--logits")
        done = self.told("predict", out, os.path.join(self.pictures, "red", "00.png")) # classes without names
        self.assertRegex(done, r"00.png: \d [01]\.\d{4}\n$")

    def test_cifar_10_files_are_read_and_validated(self):
        folder = self.out("cifar")
        os.makedirs(folder)
        draw = random.Random(5)
        for name in [f"data_batch_{k}.bin" for k in range(1, 6)] + ["test_batch.bin"]:
            with open(os.path.join(folder, name), "wb") as f:
                for k in range(20):
                    f.write(bytes([k % 10]) + bytes([25 * (k % 10)]) * 1024 + draw.randbytes(2048))
        out = self.run_of("r", "vgg", folder, "--steps", 2, "-n", 2)
        self.assertEqual(summary(out)["samples"], 64)
        self.assertEqual(self.eval(out)["samples"], 20)
        with open(os.path.join(folder, "data_batch_2.bin"), "ab") as f:
            f.write(b"x")
        self.refused("data_batch_2.bin' has 61461 bytes, but records of 3073 bytes each make a multiple of 3073",
                     "train", "--model", "vgg", "--data", folder, "--out", self.out("o"))

    # ---- generate

    def story(self, run, *more):
        return json.loads(self.told("generate", run, "--threads", 1, "--json", *more))

    def check_greedy(self, run):
        """Every token is the largest of the logits that eval gives of the window before it: one that begins with the
        prompt while the window has space, then the last 16 tokens."""
        told = self.story(run, "--prompt", "abc", "--length", 30, "--temperature", 0, "--seed", 9)
        tokens = told["tokens"]
        self.assertEqual((len(tokens), told["prompt_tokens"], bytes(tokens[:3])), (33, 3, b"abc"))
        text = self.out("story.txt")
        with open(text, "wb") as f:
            f.write(bytes(tokens) + bytes(tokens))
        self.told("eval", run, "--data", f"text(file={text},context=16,stride=1,val=0.5)", "--split", "train",
                  "--threads", 1, "--logits", self.out("l"))
        logits = tensors(self.out("l"))["logits"]
        self.assertEqual(logits[1][1:], [16, 256])

        def row(window, place):
            return struct.unpack_from("<256f", logits[2], 4 * 256 * (16 * window + place))

        for k in range(3, 33):
            self.assertEqual(tokens[k], argmax(row(max(0, k - 16), min(k - 1, 15))), k)

    def test_greedy_tokens_are_the_argmax_of_eval_logits(self):
        run = self.run_of("g", GPT, self.windows, "--steps", 60, "--optimizer", "adamw(lr=0.02)")
        self.check_greedy(run)
        self.assertEqual(self.story(run, "--prompt", "abc", "--length", 30, "--temperature", 0)["text"],
                         self.story(run, "--prompt", "abc", "--length", 30, "--top-k", 1, "--seed", 4)["text"])
        self.check_greedy(self.run_of("w", "wordlm(dim=12,hidden=16)", self.windows, "--steps", 60, "--optimizer",
                                      "adamw(lr=0.02)"))

    def test_the_same_seed_gives_the_same_text(self):
        run = self.run_of("g", GPT, self.windows, "--steps", 60, "--optimizer", "adamw(lr=0.02)")
        words = ("--prompt", "ab", "--length", 60)
        texts = [self.story(run, *words, "--seed", s)["text"] for s in (1, 1, 2)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])
        self.assertEqual(self.told("generate", run, "--threads", 1, *words, "--seed", 1), "ab" + texts[0] + "\n")
        few = self.story(run, *words, "--top-k", 2, "--temperature", 5, "--seed", 1)["text"]
        self.assertNotEqual(few, texts[0])
        self.assertTrue(set(few) <= set("abcdefgh "), few) # hot, but only among what is likely

    def test_tokens_of_an_encoding_become_text(self):
        bpe, tok = self.out("bpe"), self.out("tok")
        self.told("data", "bpe", self.text, "--vocab", 300, "--out", bpe)
        self.told("data", "tokens", self.text, "--bpe", bpe, "--out", tok)
        run = self.run_of("g", GPT, f"tokens(file={tok},context=8)", "--steps", 40, "--optimizer", "adamw(lr=0.02)")
        told = self.story(run, "--prompt", "abcdefgh ", "--length", 12, "--bpe", bpe, "--temperature", 0)
        self.assertLess(told["prompt_tokens"], 9)
        self.assertTrue(len(told["text"]) > 12 and set(told["text"]) <= set("abcdefgh "), told)
        self.refused("the run's tokens were made by an encoding; give it as --bpe FILE", "generate", run, "--prompt",
                     "a")
        other = self.out("other")
        self.told("data", "bpe", self.text, "--vocab", 290, "--out", other)
        self.refused("is not the encoding that made the run's tokens", "generate", run, "--prompt", "a", "--bpe", other)

    def test_generate_rejects_invalid_models_and_prompts(self):
        out = self.run_of("r", MLP, self.data, "--steps", 1)
        gpt = self.run_of("g", GPT, self.windows, "--steps", 1)
        self.refused("takes no tokens, so it cannot continue a text", "generate", out, "--prompt", "a")
        self.refused("give a --prompt of at least one character", "generate", gpt)
        self.refused("what is 'abc'? the text to continue is given as --prompt TEXT", "generate", gpt, "abc")
        self.refused("--temperature", "generate", gpt, "--prompt", "a", "--temperature", -1)

    # ---- --init

    def test_init_file_sets_the_initial_weights(self):
        first = self.run_of("first", MLP, self.data, "--steps", 12)
        file = os.path.join(first, "model.safetensors")
        for method in ("ddp", "ad-psgd", "asgd"):
            out = self.run_of(method, MLP, self.data, "--steps", 1, "--optimizer", "sgd(lr=0)", "--seed", 5, "-n", 2,
                              "--method", method, "--init", file)
            self.assertEqual(tensors(os.path.join(out, "model.safetensors")), tensors(file), method)
        drawn = self.run_of("drawn", MLP, self.data, "--steps", 1, "--optimizer", "sgd(lr=0)")
        self.assertNotEqual(self.model(drawn), read(file))

    def test_resumed_run_does_not_read_the_init_file(self):
        first = self.run_of("first", MLP, self.data, "--steps", 3)
        file = os.path.join(first, "model.safetensors")
        whole = self.run_of("whole", MLP, self.data, "--steps", 4, "--init", file, "--checkpoint-every", 2)
        os.rename(file, file + "-gone")
        done = tutti("train", "--resume", os.path.join(whole, "checkpoints", "step-00000002"), "--out", self.out("on"),
                     "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.model(self.out("on")), self.model(whole))

    def test_mismatched_init_files_give_an_error_message(self):
        first = self.run_of("first", MLP, self.data, "--steps", 1)
        good = tensors(os.path.join(first, "model.safetensors"))
        path = self.out("f.safetensors")

        def init(sentence, changed, code=2):
            safetensors(path, changed)
            self.refused(sentence, "train", "--model", MLP, "--data", self.data, "--steps", 1, "--init", path, "--out",
                         self.out("o"), code=code)
            self.assertEqual(os.listdir(self.out("o")) if os.path.isdir(self.out("o")) else [], [])

        def without(*names):
            return {k: v for k, v in good.items() if k not in names}

        init("does not fit model 'mlp(hidden=24)'; it lacks '2.bias'; docs/PYTORCH-MODELS.md", without("2.bias"))
        self.refused("tutti: init: ", "train", "--model", MLP, "--data", self.data, "-n", 2, "--init", path, "--out",
                     self.out("o")) # where the others wait for it
        init("; it lacks '4.weight' and 1 more;", without("4.weight", "0.bias"))
        init("; it has 'fc.weight', which the model has not;", {**good, "fc.weight": ("F32", [1], bytes(4))})
        init("; '2.weight' is 24 x 12 in it and 24 x 24 in the model;", {**good, "2.weight": ("F32", [24, 12],
                                                                                              bytes(4 * 288))})
        init("; '2.bias' has elements of F64, and F32, F16 and BF16 are taken;", {**good, "2.bias": ("F64", [24],
                                                                                                     bytes(192))})
        init("its names begin with 'module.': save the state_dict of the module within",
             {"module." + k: v for k, v in good.items()})
        nan = struct.pack("<24f", *([0] * 7 + [float("nan")] + [0] * 16))
        init("element 7 of '2.bias' is nan, no number to compute with", {**good, "2.bias": ("F32", [24], nan)})
        with open(path, "wb") as f:
            f.write(b"no header")
        self.refused("f.safetensors", "train", "--model", MLP, "--data", self.data, "--init", path)
        self.refused("model 'quadratic' starts at the point of its problem; omit init", "train", "--model", "quadratic",
                     "--init", path)


if __name__ == "__main__":
    unittest.main(verbosity=2)
