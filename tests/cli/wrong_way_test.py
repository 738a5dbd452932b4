"""Error messages about data, weights and names that help: they state what the given input is, and what
they suggest corrects it. Wrong data exit with 2, as a wrong option does."""
import io, json, os, shutil, struct, subprocess, unittest, zipfile, zlib
from command import *


def png(red, side=2):
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress((b"\0" + bytes([red, 0, 0]) * side) * side)) + chunk(b"IEND", b""))


def archive():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("archive/data.pkl", bytes(500))
    return out.getvalue()


MLP = "mlp(hidden=8)"


class WrongWay(Case):
    def put(self, folder, *names, body=None):
        """A folder of such files; with a '/' at its end a folder within."""
        top = os.path.join(self.folder, self.id().split(".")[-1], folder)
        for k, name in enumerate(names):
            path = os.path.join(top, name)
            os.makedirs(path if name.endswith("/") else os.path.dirname(path), exist_ok=True)
            if not name.endswith("/"):
                with open(path, "wb") as f:
                    f.write(png(k) if body is None else body)
        return top

    def test_wrong_data_directories_are_recognised_by_their_contents(self):
        pictures = lambda *folders: [f"{folder}/{k}.png" for folder in folders for k in range(3)]
        cases = (
            ("train-alone", pictures("train/a", "train/b"), "{D}' has a folder train, but neither test nor val; put "
             "pictures to test on into one, a folder a class, or give '{D}/train'"),
            ("test-alone", pictures("test/a", "test/b"), "{D}' has a folder test, but no folder train; put pictures to "
             "train on there"),
            ("val-alone", pictures("val/a", "val/b"), "{D}' has a folder val, but no folder train"),
            ("other-names", pictures("training/a", "training/b", "testing/a"), "' is a folder within 'test"
             "ing', which would be a class; pictures stand in the folder of their class: name the folders of a split "
             "train and test (or val)"),
            ("too-deep", pictures("set/train/a", "set/train/b", "set/test/a"), "/set/t"),
            ("flat", ["1.png", "2.jpg", "notes.txt"], "{D}' holds 2 pictures and no folder; a picture's class is the "
             "folder that it is in: make a folder for each class"),
            ("one-picture", ["1.png"], "{D}' holds 1 picture and no folder"),
            ("pickles", ["data_batch_1", "data_batch_2", "test_batch", "batches.meta"], "{D}' holds CIFAR-10 as "
             "pickles of Python; take the binary version (cifar-10-binary.tar.gz)"),
            ("unpacked", ["cifar-10-batches-py/data_batch_1", "cifar-10-python.tar.gz"], "{D}' holds CIFAR-10 as "
             "pickles of Python"),
            ("above", ["cifar-10-batches-bin/data_batch_1.bin"], "{D}' holds the folder of CIFAR-10 and is not it; "
             "give its cifar-10-batches-bin"),
            ("cifar-100", ["train.bin", "test.bin", "fine_label_names.txt"], "{D}' holds CIFAR-100, which is not read; "
             "write it as folders of pictures, a folder a class"),
            ("cifar-100-python", ["train", "test", "meta"], "{D}' holds CIFAR-100 as pickles of Python, which is not "
             "read"),
            ("torchvision", ["MNIST/raw/train-images-idx3-ubyte"], "{D}' holds the folder of MNIST and is not it; give "
             "its MNIST/raw"),
            ("nothing", [".keep"], "{D}' holds no data set: neither IDX files with the four MNIST names, nor CIFAR-10's"
             " binary files, nor folders of pictures, a folder a class (docs/DATA.md)"),
            ("texts", ["a.txt", "b.csv"], "{D}' holds no data set: neither"),
        )
        for name, files, sentence in cases:
            with self.subTest(name):
                folder = self.put(name, *files)
                for words in (("data", "inspect", folder), ("train", "--data", folder, "--out", self.out("o"))):
                    self.refused(sentence.replace("{D}", folder), *words)
        # a class may have such a name, and a folder with a test folder next to it is a split
        for name, files in (("vehicles", pictures("train", "plane")), ("split", pictures("train/a", "train/b",
                                                                                         "val/a", "val/b"))):
            folder = self.put(name, *files)
            done = tutti("data", "inspect", f"images(dir={folder},test=0.4)")
            self.assertEqual(done.returncode, 0, done.stderr)
        sets = self.put("sets", "cifar10/data_batch_1", "cifar10/test_batch")
        self.refused("/cifar10' holds CIFAR-10 as pickles of Python; take the binary version", "data", "inspect",
                     "cifar10", TUTTI_DATA=sets)

    def test_unsupported_weight_formats_are_recognised(self):
        for name, body, sentence in (
                ("m.pt", archive(), "m.pt' is a zip archive, as torch.save writes, but weights are read from a "
                 "safetensors file; load it in PyTorch and save its state_dict with safetensors.torch.save_file"),
                ("old.pt", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + bytes(50), "old.pt' is a pickle, as "
                 "torch.save used to write"),
                ("w.pkl", b"\x80\x04\x95" + bytes(60), "w.pkl' is a pickle, but weights are read from a safetensors"),
                ("w.npy", b"\x93NUMPY\x01\x00v\x00" + bytes(60), "w.npy' is an array of NumPy, but"),
                ("w.h5", b"\x89HDF\r\n\x1a\n" + bytes(60), "w.h5' is an HDF5 file, but"),
                ("w.gguf", b"GGUF\x03\0\0\0" + bytes(60), "w.gguf' is a GGUF file, but"),
                ("p.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n",
                 "p.safetensors' is a pointer of Git LFS and not the file itself, but weights are read from a "
                 "safetensors file; fetch that: git lfs pull")):
            path = os.path.join(self.put("w", name, body=body), name)
            self.refused(sentence, "train", "--model", MLP, "--data", self.data, "--init", path, "--out", self.out("o"))

    def test_model_data_mismatch_suggests_the_correct_spelling(self):
        log, text = self.out("x.tsv"), self.out("t.txt")
        self.assertEqual(tutti("data", "clicks", "--samples", 50, "--out", log).returncode, 0)
        with open(text, "w") as f:
            f.write("so it goes, and goes on\n" * 200)
        self.refused(f"if it is a click log, give its form with it: --data 'clicks(file={log})'", "train", "--model",
                     "ctr", "--data", log, "--out", self.out("o"))
        self.refused("gpt with context=16 on windows of 128 tokens; give both the same context, the data as --data "
                     "'text(file=F,context=16)'", "train", "--model", "gpt(context=16)", "--data", text, "--out",
                     self.out("o"))
        self.train("a", "--model", "gpt(layers=1,dim=8,heads=1,context=16)", "--data", f"text(file={text},context=16)",
                   "--steps", 1)

    def test_missing_data_subcommand_is_suggested(self):
        self.refused(f"'{self.data}' is a data set, and what is wanted of it comes first: tutti data inspect "
                     f"{self.data};", "data", self.data)
        self.refused("'moby-dick' is a data set, and what is wanted of it comes first", "data", "moby-dick")
        self.refused("inspect wants a name of `tutti data list` or a path", "data", "inspect")
        self.refused("'inspekt' with 0 arguments is not known", "data", "inspekt")

    def test_misspelling_is_reported_by_the_command_not_workers(self):
        for words in (("--method", "ddpp"), ("--optimizer", "sdg"), ("--codec", "tokp"), ("--collective", "rign"),
                      ("--method", "ddp(bucket=1)"), ("--loss-scale", "dinamic"), ("--lr-schedule", "cosin"),
                      ("--model", "mpl"), ("--transport", "tpc"), ("--partition", "dirichlt")):
            done = tutti("train", "-n", 2, "--model", MLP, "--data", self.data, "--out", self.out("o"), *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertNotIn("worker 0", done.stderr)

    def test_damaged_data_exit_as_a_wrong_option_does(self):
        def spoiled(name, change):
            folder = self.out(name)
            shutil.copytree(self.data, folder)
            path = os.path.join(folder, NAMES[0])
            body = bytearray(read(path))
            change(body)
            with open(path, "wb") as f:
                f.write(body)
            return folder

        def cut(body):
            del body[-5:]

        def magic(body):
            body[2] = 9

        text = self.out("t.txt")
        with open(text, "wb") as f:
            f.write(b"caf\xe9 " * 400)
        cases = [spoiled("cut", cut), spoiled("magic", magic), text,
                 self.put("bad-picture", *[f"{c}/{k}.png" for c in "ab" for k in range(10)], body=png(3)[:50])]
        for path in cases:
            model = "gpt(layers=1,dim=8,heads=1)" if path == text else MLP
            train = ("train", "--model", model, "--data", path, "--out", self.out("o"))
            for words in (("data", "inspect", path), ("data", "verify", path), train, (*train, "-n", 2)):
                done = tutti(*words)
                self.assertEqual(done.returncode, 2, (words, done.stderr))

    def test_utf_8_byte_order_mark_is_ignored(self):
        plain, marked = self.out("plain.txt"), self.out("marked.txt")
        for path, mark in ((plain, b""), (marked, b"\xef\xbb\xbf")):
            with open(path, "wb") as f:
                f.write(mark + "Zeile um Zeile, Größe für Größe.\n".encode() * 60)
        tokens = []
        for path in (plain, marked):
            page = tutti("data", "inspect", f"text(file={path},context=16)").stdout
            made = path + ".tok"
            self.assertEqual(tutti("data", "tokens", path, "--out", made).returncode, 0)
            tokens.append((page.split("contents ")[1], read(made)))
        self.assertEqual(tokens[0], tokens[1])
        # of a click log the first field would be no number, of the first line alone
        log, other = self.out("x.tsv"), self.out("y.tsv")
        self.assertEqual(tutti("data", "clicks", "--samples", 50, "--out", log).returncode, 0)
        with open(other, "wb") as f:
            f.write(b"\xef\xbb\xbf" + read(log))
        contents = [tutti("data", "inspect", f"clicks(file={path})").stdout.split("contents ")[1]
                    for path in (log, other)]
        self.assertEqual(contents[0], contents[1])

    def test_a_relative_path_of_data_holds_elsewhere(self):
        home, away = self.out("home"), self.out("away")
        os.makedirs(away)
        shutil.copytree(self.data, os.path.join(home, "digits"))
        os.symlink(self.put("pictures", *[f"{c}/{k}.png" for c in "ab" for k in range(20)]), os.path.join(home, "pics"))
        with open(os.path.join(home, "t.txt"), "w") as f:
            f.write("so it goes, and goes on\n" * 200)

        def at(folder, *arguments):
            done = subprocess.run([TUTTI, *map(str, arguments)], cwd=folder, env=clean_environment(),
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        gpt = "gpt(layers=1,dim=8,heads=1)"
        for k, (model, data, kept) in enumerate((
                (MLP, "digits", "{H}/digits"), (MLP, "./digits", "{H}/./digits"),
                (MLP, "images(dir=pics,size=4)", "images(dir={H}/pics,size=4)"),
                (gpt, "t.txt", "{H}/t.txt"), (gpt, "text(file=t.txt,context=16)", "text(file={H}/t.txt,context=16)"))):
            out = os.path.join(home, "run%d" % k)
            at(home, "train", "--model", model, "--data", data, "--steps", 2, "--batch", 4, "--checkpoint-every", 1,
               "--out", "run%d" % k)
            for name in ("config.json", "model.json"):
                self.assertEqual(json.loads(read(os.path.join(out, name)))["data"], kept.replace("{H}", home))
            self.assertEqual(at(away, "eval", out, "--json"), at(home, "eval", out, "--json"))
            at(away, "train", "--resume", out, "--steps", 3, "--out", "on%d" % k)
        at(home, "train", "--model", MLP, "--data", "mnist(distort=0.2)", "--steps", 1, "--out", "named")
        self.assertEqual(json.loads(read(os.path.join(home, "named", "config.json")))["data"], "mnist(distort=0.2)")


if __name__ == "__main__":
    unittest.main(verbosity=2)
