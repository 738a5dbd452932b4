"""The completions that shells get, and the scripts that ask for them: by bash itself, and by zsh with the test's
functions in place of the editor's."""
import re, shutil, unittest
from command import *


class Complete(Case):
    def answers(self, *words):
        done = tutti("complete", *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def test_last_word_is_completed(self):
        for line, wanted in (
                ("tr", "train transports"), ("trai", "train"), ("help ver", "version"), ("train --metho", "--method"),
                ("train --method bytes", "bytescheduler"), ("train --method=bytes", "--method=bytescheduler"),
                ("train --method byteps(fe", "byteps(feedback="),
                ("train --method byteps(feedback=on,assign=g", "byteps(feedback=on,assign=greedy"),
                ("train --codec ef(codec=topk(wa", "ef(codec=topk(warmup= ef(codec=topk(warmup_ratios="),
                ("train --lane ", "auto on off"), ("train --lane=of", "--lane=off"),
                ("compare --methods ddp,palsgd(period=4),pra", "ddp,palsgd(period=4),prague"),
                ("bench ker", "kernels"), ("bench kernels --byt", "--bytes"), ("plan me", "memory"),
                ("plan memory --mod", "--model"), ("plan --prof", "--profile"), ("data insp", "inspect"),
                ("codecs power", "powersgd"), ("transports t", "tcp"), ("completion ", "bash zsh"),
                ("train -n ", ""), ("train --out ", ""),
                ("nonsense x", ""), ("train --lane=x", ""), ("train --method nonsense(", ""),
                ("train --method byteps(nonsense=x", "")):
            self.assertEqual(self.answers(*line.split(" ")), wanted.split(), line)
        self.assertNotIn("agent", self.answers(""))

    def test_every_option_of_training_and_every_method_is_offered(self):
        flags = set(self.answers("train", "-"))
        page = tutti("train", "--help", "all").stdout
        self.assertTrue(set(re.findall(r"(?m)^  (?:-H, )?(--?[a-z-]+)", page)) <= flags)
        names = [m["name"] for m in json.loads(tutti("methods", "--json").stdout)]
        self.assertEqual(sorted(self.answers("train", "--method", "")), sorted(names))

    def typed(self, line, *words):
        """What bash has for a line, which it has taken apart into these words behind the command."""
        script = """source <("$0" completion bash); COMP_LINE="$0 $1"; COMP_POINT=${#COMP_LINE}
            COMP_WORDS=("$0" "${@:2}"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tutti
            printf '%s|' "${COMPREPLY[@]}" """
        done = subprocess.run(["bash", "-c", script, TUTTI, line, *words], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return [found for found in done.stdout.split("|") if found]

    def test_bash_completes(self):
        self.assertEqual(self.typed("trai", "trai"), ["train "])
        self.assertEqual(self.typed("train --lane ", "train", "--lane", ""), ["auto ", "on ", "off "])
        self.assertEqual(self.typed("train --method=bytes", "train", "--method", "=", "bytes"), ["bytescheduler "])
        self.assertEqual(self.typed("train --method=", "train", "--method", "=")[:2], ["single ", "ddp "])
        self.assertEqual(self.typed("train --method 'byteps(fe", "train", "--method", "'byteps(fe"),
                         ["byteps(feedback="])
        self.assertEqual(self.typed("train --out ", "train", "--out", ""), [])

    @unittest.skipUnless(shutil.which("zsh"), "no zsh here: tools/setup --test installs it")
    def test_zsh_completes(self):
        script = """compdef() { : }; compadd() { print -r -- "$@" }; _files() { print files }
            source <("$0" completion zsh); words=("$0" ${=1} "${@[2,-1]}"); CURRENT=$#words; _tutti"""
        for line, last, wanted in (("train --metho", (), "-- --method\n"), ("train --lane", ("",), "-- auto on off\n"),
                                   ("train --method byteps(fe", (), "-S  -- byteps(feedback=\n"),
                                   ("train --out", ("",), "files\n")):
            done = subprocess.run(["zsh", "-fc", script, TUTTI, line, *last], capture_output=True, text=True)
            self.assertEqual((done.stdout, done.stderr), (wanted, ""))

    def test_the_scripts_are_for_bash_and_zsh(self):
        self.assertIn("complete -o nospace", tutti("completion", "bash").stdout)
        self.assertTrue(tutti("completion", "zsh").stdout.startswith("#compdef tutti\n"))
        done = tutti("completion", "fish")
        self.assertEqual(done.returncode, 2)
        self.assertIn("name the shell: bash or zsh", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
