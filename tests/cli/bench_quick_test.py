"""bench/quick, which is `make bench`: the table, its ratios, its noise, the record of a release, the time that it
keeps to, and what bad input leads to.

In place of builds there are programs that print figures of the test's own; no speed is judged."""
import json, os, re, signal, subprocess, sys, time, unittest
from command import *

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
QUICK = os.path.join(ROOT, "bench/quick")

# A build that notes its calls. Its figures are numbers in a file: a line a call, then the last one.
BUILD = r"""#!/bin/sh
here=$(dirname "$(dirname "$0")")
echo "$here $*" >>"$here/../calls"
[ -e "$here/then" ] && . "$here/then"
case "$1 $2" in
version*) echo "tutti $(cat "$here/version")"; exit;;
esac
n=$(wc -l <"$here/values")
k=$(($(cat "$here/k" 2>/dev/null || echo 0) + 1))
echo $k >"$here/k"
[ $k -gt "$n" ] && k=$n
v=$(sed -n "${k}p" "$here/values")
row() { echo "{\"name\": \"$1\", \"value\": $2}"; }
case "$1 $2" in
train*)
    while [ $# -gt 1 ] && [ "$1" != --out ]; do shift; done
    mkdir "$2" && echo "{\"samples_per_second\": $v}" >"$2/summary.json";;
"bench allreduce") row allreduce/2/4B/registered "$v"; row allreduce/2/64KiB/registered "${v}0"
    row allreduce/2/16MiB/registered "${v}00";;
"bench io") row "io/128MiB/direct write" 9; row "io/128MiB/checkpoint write" "$v"
    row "io/128MiB/checkpoint read" "${v}0";;
"bench codec") row codec/memcpy 9; row "codec/qsgd(bits=4)/encode" "$v"; row "codec/qsgd(bits=4)/decode" 9;;
*) exit 9;;
esac
"""
COLUMNS = ["figure", "value", "release", "ratio", "noise", "rounds", "others", "reads as"]


