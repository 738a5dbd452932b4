"""tools/abi: the interface of the headers as a program in C, and what of a later one breaks it. A later one is the
tree's headers with a change of the test's own."""
import os, re, shutil, unittest
from package import *

NEEDS_ABIDIFF = unittest.skipUnless(shutil.which("abidiff"), "skipped: no abidiff: tools/setup --ci installs it")
VERSION_OF = r"(?m)^#define TUTTI_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$"
# header, what stands there, what replaces it, and what is printed
BREAKS = (
    ("base.h", "const char *tutti_version(void);", "", "tutti_version"),
    ("base.h", "uint64_t tutti_random(tutti_rng rng, uint64_t index);",
     "uint64_t tutti_random(tutti_rng rng, uint32_t index);", "tutti_random"),
    ("base.h", "    int rank, cause; ", "    int rank, cause, more; ", "tutti_error"),
    ("base.h", "    int rank, cause; ", "    int cause, rank; ", "tutti_error"),
    ("base.h", "    TUTTI_TIMEOUT, ", "    TUTTI_EARLY, TUTTI_TIMEOUT, ", "constant TUTTI_TIMEOUT was 2 and is 3\n"),
    ("transport.h", "const tutti_launch *launch, tutti_error *err);", "tutti_error *err);", "tutti_transport_ops"),
    ("method.h", "enum { TUTTI_SERVICES_MOST = 4 };", "enum { TUTTI_SERVICES_MOST = 5 };",
     "constant TUTTI_SERVICES_MOST was 4 and is 5\n"),
    ("transport.h", "#define TUTTI_ANY (-1)", "#define TUTTI_EACH (-1)", "constant TUTTI_ANY is gone; it was -1\n"),
    ("method.h", "extern const tutti_method_ops *const tutti_methods[];",
     "extern const tutti_method_ops *tutti_methods;", "tutti_methods"),
)
ADDED = """const char *tutti_version(void);
#define TUTTI_ADDED 7
enum { TUTTI_ADDED_TOO = 8 };
typedef struct tutti_added { int first; } tutti_added;
int tutti_added_now(const tutti_added *one);
"""


