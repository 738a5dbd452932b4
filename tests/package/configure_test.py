"""Configuring where packages are missing: optional parts are skipped and reported; a required package that is
missing ends it, with the names of all missing ones at once. pkg-config sees a folder of links to the installed
packages, without those that are to be missing."""
import os, shutil, subprocess, unittest
from package import *

# file of pkg-config: the message without it, the target with it
OPTIONAL = {"simgrid": ("SimGrid not found: the transport 'sim' is left out (Debian: libsimgrid-dev)",
                        "tutti_transport_sim"),
            "ompi-c": ("Open MPI not found: the transport 'mpi' is built without it (Debian: libopenmpi-dev)",
                       "tutti_transport_mpi_openmpi"),
            "mpich": ("MPICH not found: the transport 'mpi' is built without it (Debian: libmpich-dev)",
                      "tutti_transport_mpi_mpich"),
            "liburing": ("liburing not found: tiers on disks go by threads (Debian: liburing-dev)", None)}


class Configure(Case):
    def shown(self, *without):
        """A folder for pkg-config with all of this machine's packages but these."""
        at = os.path.join(self.folder, "pc-" + "-".join(without))
        os.mkdir(at)
        for folder in run("pkg-config", "--variable", "pc_path", "pkg-config").strip().split(":"):
            for name in os.listdir(folder) if os.path.isdir(folder) else ():
                if name.removesuffix(".pc") not in without and not os.path.lexists(os.path.join(at, name)):
                    os.symlink(os.path.join(folder, name), os.path.join(at, name))
        return at

    @staticmethod
    def there():
        """Those of the optional packages that this machine has."""
        return [p for p in OPTIONAL if subprocess.run(["pkg-config", "--exists", p]).returncode == 0]

    def configure(self, *without, code=0):
        at = os.path.join(self.folder, "build-" + "-".join(without))
        return at, run(CMAKE, "-S", SOURCE, "-B", at, "-G", "Ninja", "-DCMAKE_C_COMPILER=" + CC, code=code, both=True,
                       PKG_CONFIG_LIBDIR=self.shown(*without), PKG_CONFIG_PATH="")

    def goes_on_without(self, *without):
        at, said = self.configure(*without)
        targets = run(CMAKE, "--build", at, "--target", "help")
        there = set(self.there()).difference(without)
        for package, (sentence, target) in OPTIONAL.items():
            self.assertEqual(sentence not in said, package in there, package)
            if target is not None:
                self.assertEqual(target + ":" in targets, package in there, package)
        # Reported on stderr, which make lets through, and once more when the tests have ended.
        told = run(os.path.join(SOURCE, "tools/skipped"), at)
        self.assertTrue(told.startswith("Left out of this build:\n"), told)
        self.assertEqual([p for p in OPTIONAL if "  %s\n" % OPTIONAL[p][0] in told],
                         [p for p in OPTIONAL if p not in there])
        # Every test is there, or one that reports why it is not.
        tests = run(os.path.join(os.path.dirname(CMAKE), "ctest"), "-N", "--test-dir", at)
        for name in ("transport/mpi-openmpi", "transport/mpi-mpich", "method/mpi-openmpi", "method/mpi-mpich",
                     "cli/mpi", "sim/sim"):
            self.assertRegex(tests, r"(?m): %s$" % name)
        return at

    def test_configuring_succeeds_without_one_mpi(self):
        self.goes_on_without("mpich")

    def test_configuring_succeeds_without_simgrid_and_the_other_mpi(self):
        at = self.goes_on_without("simgrid", "ompi-c")
        said = run(os.path.join(os.path.dirname(CMAKE), "ctest"), "--test-dir", at, "-V", "-R", "^sim/sim$")
        self.assertRegex(said, r"skipped: built without SimGrid")
        self.assertRegex(said, r"(?m)Skipped")

    def test_configuring_succeeds_without_optional_packages(self):
        self.goes_on_without(*OPTIONAL)

    def test_all_missing_required_packages_are_named_at_once(self):
        _, said = self.configure("jansson", "zlib", "simgrid", code=1)
        self.assertIn("Tutti needs what was not found here: jansson (Debian: libjansson-dev), zlib (Debian: "
                      "zlib1g-dev)", " ".join(said.split()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