class Quick(Case):
    def build(self, name, *values, version="9.8.7", then=None):
        """A folder with such a program."""
        folder = os.path.join(self.folder, name)
        os.makedirs(folder + "/bin")
        for what, text in (("bin/tutti", BUILD), ("version", version), ("then", then),
                           ("values", "".join(f"{v}\n" for v in values))):
            if text is not None:
                with open(f"{folder}/{what}", "w") as f:
                    f.write(text)
        os.chmod(folder + "/bin/tutti", 0o755)
        return folder

    def start(self, build, *words):
        environment = clean_environment(TUTTI=build + "/bin/tutti", BENCH_DIR=self.folder)
        return subprocess.Popen([sys.executable, "-B", QUICK, "--file", self.file, *map(str, words)],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def quick(self, build, *words, code=0):
        """What it prints on stdout, or, where it refuses, on stderr."""
        run = self.start(build, *words)
        printed, errors = run.communicate(timeout=120)
        self.assertEqual(run.returncode, code, printed + errors)
        return errors if code == 2 else printed

    def setUp(self):
        self.folder = self.out("")
        os.mkdir(self.folder)
        self.file = os.path.join(self.folder, "release.json")

    def calls(self):
        """Which build was called with what, without `version`."""
        if not os.path.exists(self.folder + "/calls"):
            return []
        found = [line.split(" ", 1) for line in read(self.folder + "/calls").decode().splitlines()]
        return [(os.path.basename(build), words) for build, words in found if words != "version"]

    def table(self, printed):
        """{figure: {column: cell}}; figure, value with its unit, and what it reads as have blanks of their own."""
        lines = printed.split("\n\n")[1].splitlines()
        self.assertEqual(re.split("  +", lines[0]), COLUMNS)
        cells = [re.split("  +", line) for line in lines[1:]]
        return {c[0]: dict(zip(("figure", "value", "unit", *COLUMNS[2:]), c)) for c in cells}

    def recorded(self, change=lambda whole: None, **figures):
        """A record of this machine with these values, changed."""
        self.quick(self.build("recorded", 8, version="1.2.3"), "mlp", "allreduce", "--rounds", 3, "--record")
        with open(self.file) as f:
            whole = json.load(f)
        for name, values in figures.items():
            whole["releases"][0]["figures"][name].update(values)
        change(whole)
        with open(self.file, "w") as f:
            json.dump(whole, f)
        os.remove(self.folder + "/calls")
        return whole

    # ---- two builds ----
    def test_ratios_are_of_pairs_in_turn_and_more_is_better(self):
        new, old = self.build("new", 10, 10, 12, 12, 40), self.build("old", 8, 5, 4, 3, 40, version="1.2.3")
        printed = self.quick(new, "mlp", "--against", old, "--rounds", 5)
        found = self.table(printed)
        self.assertEqual(list(found), ["mlp, 2 workers"])
        mlp = found["mlp, 2 workers"]
        # ratios 1.25, 2, 3, 4, 1: their median 2, quartiles 1.25 and 3
        self.assertEqual([mlp[c] for c in ("value", "unit", "release", "ratio", "noise", "rounds", "reads as")],
                         ["12", "samples/s", "5", "2.000", "87.5 %", "5", "faster"])
        self.assertRegex(mlp["others"], r"^\d+\.\d\d$")
        self.assertEqual([build for build, _ in self.calls()], ["new", "old", "old", "new", "new", "old", "old", "new",
                                                                "new", "old"])
        self.assertIn(f"Release: tutti 1.2.3 ({old}), measured in the same run, in turn", printed)
        self.assertIn("Here: tutti 9.8.7; ", printed)

    def test_times_are_compared_the_other_way_round(self):
        new, old = self.build("new", 20), self.build("old", 10)
        found = self.table(self.quick(new, "allreduce", "codec", "checkpoint", "--against", old, "--rounds", 3))
        self.assertEqual({name: (row["value"], row["unit"], row["release"], row["ratio"], row["reads as"])
                          for name, row in found.items()},
                         {"all-reduce on one host, 4 B": ("20", "us", "10", "0.500", "slower"),
                          "all-reduce on one host, 64 KiB": ("200", "us", "100", "0.500", "slower"),
                          "all-reduce on one host, 16 MiB": ("2000", "us", "1000", "0.500", "slower"),
                          "qsgd(bits=4), 1,000,000 values encoded": ("20", "ms", "10", "0.500", "slower"),
                          "checkpoint of 128 MiB, written": ("20", "GB/s", "10", "2.000", "faster"),
                          "checkpoint of 128 MiB, read": ("200", "GB/s", "100", "2.000", "faster")})

    def test_a_ratio_within_the_noise_is_no_change(self):
        new = self.build("new", 10, 13, 8, 11, 9)
        row = self.table(self.quick(new, "mlp", "--against", self.build("old", 9.5), "--rounds", 5))["mlp, 2 workers"]
        self.assertEqual((row["ratio"], row["noise"], row["reads as"]), ("1.053", "20.0 %", "within noise"))
        printed = self.quick(new, "mlp", "--against", self.folder + "/old", "--rounds", 2)
        row = self.table(printed)["mlp, 2 workers"]
        self.assertEqual((row["noise"], row["rounds"], row["reads as"]), ("-", "2", "too few rounds"))
        self.assertIn("Fewer than 3 rounds: mlp\n", printed)

    def test_a_release_that_lacks_something_leaves_no_ratio(self):
        old = self.build("old", 8, then='[ "$2" = codec ] && { echo "tutti: there is no codec" >&2; exit 2; }\n')
        printed = self.quick(self.build("new", 10), "mlp", "codec", "--against", old, "--rounds", 3)
        found = self.table(printed)
        self.assertEqual([row["ratio"] for row in found.values()], ["1.250", "-"])
        self.assertEqual(found["qsgd(bits=4), 1,000,000 values encoded"]["rounds"], "3")
        self.assertRegex(printed, f"Note: codec: no ratio, {old} cannot be measured: `tutti bench codec .*` ended with "
                                  "exit code 2: tutti: there is no codec\n")
        self.assertEqual(sum(call[1].startswith("bench codec") for call in self.calls() if call[0] == "old"), 1)

    # ---- the record ----
    def test_record_has_what_when_where_and_its_ratios_are_right(self):
        printed = self.quick(self.build("old", 10, 8, 9, version="1.2.3"), "mlp", "allreduce", "--rounds", 3,
                             "--record")
        self.assertIn(f"{self.file} has tutti 1.2.3 on ", printed)
        with open(self.file) as f:
            one, = json.load(f)["releases"]
        self.assertEqual(set(one), {"version", "commit", "dirty", "date", "machine", "noisy", "figures"})
        self.assertEqual(set(one["machine"]), {"cpu", "cores", "memory_gib"})
        self.assertEqual(one["version"], "1.2.3")
        self.assertRegex(one["date"], r"^\d{4}-\d\d-\d\d$")
        # calls 1, 3, 5 are mlp's: 10, 9, 9
        self.assertEqual(one["figures"]["mlp, 2 workers"], dict(value=9, unit="samples/s", noise=1 / 18, rounds=3))
        self.assertEqual(list(one["figures"])[1:],
                         [f"all-reduce on one host, {s}" for s in ("4 B", "64 KiB", "16 MiB")])
        printed = self.quick(self.build("new", 18), "mlp", "allreduce", "codec", "--rounds", 3)
        found = self.table(printed)
        self.assertIn(f"Release: the record of tutti 1.2.3, measured {one['date']}", printed)
        self.assertNotIn("DIFFERS", printed)
        mlp, four = found["mlp, 2 workers"], found["all-reduce on one host, 4 B"]
        self.assertEqual((mlp["release"], mlp["ratio"], mlp["noise"], mlp["reads as"]),
                         ("9", "2.000", "5.6 %", "faster"))
        self.assertEqual((four["ratio"], four["reads as"]), ("0.500", "slower"))
        other = found["qsgd(bits=4), 1,000,000 values encoded"]
        self.assertEqual((other["release"], other["ratio"], other["reads as"]), ("-", "-", "-"))

    def test_a_figure_of_the_same_release_is_added_to_the_others_of_the_record(self):
        build = self.build("one", 10)
        self.quick(build, "mlp", "allreduce", "--rounds", 3, "--record")
        self.quick(self.build("again", 12), "mlp", "--rounds", 3, "--record")
        with open(self.file) as f:
            (one,) = json.load(f)["releases"]
        self.assertEqual((len(one["figures"]), one["figures"]["mlp, 2 workers"]["value"]), (4, 12))
        self.quick(self.build("later", 12, version="9.9.0"), "mlp", "--rounds", 3, "--record")
        with open(self.file) as f:
            (one,) = json.load(f)["releases"]
        self.assertEqual(len(one["figures"]), 1)

    def test_noise_of_the_record_counts_too(self):
        self.recorded(**{"mlp, 2 workers": dict(value=10, noise=0.3)})
        row = self.table(self.quick(self.build("new", 12), "mlp", "--rounds", 3))["mlp, 2 workers"]
        self.assertEqual((row["ratio"], row["noise"], row["reads as"]), ("1.200", "30.0 %", "within noise"))

    def test_a_figure_that_the_record_has_in_another_unit_has_no_ratio(self):
        self.recorded(**{"mlp, 2 workers": dict(unit="samples/min")})
        row = self.table(self.quick(self.build("new", 12), "mlp", "--rounds", 3))["mlp, 2 workers"]
        self.assertEqual((row["release"], row["ratio"], row["reads as"]), ("-", "-", "-"))

    def test_another_machine_is_named_and_its_ratios_are_not_read(self):
        self.recorded(lambda whole: whole["releases"][0]["machine"].update(cpu="Abacus", cores=77))
        printed = self.quick(self.build("new", 16), "mlp", "--rounds", 3)
        self.assertRegex(printed, r"THE MACHINE DIFFERS: the record is of Abacus, 77 cores, \d+ GiB, ")
        row = self.table(printed)["mlp, 2 workers"]
        self.assertEqual((row["ratio"], row["reads as"]), ("2.000", "another machine"))
        # a new record is added to that of the other machine, and is read from then on
        self.quick(self.build("next", 4), "mlp", "--rounds", 3, "--record")
        with open(self.file) as f:
            whole = json.load(f)
        self.assertEqual([r["machine"]["cpu"] == "Abacus" for r in whole["releases"]], [True, False])
        for releases in (whole["releases"], whole["releases"][::-1]):
            with open(self.file, "w") as f:
                json.dump(dict(releases=releases), f)
            printed = self.quick(self.folder + "/new", "mlp", "--rounds", 3)
            self.assertNotIn("DIFFERS", printed)
            self.assertEqual(self.table(printed)["mlp, 2 workers"]["ratio"], "4.000")

    def test_without_a_record_it_says_how_to_get_one(self):
        printed = self.quick(self.build("new", 10), "mlp", "--rounds", 3)
        self.assertIn(f"Release: none, so there are no ratios. There is no record in {self.file}; `bench/quick "
                      "--record` of a release writes it, and --against BUILD measures a build of one\n", printed)
        row = self.table(printed)["mlp, 2 workers"]
        self.assertEqual((row["value"], row["release"], row["ratio"], row["noise"], row["reads as"]),
                         ("10", "-", "-", "0.0 %", "-"))

    def test_a_damaged_record_is_refused_before_any_work(self):
        def figure(**values):
            return lambda whole: whole["releases"][0]["figures"]["mlp, 2 workers"].update(values)

        sound = self.recorded()
        new, sentence = self.build("new", 10), re.escape(f"bench/quick: the record of the last release, {self.file}, "
                                                         "is damaged: ")
        for change, why in ((figure(value=0), "'mlp, 2 workers' is {'value': 0"), (figure(value="8"), "'value': '8'"),
                            (figure(value=float("nan")), "'value': nan"), (figure(noise=-1), "'noise': -1"),
                            (figure(value=True), "'value': True"),
                            (lambda whole: whole["releases"][0].pop("version"), "it has no 'version'"),
                            (lambda whole: whole["releases"][0]["machine"].pop("cores"), "it has no 'cores'"),
                            (lambda whole: whole["releases"][0].update(figures=[]), "'list' object has no"),
                            (lambda whole: whole.update(releases=7), "not iterable"),
                            (lambda whole: whole.clear(), "it has no 'releases'")):
            whole = json.loads(json.dumps(sound))
            change(whole)
            with open(self.file, "w") as f:
                json.dump(whole, f)
            told = self.quick(new, "mlp", code=2)
            self.assertRegex(told, f"^{sentence}.*{re.escape(why)}.*; take it from git again, or remove it and write "
                                   "one with `bench/quick --record`\n$")
        for text in (b"", b'{"releases": [', b"\xff\xfe", b"[]"):
            with open(self.file, "wb") as f:
                f.write(text)
            self.assertRegex(self.quick(new, "mlp", code=2), f"^{sentence}")
            self.assertRegex(self.quick(new, "mlp", "--record", code=2), f"^{sentence}")
            self.assertEqual(read(self.file), text)
        self.assertEqual(self.calls(), [])
        with open(self.file, "w") as f:
            json.dump(sound, f)
        self.quick(new, "mlp", "--rounds", 1)

    def test_what_failed_is_not_recorded(self):
        sound = self.recorded()
        for build, why in ((self.build("zero", 0), "a figure is 0"),
                           (self.build("one", 10, then='[ "$1" = train ] && exit 1\n'), "`tutti train ")):
            printed = self.quick(build, "mlp", "codec", "--rounds", 1, "--record", code=1)
            self.assertIn("FAILED: mlp: " + why, printed)
            self.assertIn(f"{self.file} is as it was: a figure has failed\n", printed)
        with open(self.file) as f:
            self.assertEqual(json.load(f), sound)

    # ---- builds and words ----
    def test_builds_that_are_not_there_are_refused_before_any_work(self):
        new, nothing = self.build("new", 10), self.out("nothing")
        self.assertEqual(self.quick(new, "--against", nothing, code=2), f"bench/quick: {nothing} is no build: it has "
                         "no bin/tutti; `make release` makes build/release\n")
        self.assertIn("is no build", self.quick(nothing, code=2))
        broken = self.build("broken", 10, then="exit 3\n")
        self.assertEqual(self.quick(new, "--against", broken, code=2), f"bench/quick: {broken}/bin/tutti does not run "
                         f"here: `{broken}/bin/tutti version` fails\n")
        self.assertIn("there is no figure 'mpl'; they are mlp cnn gpt allreduce hosts checkpoint opening pytorch "
                      "simulated codec", self.quick(new, "mpl", code=2))
        self.assertIn("--rounds is 0; it must be 1 or more", self.quick(new, "--rounds", 0, code=2))
        self.assertIn("invalid positive value: 'nan'", self.quick(new, "--seconds", "nan", code=2))
        self.assertIn("leave out --against", self.quick(new, "--record", "--against", new, code=2))
        self.assertEqual(self.calls(), [])

    def test_a_figure_that_fails_is_named_and_the_others_are_measured(self):
        cases = (('[ "$1" = train ] && { echo "first" >&2; echo "tutti: no memory" >&2; exit 1; }\n',
                  r"`tutti train .*` ended with exit code 1: tutti: no memory"),
                 ('[ "$1" = train ] && exit 0\n', r"its output has no such figure \(FileNotFoundError: .*"),
                 ('[ "$1" = train ] && kill -9 $$\n', "ended with exit code -9: it says nothing"))
        for k, (then, why) in enumerate(cases):
            new = self.build("new%d" % k, 10, then=then)
            printed = self.quick(new, "mlp", "codec", "--rounds", 3, code=1)
            self.assertRegex(printed, "(?m)^FAILED: mlp: .*" + why)
            self.assertEqual([row["rounds"] for row in self.table(printed).values()], ["3"])

    # ---- time ----
    def test_what_does_not_fit_is_not_begun_and_is_named(self):
        printed = self.quick(self.build("new", 10), "mlp", "gpt", "opening", "--seconds", 3.9)
        self.assertIn("Did not fit into 3.9 s: mlp, gpt\n", printed)
        self.assertEqual(list(self.table(printed)), ["a run opened, 4 workers, 1 step"])
        self.assertEqual(len([words for _, words in self.calls() if "-n 2" in words]), 0)

    def test_what_is_stuck_is_ended_when_the_time_is_over(self):
        """With its children; and so does SIGTERM."""
        stuck = self.build("stuck", 10, then='[ "$1" = train ] && { echo $$ >>"$here/pids"; sleep 1000 & '
                                             'echo $! >>"$here/pids"; wait; }\n')

        def pids(count):
            until = time.monotonic() + 60
            while not os.path.exists(stuck + "/pids") or len(read(stuck + "/pids").split()) < count:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)
            return list(map(int, read(stuck + "/pids").split()))

        printed = self.quick(stuck, "opening", "codec", "--seconds", 4)
        self.assertIn("Did not fit into 4 s: opening, codec\n", printed)
        self.assertFalse(any(map(alive, pids(2))))
        run = self.start(stuck, "opening")
        self.assertEqual(len(pids(4)), 4)
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=60)
        self.assertEqual(run.returncode, 128 + signal.SIGTERM)
        self.assertFalse(any(map(alive, pids(4))))

    # ---- the command ----
    def test_the_command_of_this_tree_gives_each_figure(self):
        build = os.path.dirname(os.path.dirname(TUTTI))
        named = ["codec"]
        if LONG:
            named += ["allreduce", "checkpoint", "opening", *["mlp", "simulated"] * SIMULATOR]
        if LONG and not SIMULATOR:
            narrowed("figures of trainings, which take long under a sanitizer, and of the simulator")
        printed = self.quick(build, *named, "--rounds", 1)
        self.assertEqual(len(self.table(printed)), 7 + 2 * SIMULATOR if LONG else 1, printed)
        self.assertNotIn("Not measured", printed)
        self.assertEqual(sorted(os.listdir(self.folder)), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