class Abi(Case):
    def setUp(self):
        self.at = os.path.join(self.folder, self._testMethodName)
        os.makedirs(os.path.join(self.at, "tools"))
        os.makedirs(os.path.join(self.at, "tests/package"))
        shutil.copy(os.path.join(SOURCE, "tools/abi"), os.path.join(self.at, "tools"))
        shutil.copytree(INCLUDED, os.path.join(self.at, "include/tutti"))
        with open(os.path.join(INCLUDED, "base.h")) as f:
            self.numbers = [int(number) for number in re.findall(VERSION_OF, f.read())]
        self.version = ".".join(map(str, self.numbers))
        self.record = os.path.join(self.at, "tests/package/interface.c")

    def abi(self, *words, code=0, **environment):
        return run(os.path.join(self.at, "tools/abi"), *words, code=code, both=True, **environment)

    def recorded(self):
        text = self.abi("--print")
        with open(self.record, "w") as f:
            f.write(text)
        return text

    def replaced(self, header, before, after):
        """Writes the tree's header with one place changed; returns what restores it."""
        with open(os.path.join(INCLUDED, header)) as f:
            text = f.read()
        self.assertEqual(text.count(before), 1, before)
        path = os.path.join(self.at, "include/tutti", header)
        with open(path, "w") as f:
            f.write(text.replace(before, after))
        return lambda: shutil.copy(os.path.join(INCLUDED, header), path)

    def minor(self, more, declared="const char *tutti_version(void);"):
        """Another minor version of the headers, in which tutti_version may have another declaration."""
        number = self.numbers[1]
        with open(os.path.join(INCLUDED, "base.h")) as f:
            text = f.read().replace("const char *tutti_version(void);", declared)
        with open(os.path.join(self.at, "include/tutti/base.h"), "w") as f:
            f.write(text.replace(f"#define TUTTI_VERSION_MINOR {number}\n",
                                 f"#define TUTTI_VERSION_MINOR {number + more}\n"))

    # ---- what is printed ----

    def test_the_printed_interface_is_c_that_needs_no_header_of_ours(self):
        self.recorded()
        run("gcc", "-std=c11", "-Wall", "-Werror", "-fsyntax-only", self.record, cwd="/")

    def test_comments_and_blank_lines_are_no_part_of_an_interface(self):
        text = self.recorded()
        self.assertNotIn("/*", text[text.index("*/") + 2:])
        self.assertTrue(text.startswith(f"/* The interface of Tutti {self.version}:"), text[:80])
        self.replaced("base.h", "const char *tutti_version(void);",
                      "/* \"more\"\n   of a comment */\n\nconst char *tutti_version(void); /* and here */")
        self.assertEqual(self.abi("--print"), text)

    def test_interface_lists_what_the_library_exports(self):
        listed = re.findall(r"(?m)^__typeof__\(&(\w+)\) interface_\1;$", self.recorded())
        rows = [line.split()[-1].partition("@@")[::2] for line in run(
            "nm", "-D", "--defined-only", os.path.join(BUILD, "lib/libtutti.so")).splitlines()]
        exports = {name for name, version in rows
                   if name != version and not name.startswith(("TUTTI_", "tutti_python_"))}
        self.assertGreater(len(exports), 200)
        self.assertEqual(set(listed), exports)
        self.assertEqual(len(listed), len(exports))

    # ---- what is compared ----

    @NEEDS_ABIDIFF
    def test_headers_that_only_add_keep_what_was_promised(self):
        self.recorded()
        self.assertEqual(self.abi(), f"abi: all of {self.version} is as it was\n")
        self.replaced("base.h", "const char *tutti_version(void);", ADDED)
        self.assertEqual(self.abi(), f"abi: all of {self.version} is as it was\n")
        self.assertIn("tutti_added_now", self.abi("--report"))

    @NEEDS_ABIDIFF
    def test_each_kind_of_break_is_found_and_named(self):
        self.recorded()
        major, minor, _ = self.numbers
        following = f"{major + 1}.0.0" if major else f"0.{minor + 1}.0"
        for header, before, after, named in BREAKS:
            with self.subTest(named):
                restore = self.replaced(header, before, after)
                said = self.abi(code=1)
                self.assertIn(named, said)
                self.assertTrue(said.endswith(f"tools/release --bump {following}\n"), said[-200:])
                restore()

    @NEEDS_ABIDIFF
    def test_types_that_no_function_has_are_compared(self):
        """As what a plug-in exports."""
        version = "const char *tutti_version(void);"
        plain = "typedef struct tutti_unused { int first; } tutti_unused;\n"
        self.replaced("base.h", version, plain + version)
        self.recorded()
        self.replaced("base.h", version, plain.replace("int first;", "int first, second;") + version)
        self.assertIn("tutti_unused", self.abi(code=1))

    def test_another_interface_may_differ_and_is_reported(self):
        if self.numbers[0]:
            self.skipTest("from 1.0 on a minor version is of the same interface")
        self.recorded()
        self.minor(1, declared="")
        self.assertEqual(self.abi(), f"abi: 0.{self.numbers[1] + 1}.{self.numbers[2]} is of another interface than the "
                                     f"last release, {self.version}, and may differ from it; tools/abi --report prints "
                                     "where\n")
        if shutil.which("abidiff"):
            self.assertIn("tutti_version", self.abi("--report"))

    def test_headers_older_than_the_last_release_are_refused(self):
        self.minor(1)
        self.recorded()
        self.minor(0)
        self.assertRegex(self.abi(code=2), rf"^abi: the headers are of version {re.escape(self.version)}, and the last "
                                           r"release was [\d.]+\n$")

    def test_without_a_record_there_is_nothing_to_compare(self):
        self.assertEqual(self.abi(), "abi: no release has recorded its interface in tests/package/interface.c yet, so "
                                     "there is none to compare with\n")

    # ---- what is missing ----

    def test_missing_abidiff_is_an_error_that_names_the_package(self):
        self.recorded()
        tools = os.path.join(self.at, "bin")
        os.mkdir(tools)
        for name in ("env", "python3", "gcc", "as", "ld"):
            os.symlink(shutil.which(name), os.path.join(tools, name))
        self.assertEqual(self.abi(code=2, PATH=tools),
                         "abi: abidiff is missing: tools/setup --ci installs it (Debian: abigail-tools)\n")
        os.remove(os.path.join(tools, "gcc"))
        self.assertEqual(self.abi("--print", code=2, PATH=tools), "abi: gcc is missing: tools/setup installs it\n")

    def test_headers_that_do_not_compile_are_an_error_with_the_compilers_words(self):
        self.replaced("base.h", "const char *tutti_version(void);", "const char *tutti_version(void;")
        said = self.abi("--print", code=2)
        self.assertTrue(said.startswith("abi: gcc ended with 1:\n"), said[:200])
        self.assertIn("error:", said)

    def test_unknown_options_are_refused(self):
        self.assertEqual(self.abi("--reprot", code=2),
                         "abi: no option is called '--reprot'; tools/abi --help lists them\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
