"""An installed tree, as other programs see it: installed to a prefix, then moved; what it exports;
programs built against it by pkg-config and by CMake, shared and static, in C and C++; the command
run from it; one version everywhere."""
import os, re, shutil, unittest
from package import *

REGRESSION = os.path.join(SOURCE, "examples/regression.c")
FOUND = r"largest error of a weight: [0-9.]+e-0[4-9]"


def files_of(root):
    return sorted(os.path.relpath(os.path.join(at, name), root) for at, _, names in os.walk(root) for name in names)


class Install(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prefix = os.path.join(cls.folder, "moved")
        run(CMAKE, "--install", BUILD, "--prefix", os.path.join(cls.folder, "first"))
        os.rename(os.path.join(cls.folder, "first"), cls.prefix)
        cls.tutti = os.path.join(cls.prefix, "bin/tutti")
        pc = [path for path in files_of(cls.prefix) if path.endswith("/pkgconfig/tutti.pc")]
        assert len(pc) == 1, pc
        cls.lib = os.path.join(cls.prefix, os.path.dirname(os.path.dirname(pc[0])))
        cls.so = os.path.join(cls.lib, "libtutti.so")
        cls.pkg = {"PKG_CONFIG_PATH": os.path.join(cls.lib, "pkgconfig")}
        with open(os.path.join(cls.prefix, "include/tutti/base.h")) as f:
            cls.version = ".".join(re.findall(r"(?m)^#define TUTTI_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", f.read()))

    def flags(self, *ask):
        return run("pkg-config", *ask, "tutti", **self.pkg).split()

    # ---- what lies where ----

    def test_a_staged_install_holds_the_same_files_and_nothing_else(self):
        stage = os.path.join(self.folder, "stage")
        run(CMAKE, "--install", BUILD, "--prefix", "/opt/tutti", DESTDIR=stage)
        self.assertEqual(os.listdir(stage), ["opt"])
        self.assertEqual(os.listdir(os.path.join(stage, "opt")), ["tutti"])
        self.assertEqual(files_of(os.path.join(stage, "opt/tutti")), files_of(self.prefix))
        flags = run("pkg-config", "--cflags", "tutti",
                    PKG_CONFIG_PATH=os.path.join(stage, "opt/tutti", os.path.relpath(self.lib, self.prefix),
                                                 "pkgconfig")).split()
        self.assertEqual([os.path.realpath(flag[2:]) for flag in flags], [os.path.join(stage, "opt/tutti/include")])
        shutil.rmtree(stage)

    def test_installed_tree_has_all_parts(self):
        for path in ("bin/tutti", "include/tutti/tutti.h", "share/tutti/LICENSE",
                     "share/tutti/data/mnist", "share/bash-completion/completions/tutti",
                     "share/zsh/site-functions/_tutti", "share/man/man1/tutti.1", "share/doc/tutti/README.md",
                     "share/doc/tutti/docs/api/README.md",
                     "share/doc/tutti/examples/regression.c"):
            self.assertTrue(os.path.exists(os.path.join(self.prefix, path)), path)
        for path in ("allreduce", "disk", "train", "make"):
            self.assertTrue(os.access(os.path.join(self.prefix, "share/tutti/bench/peers", path), os.X_OK), path)
        self.assertTrue(os.path.exists(os.path.join(self.prefix, "share/tutti/bench/limits/shm_limit.c")))
        for name in ["libtutti.a", "libtutti.so." + self.version,
                     "cmake/tutti/tutti-config.cmake"] + PLUGIN * ["libtutti_transport_sim.so"]:
            self.assertTrue(os.path.isfile(os.path.join(self.lib, name)), name)
        self.assertTrue(os.access(self.tutti, os.X_OK))

    def test_installed_command_builds_its_peer_benchmarks(self):
        built, home = os.path.join(self.folder, "peers"), os.path.join(self.folder, "home")
        command = (self.tutti, "bench", "allreduce", "-n", "2", "--sizes", "4", "--repeat", "1",
                   "--with-peers", "--peers", "limit")
        self.assertIn("limit", run(*command, cwd="/", TUTTI_PEERS_BUILD=built))
        self.assertEqual(os.listdir(built), ["shm_limit"])
        run(*command, cwd="/", HOME=home, XDG_CACHE_HOME="")
        self.assertEqual(os.listdir(os.path.join(home, ".cache/tutti/peers")), ["shm_limit"])
        for home, where in (("/dev/null", "/dev/null/.cache/tutti/peers"), ("", "HOME is not set")):
            self.assertIn(f"no folder to build shm_limit in: {where}; "
                          f"name one that can be written to with TUTTI_PEERS_BUILD",
                          run(*command, cwd="/", code=1, HOME=home, XDG_CACHE_HOME="", TUTTI_PEERS_BUILD=""))

    def test_installed_headers_are_complete_and_self_contained(self):
        include = os.path.join(self.prefix, "include/tutti")
        there = sorted(os.path.relpath(os.path.join(folder, name), include)
                       for folder, _, names in os.walk(include) for name in names)
        self.assertEqual(there, HEADERS)
        source = self.write("all.c", "".join(f"#include <tutti/{header}>\n" for header in there))
        run(CC, "-std=c99", *STRICT, *self.flags("--cflags"), "-fsyntax-only", source)

    def test_config_files_and_rpaths_contain_no_build_paths(self):
        for path in files_of(self.prefix):
            if path.endswith((".pc", ".cmake")):
                with open(os.path.join(self.prefix, path)) as f:
                    text = f.read()
                for place in (SOURCE, BUILD, self.folder):
                    # as a path from the root: the clone may be /tutti, and include/tutti is another
                    self.assertNotRegex(text, rf"(?<![\w./}}-]){re.escape(place)}(?![\w.-])", path)
        for path in [self.tutti, self.so] + PLUGIN * [os.path.join(self.lib, "libtutti_transport_sim.so")]:
            self.assertNotRegex(run("readelf", "-d", path), "R(UN)?PATH", path)

    # ---- symbols ----

    def exports(self, path):
        """Name: version, of what is defined."""
        rows = [line.split()[-1].partition("@@")[::2] for line in run("nm", "-D", "--defined-only", path).splitlines()]
        return {name: version for name, version in rows if not (name == version or name.startswith("TUTTI_"))}

    def test_the_library_exports_what_its_headers_declare_and_nothing_else(self):
        include = os.path.join(self.prefix, "include")
        source = self.write("declared.c",
                            "".join(f"#include <tutti/{header}>\n" for header in HEADERS))
        listed = os.path.join(self.folder, "declared.txt")
        run("gcc", "-std=c11", "-I", include, "-aux-info", listed, "-S", "-o", os.devnull, source)
        with open(listed) as f:
            declared = set(re.findall(rf"(?m)^/\* {re.escape(include)}\S+ \*/ extern .*?\b(tutti_\w+) \(", f.read()))
        # the Python package's own have no header that is installed
        exports = {name for name in self.exports(self.so) if not name.startswith("tutti_python_")}
        self.assertGreater(len(declared), 200)
        self.assertEqual(declared - exports, set())
        # What is exported and no function is a table: its address can be taken with the headers
        # alone.
        tables = sorted(exports - declared)
        self.assertIn("tutti_methods", tables)
        with open(source, "a") as f:
            f.write("const void *const tables[] = { " + ", ".join(tables) + " };\n")
        run("gcc", "-std=c11", *STRICT, "-I", include, "-fsyntax-only", source)

    def test_symbols_and_library_carry_the_version_of_the_interface(self):
        major, minor, _ = self.version.split(".")
        abi = major if major != "0" else "0." + minor
        self.assertEqual(set(self.exports(self.so).values()), {"TUTTI_" + abi})
        self.assertIn(f"Library soname: [libtutti.so.{abi}]", run("readelf", "-d", self.so))
        self.assertEqual(os.path.realpath(self.so), os.path.join(self.lib, "libtutti.so." + self.version))
        self.assertEqual(os.path.realpath(os.path.join(self.lib, "libtutti.so." + abi)), os.path.realpath(self.so))

    def test_static_library_defines_only_prefixed_names(self):
        names = [line.split()[2] for line in run("nm", "-g",
                                                 "--defined-only", os.path.join(self.lib, "libtutti.a")).splitlines()
                 if len(line.split()) == 3]
        self.assertGreater(len(names), 200)
        self.assertEqual([name for name in names if not name.startswith("tutti_")], [])

    def test_the_plug_in_exports_its_table_alone(self):
        if not PLUGIN:
            self.skipTest("built without SimGrid")
        self.assertEqual(set(self.exports(os.path.join(self.lib, "libtutti_transport_sim.so"))),
                         {"tutti_transport_plugin"})

    # ---- programs of others ----

    def test_pkg_config_command_and_cmake_report_one_version(self):
        self.assertRegex(self.version, r"^\d+\.\d+\.\d+$")
        self.assertEqual(run("pkg-config", "--modversion", "tutti", **self.pkg).strip(), self.version)
        self.assertEqual(run(self.tutti, "version").splitlines()[0], "tutti " + self.version)
        self.assertEqual(run(CMAKE, "-DPACKAGE_FIND_VERSION=" + self.version, "-P", self.write(
            "version.cmake", f'include("{self.lib}/cmake/tutti/tutti-config-version.cmake")\nexecute_process(COMMAND '
            f'${{CMAKE_COMMAND}} -E echo ${{PACKAGE_VERSION}} ${{PACKAGE_VERSION_EXACT}})\n')).split(),
                         [self.version, "TRUE"])

    def test_a_c_program_builds_by_pkg_config_and_finds_the_shared_library(self):
        program = os.path.join(self.folder, "regression")
        run(CC, "-std=c99", *STRICT, *self.flags("--cflags"), REGRESSION, *self.flags("--libs"), "-lm", "-o", program)
        self.assertRegex(run(program, LD_LIBRARY_PATH=self.lib), FOUND)
        self.assertIn("libtutti.so", run(program, code=127)) # it is the shared one that was linked

    def test_a_method_a_codec_and_a_transport_build_against_the_installed_headers(self):
        for name, expected in (("dynamic", r"off the mean by [0-9.e+-]+; worker 0 sent \d+ bytes"),
                               ("codec", r"off the mean by [0-9.e+-]+; worker 0 sent \d+ bytes"),
                               ("transport", r"sums of four ranks: 6 \.\.\. 4002")):
            program = os.path.join(self.folder, name)
            run(CC, "-std=c11", *STRICT, *self.flags("--cflags"), os.path.join(SOURCE, f"examples/{name}.c"),
                *self.flags("--libs"), "-lm", "-o", program)
            self.assertRegex(run(program, LD_LIBRARY_PATH=self.lib), expected)

    def test_a_c_program_builds_by_pkg_config_with_the_static_library_alone(self):
        program = os.path.join(self.folder, "regression-static")
        libraries = ["-l:libtutti.a" if flag == "-ltutti" else flag for flag in self.flags("--static", "--libs")]
        self.assertIn("-l:libtutti.a", libraries)
        run(CC, "-std=c99", *STRICT, *self.flags("--cflags"), REGRESSION, *libraries, "-o", program)
        self.assertRegex(run(program), FOUND)
        # A shared link names no library that its user has not asked for.
        self.assertEqual([flag for flag in self.flags("--libs") if flag.startswith("-l")], ["-ltutti"])

    def test_c_and_cpp_programs_build_by_find_package_shared_and_static(self):
        compilers("c++")
        at = os.path.join(self.folder, "consumer")
        with open(os.path.join(SOURCE, "README.md")) as f: # the commands of README must find this version
            wanted = re.search(r"(?m)^find_package\(tutti ([\d.]+) REQUIRED\)$", f.read()).group(1)
        said = run(CMAKE, "-S", os.path.join(os.path.dirname(os.path.realpath(__file__)), "consumer"), "-B",
                   at, "-DCMAKE_PREFIX_PATH=" + self.prefix, "-DREGRESSION=" + REGRESSION, "-DWANTED=" + wanted,
                   "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_FLAGS=-Wall -Wextra -Wpedantic -Werror",
                   "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror")
        self.assertIn("tutti_VERSION " + self.version, said)
        run(CMAKE, "--build", at, "-j", "2")
        for program in ("regression_shared", "regression_static"):
            self.assertRegex(run(os.path.join(at, program)), FOUND)
        self.assertIn(os.path.realpath(self.lib) + "/libtutti.so", run("ldd", os.path.join(at, "regression_shared")))
        self.assertNotIn("libtutti", run("ldd", os.path.join(at, "regression_static")))
        mean = os.path.join(at, "mean")
        expected = f"mean 1; header {self.version}, library {self.version}\n"
        self.assertEqual(run(mean), expected)
        if PLUGIN: # next to the library it is linked to, wherever the program itself is
            self.assertEqual(run(mean, "sim"), expected)
        self.assertIn("no transport is named 'shn'", run(mean, "shn", code=1))

    # ---- the command ----

    def train(self, *more):
        """Run by its bare name from a folder that has nothing in it: data and plug-ins come from
        the installed tree."""
        empty = os.path.join(self.folder, "empty")
        os.makedirs(empty, exist_ok=True)
        out = os.path.join(self.folder, "run")
        run("tutti", "train", "--model", "mlp(hidden=32)", "-n", "2", "--steps", "5", "--final-eval", "off",
            "--quiet", "--out", out, *more, cwd=empty, PATH=os.path.dirname(self.tutti) + ":" + CLEAN["PATH"])
        with open(os.path.join(out, "model.safetensors"), "rb") as f:
            model = f.read()
        shutil.rmtree(out)
        self.assertEqual(os.listdir(empty), [])
        return model

    def test_the_installed_command_trains_over_shared_memory_and_in_the_simulator(self):
        model = self.train()
        self.assertGreater(len(model), 100000)
        if PLUGIN:
            self.assertEqual(self.train("--transport", "sim"), model)


if __name__ == "__main__":
    unittest.main(verbosity=2)
