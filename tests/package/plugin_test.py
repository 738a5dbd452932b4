"""Where a plug-in is looked for: next to the library, or the program that contains it; where an install
puts libraries; ../lib. Never in the working directory."""
import os, shutil, unittest
from package import *

HERE = os.path.dirname(os.path.realpath(__file__))
INCLUDE = "-I" + os.path.join(SOURCE, "include")
PRIVATE = ["-ljansson", "-lyaml", "-lxxhash", "-lhwloc", "-lsodium", "-llapacke", "-lpthread", "-ldl", "-lm"]
MULTIARCH = "lib/x86_64-linux-gnu"


class Plugin(Case):
    def setUp(self):
        self.usr = os.path.join(self.folder, "usr")
        for place in ("bin", "lib", MULTIARCH, "other"):
            os.makedirs(os.path.join(self.usr, place))
        # As a build for /usr on Debian would have it; the rest of the library is the built one.
        run(CC, "-std=c11", "-D_GNU_SOURCE", INCLUDE, "-I" + SOURCE + "/src",
            f'-DTUTTI_LIBRARIES_FROM_COMMAND="/../{MULTIARCH}"', HERE + "/probe.c",
            SOURCE + "/src/transport/registry.c", BUILD + "/lib/libtutti.a", *PRIVATE, "-o", self.at("bin/probe"))

    def tearDown(self):
        shutil.rmtree(self.usr)

    def at(self, *path):
        return os.path.join(self.usr, *path)

    def toy(self, place, *flags):
        """A plug-in that reports its own path."""
        run(CC, "-std=c11", "-shared", "-fPIC", INCLUDE, f'-DTOY_HELP="{place}"', *flags, HERE + "/toy.c", "-o",
            self.at(place, "libtutti_transport_toy.so"))

    def probe(self, *words, code=0, cwd=None, program="probe", **environment):
        """Run by its bare name, as from a shell."""
        return run(program, *words, code=code, cwd=cwd or self.folder, PATH=self.at("bin"), **environment)

    def test_first_of_three_plugin_directories_wins(self):
        tried = f"tried '{self.at('bin')}/../{MULTIARCH}/libtutti_transport_toy.so'"
        self.assertIn(tried, self.probe("toy", code=1))
        for place in ("lib", MULTIARCH, "bin"):
            self.toy(place)
            self.assertEqual(self.probe("toy"), place + "\n")

    def test_working_directory_is_not_searched_for_plugins(self):
        self.toy("other")
        self.assertIn("no transport is named 'toy'", self.probe("toy", cwd=self.at("other"), code=1))
        self.assertIn("no transport is named 'toy'", self.probe("toy", self.at("other"), code=1))
        # Nor through a name that is not absolute.
        self.assertIn("no transport is named 'toy'",
                      run("bin/../bin/probe", "toy", self.at("other"), code=1, cwd=self.usr))
        self.assertIn("tried ''", self.probe("../other/toy", code=1))
        self.assertIn("tried ''", self.probe("", code=1))

    def test_plugins_next_to_the_shared_library_are_found(self):
        shutil.copy(os.path.realpath(BUILD + "/lib/libtutti.so"), self.at("lib/libtutti.so"))
        soname = [line.split("[")[1].split("]")[0]
                  for line in run("readelf", "-d", self.at("lib/libtutti.so")).splitlines() if "SONAME" in line][0]
        os.rename(self.at("lib/libtutti.so"), self.at("other", soname))
        run(CC, "-std=c11", INCLUDE, HERE + "/probe.c", "-L" + self.at("other"), "-l:" + soname, "-o",
            self.at("bin/shared"))
        self.toy("other")
        self.assertEqual(self.probe("toy", program="shared", LD_LIBRARY_PATH=self.at("other")), "other\n")
        # A library that was found by a relative path, whose meaning has been lost since.
        self.assertIn("no transport is named 'toy'", self.probe("toy", self.at("lib"), program="shared", cwd=self.usr,
                                                                LD_LIBRARY_PATH="other", code=1))

    def test_plugin_of_another_interface_is_rejected_with_both_numbers(self):
        for flag, which in ("TOY_ABI", "transport"), ("TOY_RUNTIME_ABI", "runtime"):
            self.toy("bin", f"-D{flag}=77")
            self.assertRegex(self.probe("toy", code=1),
                             rf"'\S+/bin/libtutti_transport_toy.so' was built for {which} interface 77 \(\d+ bytes\), "
                             rf"this library offers \d+ \(\d+ bytes\); install both from the same version")

    def test_plugin_without_a_table_is_rejected(self):
        source = self.write("empty.c", "int nothing;\n")
        run(CC, "-shared", "-fPIC", source, "-o", self.at("bin/libtutti_transport_toy.so"))
        self.assertIn("is no transport of Tutti's: it exports no tutti_transport_plugin; reinstall it",
                      self.probe("toy", code=1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
