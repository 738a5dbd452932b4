"""Shared by the tests of this folder: where things are, and how to run a command and see why it
failed."""
import glob, os, shutil, subprocess, tempfile, unittest

SOURCE = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
BUILD = os.environ["TUTTI_BUILD"]
CMAKE = os.environ["CMAKE"]
CC = os.environ["CC"]
PLUGIN = os.environ.get("PLUGIN", "") != ""   # built with SimGrid
INCLUDED = os.path.join(SOURCE, "include/tutti")
HEADERS = sorted(os.path.relpath(path, INCLUDED) for path in glob.glob(INCLUDED + "/**/*.h", recursive=True))
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")
         and k not in ("LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "DESTDIR", "CC", "CXX", "CFLAGS",
                       "CXXFLAGS", "LDFLAGS")}


def compilers(language):
    """The system's compiler, and clang where there is one: tools/setup brings the first,
    tools/setup --ci both."""
    names = {"c": ("gcc", "clang"), "c++": ("g++", "clang++")}[language]
    there = [name for name in names if shutil.which(name)]
    if not there:
        raise AssertionError(f"no {language} compiler ({names[0]}): tools/setup installs it")
    if len(there) < len(names):
        print(f"\nskipped: {language} with {names[1 - names.index(there[0])]}: tools/setup --ci installs it",
              flush=True)
    return there


def run(*command, cwd=None, code=0, both=False, **environment):
    """The output of a command that has to end with `code`; None: with any but 0. both: what it says
    on stderr, too; of one that fails always."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=dict(CLEAN, **environment), timeout=200)
    if (done.returncode == 0) != (code == 0) or (code is not None and done.returncode != code):
        raise AssertionError(f"{' '.join(command)}\nended with {done.returncode}, "
                             f"not {code}:\n{done.stdout}{done.stderr}")
    return done.stdout if code == 0 and not both else done.stdout + done.stderr


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = os.path.realpath(tempfile.mkdtemp(prefix="tutti-package-"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as f:
            f.write(text)
        return path
