"""A folder from a stranger decides nothing beyond itself: no program is started, no file outside
written or removed, because of what its files say. Such settings are reported, with the arguments
that set them again."""
import ctypes, json, os, shutil, struct, unittest
from command import *

TRAIN = ["--model", "quadratic(dim=8)", "-n", "2", "--seed", "3", "--report-every", "5"]


def options():
    """Each option of train with its effect beyond the folder, as the messages put it."""
    return {"hosts": ("127.0.0.1:1,127.0.0.2:1", "starts programs on other machines"),
            "rsh": ("touch %s", "starts a program"),
            "meet": ("127.0.0.1:1", "opens a port"),
            "metrics-port": ("9400", "opens a port"),
            "out": ("%s", "determines where files are written"),
            "overwrite": (True, "removes files")}


class Trust(Case):
    def begun(self, name, *arguments):
        return self.train(name, *TRAIN, "--steps", "10", "--checkpoint-every", "10", *arguments)

    def say(self, out, /, **settings):
        """The folder's config.json has this too."""
        path = os.path.join(out, "config.json")
        with open(path) as f:
            config = json.load(f)
        config.update(settings)
        with open(path, "w") as f:
            json.dump(config, f, indent=2)

    def test_run_folder_starts_no_program(self):
        """The fault: its rsh was started, for the hosts that it names."""
        out, mark = self.begun("a"), self.out("mark")
        self.say(out, hosts="127.0.0.1:1,127.0.0.2:1", rsh="sh -c 'touch %s'" % mark, transport="tcp")
        done = tutti("train", "--resume", out, "--steps", "20")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(os.path.exists(mark))
        said = ["tutti: %s/config.json:" % out, "hosts is '127.0.0.1:1,127.0.0.2:1', which starts programs on other "
                "machines and is not taken from a run's folder; if you mean it: --hosts 127.0.0.1:1,127.0.0.2:1\n",
                "rsh is 'sh -c 'touch %s'', which starts a program and is not taken from a run's folder; if you mean "
                "it: --rsh 'sh -c '\\''touch %s'\\'''\n" % (mark, mark)]
        for sentence in said:
            self.assertIn(sentence, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 2, done.stderr)
        self.assertEqual((summary(out)["steps"], summary(out)["workers"]), (20, 2))

    def test_options_given_again_apply_without_a_warning(self):
        out, mark = self.begun("a", "--transport", "tcp"), self.out("mark")
        self.say(out, hosts="127.0.0.1:1,127.0.0.2:1", rsh="sh -c 'touch %s.folder; exit 3'" % mark)
        rsh = "sh -c 'echo $0 >> %s; exec sh -c \"$1\"'" % mark
        done = tutti("train", "--resume", out, "--steps", "20", "-H", "127.0.0.1:1,127.0.0.2:1", "--rsh", rsh)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(sorted(read(mark).split()), [b"127.0.0.1", b"127.0.0.2"])
        self.assertFalse(os.path.exists(mark + ".folder"))
        done = tutti("config", "--resume", out, TUTTI_HOSTS="127.0.0.3:2", TUTTI_RSH="true")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual((json.loads(done.stdout)["hosts"], json.loads(done.stdout)["rsh"]), ("127.0.0.3:2", "true"))
        mine = self.out("mine.yaml")
        with open(mine, "w") as f:
            f.write("hosts: 127.0.0.4:2\nrsh: 'true'\nresume: %s\n" % out)
        done = tutti("config", mine)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(json.loads(done.stdout)["hosts"], "127.0.0.4:2")

    def test_no_file_outside_is_written_or_removed(self):
        out, other = self.begun("a"), self.begun("other")
        before = self.files(other)
        self.say(out, out=other, overwrite=True)
        done = tutti("train", "--resume", out, "--steps", "20")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.files(other), before)
        self.assertIn("out is '%s', which determines where files are written and is not taken from a run's folder; "
                      "if you mean it: --out %s\n" % (other, other), done.stderr)
        self.assertIn("overwrite is 'true', which removes files and is not taken from a run's folder; if you mean it: "
                      "--overwrite\n", done.stderr)
        self.assertEqual(summary(out)["steps"], 20)

    def test_every_option_is_reported_or_stays_within_the_folder(self):
        """Each text that the table has, set by a folder to a path outside: a setting that is not reported writes
        nothing there. A new option with a reach has to be put in its place here."""
        done = tutti("config")
        known = set(json.loads(done.stdout)) | {"out", "overwrite", "meet", "resume"}
        out, reach = self.begun("a"), options()
        for name in sorted(known):
            outside = self.out("outside")
            config = read(os.path.join(out, "config.json"))
            if name in reach:
                value = reach[name][0] if isinstance(reach[name][0], bool) else reach[name][0].replace("%s", outside)
                self.say(out, **{name: value})
                done = tutti("config", "--resume", out)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("which %s and is not taken from a run's folder" % reach[name][1], done.stderr)
                self.assertNotEqual(json.loads(done.stdout).get(name), value)
            elif isinstance(json.loads(config).get(name), str):
                self.say(out, **{name: outside})
                done = tutti("train", "--resume", out, "--steps", "20")
                self.assertNotIn("not taken", done.stderr)
            self.assertFalse(os.path.exists(outside), name)
            with open(os.path.join(out, "config.json"), "wb") as f:
                f.write(config)

    def test_spec_naming_files_must_be_given_again(self):
        disk, record = self.out("disk"), self.out("record")
        for method, inner, does in (
                ("zero-offload(tier=nvme(path=%s))" % disk, "path", "fills that disk"),
                ("zero-infinity(nvme(%s))" % disk, "path", "fills that disk"),
                ("scadles(record=%s)" % record, "record", "writes that file"),
                ("dabmd(record=%s)" % record, "record", "writes that file")):
            with self.subTest(method):
                out = self.begun(method.split("(")[0])
                self.say(out, method=method)
                self.refused("method is '%s', whose '%s' %s; such a value counts only when it is given again: "
                             "--method '%s'" % (method, inner, does, method), "train", "--resume", out, "--steps", "20")
                self.assertFalse(os.path.exists(record) or os.path.exists(disk))
        os.makedirs(disk)
        method = "zero-offload(tier=nvme(path=%s,direct=off))" % disk
        out = self.train("nvme", "--model", "mlp(hidden=16)", "--data", self.data, "-n", "2", "--batch", "16",
                         "--steps", "10", "--checkpoint-every", "10", "--method", method)
        done = tutti("train", "--resume", out, "--steps", "20", "--method", method)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_comparison_folder_starts_only_training(self):
        folder, mark = self.out("compare"), self.out("mark")
        done = tutti("compare", "--methods", "ddp", "--seeds", "1", *TRAIN[:4], "--steps", "10", "--pictures", "off",
                     "--out", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        path = os.path.join(folder, "plan.json")
        plan = json.loads(read(path))
        words = plan["runs"][0]["words"]

        def say(*now):
            shutil.rmtree(os.path.join(folder, "runs"), ignore_errors=True)
            plan["runs"][0]["words"] = list(now)
            with open(path, "w") as f:
                json.dump(plan, f)

        shell = "sh -c 'touch %s'" % mark
        for now in (["tutti", "run", "-n", "1", "--", "sh", "-c", "touch " + mark],
                    [*words, "--", mark], [*words, mark], [*words, "--overwrite"], [*words, "-H", "127.0.0.1:1"],
                    [*words, "--rsh=" + shell, "-n"]):
            say(*now)
            self.refused("run 0000 of %s is no `tutti train` with flags and their values; the plan was changed by hand"
                         % path, "compare", "--resume", folder, "--pictures", "off", code=1)
        for name, value, does in (("hosts", "127.0.0.1:1,127.0.0.2:1", ", which starts programs on other machines"),
                                  ("rsh", shell, ", which starts a program"),
                                  ("method", "scadles(record=%s)" % mark, ", whose 'record' writes that file")):
            say(*words, "--" + name, value)
            sentence = ("plan.json has %s '%s'%s; such a value counts only when it is given again, behind --resume: "
                        "--%s '%s'" % (name, value, does, name, value))
            self.refused(sentence, "compare", "--resume", folder, "--pictures", "off")
            self.refused("'--%s' would change it" % name, "compare", "--resume", folder, "--pictures", "off",
                         "--" + name, value + "x")
        self.assertFalse(os.path.exists(mark))
        say(*words, "--rsh", shell)  # without hosts it would not be asked
        self.refused("rsh is given, and it does nothing without other hosts", "compare", "--resume", folder,
                     "--pictures", "off", "--rsh", shell)
        self.assertFalse(os.path.exists(mark))

    def test_comparison_log_does_not_follow_symlinks(self):
        folder, other = self.out("compare"), self.out("other")
        done = tutti("compare", "--methods", "ddp", "--seeds", "1", *TRAIN[:4], "--steps", "10", "--pictures", "off",
                     "--out", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(other, "w") as f:
            f.write("mine")
        shutil.rmtree(os.path.join(folder, "runs", "0000"))
        os.remove(os.path.join(folder, "runs", "0000.log"))
        os.symlink(other, os.path.join(folder, "runs", "0000.log"))
        tutti("compare", "--resume", folder, "--pictures", "off")
        self.assertEqual(read(other), b"mine")

    @unittest.skipUnless(SIMULATOR, "skipped: the simulator is not built")
    def test_a_platform_writes_no_file(self):
        """SimGrid's own settings, which a platform may have, name a file of its trace: it was cut to
        nothing, whatever it was."""
        path, other = self.out("platform.xml"), self.out("other")
        unequal_links(path, [100, 100])
        text = read(path).decode()
        with open(path, "w") as f:
            f.write(text.replace('<zone id="z"', '<config id="General"><prop id="tracing" value="yes"/>'
                                 '<prop id="tracing/filename" value="%s"/></config><zone id="z"' % other))
        with open(other, "w") as f:
            f.write("mine")
        self.train("a", *TRAIN, "--steps", "10", "--transport", "sim", "--platform", path)
        self.assertEqual(read(other), b"mine")

    def forged(self, checkpoint, state, value, word=0):
        """That word (8 bytes) of a state is this value, on every rank, and all hashes fit."""
        library = ctypes.CDLL(os.path.join(os.path.dirname(TUTTI), "../lib/libtutti.so"))
        library.tutti_hash.restype = ctypes.c_uint64
        library.tutti_hash.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

        def hashed(octets):
            return b"%016x" % library.tutti_hash(octets, len(octets))

        path = os.path.join(checkpoint, "manifest.json")
        manifest = read(path)
        manifest = manifest[:manifest.rindex(b',\n "xxh3"')]
        for name in list_of(checkpoint):
            body = read(os.path.join(checkpoint, name))
            if not name.endswith(".safetensors"):
                continue
            length = 8 + struct.unpack("<Q", body[:8])[0]
            changed = body
            for key, tensor in json.loads(body[8:length]).items():
                if key.split("/")[0] == state:
                    first, end = (length + at for at in tensor["data_offsets"])
                    part = bytearray(changed[first:end])
                    part[8 * word:8 * word + 8] = struct.pack("<q", value)
                    self.assertEqual(len(part), end - first)
                    manifest = manifest.replace(hashed(changed[first:end]), hashed(bytes(part)))
                    changed = changed[:first] + bytes(part) + changed[end:]
            manifest = manifest.replace(hashed(body), hashed(changed))
            with open(os.path.join(checkpoint, name), "wb") as f:
                f.write(changed)
        with open(path, "wb") as f:
            f.write(manifest + b',\n "xxh3": "%s"\n}\n' % hashed(manifest))

    @unittest.skipIf(os.environ.get("TUTTI_SIMULATED") == "off", "skipped: the library has a sanitizer, and cannot be "
                     "loaded for its hash")
    def test_a_forged_state_is_refused_and_does_not_train_for_ever(self):
        steps = "the checkpoint is of step 10, and its state is of step"
        dabmd = "dabmd(most=16,microbatch=16)"  # a longer round would end the run before its step 10
        for method, servers, state, word, values, sentence in (
                (dabmd, 0, "take.next", 0, (1 << 62, -1), "what each leases (take.loan, take.next)"),
                (dabmd, 0, "take.loan", 1, (1 << 62, -1), "what each leases (take.loan, take.next)"),
                (dabmd, 0, "take.of", 2, (1 << 62, -1), "what each took in the last step (take.of)"),
                ("scadles(simulate_clock=on)", 0, "engine.progress", 0, (1 << 62, -1, 11), steps),
                ("scadles(simulate_clock=on)", 0, "scadles.now", 2, (1 << 62,), "and no stream can have such"),
                ("scadles(simulate_clock=on)", 0, "scadles.now", 4, (1 << 62,), "and no stream can have such"),
                ("ddp", 0, "engine.progress", 0, (1 << 62, -1, 9), steps),
                ("ddp", 0, "engine.progress", 2, (1 << 62, 11), steps),
                ("ad-psgd", 0, "engine.progress", 0, (1 << 62, 9), steps),
                ("hermes(push=always,minibatch=4)", 1, "hermes.round", 0, (1 << 62, -1), "and no round can have such"),
                ("hermes(push=always,minibatch=4)", 1, "hermes.round", 1, (0, -1), "and no round can have such"),
                ("hermes(push=always,minibatch=4)", 1, "hermes.round", 2, (1 << 62, -1), "and no round can have such"),
                ("hermes(push=always,minibatch=4,chunk=640)", 1, "hermes.batch", 2, (1 << 62, -1),
                 "and no round can have such")):
            words = ["--model", "quadratic(dim=8)", "-n", "3", "--servers", servers, "--seed", "3", "--batch", "16",
                     "--method", method, "--final-eval", "off"]
            out = self.train("%s-%s" % (method.split("(")[0], state), *words, "--steps", "10", "--checkpoint-every",
                             "10", "--checkpoint-keep", "9")
            checkpoint = os.path.join(out, "checkpoints", "step-00000010")
            for value in values:
                copy = os.path.join(self.out("forged"), "step-00000010")
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(checkpoint, copy)
                self.forged(copy, state, value, word)
                done = tutti("train", *words, "--resume", copy, "--steps", "40", "--out", self.out("again"),
                             "--overwrite", timeout=30)
                self.assertEqual(done.returncode, 1, (state, word, value, done.stderr))
                self.assertIn(sentence, done.stderr, (state, word, value))


if __name__ == "__main__":
    unittest.main(verbosity=2)
