"""What a person sees while it trains and at the end: on a terminal of some width, on one that
cannot take lines back, in a pipe. A terminal is a pty of our own, whose other end is read to the
last byte."""
import fcntl, math, os, pty, re, select, struct, subprocess, termios, time, unittest
from command import *

STEPS = re.compile(r"step (\d+)/(\d+)")
# What a progress line may consist of; two blanks stand between fields.
FIELDS = {"epoch": r"epoch \d+\.\d\d", "step": r"step \d+/\d+", "loss": r"loss \d+\.\d{4}",
          "accuracy": r"accuracy \d+\.\d\d %", "rate": r"\d+ samples/s", "sent": r"\d+\.\d MB sent",
          "left": r"\d+:\d\d left"}


class Terminal:
    """The command on a terminal; columns 0: one that does not know its size."""

    def __init__(self, columns, *arguments, **environment):
        self.master, slave = pty.openpty()
        self.resize(columns)
        settings = termios.tcgetattr(slave)
        settings[1] &= ~termios.OPOST  # "\n" as it was written
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        self.run = subprocess.Popen([TUTTI, *map(str, arguments)], stdin=slave, stdout=slave, stderr=slave,
                                    env=clean_environment(**{"TERM": "xterm", **environment}), start_new_session=True)
        os.close(slave)
        self.text = b""

    def resize(self, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24 if columns else 0, columns, 0, 0))

    def read(self, until=None):
        """All there is to come, or until `until` has come."""
        deadline = time.monotonic() + 120
        while until is None or until not in self.text:
            if not select.select([self.master], [], [], max(0, deadline - time.monotonic()))[0]:
                self.run.kill()
                raise AssertionError("nothing more came after " + repr(self.text[-300:]))
            try:
                some = os.read(self.master, 4096)
            except OSError:  # the other end is closed
                some = b""
            if not some:
                break
            self.text += some
        return self.text.decode()

    def end(self):
        text = self.read()
        code = self.run.wait()
        os.close(self.master)
        return code, text


def shown(text):
    """(what is shown, whether the next may replace it) of each line."""
    out = []
    for chunk in re.findall(r"[^\r\n]+\n?", text):
        line = chunk.replace("\033[K", "")
        if line.strip():
            out.append((line.rstrip("\n"), not line.endswith("\n")))
    return out


def progress(text):
    return [line for line, _ in shown(text) if STEPS.search(line) and "steps" not in line and "loss" in line]


def fields(line):
    """Names of the fields of a progress line, each whole."""
    names = []
    for field in line.split("  "):
        names.append(next((name for name, form in FIELDS.items() if re.fullmatch(form, field)), None))
    return names


