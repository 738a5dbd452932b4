"""Every command of README, docs and examples is run, or it is known which test runs it or what it
would take. Pages are run side by side, each from top to bottom in a folder of its own, on the first
samples of the data sets. What is changed of a command before that stands in listed.py."""
import concurrent.futures, gzip, itertools, os, random, re, shutil, socket, subprocess, sys, tempfile, time, unittest

sys.path[:0] = [os.path.join(os.path.dirname(__file__), folder) for folder in ("..", "../cli", "../netlab")]
import commands, lab, listed
from command import *
from ports import free_port

ROOT, BUILD = commands.ROOT, os.path.abspath(os.environ["TUTTI_BUILD"])
PYTHON = os.environ.get("TUTTI_PYTHON") or os.path.join(ROOT, "build/python/bin/python")
COLLECTED = commands.collected()
AT_ONCE = 3
# A login that stays on this machine, and states its origin as sshd does.
SSH = 'for last; do :; done; export SSH_CONNECTION="127.0.0.1 1 127.0.0.1 22"; exec sh -c "$last"'


def has(words):
    return shutil.which(words[0]) is not None and subprocess.run(words, capture_output=True).returncode == 0


def localhost_has_a_name():
    try:
        return bool(socket.getaddrinfo("localhost", None))
    except OSError:
        return False


def whole(pattern, text):
    return re.fullmatch(pattern, text, re.S) is not None


def entry(table, command):
    """The row of SHOWN or CANNOT for it."""
    return next((row for row in table if whole(row[0], command.page) and whole(row[1], command.text)), None)


def is_long(command):
    return any(whole(pattern, command.text) for pattern in listed.LONG)


def is_run(command):
    return entry(listed.SHOWN, command) is None and entry(listed.CANNOT, command) is None


LACKING = {}


def lacks(command):
    """What this machine has not, which a command needs; None: it has all."""
    for pattern, name, there in (
            (r"build/python/", "build/python", lambda: os.path.exists(PYTHON)),
            (r"(torchrun|.*torch\.distributed|.*examples/pytorch/|.*with-peers)", "PyTorch for TUTTI_PYTHON",
             lambda: has([PYTHON, "-c", "import torch"])),
            (r"(torchrun|.*torch\.distributed)", "a name for localhost (/etc/hosts), which PyTorch's launcher asks for",
             localhost_has_a_name),
            (r"mpirun .*mtl ofi", "libfabric", lambda: has(["fi_info", "-p", "tcp;ofi_rxm"])),
            (r"mpirun ", "an MPI that the transport was built for",
             lambda: shutil.which("mpirun") and os.environ.get("TUTTI_MPI")),
            (r"tools/netlab ", lab.WHY_NOT or "", lambda: lab.WHY_NOT is None),
            (r".*(--transport sim|--platform)|tutti compare |tutti plan (?!memory|stages)", "the simulator",
             lambda: SIMULATOR),
            (r"tutti (compare|report) ", "gnuplot", lambda: shutil.which("gnuplot"))):
        if re.match(pattern, command.text, re.S):
            if name not in LACKING:
                LACKING[name] = not there()
            if LACKING[name]:
                return name
    return None


def replaced(words):
    for pattern, by in listed.REPLACED:
        words = re.sub(pattern, by, words)
    return words


def samples(folder):
    """The first samples of MNIST and of the text, where the command and the examples look for them."""
    small, speech = small_mnist(os.path.join(folder, "mnist"), 1024, 200), os.path.join(folder, "speech")
    os.makedirs(speech)
    for name in NAMES:
        n = 96 # frames of noise, as tools/speech-data would write voices
        sizes, body = ((n, 64, 120), random.Random(7).randbytes(n * 64 * 120)) if "images" in name else (
            (n,), bytes(k % 10 for k in range(n)))
        with open(os.path.join(speech, name), "wb") as f:
            f.write(idx_bytes(0x800 + len(sizes), sizes, body))
        with gzip.open(os.path.join(small, name + ".gz"), "wb", 1) as f:
            f.write(read(os.path.join(small, name)))
        os.remove(os.path.join(small, name))
    os.makedirs(os.path.join(folder, "moby-dick"))
    with open(os.path.join(folder, "moby-dick/moby-dick.txt"), "wb") as f:
        f.write(read(os.path.join(DATA, "moby-dick/moby-dick.txt")))
    return folder


