"""tools/wheel: what it refuses before any work. What it makes is tried by `make packages`."""
import os, platform, subprocess, unittest
from package import *

WHEEL = os.path.join(SOURCE, "tools/wheel")
HERE = platform.machine()


class Wheel(Case):
    def refused(self, *words):
        done = subprocess.run([WHEEL, *words], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.assertEqual((done.returncode, done.stdout), (2, ""), words)
        return done.stderr

    def test_architectures_and_releases_that_are_not_known_are_refused(self):
        self.assertEqual(self.refused("--arch", "sparc"), "wheel: --arch knows x86_64 and aarch64, not 'sparc'\n")
        self.assertEqual(self.refused("--arch"), "wheel: --arch knows x86_64 and aarch64, not ''\n")
        self.assertEqual(self.refused("--try"), "wheel: --try needs a release: bookworm, trixie, jammy or noble\n")
        self.assertEqual(self.refused("--try", "bookworm", "buster"),
                         "wheel: --try knows bookworm, trixie, jammy, noble; not 'buster'\n")
        self.assertEqual(self.refused("--arhc"), "wheel: no option is called '--arhc'; tools/wheel --help lists them\n")

    @unittest.skipUnless(HERE in ("x86_64", "aarch64"), "skipped: no wheel is made on this architecture")
    def test_what_a_machine_cannot_make_or_try_for_another_is_refused(self):
        if HERE == "aarch64":
            self.assertEqual(self.refused("--arch", "x86_64"),
                             "wheel: this machine is aarch64, and has no cross compiler for x86_64\n")
        else:
            self.assertEqual(self.refused("--arch", "x86_64", "--arch", "aarch64", "--try", "noble"),
                             "wheel: --try of a wheel for aarch64 knows bookworm and trixie, not 'noble'\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