class Screen(Case):
    def words(self, *more, steps=40, name="t"):
        return ("train", "--model", "mlp(hidden=16)", "--data", self.data, "-n", 2, "--batch", 20, "--threads", 1,
                "--steps", steps, "--report-every", 1, "--eval-every", 15, "--overwrite", "--out", self.out(name),
                *more)

    def on(self, columns, *more, **environment):
        code, text = Terminal(columns, *self.words(*more, name="t%d" % columns), **environment).end()
        self.assertEqual(code, 0, text)
        return text

    def test_progress_fits_the_terminal_and_drops_least_important_fields(self):
        least_last = ["step", "loss", "left", "accuracy", "rate", "epoch", "sent"]
        for columns in (200, 90, 70, 50, 40, 28):
            text = self.on(columns)
            lines = progress(text)
            self.assertEqual(len(lines), 40)
            for line in lines:
                self.assertLess(len(line), columns, line)
                names = fields(line)
                self.assertNotIn(None, names, line)
                order = [name for name in least_last if name != "accuracy" or int(STEPS.search(line)[1]) > 15]
                # No field stands while a more important one is gone.
                self.assertEqual(set(names), set(order[:len(names)]), line)
                self.assertTrue(columns < 200 or len(names) == len(order), line)
            for line, replaced in shown(text):
                self.assertTrue(not replaced or len(line) < columns, line)
        self.assertEqual(fields(lines[-1]), ["step", "loss"])
        self.assertIn("\r\033[K", text)

    def test_too_narrow_terminal_truncates_the_line(self):
        for line, replaced in shown(self.on(12)):
            self.assertTrue(not replaced or len(line) < 12, line)

    def test_terminal_width_is_read_for_each_line(self):
        run = Terminal(150, *self.words(steps=400))
        run.read(until=b"step 2/400")
        run.resize(40)
        code, text = run.end()
        self.assertEqual(code, 0, text)
        lines = progress(text)
        self.assertEqual(len(lines), 400)
        self.assertGreater(len(lines[0]), 40)
        for line in lines[-100:]:  # a pty holds a few kilobytes, far less than 300 lines
            self.assertLess(len(line), 40)

    def test_columns_variable_is_used_without_a_terminal_size(self):
        widest = max(len(line) for line in progress(self.on(0, COLUMNS="50")))
        self.assertTrue(30 < widest < 50, widest)
        self.assertEqual(len(fields(progress(self.on(0))[-1])), 7)

    def test_progress_is_plain_where_lines_cannot_be_replaced(self):
        code, dumb = Terminal(40, *self.words(name="dumb"), TERM="dumb").end()
        self.assertEqual(code, 0, dumb)
        piped = tutti(*self.words(name="pipe")).stdout
        for text in (dumb, piped):
            self.assertNotIn("\r", text)
            self.assertNotIn("\033", text)
            self.assertEqual(len(fields(progress(text)[-1])), 7)

    def test_final_evaluation_shows_progress(self):
        text = self.on(100)
        after = text[text.rindex("step 40/40"):text.index("trained in")]
        self.assertIn("evaluating the model on 200 test and 200 training samples", after)
        self.assertRegex(after, r"evaluating  test set  0 %  step 40")
        self.assertRegex(after, r"evaluating  training set  0 %  step 40")
        piped = tutti(*self.words(name="pipe")).stdout
        self.assertRegex(piped, r"step 40/40 .*\nevaluating the model on 200 test and 200 training samples\nepoch ")
        self.assertEqual(len(re.findall(r"(?m)^evaluating", piped)), 1)

    def test_pages_are_wrapped_at_the_terminals_width(self):
        for columns in (50, 110):
            tables = () if columns < 61 else (("methods", "gut"), ("codecs", "ef"), ("data", "--help"), # their heads
                                              ("topology", "--help"))
            for words in (("train", "--help", "all"), ("methods",), *tables):
                code, text = Terminal(columns, *words).end()
                lines = text.split("\n")
                self.assertEqual(code, 0, text)
                for line in lines[:lines.index("Examples:") if "Examples:" in lines else len(lines)]:
                    self.assertTrue(len(line) <= columns or " " not in line.strip(), line)
                self.assertGreater(max(map(len, lines)), columns - 10)


def amount(n):
    """Three digits with a unit."""
    units = iter(("B", "kB", "MB", "GB"))
    unit = next(units)
    while n >= 999.5:
        n, unit = n / 1000, next(units)
    return "%.*f %s" % (0 if unit == "B" or n >= 99.95 else 1 if n >= 9.995 else 2, n, unit)


