"""tools/wheel: what it refuses before any work, and that README begins with what it tries. tools/licences, with wheels
of the test's own. And tools/packages, with tools of the test's own: what it runs, and what it leaves out where
something is missing. What the real ones make is tried by `make packages`; which options the roots get is seen here."""
import ctypes, math, os, platform, re, shutil, subprocess, unittest, zipfile
from package import *

WHEEL = os.path.join(SOURCE, "tools/wheel")
SUITES = "bullseye bookworm trixie forky bionic focal jammy noble resolute"
HERE = platform.machine()


class Wheel(Case):
    def refused(self, *words):
        done = subprocess.run([WHEEL, *words], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.assertEqual((done.returncode, done.stdout), (2, ""), words)
        return done.stderr

    def test_architectures_and_releases_that_are_not_known_are_refused(self):
        self.assertEqual(self.refused("--arch", "sparc"), "wheel: --arch knows x86_64 and aarch64, not 'sparc'\n")
        self.assertEqual(self.refused("--arch"), "wheel: --arch knows x86_64 and aarch64, not ''\n")
        self.assertEqual(self.refused("--try"),
                         f"wheel: --try needs a release: {SUITES}\n")
        self.assertEqual(self.refused("--try", "bookworm", "buster"),
                         f"wheel: --try knows {SUITES}, not 'buster'\n")
        self.assertEqual(self.refused("--arhc"), "wheel: no option is called '--arhc'; tools/wheel --help lists them\n")

    @unittest.skipUnless(HERE in ("x86_64", "aarch64"), "skipped: no wheel is made on this architecture")
    def test_what_a_machine_cannot_make_or_try_for_another_is_refused(self):
        if HERE == "aarch64":
            self.assertEqual(self.refused("--arch", "x86_64"),
                             "wheel: this machine is aarch64, and has no cross compiler for x86_64\n")
        else:
            self.assertEqual(self.refused("--arch", "x86_64", "--arch", "aarch64", "--try", "noble"),
                             "wheel: --try of a wheel for aarch64 knows bullseye bookworm trixie forky, not 'noble'\n")

    def test_readme_begins_with_the_commands_that_are_tried(self):
        with open(os.path.join(SOURCE, "README.md")) as f:
            first = re.search(r"(?s)```\n(.*?)```", f.read())[1]
        with open(WHEEL) as f:
            tried = re.search(r"(?s)<<'END'\n(.*?)\nEND\n", f.read())[1]
        shown = [re.sub(r"\s+#.*", "", line) for line in first.splitlines()]
        self.assertEqual(shown[1], "pip install tutti-*.whl")
        tried = tried.replace(" -q --no-index", "").replace(" --quiet", "").splitlines()
        self.assertEqual(tried[:2], ["set -eu", "cd /root"])
        self.assertEqual(shown, tried[2:2 + len(shown)])


class OlderLibm(Case):
    """tools/older-libm, with libraries of the test's own."""
    TOOL = os.path.join(SOURCE, "tools/older-libm")

    def library(self, body):
        path = os.path.join(self.folder, "lib.so")
        run(CC, "-shared", "-fPIC", "-O1", "-x", "c", "-o", path, self.write("lib.c", "#define _GNU_SOURCE\n" + body),
            "-lm")
        return path

    def needs(self, path):
        """The versions that a file needs of each library."""
        found = {}
        for line in run("readelf", "--wide", "--version-info", path, LC_ALL="C").splitlines():
            if named := re.search(r"File: (\S+)", line):
                versions = found.setdefault(named[1], set())
            elif named := re.search(r"Name: (\S+)  Flags", line):
                versions.add(named[1])
        return found

    @unittest.skipUnless(HERE in ("x86_64", "aarch64"), "skipped: the tool knows x86-64 and arm64")
    def test_library_computes_the_same_and_needs_no_newer_libm(self):
        path = self.library("#include <math.h>\n#include <stdlib.h>\n"
                            "double f(double x) { return exp(x) + pow(x, 3.5) + log(x) + sin(x); }\n"
                            "void *g(void) { return malloc(1); }\n")
        before = self.needs(path)
        if "GLIBC_2.29" not in before["libm.so.6"]:
            self.skipTest("skipped: the compiler's libm is older than glibc 2.29")
        self.assertEqual(run(self.TOOL, path, both=True), "")
        after = self.needs(path)
        self.assertEqual(after["libm.so.6"], before["libm.so.6"] - {"GLIBC_2.29"})
        self.assertEqual(after["libc.so.6"], before["libc.so.6"])
        x = 1.25
        f = ctypes.CDLL(path, mode=os.RTLD_NOW).f
        f.restype, f.argtypes = ctypes.c_double, [ctypes.c_double]
        self.assertEqual(f(x), math.exp(x) + math.pow(x, 3.5) + math.log(x) + math.sin(x))
        with open(path, "rb") as file:
            made = file.read()
        self.assertEqual(run(self.TOOL, path, both=True), "") # which has nothing left to do
        with open(path, "rb") as file:
            self.assertEqual(file.read(), made)

    def test_newer_versions_of_other_libraries_are_left(self):
        path = self.library("#include <sched.h>\nint f(void) { unsigned c, n; return getcpu(&c, &n); }\n")
        before = self.needs(path)
        self.assertIn("GLIBC_2.29", before["libc.so.6"])
        with open(path, "rb") as file:
            made = file.read()
        self.assertEqual(run(self.TOOL, path, both=True), "")
        with open(path, "rb") as file:
            self.assertEqual(file.read(), made)

    def test_what_is_no_library_is_refused(self):
        text, none = self.write("text.so", "no ELF"), os.path.join(self.folder, "none.so")
        self.assertEqual(run(self.TOOL, text, code=2, both=True),
                         f"older-libm: {text}: it is no ELF of 64 bits for x86-64 or arm64\n")
        self.assertIn(f"older-libm: {none}: ", run(self.TOOL, none, code=2, both=True))
        self.assertEqual(run(self.TOOL, code=2, both=True),
                         "older-libm: it takes files; tools/older-libm --help says more\n")
        whole = self.library("#include <math.h>\ndouble f(double x) { return exp(x); }\n")
        with open(whole, "rb") as file:
            cut = self.write("cut.so", "")
            with open(cut, "wb") as part:
                part.write(file.read()[:100])
        self.assertIn(f"older-libm: {cut}: ", run(self.TOOL, cut, code=2, both=True))


class Licences(Case):
    def judged(self, *names, empty=(), code=0, text="text"):
        path = os.path.join(self.folder, "one.whl")
        with zipfile.ZipFile(path, "w") as wheel:
            for name in names:
                wheel.writestr(name, "" if name in empty else text)
        done = subprocess.run([os.path.join(SOURCE, "tools/licences"), path], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        return done.stderr.replace(f"licences: {path}: ", "")

    def test_each_library_needs_its_licence_by_both_kinds_of_names(self):
        plain, audited, version = "tutti/lib/libyaml-0.so.2", "tutti.libs/libyaml-0-a1b2c3d4.so.2.0.9", "libyaml-dev"
        licence = f"tutti/lib/licences/{version}.txt"
        for name in (plain, audited):
            self.assertEqual(self.judged(name, licence, "tutti/lib/libtutti.so.0.3", "tutti/__init__.py"), "")
            lacks = f"{name} is without its licence, {licence}: is {version} installed?\n"
            self.assertEqual(self.judged(name, code=1), lacks)
            self.assertEqual(self.judged(name, licence, empty=[licence], code=1), lacks)
        self.assertEqual(self.judged("tutti.libs/libtmglib-a1b2c3d4.so.3", "tutti/lib/licences/liblapacke.txt"), "")

    def test_texts_that_a_licence_points_to_need_to_be_there(self):
        at = "tutti/lib/licences/"
        licence = at + "libgomp1.txt"
        texts = [at + "common-licenses/" + name for name in ("CC0-1.0", "GPL", "LGPL-2.1")]
        words = "see `/usr/share/common-licenses/GPL'. Or\nusr/share/common-licenses/LGPL-2.1.\ncommon-licenses/CC0-1.0"
        self.assertEqual(self.judged(licence, *texts, text=words), "")
        for k, text in enumerate(texts):
            lacks = f"{licence} points to a text that is missing, {text}: is " \
                f"/usr/share/{text.removeprefix(at)} there?\n"
            self.assertEqual(self.judged(licence, *texts[:k], *texts[k + 1:], text=words, code=1), lacks)
            self.assertEqual(self.judged(licence, *texts, empty=[text], text=words, code=1), lacks)

    def test_simgrid_and_what_is_unknown_may_not_be_inside(self):
        for name in ("tutti.libs/libsimgrid-0a1b2c3d.so.3.32", "tutti/lib/libmpi.so.40", "tutti/lib/libnew.so"):
            self.assertEqual(self.judged(name, code=1),
                             f"{name} may not be in a wheel, or its licence is missing in tools/licences\n")

    def test_table_names_the_packages_whose_licences_the_build_takes(self):
        with open(os.path.join(SOURCE, "cmake/Python.cmake")) as f:
            taken = set(re.search(r"(?s)foreach\(package ([^)]*)\)", f.read())[1].split())
        with open(os.path.join(SOURCE, "tools/licences")) as f:
            table = re.search(r"(?s)PACKAGES = \{(.*?)\n\}", f.read())[1]
        self.assertEqual(set(re.findall(r': "([^"]+)"', table)), taken)

    def test_what_is_no_wheel_is_refused(self):
        tool = os.path.join(SOURCE, "tools/licences")
        self.assertIn("cannot be read", run(tool, os.path.join(self.folder, "none.whl"), code=2, both=True))
        self.assertIn("cannot be read", run(tool, WHEEL, code=2, both=True))
        self.assertIn("it takes wheels", run(tool, code=2, both=True))


DEBIAN = os.path.exists("/etc/debian_version") and os.geteuid() == 0


class Roots(Case):
    """The tools that make roots, in a repository of the test's own, with a mmdebstrap of its own."""

    def repository(self, tool, **programs):
        at = os.path.join(self.folder, tool)
        for folder in ("tools", "build/wheel/bin"):
            os.makedirs(os.path.join(at, folder))
        shutil.copy(os.path.join(SOURCE, "tools", tool), os.path.join(at, "tools"))
        for name, body in programs.items():
            path = os.path.join(at, "build/wheel/bin", name.replace("_", "-"))
            with open(path, "w") as f:
                f.write(f"#!/bin/bash\n{body}\n")
            os.chmod(path, 0o755)
        with open(os.path.join(at, ".gitignore"), "w") as f:
            f.write("build\ndist\n")
        subprocess.run(["git", "init", "-q", at], check=True)
        self.commit(at)
        return at

    def commit(self, at):
        for words in (["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]):
            subprocess.run(["git", "-C", at, *words], check=True)

    def own(self):
        return subprocess.run(". /etc/os-release; printf %s $VERSION_CODENAME", shell=True, check=True,
                              capture_output=True, text=True).stdout

    def wheels(self):
        """A repository whose wheel is named by the variable TAG."""
        shutil.rmtree(os.path.join(self.folder, "wheel"), ignore_errors=True)
        at = self.repository(
            "wheel", pip="mkdir -p build/wheel/out; touch build/wheel/out/tutti-1.whl", wheel="exit 0",
            twine="exit 0", mmdebstrap='echo "$@" >>build/said; exit 1',
            pyproject_build="mkdir dist; touch dist/tutti-1.tar.gz",
            auditwheel=f"touch dist/tutti-1-py3-none-${{TAG-manylinux_2_28_{HERE}}}.whl")
        for name in ("licences", "wheel-root", "wheel-shown", "older-libm"):
            shutil.copy("/bin/true", os.path.join(at, "tools", name))
        self.commit(at)
        return at

    @unittest.skipUnless(HERE in ("x86_64", "aarch64"), "skipped: no wheel is made on this architecture")
    def test_a_wheel_that_needs_a_newer_glibc_than_promised_is_refused(self):
        at = self.wheels()
        for glibc, code in (("2_17", 0), ("2_28", 0), ("2_29", 1), ("2_34", 1)):
            said = run(os.path.join(at, "tools/wheel"), code=code, both=True, TAG=f"manylinux_{glibc}_{HERE}")
            self.assertEqual(f"wheel: auditwheel finds no manylinux_2_28_{HERE}" in said, code == 1, said)
        both = f"manylinux_2_27_{HERE}.manylinux_2_28_{HERE}"
        self.assertNotIn("auditwheel finds no", run(os.path.join(at, "tools/wheel"), both=True, TAG=both))

    @unittest.skipUnless(DEBIAN, "skipped: --try needs root and a Debian")
    def test_a_root_of_this_machines_release_is_checked_as_apt_does(self):
        at = self.wheels()
        suites = [s for s in ("bookworm", "trixie", "forky") if s != self.own()]
        said = {}
        for suite in (self.own(), suites[0]):
            done = subprocess.run([os.path.join(at, "tools/wheel"), "--try", suite], capture_output=True, text=True,
                                  timeout=60, stdin=subprocess.DEVNULL)
            if "--try knows" in done.stderr:
                self.skipTest("skipped: --try does not know this machine's release")
            self.assertEqual(done.returncode, 1, done.stderr)
            with open(os.path.join(at, "build/said")) as f:
                said[suite] = f.read().splitlines()[-1]
        self.assertNotIn("--aptopt", said[self.own()])
        self.assertIn("AllowUnauthenticated", said[suites[0]])

    @unittest.skipUnless(DEBIAN, "skipped: tools/fresh needs root and a Debian")
    def test_the_options_by_which_a_root_was_made_do_not_stay_in_it(self):
        made = """for root; do [[ $root != */root ]] || break; done
            mkdir -p "$root"/{etc/apt/apt.conf.d,etc/dpkg/dpkg.cfg.d}
            [[ " $* " != *" --aptopt="* ]] || touch build/relaxed "$root/etc/apt/apt.conf.d/99mmdebstrap" """
        at, kept = self.repository("fresh", mmdebstrap=made), os.path.join(self.folder, "kept")
        other = next(s for s in ("trixie", "bookworm") if s != self.own())
        path = os.path.join(at, "build/wheel/bin") + ":" + os.environ["PATH"]
        words = [os.path.join(at, "tools/fresh"), "--as", "root", "--suite", other, "--keep", kept, "true"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=at, stdin=subprocess.DEVNULL,
                              env={**os.environ, "PATH": path})
        if "names Debian's archive" in done.stderr:
            self.skipTest("skipped: no source of apt names Debian's archive")
        self.assertTrue(os.path.exists(os.path.join(at, "build/relaxed")))
        self.assertTrue(os.path.isdir(os.path.join(kept, "etc/apt/apt.conf.d")))
        self.assertFalse(os.path.exists(os.path.join(kept, "etc/apt/apt.conf.d/99mmdebstrap")))


class Packages(Case):
    def said(self, machine="x86_64", uid=0, cross=True, roots=True, code=0):
        """What tools/packages prints on a machine with these properties."""
        at = os.path.join(self.folder, f"{machine}-{uid}-{cross}-{roots}-{code}")
        os.makedirs(os.path.join(at, "tools"))
        os.mkdir(os.path.join(at, "bin"))
        shutil.copy(os.path.join(SOURCE, "tools/packages"), os.path.join(at, "tools"))
        tools = {"tools/setup": f"exit {0 if cross else 1}", "tools/wheel": f"echo wheel $*; exit {code}",
                 "tools/deb": "echo deb $*", "tools/arm64-suites": "echo arm64", "bin/uname": f"echo {machine}",
                 "bin/id": f"echo {uid}"}
        if roots:
            tools["bin/mmdebstrap"] = "exit 1"
        for name, body in tools.items():
            with open(os.path.join(at, name), "w") as f:
                f.write(f"#!/bin/sh\n{body}\n")
            os.chmod(os.path.join(at, name), 0o755)
        os.symlink(shutil.which("dirname"), os.path.join(at, "bin/dirname"))
        done = subprocess.run(["/bin/bash", os.path.join(at, "tools/packages")], capture_output=True, text=True,
                              timeout=60, stdin=subprocess.DEVNULL, env={"PATH": os.path.join(at, "bin")})
        self.assertEqual((done.returncode, done.stderr), (code, ""))
        return done.stdout

    def test_all_packages_are_made_and_tried(self):
        tried = "--try bullseye bookworm trixie forky\ndeb\n"
        self.assertEqual(self.said(), "arm64\nwheel --arch x86_64 --arch aarch64 " + tried)
        self.assertEqual(self.said("aarch64", cross=False), "wheel --arch aarch64 " + tried)

    def test_what_cannot_be_done_is_printed_as_skipped(self):
        arm64 = "skipped: the wheel for arm64: tools/setup --arm64 did not succeed\n"
        roots = "skipped: to try the wheels, and Debian's packages: they need root and mmdebstrap " \
            "(tools/setup --fresh)\n"
        self.assertEqual(self.said(cross=False),
                         arm64 + "wheel --arch x86_64 --try bullseye bookworm trixie forky\ndeb\n")
        self.assertEqual(self.said(roots=False), "arm64\n" + roots + "wheel --arch x86_64 --arch aarch64\n")
        self.assertEqual(self.said(uid=1000, cross=False), arm64 + roots + "wheel --arch x86_64\n")

    def test_wheel_that_fails_is_a_failure_of_all(self):
        self.assertEqual(self.said(code=3),
                         "arm64\nwheel --arch x86_64 --arch aarch64 --try bullseye bookworm trixie forky\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
