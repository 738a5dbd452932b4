"""tools/setup, with a package manager of the test's own: what it installs, what it reports where it
may not, and what it does not need. And tools/skipped, again and failures."""
import os, re, shutil, subprocess, sys, unittest
from package import *

SETUP = os.path.join(SOURCE, "tools/setup")


class Setup(Case):
    def setUp(self):
        self.bin = os.path.join(self.folder, self._testMethodName)
        os.mkdir(self.bin)
        self.tool("dpkg-query", 'for package; do :; done; [ -e "$STATE/lacks-$package" ] && exit 1; printf installed')
        self.tool("apt-get", 'echo "apt-get $* ($DEBIAN_FRONTEND)" >>"$STATE/calls"; case $1 in install) [ ! -e '
                  '"$STATE/no-lists" ] ;; update) [ ! -e "$STATE/no-network" ] && rm -f "$STATE/no-lists" ;; esac')
        self.tool("id", "echo ${UID_OF_TEST:-0}")

    def tool(self, name, body):
        path = os.path.join(self.bin, name)
        with open(path, "w") as f:
            f.write("#!/bin/sh\n" + body + "\n")
        os.chmod(path, 0o755)

    def mark(self, *names):
        for name in names:
            open(os.path.join(self.bin, name), "w").close()

    def setup(self, *more, uid=0):
        """Exit code, output, and the calls of apt-get."""
        done = subprocess.run(["/bin/bash", SETUP, *more], capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL,
                              env={"PATH": self.bin + ":" + self.system(), "STATE": self.bin, "UID_OF_TEST": str(uid)})
        with open(os.path.join(self.bin, "calls"), "a+") as f:
            f.seek(0)
            return done.returncode, done.stdout + done.stderr, f.read().splitlines()

    def system(self):
        """A folder of what the tools above need, without any sudo of this machine."""
        at = os.path.join(self.folder, "system")
        if not os.path.isdir(at):
            os.mkdir(at)
            for name in ("sh", "rm"):
                os.symlink(shutil.which(name), os.path.join(at, name))
        return at

    def test_nothing_is_done_or_printed_if_all_is_installed(self):
        self.assertEqual(self.setup(uid=1000), (0, "", []))
        for more in ("--test", "--ci"):
            self.assertEqual(self.setup(more), (0, "", []))

    def test_setup_rejects_an_unknown_option(self):
        self.mark("lacks-gcc")
        self.assertEqual(self.setup("--tests"),
                         (2, "tools/setup: no option is called '--tests'; its head lists them\n", []))

    def test_option_test_requests_both_mpis_but_continues_without(self):
        self.mark("lacks-libopenmpi-dev", "lacks-mpich", "lacks-clang", "no-lists", "no-network")
        self.assertEqual(self.setup(), (0, "", []))
        self.assertEqual(self.setup("--test", uid=1000), (
            0, "Going on without libopenmpi-dev mpich: not root and no sudo.\n", []))

    def test_root_installs_what_is_missing_and_nothing_else(self):
        self.mark("lacks-gcc", "lacks-libsimgrid-dev", "lacks-clang")
        code, said, calls = self.setup()
        self.assertEqual((code, said), (0, "Installing: gcc libsimgrid-dev\n"))
        self.assertEqual(calls, ["apt-get install -y -qq --no-install-recommends gcc libsimgrid-dev (noninteractive)"])
        self.assertIn("clang", self.setup("--ci")[1].split())

    def test_lists_of_packages_are_fetched_where_there_are_none(self):
        self.mark("lacks-gcc", "no-lists")
        code, _, calls = self.setup()
        self.assertEqual((code, [call.split()[1] for call in calls]), (0, ["install", "update", "install"]))

    def test_unprivileged_user_is_shown_the_install_command(self):
        self.mark("lacks-gcc", "lacks-libsimgrid-dev")
        sentence = ("Missing, and not to be installed from here: %s. As root, run:\n"
                    "  apt-get install gcc libsimgrid-dev\n")
        self.assertEqual(self.setup(uid=1000), (1, sentence % "not root and no sudo", []))
        self.mark("no-lists", "no-network")
        code, said, _ = self.setup()
        self.assertEqual((code, said), (1, "Installing: gcc libsimgrid-dev\n" + sentence % "apt-get failed"))

    def test_sudo_is_used_if_it_needs_no_password(self):
        self.mark("lacks-gcc")
        self.tool("sudo", '[ "$1" = -n ] && exit 0; echo "sudo $*" >>"$STATE/calls"; exec "$@"')
        code, said, calls = self.setup(uid=1000)
        self.assertEqual((code, said), (0, "Installing: gcc\n"))
        self.assertEqual([call.split()[0] for call in calls], ["sudo", "apt-get"])

    def test_missing_optional_packages_do_not_fail_the_setup(self):
        self.mark("lacks-libsimgrid-dev", "no-lists", "no-network")
        self.assertEqual(self.setup(uid=1000), (0, "Going on without libsimgrid-dev: not root and no sudo.\n", []))
        code, said, _ = self.setup()
        self.assertEqual((code, said),
                         (0, "Installing: libsimgrid-dev\nGoing on without libsimgrid-dev: apt-get failed.\n"))


