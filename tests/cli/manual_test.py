"""Pages of the manual: one for every command and subcommand, made when the command is built, which groff reads
without a warning and which have every option of the table."""
import re, shutil, unittest
from command import *

FOLDER = os.path.join(os.path.dirname(TUTTI), "../man")


@unittest.skipUnless(os.path.isdir(FOLDER), "the pages are not made in this build (its target `pages`)")
class Manual(Case):
    def names(self):
        """Of all pages there should be."""
        commands = [c for c in tutti("complete", "").stdout.split() if c != "help" and c[0] != "-"]
        more = [(c, s) for c in ("plan", "bench") for s in tutti("complete", c, "").stdout.split()]
        return [("tutti",)] + [("tutti", c) for c in commands] + [("tutti", *pair) for pair in more]

    def test_every_command_has_a_page(self):
        self.assertEqual(sorted(os.listdir(FOLDER)), sorted("-".join(name) + ".1" for name in self.names()))
        for name in self.names():
            with open(os.path.join(FOLDER, "-".join(name) + ".1")) as f:
                self.assertEqual(f.read(), tutti("man", *name[1:]).stdout)
        self.assertEqual(tutti("man", "nonsense").returncode, 2)
        self.assertEqual(tutti("man", "plan", "nonsense").returncode, 2)

    def test_the_page_of_training_has_all_options(self):
        page = tutti("man", "train").stdout.replace("\\-", "-")
        for flag in re.findall(r"(?m)^  (?:-H, )?(--?[a-z-]+)", tutti("train", "--help", "all").stdout):
            self.assertRegex(page, r"(?m)^\.B %s( |$)" % flag)

    @unittest.skipUnless(shutil.which("groff"), "no groff here: Debian has it as groff-base")
    def test_groff_reads_pages_without_warnings(self):
        pages = [os.path.join(FOLDER, "-".join(name) + ".1") for name in self.names()]
        done = subprocess.run(["groff", "-man", "-ww", "-z", *pages], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
