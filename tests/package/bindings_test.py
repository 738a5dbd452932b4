"""Programs in other languages, by the commands of docs/BINDINGS.md, on the library that was built.
What is not installed is named: tools/setup --ci brings it."""
import os, re, shutil, unittest
from package import *

EXAMPLES = os.path.join(SOURCE, "examples/bindings")
LIBRARIES = os.path.join(BUILD, "lib")
FLAGS = "-I" + os.path.join(SOURCE, "include")
RIGHT = re.compile(r"largest error of a weight: [0-9.]+e-0?[4-9]\n")


def commands(language):
    """The block of that section of the page."""
    with open(os.path.join(SOURCE, "docs/BINDINGS.md")) as f:
        return re.search(rf"^## {re.escape(language)}$.*?^```sh\n(.*?)^```$", f.read(), re.M | re.S)[1]


class Bindings(Case):
    def build(self, language, source):
        """Runs the block with pkg-config's part said in full, in a folder that has only the source."""
        folder = os.path.join(self.folder, source)
        os.mkdir(folder)
        shutil.copy(os.path.join(EXAMPLES, source), folder)
        at = f"-L '{LIBRARIES}'"
        text = commands(language).replace("$(pkg-config --cflags --libs tutti)", f"'{FLAGS}' {at} -ltutti")
        text = text.replace("$(pkg-config --cflags tutti)", f"'{FLAGS}'").replace("-l tutti", at + " -l tutti")
        self.assertNotIn("pkg-config", text)
        run("sh", "-euc", text, cwd=folder, LD_LIBRARY_PATH=LIBRARIES)
        return os.path.join(folder, "regression")

    def check(self, program):
        for method in ("ddp", "local-sgd(period=4)", "asgd"):
            self.assertRegex(run(program, method, LD_LIBRARY_PATH=LIBRARIES), RIGHT)
        said = run(program, "ddq", code=1, LD_LIBRARY_PATH=LIBRARIES)
        self.assertEqual(said, "there is no method 'ddq'; did you mean 'ddp'?; `tutti methods` lists them\n")

    def test_cpp_program_trains_and_an_error_arrives_as_a_sentence(self):
        for compiler in compilers("c++"):
            run(compiler, "-std=c++17", *STRICT, FLAGS, "-fsyntax-only", os.path.join(EXAMPLES, "regression.cpp"))
        self.check(self.build("C++", "regression.cpp"))

    def test_rust_program_trains_and_an_error_arrives_as_a_sentence(self):
        missing = [tool for tool in ("bindgen", "rustc") if not shutil.which(tool)]
        if missing:
            self.skipTest(f"without {' and '.join(missing)}: tools/setup --ci installs them")
        self.check(self.build("Rust", "regression.rs"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