class Skipped(Case):
    def test_skipped_tests_are_listed_with_their_reasons(self):
        log = os.path.join(self.folder, "Testing/Temporary/LastTest.log")
        os.makedirs(os.path.dirname(log))
        with open(log, "w") as f:
            f.write("1/5 Testing: cli/mpi\n1/5 Test: cli/mpi\nOutput:\nskipped: built without MPI\n<end of output>\n"
                    "2/5 Testing: cli/hosts\ntest_a (H.test_a) ... skipped 'needs ip'\ntest_b (H.test_b) ... "
                    "skipped 'needs ip'\nOK (skipped=2)\n" "3/5 Testing: base/options\n[ RUN      ] a_locale\n[  "
                    "SKIPPED ] a_locale\n[  SKIPPED ] 1 test(s), listed below:\n[  SKIPPED ] a_locale\n"
                    "4/5 Testing: package/install\nOK (skipped=3)\n5/5 Testing: base/spec\nis never skipped: no\nOK\n"
                    "6/6 Testing: python/abi\n..ss.s\nSKIPPED [2] tests/python/abi_test.py:34: no clang: setup\n"
                    "SKIPPED [1] tests/python/a_test.py: no: x\n3 passed, 3 skipped in 1.2s\n")
        self.assertEqual(run(os.path.join(SOURCE, "tools/skipped"), self.folder),
                         "Skipped here:\n  base/options: a locale\n  cli/hosts: needs ip (2 times)\n"
                         "  cli/mpi: built without MPI\n  package/install: 3 of its tests\n"
                         "  python/abi: no clang: setup (2 times)\n  python/abi: no: x\n")
        with open(os.path.join(self.folder, "left_out.txt"), "w") as f:
            f.write("SimGrid not found: no sim\n")
        with open(log, "w") as f:
            f.write("1/1 Testing: cli/async\n.\nskipped: a part: no sim\n.\nOK\n")
        self.assertEqual(run(os.path.join(SOURCE, "tools/skipped"), self.folder), "Left out of this build:\n  SimGrid "
                         "not found: no sim\nSkipped here:\n  cli/async: a part: no sim\n")
        os.remove(os.path.join(self.folder, "left_out.txt"))
        with open(log, "w") as f:
            f.write("1/1 Testing: base/spec\nOK\n")
        self.assertEqual(run(os.path.join(SOURCE, "tools/skipped"), self.folder), "")

    def test_every_unittest_program_is_verbose(self):
        """What unittest says with fewer words than `verbosity=2` is how many were skipped."""
        for folder, _, names in os.walk(os.path.join(SOURCE, "tests")):
            for name in (name for name in names if name.endswith(".py")):
                with open(os.path.join(folder, name)) as f:
                    for words in re.findall(r"(?m)^ +unittest\.main\((.*)\)$", f.read()):
                        self.assertIn("verbosity=2", words, name)


