"""tools/release in a repository of the test's own, which has the places of this tree where a version stands. Programs
that take a moment stand for tools/wheel and tools/deb."""
import importlib.machinery, importlib.util, os, platform, re, shutil, subprocess, unittest
from package import *

RELEASE = os.path.join(SOURCE, "tools/release")
EPOCH, DAY, DEBIAN_DAY = "1800000000", "2027-01-15", "Fri, 15 Jan 2027 08:00:00 +0000"
NEEDS_ABIDIFF = unittest.skipUnless(shutil.which("abidiff"), "skipped: no abidiff: tools/setup --ci installs it")
NEEDS_SSH = unittest.skipUnless(shutil.which("ssh-keygen"), "skipped: no ssh-keygen: tools/setup --ci installs it")
NEEDS_GPG = unittest.skipUnless(shutil.which("gpg"), "skipped: no gpg: tools/setup --ci installs it")
VERSION = r"$(sed -nE 's/^#define TUTTI_VERSION_(MAJOR|MINOR|PATCH) ([0-9]+)$/\2/p' include/tutti/base.h | paste -sd.)"
TOOLS = {
    "wheel": f"""#!/bin/sh
echo wheel >>build/calls
echo "$*" >build/words
[ ! -e build/fails ] || exit 3
rm -rf dist && mkdir dist
echo "$SOURCE_DATE_EPOCH" >"dist/tutti-{VERSION}-py3-none-any.whl"
echo source >"dist/tutti-{VERSION}.tar.gz"
""",
    "deb": f"""#!/bin/sh
echo deb >>build/calls
. /etc/os-release
mkdir -p "build/deb/$VERSION_CODENAME"
echo package >"build/deb/$VERSION_CODENAME/tutti_{VERSION}-1_amd64.deb"
""",
}


BOTH = " --arch x86_64 --arch aarch64" if platform.machine() == "x86_64" else ""


def loaded():
    loader = importlib.machinery.SourceFileLoader("release", RELEASE)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("release", loader))
    loader.exec_module(module)
    return module


PLACES = loaded().PLACES


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


