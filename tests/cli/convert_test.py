"""tutti convert: weights and runs as one safetensors file or a folder of them, whose tensors are the
same bytes; a changed byte, and an index that is not true, are refused by name."""
import json, os, random, shutil, struct, unittest

from command import Case, read, tensors, tutti

INDEX = "model.safetensors.index.json"


def write(path, named):
    """{name: (dtype, shape, bytes)} as a safetensors file, by the format's own rules."""
    header, body = {}, b""
    for name, (dtype, shape, data) in named.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def drawn(seed):
    draw = random.Random(seed)
    return {"layer.weight": ("F32", [7, 5], draw.randbytes(140)), "layer.bias": ("BF16", [11], draw.randbytes(22)),
            "step": ("I64", [], draw.randbytes(8)), "empty": ("F32", [0, 3], b""),
            "table": ("U8", [300], draw.randbytes(300))}


def folder_tensors(folder):
    with open(os.path.join(folder, INDEX)) as f:
        places = json.load(f)["weight_map"]
    found = {}
    for name in sorted(set(places.values())):
        found.update(tensors(os.path.join(folder, name)))
    assert set(found) == set(places)
    return found


class Convert(Case):
    def setUp(self):
        self.source = self.out("source.safetensors")
        write(self.source, drawn(1))

    def done(self, *words, code=0):
        done = tutti(*words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def sharded(self, size="200B"):
        to = self.out("folder")
        self.done("convert", self.source, to, "--max-shard-size", size)
        return to

    def test_file_to_folder_to_file_has_the_same_tensors(self):
        for size, files in (("1B", 4), ("200B", 2), ("1GiB", 1)):
            to = self.out("folder-" + size)
            self.done("convert", self.source, to, "--max-shard-size", size)
            self.assertEqual(len(os.listdir(to)), files + 1, os.listdir(to))
            self.assertEqual(folder_tensors(to), drawn(1))
            with open(os.path.join(to, INDEX)) as f:
                self.assertEqual(json.load(f)["metadata"]["total_size"], 470)
            back = self.out(size + ".safetensors")
            self.done("convert", to, back)
            self.assertEqual(tensors(back), drawn(1))
            self.assertIn("whole", self.done("check", to))
            self.assertIn("whole", self.done("check", back))

    def test_a_folder_with_one_file_is_taken_too(self):
        folder = self.out("single")
        os.makedirs(folder)
        self.done("convert", self.source, os.path.join(folder, "model.safetensors"))
        self.assertIn("whole", self.done("check", folder))
        self.done("convert", folder, self.out("again"))
        self.assertEqual(folder_tensors(self.out("again")), drawn(1))

    def test_a_changed_byte_is_refused_by_name(self):
        folder = self.sharded()
        draw = random.Random(5)
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            sound = read(path)
            for _ in range(25):
                at = draw.randrange(len(sound))
                with open(path, "wb") as f:
                    f.write(sound[:at] + bytes([sound[at] ^ 1 << draw.randrange(8)]) + sound[at + 1:])
                self.assertIn("'" + folder, self.done("check", folder, code=1), (name, at))
            with open(path, "wb") as f:
                f.write(sound)
        self.assertIn("whole", self.done("check", folder))

    def test_a_changed_value_names_its_tensor(self):
        to = self.out("one.safetensors")
        self.done("convert", self.source, to)
        sound = read(to)
        at = sound.index(drawn(1)["table"][2]) + 17
        with open(to, "wb") as f:
            f.write(sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1:])
        self.assertIn("tensor 'table'", self.done("check", to, code=1))
        self.assertIn("tensor 'table'", self.done("convert", to, self.out("again.safetensors"), code=1))
        self.assertFalse(os.path.exists(self.out("again.safetensors")))

    def test_an_index_that_is_not_true_is_refused(self):
        named = drawn(1)
        folder = self.out("hostile")
        os.makedirs(folder)
        write(os.path.join(folder, "a.safetensors"), {k: named[k] for k in ("layer.weight", "step")})
        write(os.path.join(folder, "b.safetensors"), {k: named[k] for k in ("layer.bias", "table", "empty")})
        true = {k: "a.safetensors" if k in ("layer.weight", "step") else "b.safetensors" for k in named}

        def refused(sentence, total=470, **changes):
            places = {k: v for k, v in {**true, **changes}.items() if v is not None}
            with open(os.path.join(folder, INDEX), "w") as f:
                json.dump({"metadata": {"total_size": total}, "weight_map": places}, f)
            self.assertIn(sentence, self.done("check", folder, code=1))

        refused("no name of a safetensors file in this folder", table="../b.safetensors")
        refused("no name of a safetensors file in this folder", table="/b.safetensors")
        refused("no name of a safetensors file in this folder", table=7)
        refused("names 'c.safetensors', which is not in the folder", table="c.safetensors")
        refused("has tensor 'table', which", table=None)
        refused("it may be in one file only", step="b.safetensors")
        refused("lists tensor 'more'", more="a.safetensors")
        refused("total_size 471, but its tensors have 470 bytes", total=471)
        with open(os.path.join(folder, INDEX), "w") as f:
            json.dump({"weight_map": true}, f)
        self.assertIn("no hashes", self.done("check", folder)) # sound, and by others

    def test_what_cannot_be_is_said_before_anything_is_written(self):
        there = self.sharded()
        self.assertIn("is there already", self.done("convert", self.source, there, code=2))
        self.assertIn("not written", self.done("convert", self.source, self.out("x.gguf"), code=2))
        self.assertIn("is for a folder", self.done("convert", self.source, self.out("x.safetensors"),
                                                  "--max-shard-size", "1MiB", code=2))
        self.assertIn("is not a size",
                      self.done("convert", self.source, self.out("x"), "--max-shard-size", "5GB", code=2))
        dcp = self.out("dcp")
        os.makedirs(dcp)
        open(os.path.join(dcp, ".metadata"), "wb").close()
        self.assertIn("pickle", self.done("convert", dcp, self.out("x"), code=2))
        self.assertFalse(os.path.exists(self.out("x")))

    def test_what_an_interrupted_one_left_is_removed(self):
        to = self.out("folder")
        os.makedirs(to + ".unfinished")
        open(os.path.join(to + ".unfinished", "model-00001-of-00009.safetensors"), "wb").close()
        self.sharded()
        self.assertFalse(os.path.exists(to + ".unfinished"))
        self.assertEqual(folder_tensors(to), drawn(1))

    def test_a_run_and_its_checkpoint_begin_another_run(self):
        settings = ("--model", "mlp(hidden=8)", "--data", self.data, "--threads", 1, "--quiet")
        out = self.train("run", *settings, "--steps", 4, "--checkpoint-every", 4)
        model = tensors(os.path.join(out, "model.safetensors"))
        last = os.path.join(out, "checkpoints", sorted(os.listdir(os.path.join(out, "checkpoints")))[-1])
        for name, source in (("of-run", out), ("of-checkpoint", last)):
            to = self.out(name)
            shutil.rmtree(to, ignore_errors=True)
            self.done("convert", source, to, "--max-shard-size", "1KiB")
            self.assertEqual(folder_tensors(to), model)
        one = self.train("one", *settings, "--steps", 2, "--init", os.path.join(out, "model.safetensors"))
        other = self.train("other", *settings, "--steps", 2, "--init", self.out("of-run"))
        self.assertEqual(self.model(one), self.model(other))


if __name__ == "__main__":
    unittest.main(verbosity=2)