class Again(Case):
    """A build of its own, of tests that fail at first, always, and never."""

    def again(self, *fails):
        at = os.path.join(self.folder, self._testMethodName)
        os.makedirs(os.path.join(at, "tools"))
        shutil.copy(os.path.join(SOURCE, "tools/again"), os.path.join(at, "tools"))
        with open(os.path.join(at, "CMakePresets.json"), "w") as f:
            f.write('{"version": 6, "configurePresets": [{"name": "dev", "generator": "Ninja", "binaryDir": '
                    '"${sourceDir}/build/dev"}], "testPresets": [{"name": "dev", "configurePreset": "dev", '
                    '"environment": {"FROM_THE_PRESET": "yes"}}]}')
        commands = {"first": 'echo "said $FROM_THE_PRESET"; [ -e second ] || { touch second; exit 3; }',
                    "always": "echo no; exit 3", "never": "true"}
        with open(os.path.join(at, "CMakeLists.txt"), "w") as f:
            f.write("cmake_minimum_required(VERSION 3.25)\nproject(p NONE)\nenable_testing()\n" + "".join(
                f"add_test(NAME room/{name} COMMAND sh -c [=[{commands[name]}]=])\n" for name in fails + ("never",)))
        ctest = os.path.join(os.path.dirname(CMAKE), "ctest")
        run(CMAKE, "--preset", "dev", cwd=at)
        run(ctest, "--preset", "dev", cwd=at, code=8 if fails else 0)
        done = subprocess.run([os.path.join(at, "tools/again"), "dev"], capture_output=True, text=True, env=dict(
            CLEAN, PATH=os.path.dirname(CMAKE) + ":" + CLEAN["PATH"]))
        self.at = at
        return done.returncode, done.stdout + done.stderr

    def test_old_failures_are_not_run_again(self):
        self.assertEqual(self.again("first")[0], 0)
        done = subprocess.run([os.path.join(self.at, "tools/again"), "dev"], capture_output=True, text=True, env=CLEAN)
        self.assertEqual((done.returncode, done.stdout),
                         (1, "again: no test has failed in build/dev, so there is nothing to run again\n"))

    def test_failure_passing_alone_is_flaky_and_logs_are_kept(self):
        code, said = self.again("first")
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"(?ms)^FLAKY room/first: .*^said yes$.*^END FLAKY$")
        kept = os.path.join(self.at, "build/dev/again")
        for name, word in (("room-first.first", "Test Failed."), ("room-first.second", "Passed")):
            with open(os.path.join(kept, name)) as f:
                self.assertIn(word, f.read())
        # all tests of the first run are still what tools/skipped reads
        with open(os.path.join(self.at, "build/dev/Testing/Temporary/LastTest.log")) as f:
            self.assertIn("room/never", f.read())

    def test_second_failure_of_a_test_is_an_error(self):
        code, said = self.again("first", "always")
        self.assertEqual(code, 1)
        self.assertIn("FLAKY room/first", said)
        self.assertTrue(said.endswith("failed twice: room/always\n"), said)

    def test_failed_run_without_failed_tests_is_an_error(self):
        self.assertEqual(self.again(),
                         (1, "again: no test has failed in build/dev, so there is nothing to run again\n"))


class Failures(Case):
    """The end of a log of .ci/run: what failed, and why."""

    def failures(self, log):
        path = os.path.join(self.folder, self._testMethodName)
        with open(path, "w") as f:
            f.write(log)
        return run(sys.executable, os.path.join(SOURCE, "tools/failures"), path)

    def test_second_run_of_a_failed_test_is_quoted(self):
        said = self.failures(
            "=== lint\nwell\n=== budget: lint took 1 s of 2 s\n"
            "=== test\nFLAKY cli/a: it failed, and passed when it ran again alone. Its first run:\nno\nEND FLAKY\n"
            "cli/b failed again, alone:\n" + "".join(f"line {i}\n" for i in range(40)) + "wrong\n"
            "failed twice: cli/b\n=== test FAILED\n=== budget: test took 1 s of 2 s\n")
        self.assertTrue(said.startswith("--- test: cli/b\nline 16\n"), said)
        self.assertTrue(said.endswith("line 39\nwrong\n"), said)

    def test_parts_without_tests_and_pytest_reruns_are_quoted(self):
        said = self.failures(
            "=== fuzz\nBase64: abc\n=== fuzz FAILED\n=== budget: fuzz took 1 s of 2 s\n"
            "=== python\n=== FAILURES ===\nthe first\nFAILED tests/python/a_test.py::b - no\n"
            "=== FAILURES ===\nthe second\n=== short test summary info ===\n"
            "FAILED tests/python/a_test.py::b - no\n=== python FAILED\n")
        self.assertEqual(said, "--- fuzz\nBase64: abc\n--- python: pytest\nthe second\n"
                               "--- python: pytest\nFAILED tests/python/a_test.py::b - no\n")

    def test_output_of_a_failed_command_is_quoted(self):
        said = self.failures("--- root: .ci/run here\nmuch\n--- root: .ci/run here: 5 s, exit code 1\n"
                             "--- user: make demo\nno disk\n--- user: make demo: 9 s, exit code 2\n")
        self.assertEqual(said, "--- user: make demo\nno disk\n")

    def test_log_without_failures_prints_nothing(self):
        self.assertEqual(self.failures("=== lint\nwell\n=== budget: lint took 1 s of 2 s\n"
                                       "--- user: make demo\n--- user: make demo: 9 s, exit code 0\n"), "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