class Release(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        numbers = re.findall(r"(?m)^#define TUTTI_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", read(INCLUDED, "base.h"))
        major, minor, patch = map(int, numbers)
        cls.now = f"{major}.{minor}.{patch}"
        cls.next = f"{major}.{minor + 1}.0"
        cls.template = os.path.join(cls.folder, "template")
        for folder in ("include", "debian"):
            shutil.copytree(os.path.join(SOURCE, folder), os.path.join(cls.template, folder))
        for path in {path for path, _, _ in PLACES} | {"tools/release", "tools/abi"}:
            os.makedirs(os.path.join(cls.template, os.path.dirname(path)), exist_ok=True)
            shutil.copy(os.path.join(SOURCE, path), os.path.join(cls.template, path))
        os.makedirs(os.path.join(cls.template, "tests/package"))
        texts = {"tools/" + name: text for name, text in TOOLS.items()}
        texts["CHANGELOG.md"] = (f"# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n"
                                 f"## {cls.now} - 2026-01-02\n\nWhat was before.\n")
        texts[".gitignore"] = "build/\n/dist/\n__pycache__/\n"
        for name, text in texts.items():
            path = cls.write(cls, os.path.join("template", name), text)
            os.chmod(path, 0o755 if name.startswith("tools/") else 0o644)
        cls.git_at(cls.template, "init", "-q", "-b", "main")
        cls.git_at(cls.template, "add", "-A")
        cls.git_at(cls.template, "commit", "-q", "-m", "a tree")

    @classmethod
    def settings(cls):
        """Without the settings and the keys of the user."""
        home = os.path.join(cls.folder, "home")
        os.makedirs(home, exist_ok=True)
        return {"HOME": home, "GNUPGHOME": os.path.join(home, "gnupg"), "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "Test", "GIT_AUTHOR_EMAIL": "t@example.invalid",
                "GIT_COMMITTER_NAME": "Test", "GIT_COMMITTER_EMAIL": "t@example.invalid", "SOURCE_DATE_EPOCH": EPOCH}

    @classmethod
    def git_at(cls, at, *words):
        return run("git", *words, cwd=at, **cls.settings()).strip()

    def setUp(self):
        self.at = os.path.join(self.folder, self._testMethodName)
        shutil.copytree(self.template, self.at)
        os.mkdir(os.path.join(self.at, "build"))
        self.out = os.path.join(self.at, "build/packages", self.next)

    def git(self, *words):
        return self.git_at(self.at, *words)

    def release(self, *words, code=0, **environment):
        return run(os.path.join(self.at, "tools/release"), *words, code=code, both=True,
                   **self.settings() | environment)

    def text(self, path):
        return read(self.at, path)

    def put(self, path, text):
        with open(os.path.join(self.at, path), "w", encoding="utf-8") as f:
            f.write(text)

    def changed(self):
        return self.git("status", "--porcelain")

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "more")

    def passed(self):
        self.put(".git/gate-long-passed", self.git("rev-parse", "HEAD") + "\n")

    def prepared(self):
        """A commit of the next version that has passed the gate."""
        self.release("--prepare", self.next)
        self.commit()
        self.passed()

    def calls(self):
        path = os.path.join(self.at, "build/calls")
        return read(path).split() if os.path.exists(path) else []

    # ---- --check ----

    def test_this_tree_has_one_version_everywhere(self):
        self.assertEqual(run(RELEASE, "--check", both=True), self.now + "\n")

    def test_a_place_with_another_version_is_named(self):
        for path, pattern, form in PLACES[3:]:
            other = "9.9.9" if form == "whole" else "9.9"
            with self.subTest(path=path, pattern=pattern):
                text = self.text(path)
                match = re.search(pattern, text)
                self.put(path, text[:match.start(1)] + other + text[match.end(1):])
                self.assertIn(f"release: {path} has {other}, and include/tutti/base.h ",
                              self.release("--check", code=2))
                self.put(path, re.sub(pattern, "", text))
                self.assertIn(f"release: {path} has no version where ", self.release("--check", code=2))
                self.put(path, text)
        self.assertEqual(self.release("--check"), self.now + "\n")

    def test_names_of_package_files_and_sections_of_the_changelog_count(self):
        interface = loaded().forms(self.now)["interface"]
        debian = os.path.join(self.at, "debian")
        os.rename(f"{debian}/libtutti{interface}.install", f"{debian}/libtutti9.9.install")
        self.put("CHANGELOG.md", "## 9.9.9 - 2026-01-03\n\nLater.\n\n" + self.text("CHANGELOG.md"))
        self.assertEqual(self.release("--check", code=2),
                         f"release: debian/libtutti9.9.install is of 9.9, and include/tutti/base.h of {interface}\n"
                         f"release: CHANGELOG.md has a section of 9.9.9, and include/tutti/base.h {self.now}\n")

    # ---- --bump ----

    def test_bump_writes_each_place_and_nothing_else(self):
        self.release("--bump", self.next)
        self.assertEqual(self.release("--check"), self.next + "\n")
        old, new = (loaded().forms(version)["interface"] for version in (self.now, self.next))
        self.git("add", "-A")
        touched = set(self.git("diff", "--cached", "--no-renames", "--name-only").split("\n"))
        names = {f"debian/libtutti{interface}.install" for interface in (old, new)}
        self.assertEqual(touched, {path for path, _, _ in PLACES} | names)
        for line in self.git("diff", "--cached", "--numstat").split("\n"):
            added, removed, path = line.split("\t")
            if path != "debian/changelog":
                self.assertEqual(added, removed, path)
        self.assertTrue(self.text("debian/changelog").startswith(
            f"tutti ({self.next}-1) unstable; urgency=medium\n\n  * Packages of version {self.next}.\n\n -- "))
        self.assertIn(f">  {DEBIAN_DAY}\n\ntutti ({self.now}-", self.text("debian/changelog"))
        self.assertNotIn("libtutti" + old, self.text("debian/control"))
        self.assertIn("## Unreleased\n\n### Added\n", self.text("CHANGELOG.md"))

    def test_bump_refuses_what_is_no_newer_version(self):
        for version in (self.now, "0.0.1"):
            self.assertEqual(self.release("--bump", version, code=2),
                             f"release: the tree is of version {self.now}, and {version} is not newer\n")
        for version in ("1", "1.2", "v1.2.3", "1.02.3", "1.2.3-rc1", ""):
            self.assertEqual(self.release("--bump", version, code=2),
                             f"release: a version is three numbers, as 0.4.0, not '{version}'; tools/release --help "
                             "lists the options\n")
        self.put("packaging/conda/recipe.yaml", self.text("packaging/conda/recipe.yaml").replace(self.now, "9.9.9"))
        self.assertIn("recipe.yaml has 9.9.9", self.release("--bump", self.next, code=2))
        self.assertEqual(self.changed(), "M packaging/conda/recipe.yaml")

    # ---- --prepare ----

    def test_preparation_dates_the_changes_and_records_the_interface(self):
        self.release("--prepare", self.next)
        self.assertEqual(self.text("CHANGELOG.md"),
                         f"# Changelog\n\n## Unreleased\n\n## {self.next} - {DAY}\n\n### Added\n\n- A thing.\n\n"
                         f"## {self.now} - 2026-01-02\n\nWhat was before.\n")
        self.assertIn(f"/* The interface of Tutti {self.next}: ", self.text("tests/package/interface.c"))
        self.assertEqual(self.release("--check"), self.next + "\n")

    def test_preparation_of_a_version_written_before_dates_its_package(self):
        self.release("--bump", self.next, SOURCE_DATE_EPOCH="1700000000")
        self.commit()
        self.assertNotIn(DEBIAN_DAY, self.text("debian/changelog"))
        self.release("--prepare")
        self.assertEqual(self.text("debian/changelog").count(DEBIAN_DAY), 1)
        self.assertEqual(self.text("debian/changelog").count(f"tutti ({self.next}-1)"), 1)
        self.assertIn(f"## {self.next} - {DAY}\n", self.text("CHANGELOG.md"))

    def test_dry_run_of_a_preparation_prints_it_and_changes_nothing(self):
        said = self.release("--prepare", self.next, "--dry-run")
        for line in (f'+VERSION = "{self.next}"', f"+## {self.next} - {DAY}", "+++ b/tests/package/interface.c",
                     f"+tutti ({self.next}-1) unstable; urgency=medium", "+++ /dev/null"):
            self.assertIn(line + "\n", said)
        self.assertEqual(self.changed(), "")
        self.assertIn("\n+", self.release("--bump", self.next, "--dry-run"))
        self.assertEqual(self.changed(), "")

    def test_preparation_refuses_what_is_no_release(self):
        self.assertEqual(self.release("--prepare", code=2),
                         f"release: CHANGELOG.md has a section of {self.now} already; name the next version: "
                         "tools/release --prepare VERSION\n")
        self.put("CHANGELOG.md", self.text("CHANGELOG.md").replace("### Added\n\n- A thing.\n\n", ""))
        self.assertEqual(self.release("--prepare", self.next, code=2),
                         "release: commit first: what is prepared is to be a commit of its own\n")
        self.commit()
        self.assertEqual(self.release("--prepare", self.next, code=2),
                         "release: CHANGELOG.md has nothing under Unreleased: what does this version change?\n")
        self.assertEqual(self.changed(), "")

    @NEEDS_ABIDIFF
    def test_patch_version_that_breaks_the_interface_is_refused(self):
        self.prepared()
        header = self.text("include/tutti/base.h")
        self.put("include/tutti/base.h", header.replace("const char *tutti_version(void);\n", ""))
        self.put("CHANGELOG.md", self.text("CHANGELOG.md").replace("## Unreleased\n", "## Unreleased\n\n- Less.\n"))
        self.commit()
        major, minor, patch = self.next.split(".")
        said = self.release("--prepare", f"{major}.{minor}.{int(patch) + 1}", code=2)
        self.assertIn("tutti_version", said)
        self.assertIn("release: abi: this breaks programs that were built with " + self.next, said)
        self.assertEqual(self.changed(), "")
        later = f"0.{int(minor) + 1}.0" if major == "0" else f"{int(major) + 1}.0.0"
        self.release("--prepare", later)

    # ---- the release ----

    def test_release_has_the_packages_their_sums_and_the_changes(self):
        self.prepared()
        self.release("--unsigned")
        commit = self.git("rev-parse", "HEAD")
        suite = loaded().suite()
        there = sorted(os.path.relpath(os.path.join(at, name), self.out)
                       for at, _, names in os.walk(self.out) for name in names)
        self.assertEqual(there, sorted(["CHANGES", "SHA256SUMS", f"tutti-{self.next}-py3-none-any.whl",
                                        f"tutti-{self.next}.tar.gz", f"{suite}/tutti_{self.next}-1_amd64.deb"]))
        self.assertEqual(read(self.out, "CHANGES"), f"# Tutti {self.next} - {DAY}\n\n### Added\n\n- A thing.\n")
        self.assertEqual(read(self.out, f"tutti-{self.next}-py3-none-any.whl").strip(),
                         self.git("log", "-1", "--format=%ct"))
        self.assertEqual(read(self.out, "SHA256SUMS").split("\n")[:2],
                         [f"# Tutti {self.next}, commit {commit}", "# unsigned: no key vouches for these files"])
        said = run("sha256sum", "--strict", "-c", "SHA256SUMS", cwd=self.out, both=True)
        self.assertEqual(said.count(": OK\n"), len(there) - 1)
        self.assertEqual(said.count("\n"), len(there) - 1)
        with open(os.path.join(self.out, f"tutti-{self.next}.tar.gz"), "a") as f:
            f.write("more")
        run("sha256sum", "-c", "SHA256SUMS", cwd=self.out, code=1)
        self.assertEqual(self.changed(), "")
        self.assertEqual(self.release("--unsigned", code=2),
                         f"release: {self.out} is there already: remove it, or name another folder by --out\n")

    def test_all_that_stands_in_the_way_is_said_at_once_before_any_work(self):
        self.put("README.md", self.text("README.md") + "\nmore\n")
        said = self.release(code=2)
        commit = self.git("rev-parse", "HEAD")
        for sentence in ("the tree has changes that are in no commit: commit them",
                         "CHANGELOG.md has changes under Unreleased, which this version would have and not name",
                         "tests/package/interface.c is not the interface of the headers: tools/release --prepare makes "
                         "it",
                         f"tools/gate long has not passed on {commit}; the last that passed is none",
                         "there is no key to sign with: name a file of ssh-keygen or a key of gpg by --key, or in "
                         "git's user.signingkey; --unsigned makes a release without a signature"):
            self.assertIn(f"release: {sentence}\n", said)
        self.assertEqual(said.count("\n"), 5)
        self.assertEqual(self.calls(), [])

    def test_a_later_commit_and_a_tag_elsewhere_are_no_release(self):
        self.prepared()
        self.git("tag", "v" + self.next)
        self.put("include/tutti/base.h", self.text("include/tutti/base.h") + "int tutti_more(void);\n")
        self.commit()
        said = self.release("--unsigned", "--dry-run", code=2)
        before, after = self.git("rev-parse", "HEAD^"), self.git("rev-parse", "HEAD")
        self.assertIn(f"release: tools/gate long has not passed on {after}; the last that passed is {before}\n", said)
        self.assertIn(f"release: the tag v{self.next} is another commit, {before}\n", said)
        self.assertIn("release: tests/package/interface.c is not the interface of the headers", said)
        self.assertEqual(said.count("\n"), 3)

    def test_a_tool_that_fails_leaves_no_release(self):
        self.prepared()
        self.put("build/fails", "")
        self.assertEqual(self.release("--unsigned", code=1),
                         f"=== tools/wheel{BOTH}\nrelease: tools/wheel ended with 3, so there is no release\n")
        self.assertEqual(self.calls(), ["wheel"])
        self.assertEqual(os.listdir(os.path.dirname(self.out)), [])

    def test_packages_of_another_version_are_not_taken(self):
        self.prepared()
        self.put("tools/deb", TOOLS["deb"].replace(VERSION, "0.0.1"))
        self.commit()
        self.passed()
        self.assertIn("is not of version " + self.next, self.release("--unsigned", code=1))
        self.assertFalse(os.path.exists(self.out))

    def test_tools_can_be_left_out(self):
        self.prepared()
        other = os.path.join(self.at, "build/other")
        self.release("--unsigned", "--without", "deb", "--out", other)
        self.assertEqual(self.calls(), ["wheel"])
        self.assertEqual(len(os.listdir(other)), 4)
        self.assertEqual(self.text("build/words"), BOTH.strip() + "\n")
        self.assertIn("nothing is left to make",
                      self.release("--unsigned", "--without", "deb", "--without", "wheel", code=2))
        self.release("--unsigned", "--without", "deb", "--without", "arm64")
        self.assertEqual(self.text("build/words"), "\n")

    def test_dry_run_makes_nothing(self):
        self.prepared()
        self.assertEqual(self.release("--unsigned", "--dry-run"),
                         f"release: version {self.next}, commit {self.git('rev-parse', 'HEAD')}, unsigned; would run "
                         f"tools/wheel{BOTH}, tools/deb and put what they make into {self.out}\n")
        self.assertEqual(self.calls(), [])
        self.assertFalse(os.path.exists(os.path.dirname(self.out)))

    # ---- signatures ----

    @NEEDS_SSH
    def test_a_key_of_ssh_signs_the_sums(self):
        self.prepared()
        key, allowed = os.path.join(self.at, "build/key"), os.path.join(self.at, "build/allowed")
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
        self.put("build/allowed", "test " + read(key + ".pub"))
        self.git("config", "user.signingkey", key)
        self.release()
        self.assertEqual(read(self.out, "SHA256SUMS").split("\n")[1], "# signed: SHA256SUMS.sig")
        verify = ["ssh-keygen", "-Y", "verify", "-f", allowed, "-I", "test", "-n", "file", "-s",
                  os.path.join(self.out, "SHA256SUMS.sig")]
        sums = read(self.out, "SHA256SUMS")
        for text, good in ((sums, True), (sums + "\n", False)):
            done = subprocess.run(verify, input=text, text=True, capture_output=True)
            self.assertEqual(done.returncode == 0, good, done.stderr)
        run("sha256sum", "--strict", "-c", "SHA256SUMS", cwd=self.out)

    @NEEDS_GPG
    def test_a_key_of_gpg_signs_the_sums(self):
        home = self.settings()["GNUPGHOME"]
        os.makedirs(home, mode=0o700, exist_ok=True)
        self.addCleanup(subprocess.run, ["gpgconf", "--kill", "all"], env=CLEAN | {"GNUPGHOME": home})
        run("gpg", "--batch", "--passphrase", "", "--quick-gen-key", "Test <t@example.invalid>", "ed25519", "sign",
            "never", **self.settings())
        self.prepared()
        self.release("--key", "t@example.invalid")
        self.assertEqual(read(self.out, "SHA256SUMS").split("\n")[1], "# signed: SHA256SUMS.asc")
        run("gpg", "--verify", "SHA256SUMS.asc", "SHA256SUMS", cwd=self.out, **self.settings())
        with open(os.path.join(self.out, "SHA256SUMS"), "a") as f:
            f.write("\n")
        run("gpg", "--verify", "SHA256SUMS.asc", "SHA256SUMS", cwd=self.out, code=None, **self.settings())

    def test_a_key_that_does_not_sign_is_refused_before_any_work(self):
        self.prepared()
        tools = os.path.join(self.at, "build/bin")
        os.mkdir(tools)
        self.put("build/bin/gpg", "#!/bin/sh\necho 'gpg: no such key' >&2\nexit 2\n")
        os.chmod(os.path.join(tools, "gpg"), 0o755)
        self.assertEqual(self.release("--key", "ABCD", code=2, PATH=tools + ":" + CLEAN["PATH"]),
                         "release: gpg does not sign with the key 'ABCD': gpg: no such key\n")
        self.assertEqual(self.calls(), [])

    # ---- options ----

    def test_options_that_do_not_go_together_are_refused(self):
        for words in (("--check", "--bump", self.next), ("--key", "a", "--unsigned"),
                      ("--bump", self.next, "--unsigned"), ("--without", "rpm"), ("0.4.0",)):
            said = self.release(*words, code=2)
            self.assertRegex(said, r"^release: .*; tools/release --help lists the options\n$")
        self.assertIn("usage: tools/release --check\n", self.release("--help"))
        self.assertIn("SOURCE_DATE_EPOCH is a number", self.release("--bump", self.next, code=2, SOURCE_DATE_EPOCH="x"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