class LastWords(Case):
    def told(self, name, *arguments):
        out = self.out(name)
        done = tutti("train", "--out", out, "--threads", 1, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        closing = done.stdout[done.stdout.index("\ntrained in"):]
        rows = {m[1]: m[2].split("# ")[-1].strip() for m in re.finditer(r"(?m)^  +(\S.*?)  +(\S.*)$", closing)}
        return out, summary(out), closing, rows

    def test_closing_report_matches_the_summary(self):
        out, s, closing, rows = self.told("a", "--model", "mlp(hidden=32)", "--data", self.data, "-n", 2, "--batch", 20,
                                          "--epochs", 2)
        self.assertIn("trained in %.2f s; results in %s\n" % (s["wall_seconds"], out), closing)
        self.assertEqual(rows["test accuracy"],
                         "%.2f %% (loss %.4f)" % (100 * s["final_test_accuracy"], s["final_test_loss"]))
        self.assertEqual(rows["training loss"], "%.4f (200 samples)" % s["final_train_loss"])
        self.assertEqual(rows["time in training"], "%.2f s for 1,200 samples (%s a second)"
                         % (s["wall_seconds"], format(round(s["samples_per_second"]), ",")))
        for name, key in (("computing", "compute_seconds"), ("waiting for communication", "exposed_comm_seconds"),
                          ("batches, updates", "other_seconds")):
            told = "%.2f s %5.1f %%" % (s[key], 100 * s[key] / s["wall_seconds"])
            self.assertTrue(rows[name].endswith(told), rows[name])
        self.assertEqual(rows["sent by both workers"],
                         "%s = %s a step" % (amount(s["bytes_sent_total"]), amount(s["bytes_sent_total"] / s["steps"])))
        mebibytes = s["peak_rss_bytes_per_worker"] / 2 ** 20
        self.assertEqual(rows["memory"], "%.0f MiB a worker (the data set, shared, included)" % mebibytes)
        self.assertEqual(rows["model"], out + "/model.safetensors")
        self.assertTrue(os.path.exists(rows["model"]))

    def test_closing_report_of_a_text_shows_perplexity_and_tokens(self):
        out, s, closing, rows = self.told("a", "--model", "gpt(layers=1,dim=16,heads=1)", "--data",
                                          "moby-dick(context=32)", "-n", 1, "--batch", 4, "--steps", 3)
        loss = s["final_test_loss"]
        self.assertEqual(rows["test perplexity"],
                         "%.2f (loss %.4f, %.3f bits a byte)" % (math.exp(loss), loss, loss / math.log(2)))
        self.assertTrue(rows["time in training"].startswith("%.2f s for 384 tokens (" % s["wall_seconds"]), rows)
        self.assertNotIn("sent", rows)

    def test_quiet_and_no_evaluation_shorten_the_closing_report(self):
        common = ("train", "--model", "mlp(hidden=16)", "--data", self.data, "--steps", 5)
        done = tutti(*common, "--quiet", "--out", self.out("q"))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        out, s, closing, rows = self.told("off", *common[1:], "--final-eval", "off", "--target", "accuracy=0.999")
        self.assertIsNone(s["final_train_loss"])
        self.assertIsNone(s["final_train_samples"])
        self.assertEqual(rows["accuracy=0.999"], "not reached")
        self.assertFalse({"test accuracy", "training loss"} & set(rows))

    def test_simulated_time_is_called_virtual(self):
        if not os.path.exists(os.path.join(os.path.dirname(TUTTI), "../lib/libtutti_transport_sim.so")):
            self.skipTest("skipped: built without SimGrid")
        out, s, closing, rows = self.told("s", "--model", "quadratic(dim=8,samples=64)", "-n", 4, "--steps", 6,
                                          "--transport", "sim")
        self.assertTrue(rows["virtual time in training"].startswith("%.2f s for " % s["wall_seconds"]))
        self.assertEqual(rows["test loss above the optimum"], "%.6g" % s["final_test_loss"])
        self.assertIn("sent by all 4 workers", rows)


def softmax_loss(model, images, labels):
    """Mean cross-entropy of W x + b by the formula, in double."""
    weight, bias = (struct.unpack("<%df" % (len(d) // 4), d) for d in (model["0.weight"][2], model["0.bias"][2]))
    rows = [weight[784 * c:784 * (c + 1)] for c in range(10)]
    total = 0.0
    for x, label in zip(images, labels):
        z = [b + sum(w * v for w, v in zip(row, x) if v) for row, b in zip(rows, bias)]
        top = max(z)
        total += top + math.log(sum(math.exp(v - top) for v in z)) - z[label]
    return total / len(labels)


class FinalEvaluation(Case):
    """`on` reads the test set and a draw of the training set, `all` the whole of both; both report
    the model's loss there."""

    def test_final_evaluation_uses_all_samples_or_a_fixed_draw(self):
        common = ("--model", "logistic", "--data", self.data, "--batch", 20, "--steps", 30, "--threads", 1)
        whole, drawn = self.train("all", *common, "--final-eval", "all"), self.train("on", *common)
        two = self.train("two", *common[:4], "--batch", 10, *common[6:], "-n", 2, "--final-eval", "true")
        a, b, c = map(summary, (whole, drawn, two))
        self.assertEqual((a["final_train_samples"], b["final_train_samples"]), (600, 200))
        for key in ("final_test_loss", "final_test_accuracy"):
            self.assertEqual(a[key], b[key])
        raw = read(os.path.join(self.data, NAMES[0]))[16:]
        mean = sum(raw) / len(raw)
        deviation = math.sqrt(sum(v * v for v in raw) / len(raw) - mean ** 2)
        images = [[(v - mean) / deviation for v in raw[784 * i:784 * (i + 1)]] for i in range(600)]
        labels = read(os.path.join(self.data, NAMES[1]))[8:]
        computed = softmax_loss(tensors(os.path.join(whole, "model.safetensors")), images, labels)
        self.assertAlmostEqual(a["final_train_loss"], computed, delta=1e-4)
        self.assertNotEqual(a["final_train_loss"], b["final_train_loss"])
        self.assertAlmostEqual(a["final_train_loss"], b["final_train_loss"], delta=0.3 * a["final_train_loss"])
        # The same samples, whichever worker evaluates them; the models are equal to rounding.
        self.assertAlmostEqual(b["final_train_loss"], c["final_train_loss"], delta=1e-4)

    def test_final_evaluation_of_a_problem_uses_every_sample(self):
        s = summary(self.train("q", "--model", "quadratic(dim=20,samples=4096,noise=3)", "--steps", 5, "-n", 3))
        self.assertEqual(s["final_train_samples"], 4096)
        # The excess is the model's, whatever the noise.
        self.assertAlmostEqual(s["final_train_loss"], s["final_test_loss"], delta=1e-5 * s["final_test_loss"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