def programs(folder):
    """A folder for PATH: this build's programs, `python`, and an ssh that stays on this machine."""
    os.makedirs(folder)
    python = PYTHON if os.path.exists(PYTHON) else shutil.which("python3")
    for name, target in (("tutti", TUTTI), ("explore", os.path.join(BUILD, "tests/explore/explore"))):
        os.symlink(target, os.path.join(folder, name))
    for name, text in (("python", 'exec "%s" -B "$@"' % python), ("ssh", SSH), ("killed", KILLED),
                       ("torchrun", 'exec "%s" -B -m torch.distributed.run "$@"' % python)):
        with open(os.path.join(folder, name), "w") as f:
            f.write("#!/bin/sh\n%s\n" % text)
        os.chmod(os.path.join(folder, name), 0o755)
    return folder


def installed(folder):
    """What cc and pkg-config look for, from this build."""
    done = subprocess.run([os.environ.get("CMAKE", "cmake"), "--install", BUILD, "--prefix", folder],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(root for root, _, names in os.walk(folder) if "tutti.pc" in names)


def shape(line):
    """The part of a line that does not change from run to run: numbers, bars and widths do, the
    order in which the runs of a comparison end, and the best of them, which sees only the first
    samples here."""
    line = re.sub(r"(\d+ of \d+ runs\b).*", r"\1", line)
    line = re.sub(r"(Soonest at the target|Fewest bytes): .*?(?=\. Fewest|\.$|\n|$)", r"\1: NAME", line)
    line = re.sub(r"#{2,}|(?<= )#(?= )| --report-every \d+$", "", line) # the last is of listed.ENVIRONMENT
    line = re.sub(r"\d+\.\d+\.\d+|[\d,]*\d(\.\d+)?(e[-+]?\d+)?( ?([kMG]i?B|B|k?MB)\b)?", "0", line)
    return " ".join(line.replace("0:0 left", "left").split())


def shown_in(shown, printed):
    """The first line of the page that is not printed, in this order; None: all are. `...` stands
    for any lines, and so do several lines of one shape for one of it."""
    there = iter([shape(line) for line in re.split(r"[\n\r]", printed)])
    before = None
    for line in shown:
        s = shape(line)
        if s in ("...", "", before):
            continue
        if s not in there: # goes on from the last one found
            return line
        before = s
    return None


# COMMAND ... --out DIR: is killed when it has saved, which takes as long as it takes.
KILLED = """for last; do :; done
"$@" & pid=$!
while kill -0 $pid && ! ls "$last"/checkpoints/step-*/manifest.json; do sleep 0.01; done >/dev/null 2>&1
kill -9 $pid
wait $pid
code=$?
echo Killed
exit $code"""


def is_virtual(command):
    """Its figures are those of simulated machines, the same everywhere: these are compared."""
    return command.shown is not None and re.match(
        r"tutti (compare|train) .*--transport sim|tutti plan .*--platform \S+ .*--step-time", command.text) is not None


def figures_shown_in(shown, printed):
    """shown_in, with names and with figures to 2 %: what depends on a CPU's rounding is below that."""
    number = r"(?<![\w.-])\d+(?:\.\d+)?(?![\w.])"
    there = iter(re.split(r"[\n\r]", printed))
    for line in shown:
        words = " ".join(line.split())
        if words in ("...", "") or re.match(r"\d+ of \d+ runs", words): # the order in which runs end
            continue
        for other in there:
            other = " ".join(other.split())
            mine, its = ([float(n) for n in re.findall(number, text)] for text in (words, other))
            if re.sub(number, "0", words) == re.sub(number, "0", other) and all(
                    abs(a - b) <= 0.02 * max(a, b) for a, b in zip(mine, its)):
                break
        else:
            return line
    return None


class Reading(unittest.TestCase):
    def test_commands_are_found_with_their_lines_and_what_they_print(self):
        found = commands.commands_of("PAGE", "\n".join([
            "Text `tutti no`.", "", "```", "tutti a 'b # c'   # why", "tutti d \\", "    --e f", "# nothing", "```", "",
            "```text", "tutti no", "```", "", "- tutti no", "", "    tutti no", "", "Text.", "", "    mpirun g", "",
            "```", "$ tutti h \\", "  i", "one 1", "...", "$ tutti j", "```"]))
        self.assertEqual([(c.line, c.text, c.shown) for c in found], [
            (4, "tutti a 'b # c'", None), (5, "tutti d --e f", None), (20, "mpirun g", None),
            (23, "tutti h i", ["one 1", "..."]), (27, "tutti j", None)])
        self.assertEqual(str(found[0]), "PAGE:4: tutti a 'b # c'")

    def test_shown_lines_must_be_printed_in_order_ignoring_numbers(self):
        printed = "a  1.5 s\nnoise\nb 3,000 samples  ####  5 %\nb 17 samples 6 %\n2 of 2 runs  c: done\nend\n"
        for shown in (["a 7 s", "end"], ["a 70.1 s", "...", "b 2 samples  ##  1 %", "b 2 samples 1 %"], ["..."],
                      ["2 of 2 runs  d: done", "end"]):
            self.assertIsNone(shown_in(shown, printed))
        for shown, missed in ((["end", "a 7 s"], "a 7 s"), (["a 7 min"], "a 7 min"), (["noise 4"], "noise 4")):
            self.assertEqual(shown_in(shown, printed), missed)


    def test_figures_of_simulated_runs_are_compared(self):
        printed = "a 1.50 s; by: x\nnoise\nb 10 7\n3 of 6 runs\n"
        for shown in (["a 1.49 s; by: x", "...", "b 10 7"], ["0 of 6 runs", "b 10 7"]):
            self.assertIsNone(figures_shown_in(shown, printed))
        for missed in ("a 1.40 s; by: x", "a 1.50 s; by: y", "b 10 8"):
            self.assertEqual(figures_shown_in([missed], printed), missed)
        self.assertGreaterEqual(sum(map(is_virtual, COLLECTED)), 2)


@unittest.skipUnless(SIMULATOR, "skipped: the simulator is not built")
class Figures(Case):
    def test_figures_of_simulated_runs_are_those_of_their_page(self):
        """Run as they stand, on all samples, after the platforms that their page makes. What is long
        in `make check-long`."""
        chosen = [command for command in COLLECTED if is_virtual(command) and is_long(command) == LONG]
        for page in sorted({command.page for command in chosen}):
            home = self.out(page.replace("/", "-"))
            os.makedirs(home)
            for command in COLLECTED:
                if command.page != page or not (command in chosen or re.match("tutti platform ", command.text)):
                    continue
                if re.match("tutti compare", command.text) and lacks(command):
                    narrowed("figures of %s: %s is not here" % (command, lacks(command)))
                    continue
                done = subprocess.run(["sh", "-c", TUTTI + command.text[len("tutti"):]], cwd=home, text=True,
                                      env=clean_environment(), capture_output=True, timeout=300)
                self.assertEqual(done.returncode, 0, done.stderr)
                if is_virtual(command):
                    missed = figures_shown_in(command.shown, done.stderr + done.stdout)
                    self.assertIsNone(missed, "%s: not printed: %s\n%s" % (command, missed, done.stdout))


class Commands(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = scratch()
        cls.data = samples(os.path.join(cls.folder, "data"))
        cls.path = programs(os.path.join(cls.folder, "bin"))
        cls.disk = tempfile.mkdtemp(dir=BUILD) # the other folder may be memory
        cls.pc = installed(os.path.join(cls.folder, "installed"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.disk, ignore_errors=True)
        super().tearDownClass()

    def environment(self, home):
        library = os.path.join(BUILD, "lib")
        pythons = {"PYTHONPATH": os.path.join(ROOT, "python"), "TUTTI_LIBRARY": os.path.join(library, "libtutti.so")}
        return clean_environment(TUTTI_DATA=self.data, HOME=home, PORT=str(free_port()), PKG_CONFIG_PATH=self.pc,
                                 LD_LIBRARY_PATH=os.path.dirname(self.pc), **pythons, **listed.ENVIRONMENT,
                                 PATH=self.path + ":" + os.environ["PATH"])

    def home(self, page):
        """The folder that a page is run in: looks like the clone, but for the data."""
        home = os.path.join(self.folder, "homes", page.replace("/", "-"))
        os.makedirs(os.path.join(home, "build"))
        os.symlink(self.disk, os.path.join(home, "disk"))
        os.symlink(self.data, os.path.join(home, "data"))
        os.symlink(BUILD, os.path.join(home, "build/release"))
        os.symlink(os.path.dirname(os.path.dirname(PYTHON)), os.path.join(home, "build/python"))
        os.symlink(os.path.join(ROOT, "tools"), os.path.join(home, "tools"))
        os.symlink(os.path.join(ROOT, "python"), os.path.join(home, "python"))
        shutil.copytree(os.path.join(ROOT, "examples"), os.path.join(home, "examples"))
        for name, made in listed.FILES.items():
            with open(os.path.join(home, name), "w") as f:
                f.write(made(ROOT))
        return home

    def page(self, page, chosen):
        """Runs these commands of it; gives seconds, what failed or None, and what took long."""
        begin, home = time.monotonic(), self.home(page)
        script = ["set -eu"] + ["(%s) >/dev/null" % words for words in listed.BEFORE.get(page, [])]
        for number, of in itertools.groupby(enumerate(chosen), lambda pair: pair[1].block):
            script.append("(") # a block is typed into a shell of its own, in the same folder
            waits = []
            for k, command in of:
                script.append("echo %d >at; echo $EPOCHREALTIME >>times; exec >said-%d 2>&1" % (k, k))
                alone = re.match(r"(TUTTI_)?RANK=\d+ ", command.text) # a process of a run, in its own terminal
                code = next((code for pattern, code in listed.ENDS if whole(pattern, command.text)), 0)
                words = replaced(command.text if alone or code else command.words)
                script.append(words + (" & p%d=$!" % k if alone else
                                       " && exit 99 || [ $? = %d ]" % code if code else ""))
                waits += ["wait $p%d" % k] if alone else []
            script += [*waits, ")"]
        try:
            done = subprocess.run(["bash", "-c", "\n".join(script)], cwd=home, env=self.environment(home), timeout=300,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            code = done.returncode
        except subprocess.TimeoutExpired:
            code = "no end"
        told = lambda k: read(os.path.join(home, "said-%d" % k)).decode(errors="replace")
        failed = None
        if code != 0:
            k = int(read(os.path.join(home, "at")) or 0) if os.path.exists(os.path.join(home, "at")) else 0
            failed = "%s\n  run as: %s\n  ended with %s:\n%s" % (
                chosen[k], replaced(chosen[k].words), code, "".join(map(told, range(max(0, k - 1), k + 1)))[-3000:])
        else:
            for k, command in enumerate(chosen):
                missed = shown_in(command.shown, told(k)) if command.shown else None
                if missed is not None:
                    failed = "%s\n  does not print a line like this, in its place: %s\n%s" % (command, missed, told(k))
                    break
        slow = []
        if os.path.exists(os.path.join(home, "times")):
            times = [float(t) for t in read(os.path.join(home, "times")).split()] + [time.time()]
            slow = [(b - a, c.text) for a, b, c in zip(times, times[1:], chosen) if b - a > 3]
        shutil.rmtree(home, ignore_errors=True)
        return time.monotonic() - begin, failed, slow

    def test_commands_are_run_or_listed_with_a_valid_reason(self):
        for command in COLLECTED:
            with self.subTest(str(command)):
                shown, cannot = entry(listed.SHOWN, command), entry(listed.CANNOT, command)
                self.assertFalse(shown and cannot, "it is listed twice")
                self.assertTrue(shown or cannot or is_long(command) or re.match(
                    r"(tutti|explore|(TUTTI_)?RANK=\d+|export|source|cc|cmp|\./dynamic|timeout) ", command.text),
                    "nothing runs this command, and it is not listed (tests/pages/listed.py); "
                    "what is no command stands in a block ```text")
                if shown:
                    self.assertRegex(commands.text_of(shown[2]), shown[3])
        for table in (listed.SHOWN, listed.CANNOT):
            for row in table:
                self.assertTrue(any(row is entry(table, c) for c in COLLECTED), "of no command: %s" % (row,))
        for pattern in listed.LONG + [row[0] for row in listed.ENDS]:
            self.assertTrue(any(whole(pattern, c.text) for c in COLLECTED), "of no command: " + pattern)

    def test_commands_behave_as_their_page_states(self):
        pages, without = {}, {}
        for command in filter(is_run, COLLECTED):
            if LONG or not is_long(command):
                lacking = lacks(command)
                if lacking is None:
                    pages.setdefault(command.page, []).append(command)
                else:
                    without.setdefault(lacking, []).append(command)
        if LONG: # only those that have something more, and there all: one command needs the other
            pages = {page: of for page, of in pages.items() if any(map(is_long, of))}
        for lacking, of in without.items():
            narrowed("%d commands of pages, without %s: the first is %s" % (len(of), lacking, of[0]))
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            waiting = {page: pool.submit(self.page, page, of) for page, of in pages.items()}
            for page, ended in waiting.items():
                seconds, failed, slow = ended.result()
                print("%5.1f s  %d commands of %s" % (seconds, len(pages[page]), page),
                      *("\n  %5.1f s  %s" % pair for pair in slow), flush=True)
                with self.subTest(page):
                    self.assertIsNone(failed, failed)


class Named(unittest.TestCase):
    def test_commands_and_tests_named_in_text_exist(self):
        """A command of tutti, a target of make, a part of the bench, a tool, a test."""
        usage = tutti("--help").stdout
        targets = set(re.findall(r"(?m)^([a-z-]+):", commands.text_of("Makefile")))
        tests = set(re.findall(r'add_test\(\[=*\[?([^]]+)', "\n".join(
            read(os.path.join(at, name)).decode() for at, _, names in os.walk(os.path.join(BUILD, "tests"))
            for name in names if name == "CTestTestfile.cmake")))
        parts = re.search(r"(?s)\nPART(.*?);", commands.text_of("bench/run"))[1].split()
        for page, line, words in commands.in_sentences():
            with self.subTest("%s:%d: %s" % (page, line, words)):
                program, *rest = words.split()
                if program == "tutti" and rest and re.fullmatch("[a-z]+", rest[0]):
                    known = re.search(r"(?m)^  tutti %s\b" % rest[0], usage)
                    self.assertTrue(known or "there is no command" not in tutti(rest[0]).stderr)
                elif program == "make" and rest:
                    self.assertLessEqual({word for word in rest if re.fullmatch("[a-z-]+", word)}, targets)
                elif program == "bench/run":
                    named = list(itertools.takewhile(lambda word: not word.startswith("-"), rest))
                    self.assertLessEqual(set(named) - {"PART"}, set(parts))
                elif program.startswith(("tools/", "bench/")):
                    self.assertTrue(os.access(os.path.join(ROOT, program), os.R_OK))
                elif program == "ctest" and "-R" in rest:
                    name = rest[rest.index("-R") + 1]
                    self.assertTrue(any(re.search(name, test) for test in tests), "no test has this name")


if __name__ == "__main__":
    unittest.main(verbosity=2)
