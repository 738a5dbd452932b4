"""The output of the command: catalogue, help and refusals. Error messages are compared: value,
place, remedy."""
import json, os, re, shutil, subprocess, sys, unittest
from command import *


def options_page():
    """OPTIONS.md, as the build makes it."""
    tool = os.path.join(os.path.dirname(__file__), "../../tools/options-doc")
    return subprocess.run([sys.executable, "-B", tool, TUTTI], capture_output=True, text=True, check=True).stdout


class Usage(Case):
    def test_methods_json_has_every_field_of_the_contract(self):
        done = tutti("methods", "--json")
        self.assertEqual(done.returncode, 0)
        methods = json.loads(done.stdout)
        with open(os.path.join(os.path.dirname(__file__), "../../src/method/methods.def")) as f:
            listed = re.findall(r"(?m)^METHOD\((\w+)\)$", f.read())
        self.assertEqual([m["name"].replace("-", "_") for m in methods], listed)
        for m in methods:
            self.assertEqual(set(m), {"name", "title", "authors", "year", "family", "axes", "options", "defaults",
                                      "conditional_defaults", "constraints", "sheet"})
            self.assertEqual(m["sheet"], "docs/methods/%s.md" % m["name"])
            self.assertEqual(set(m["axes"]), {"topology", "synchrony", "codec", "schedule", "placement", "update"})
            for o in m["options"]:
                self.assertLessEqual({"name", "type", "default", "min", "max", "help"}, set(o))
        ddp = methods[1]
        self.assertEqual([(o["name"], o["type"], o["default"]) for o in ddp["options"]],
                         [("bucket_mb", "real", 25.0), ("first_bucket_mb", "real", 1.0)])

    def test_help_and_methods_come_from_the_same_tables(self):
        page = tutti("methods", "ddp").stdout
        for o in json.loads(tutti("methods", "ddp", "--json").stdout)[0]["options"]:
            self.assertIn(o["name"], page)
            self.assertIn(o["help"], page)
        for name in ("demo", "hetpipe"): # a choice has all of its values in the column, the default first
            page = tutti("methods", name).stdout
            for o in json.loads(tutti("methods", name, "--json").stdout)[0]["options"]:
                if o["type"] == "choice":
                    others = [c for c in o["choices"] if c != o["default"]]
                    self.assertIn(" choice %s " % "|".join([o["default"], *others]), page)
        configuration = json.loads(tutti("config").stdout)
        page = tutti("train", "--help", "all").stdout
        for key in [*configuration, "out", "resume", "overwrite", "meet"]:
            self.assertRegex(page, r"(?m)^  (-H, )?-{1,2}%s( |$)" % key)
        self.assertNotIn("Other options:", page, "src/cli/help.c has no group for these")
        self.assertEqual(page.count("\n  -"), len(configuration) + 4)

    def test_each_transport_explains_its_options(self):
        listed = {t["name"]: t for t in json.loads(tutti("transports", "--json").stdout)}
        self.assertEqual([n for n, t in listed.items() if t["kind"] == "built-in"], ["shm", "tcp"])
        self.assertLessEqual({"streams", "wire-check", "peer-timeout", "open-timeout", "local", "eager", "chunk",
                              "spin"}, {o["name"] for o in listed["tcp"]["options"]})
        page = options_page()
        for name, t in listed.items():
            explained = tutti("transports", name).stdout
            self.assertIn(name in ("shm", "tcp", "sim"), [t["survives_losses"]], name)
            for o in t["options"]:
                self.assertIn(o["help"], explained)
                if t["kind"] == "built-in":
                    self.assertRegex(page.split("## Transports")[1], r"(?m)^- `%s` " % o["name"])
        self.refused("there is no transport 'tcq'; did you mean 'tcp'?", "transports", "tcq")
        self.assertIn("tutti transports", " ".join(tutti("train", "--help").stdout.split()))

    def test_each_method_has_a_page_with_all_its_options(self):
        for m in json.loads(tutti("methods", "--json").stdout):
            with open(os.path.join(os.path.dirname(__file__), "../../docs/methods", m["name"] + ".md")) as f:
                page = f.read()
            self.assertTrue(page.startswith("# %s: " % m["name"]), m["name"])
            for o in m["options"]:
                self.assertRegex(page, "`%s[`=]" % o["name"], m["name"])

    def test_the_first_page_of_help_is_short_and_no_line_is_wider_than_the_page(self):
        short, whole = tutti("train", "--help").stdout, tutti("train", "--help", "all").stdout
        options = re.findall(r"(?m)^  (?:-H, )?(-{1,2}[a-z-]+)", short)
        self.assertTrue(12 <= len(options) <= 18, options)
        self.assertLessEqual({"--model", "--data", "-n",
                              "--hosts", "--method", "--epochs", "--optimizer", "--out", "--resume"}, set(options))
        self.assertLessEqual(short.count("\n"), 70)
        self.assertIn("`tutti train --help all`", short)
        for line in short.splitlines() + whole.splitlines() + tutti("--help").stdout.splitlines():
            self.assertTrue(len(line) <= 80 or " " not in line.strip(), line)
            self.assertEqual(line, line.rstrip())

    def test_catalogues_have_groups_a_header_and_advice(self):
        for command, headings in (("methods", ["The yardstick", "All-reduce", "Servers", "Periodic", "Gossip"]),
                                  ("codecs", ["Summed", "Messages", "Wrappers"]), ("transports", ["Built in"])):
            page = tutti(command).stdout
            self.assertTrue(page.startswith("Lists "), page)
            for entry in json.loads(tutti(command, "--json").stdout):
                self.assertEqual(len(re.findall(r"(?m)^  %s " % entry["name"], page)), 1, entry["name"])
            for heading in headings:
                self.assertRegex(page, r"(?m)^%s" % heading)
            self.assertIn("`tutti %s NAME` explains one" % command, page.split("\n\n")[-1])
        self.assertIn("take ddp", " ".join(tutti("methods").stdout.split()))

    def test_a_build_of_a_clone_that_has_moved_is_named(self):
        root, moved = os.path.join(os.path.dirname(__file__), "../.."), os.path.join(self.folder, "moved")
        os.makedirs(os.path.join(moved, "build/release"))
        shutil.copy(os.path.join(root, "Makefile"), moved)
        cache = os.path.join(moved, "build/release/CMakeCache.txt")
        make = lambda: subprocess.run(["make", "-C", moved, "--no-print-directory", "CMAKE=true", "release"],
                                      capture_output=True, text=True)
        for home, refused in (("/home/before", True), (moved, False),
                              (os.path.join(self.folder, "moved/build/.."), False)):
            with open(cache, "w") as f:
                f.write("# a cache\nCMAKE_HOME_DIRECTORY:INTERNAL=%s\n" % home)
            done = make()
            self.assertEqual(done.returncode != 0, refused, done.stderr)
            if refused:
                self.assertIn("build/release was made when this clone was /home/before, and cannot go on from here: "
                              "remove it (rm -r build/release)", done.stderr)
        os.remove(cache)
        self.assertEqual(make().returncode, 0)

    def test_each_command_explains_itself(self):
        for command in ("train", "methods", "codecs", "transports", "config", "topology", "data", "check", "run"):
            done = tutti(command, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertIn(f"tutti {command}", done.stdout)
            self.assertEqual(tutti("help", command).stdout, done.stdout)
        self.assertEqual(tutti("--help").returncode, 0)
        self.assertEqual(tutti("help", "train", "all").stdout, tutti("train", "--help=all").stdout)
        self.assertEqual(tutti("help", "bench", "io").stdout, tutti("bench", "io", "--help").stdout)
        self.refused("there is no command 'trian'; did you mean 'train'?", "help", "trian")
        self.refused("--help is 'al'; write --help, or --help all", "train", "--help=al")
        self.assertRegex(tutti("version").stdout, r"^tutti \d+\.\d+\.\d+\n")

    def test_failed_write_to_standard_output_is_an_error(self):
        for words in (("methods",), ("config",), ("help", "train"), ("codecs", "--json")):
            with open("/dev/full", "w") as full:
                done = subprocess.run([TUTTI, *words], stdout=full, stderr=subprocess.PIPE, text=True,
                                      env=clean_environment())
            self.assertEqual((done.returncode, done.stderr), (1, "tutti: cannot write all of it to standard output (No "
                             "space left on device)\n"))

    def test_misspelt_words_are_refused_with_the_near_ones(self):
        self.refused("there is no command 'trian'; did you mean 'train'?", "trian")
        self.refused("there is no option '--batc'; did you mean 'batch'", "train", "--batc", "3")
        for theirs, ours in (("lr", "--optimizer 'sgd(lr=0.1)'"), ("learning_rate", "--optimizer 'sgd(lr=0.1)'"),
                             ("num-workers", "-n"), ("gpus", "-n"),
                             ("lr-scheduler", "--lr-schedule"), ("batch-size", "--batch"), ("output", "--out"),
                             ("dataset", "--data")):
            self.refused("there is no option '--%s'; here it is %s" % (theirs, ours), "train", "--" + theirs, "3")
        self.refused("there is no method 'dpp'; did you mean 'ddp'?", "train", "--method", "dpp", "--data", self.data,
                     "--out", self.out("a"))
        self.refused("there is no method 'sinlge'; did you mean 'single'?", "methods", "sinlge")
        self.refused("mlp", "train", "--model", "mpl", "--data", self.data, "--out", self.out("b"))

    def test_misspelt_variables_are_refused_with_the_near_ones(self):
        for command in ("train", "config"):
            self.refused("the environment has TUTTI_BATC, which nothing reads; did you mean 'TUTTI_BATCH'", command,
                         TUTTI_BATC="3")
        self.refused("the environment has TUTTI_RUN_KEYFILE, which nothing reads; did you mean 'TUTTI_RUN_KEY_FILE'",
                     "config", TUTTI_RUN_KEYFILE="x")
        self.refused("the environment has TUTTI_CPUS, which nothing reads; did you mean 'TUTTI_CPU'", "config",
                     TUTTI_CPUS="avx2")
        self.refused("the environment has TUTTI_, which nothing reads", "config", TUTTI_="")
        options = json.loads(tutti("config").stdout)
        self.assertNotIn("TUTTI_DATA", options)
        done = tutti("config", TUTTI_LR_SCHEDULE="cosine", TUTTI_CPU="scalar", TUTTI_PEER_SCHEDULE="x",
                     TUTTI_TEST_MARK="y", TUTTI_RUN_KEY_FILE="z", TUTTI_LIBRARY="l", tutti_batc="3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["lr-schedule"], "cosine")

    def test_transports_are_checked_before_anything_starts(self):
        self.refused("shn", "train", "--transport", "shn", "--out", self.out("a"))
        self.refused("option 'spin' is 'x'", "train", "--transport", "shm(spin=x)", "--out", self.out("a"))
        self.refused("TUTTI_CPU is 'sse9'; it must be scalar, avx2 or avx512", "train", "--out", self.out("a"),
                     TUTTI_CPU="sse9")
        self.assertFalse(os.path.exists(self.out("a")))
        levels = tutti("train", "--out", self.out("a"), TUTTI_CPU="sse9").stderr.split("it must be ")[1].strip()
        self.refused(f"--level is 'sse9'; it must be {levels} (", "bench", "codec", "--level", "sse9")

    def test_values_out_of_range_are_refused_with_the_range(self):
        self.refused("tutti: -n is 0; it must be from 1 to 1024", "train", "-n", "0")
        self.refused("tutti: --batch is -3; it must be", "train", "--batch", "-3")
        self.refused("tutti: --steps is -1; it must be", "train", "--steps", "-1")
        self.refused("tutti: --batch is 'many'; it must be a whole number", "train", "--batch", "many")
        self.refused("tutti: TUTTI_BATCH is 'many'; it must be a whole number", "train", TUTTI_BATCH="many")
        self.refused("it must be stop or skip", "train", "--nonfinite", "perhaps")
        self.refused("needs a value", "train", "--batch")
        self.refused("target is 'speed=3'; write accuracy=A with A from 0 to 1, loss=L with L above 0, or, of clicks, "
                     "auc=A", "train", "--target", "speed=3")
        for bad in ("loss=0x1", "accuracy= 0.5", "loss=", "loss=1e", "loss", "loss=1,5"):
            self.refused(f"target is '{bad}'; write accuracy=A", "train", "--target", bad)
        self.refused("first_bucket_mb is 3 but bucket_mb is only 2", "train", "--method", "ddp(2,3)",
                     "--data", self.data, "--out", self.out("a"))
        self.refused("on-loss is 'continue', but 'ddp' needs every worker", "train", "--on-loss", "continue")
        for bad in ("0", "0:", "0:0.5", "0:nan", "x:2", "0:2:1.5", "0:2,", "-1:2", "0:0x2", "0: 2",
                    "0:2:0x1p-1"):
            self.refused(f"slow is '{bad}'; write RANK:FACTOR, RANK:FACTOR:P or *:FACTOR:P", "train", "--slow=" + bad)
        for name, value in (("restarts", "3"), ("workers-timeout", "5")):
            self.refused(f"{name} is given, and it does nothing without workers, FEWEST:MOST; give both, or omit it",
                         "train", f"--{name}", value)
        for name, value, why in (
                ("checkpoint-keep", "3", "without checkpoints; give checkpoint-every too"),
                ("checkpoint-async", "on", "without checkpoints; give checkpoint-every too"),
                ("rsh", "ssh", "without other hosts; give -H HOST:N,HOST:N too"),
                ("meet", "127.0.0.1", "on one machine; give -H HOST:N,HOST:N, or workers, FEWEST:MOST, too"),
                ("min-workers", "2", "where the run ends with the first loss; give on-loss=continue"),
                ("overwrite", "on", "for the new directory that the run makes; give --out too, or omit it")):
            self.refused(f"{name} is given, and it does nothing {why}", "train", "-n", "2", f"--{name}={value}")
        self.refused("start-timeout is given, and it does nothing in a simulated run", "train", "--transport", "sim",
                     "--start-timeout", "5")
        self.refused("there is no worker 2: with n = 2 they are 0 to 1", "train", "-n", "2", "--slow", "2:3")
        self.refused("it has 2 weights (sum 3) for 3 workers", "train", "-n", "3", "--batch-share", "1:2")
        self.refused("batch-share is 'fair'; write even, auto, data, or a weight for each worker", "train",
                     "--batch-share", "fair")
        self.refused("it has 2 weights (sum 0) for 2 workers", "train", "-n", "2", "--batch-share", "0:0")
        self.refused("platform is 'a.xml', but transport 'shm' has no platform; use it with --transport sim", "train",
                     "--platform", "a.xml")
        self.refused("step-time is 0.1 s, but with transport 'shm' time is real; use it with --transport sim, "
                     "or slow workers down with --slow", "train", "--step-time", "0.1")
        self.refused("tutti: --step-time is -1; it must be from 0", "train", "--step-time", "-1")
        self.refused("two configuration files", "train", "a.yaml", "b.yaml")
        self.refused("cannot open settings file 'nofile.yaml'; check the path", "train", "nofile.yaml")
        path = os.path.join(self.folder, "utf16.yaml")
        with open(path, "w", encoding="utf-16") as f:
            f.write("batch: 3\n")
        self.refused("utf16.yaml: the text is UTF-16; save the file as UTF-8 text", "config", path)

    def test_data_that_is_not_there_is_refused_with_the_places_tried(self):
        self.refused("/nowhere/at/all", "train", "--data", "/nowhere/at/all", "--out", self.out("a"))
        alone = shutil.copy(TUTTI, os.path.join(self.folder, "tutti"))  # no data come with it
        done = subprocess.run([alone, "data", "inspect", "mnist"], capture_output=True, text=True, cwd=self.folder,
                              env=clean_environment(TUTTI_DATA="/nowhere"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nowhere/mnist", done.stderr)

    def test_a_built_command_finds_its_data_from_any_folder(self):
        environment = {k: v for k, v in clean_environment().items() if k != "TUTTI_DATA"}
        for name, says in (("mnist", "training samples 60000, test samples 10000"), ("moby-dick", "of 256 kinds")):
            done = subprocess.run([TUTTI, "data", "inspect", name], capture_output=True, text=True, cwd=self.folder,
                                  env=environment)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(says, done.stdout)

    def test_configuration_has_one_precedence_and_shows_it(self):
        path = os.path.join(self.folder, "run.yaml")
        with open(path, "w") as f:
            f.write("# a run\nbatch: 16\nseed: 5\nlr-schedule: cosine\n")
        done = tutti("config", path, "--explain", "--seed", "9", TUTTI_BATCH="32", TUTTI_SEED="7")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
        self.assertEqual(rows["seed"], ["9", "flag", "--seed"])
        self.assertEqual(rows["batch"], ["32", "environment", "TUTTI_BATCH"])
        self.assertEqual(rows["lr-schedule"], ["cosine", "file", path + ":4"])
        self.assertEqual(rows["epochs"], ["1", "default"])
        with open(path, "w") as f:
            f.write('{"batch": 16,\n "bach": 3}\n')
        self.refused("bach", "config", path)
        self.refused("did you mean 'batch'", "config", path)

    def test_a_switch_takes_on_and_off(self):
        """As in settings files, and as options do that are on by default."""
        for words, value in ((["--quiet", "on"], True), (["--quiet", "off"], False), (["--quiet"], True),
                             (["--quiet=off"], False), (["--codec-checksum", "on", "--quiet"], True)):
            shown = json.loads(tutti("config", *words).stdout)
            self.assertEqual(shown["quiet"], value, words)
        self.assertTrue(shown["codec-checksum"])

    def test_shm_under_incomplete_launcher_variables_is_rejected(self):
        for variables, name in (({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "1"}, "Open MPI has started "
                                 "4 processes"), ({"WORLD_SIZE": "2", "RANK": "1"}, "torchrun has started 2 processes"),
                                ({"SLURM_NTASKS": "8", "SLURM_PROCID": "3", "SLURM_STEP_ID": "0"},
                                 "Slurm has started 8 processes")):
            self.refused(name, "train", "--transport", "shm", "--data", self.data, "--out", self.out("a"), **variables)

    def test_catalogues_and_their_help_are_wrapped(self):
        names = {kind: [m["name"] for m in json.loads(tutti(kind, "--json").stdout)] for kind in ("methods", "codecs")}
        pages = [("methods",), ("codecs",), ("topology",), ("topology", "--help"), ("data", "--help"),
                 ("train", "--help")] + [(kind, name) for kind in names for name in names[kind]]
        for words in pages:
            done = tutti(*words)
            self.assertEqual(done.returncode, 0, done.stderr)
            row = r"  \S+ +(int|real|bool|choice|text|spec) " # rows of a table have one line each, which may be wide
            self.assertEqual([line for line in done.stdout.splitlines()
                              if len(line) > 80 and not re.match(row, line)], [], words)

    def test_every_family_of_methods_has_a_heading_and_stands_in_the_guide(self):
        page = tutti("methods").stdout
        families = {m["family"] for m in json.loads(tutti("methods", "--json").stdout)}
        for family in families:
            self.assertNotIn(f"\n{family}\n", page)
        guide = read(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/ADD-A-METHOD.md")).decode()
        said = re.search(r"`family` is\s+one of ([^.]*)\.", guide).group(1)
        self.assertEqual(set(re.findall(r"`([\w-]+)`", said)), families)

    def test_data_is_inspected_and_verified(self):
        done = tutti("data", "inspect", self.data)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("training samples 600, test samples 200", done.stdout)
        self.assertIn("28 x 28", done.stdout)
        done = tutti("data", "verify", self.data)
        self.assertIn("whole; 600 + 200 samples", done.stdout)
        bad = small_mnist(os.path.join(self.folder, "bad"))
        path = os.path.join(bad, NAMES[0])
        with open(path, "rb+") as f:
            f.truncate(os.path.getsize(path) - 1)
        done = tutti("data", "verify", bad)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(path, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
