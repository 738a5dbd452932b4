"""A folder from a stranger decides nothing beyond itself: no program is started, no file outside
written or removed, because of what its files say. What it says of that kind is told, with the words
that give it again."""
import json, os, shutil, unittest
from command import *

TRAIN = ["--model", "quadratic(dim=8)", "-n", "2", "--seed", "3", "--report-every", "5"]


def options():
    """Each option of train with what it does beyond the folder, as the sentences say it."""
    return {"hosts": ("127.0.0.1:1,127.0.0.2:1", "starts programs on other machines"),
            "rsh": ("touch %s", "starts a program"),
            "meet": ("127.0.0.1:1", "opens a port"),
            "out": ("%s", "says where files are written"),
            "overwrite": (True, "removes files")}


class Trust(Case):
    def begun(self, name, *arguments):
        return self.train(name, *TRAIN, "--steps", "10", "--checkpoint-every", "10", *arguments)

    def say(self, out, /, **settings):
        """The folder's config.json says this too."""
        path = os.path.join(out, "config.json")
        with open(path) as f:
            config = json.load(f)
        config.update(settings)
        with open(path, "w") as f:
            json.dump(config, f, indent=2)

    def test_a_run_s_folder_starts_no_program(self):
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

    def test_what_is_given_again_counts_and_is_not_told(self):
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
        self.assertIn("out is '%s', which says where files are written and is not taken from a run's folder; if you "
                      "mean it: --out %s\n" % (other, other), done.stderr)
        self.assertIn("overwrite is 'true', which removes files and is not taken from a run's folder; if you mean it: "
                      "--overwrite\n", done.stderr)
        self.assertEqual(summary(out)["steps"], 20)

    def test_every_option_is_one_of_those_or_stays_within_the_folder(self):
        """Each text that the table has, set by a folder to a path outside: what is not told writes
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

    def test_a_spec_that_names_files_is_given_again_whole(self):
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

    def test_a_comparison_s_folder_starts_nothing_but_training(self):
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
        say(*words, "--rsh", shell)  # without hosts it is not asked
        done = tutti("compare", "--resume", folder, "--pictures", "off", "--rsh", shell)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(os.path.exists(mark))

    def test_a_run_s_log_in_a_comparison_is_no_link_to_another_file(self):
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


if __name__ == "__main__":
    unittest.main()
