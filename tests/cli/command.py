"""What the command's tests share: running it, small data sets, reading its results, folders to
write in."""
import collections, contextlib, fcntl, gzip, json, math, operator, os
import shutil, signal, struct, subprocess, sys, tempfile, time, unittest

TUTTI = os.path.abspath(os.environ.get("TUTTI", os.path.join(os.path.dirname(__file__), "../../build/dev/bin/tutti")))
DATA = os.path.abspath(os.environ.get("TUTTI_DATA", os.path.join(os.path.dirname(__file__), "../../data")))
# A shell that has put the tests in its background has the first ignored, nohup the second, and what
# is started here would ignore them too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
NAMES = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]


def clean_environment(**extra):
    launchers = ("OMPI_", "PMI", "MV2_", "SLURM_", "WORLD_", "RANK", "LOCAL_", "MASTER_", "TORCHELASTIC_", "GROUP_",
                 "MPI_LOCAL", "XDG_RUNTIME_DIR")
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", *launchers))}
    keep["TUTTI_DATA"] = DATA
    keep.update(extra)
    return keep


# Under a sanitizer a simulation's actors are OS threads, and slow. A test that could do without the
# simulator does so there (TUTTI_SIMULATED).
SIMULATOR = os.environ.get("TUTTI_SIMULATED") != "off" and os.path.exists(
    os.path.join(os.path.dirname(TUTTI), "../lib/libtutti_transport_sim.so"))


def narrowed(why):
    """Reports that this test, which continues, checks less than it could. tools/skipped finds such
    lines."""
    print("\nskipped: " + why, flush=True)


# `make check-long` asks for all cases, `make test` for some: docs/TESTING.md says which and why.
LONG = os.environ.get("TUTTI_CHECK") == "long"


def one_of(k, cases):
    """One of these cases, the next for the next k; in `make check-long` all of them."""
    return cases if LONG else [cases[k % len(cases)]]


def and_sim(*transports):
    """These, and the simulator where it was built."""
    if not SIMULATOR:
        narrowed("a part on simulated hosts: the simulator is not built")
    return transports + (("sim",) if SIMULATOR else ())


MEMORY = "/dev/shm"


def scratch(memory=True):
    """A folder to write in, which the caller removes. It is in memory where there is plenty of it: a
    checkpoint waits for its files to be on their disk, and no test looks at what a loss of power
    leaves. A test that lives holds a lock on its folder, so the next one removes what killed tests
    have left."""
    if not memory or not os.path.isdir(MEMORY) or shutil.disk_usage(MEMORY).free < 1 << 30:
        return tempfile.mkdtemp(prefix="tutti-test-")
    for entry in os.scandir(MEMORY):
        try:
            if not entry.name.startswith("tutti-test-") or time.time() - entry.stat().st_mtime < 60:
                continue
            held = os.open(entry.path, os.O_RDONLY)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)
            finally:
                os.close(held)
        except OSError: # it is locked, belongs to another user or is gone
            continue
    folder = tempfile.mkdtemp(prefix="tutti-test-", dir=MEMORY)
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH) # for as long as this process lives
    return folder


@contextlib.contextmanager
def scratch_folder():
    """scratch(), removed at the end of the block."""
    folder = scratch()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def tutti(*arguments, timeout=120, **environment):
    """Runs the command to its end; gives what subprocess.run gives, with text."""
    return subprocess.run([TUTTI, *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                          env=clean_environment(**environment))


def idx_bytes(magic, dims, body):
    return struct.pack(">I", magic) + b"".join(struct.pack(">I", d) for d in dims) + body


def small_mnist(folder, train=600, test=200):
    """The first samples of MNIST as plain IDX files: real pictures, quick to go through."""
    os.makedirs(folder, exist_ok=True)
    for name in NAMES:
        n = train if name.startswith("train") else test
        with gzip.open(os.path.join(DATA, "mnist", name + ".gz")) as f:
            raw = f.read(16 + n * (784 if "images" in name else 1))
        if "images" in name:
            out = idx_bytes(0x803, (n, 28, 28), raw[16:16 + n * 784])
        else:
            out = idx_bytes(0x801, (n,), raw[8:8 + n])
        with open(os.path.join(folder, name), "wb") as f:
            f.write(out)
    return folder


def small_text(folder):
    """A text of 18 KB."""
    path = os.path.join(folder, "text.txt")
    with open(path, "w") as f:
        f.write("the quick brown fox jumps over the lazy dog. " * 400)
    return path


def small_clicks(folder, samples=400):
    """A click log."""
    path = os.path.join(folder, "clicks.tsv")
    done = tutti("data", "clicks", "--samples", samples, "--out", path)
    assert done.returncode == 0, done.stderr
    return path


def read(path):
    with open(path, "rb") as f:
        return f.read()


def lines_told(out):
    """How many whole lines its metrics have by now: the file is there before the first of them."""
    path = os.path.join(out, "metrics.jsonl")
    return read(path).count(b"\n") if os.path.exists(path) else 0


def rounded(value):
    """As a float of 4 bytes."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


PLACES = ("epoch", "samples", "wall_seconds", "bytes_sent_total")


def curves(row):
    """The numbers of a line of metrics.jsonl by the names of their curves."""
    found = {}
    for name, value in row.items():
        if "test_loss" in row and name in PLACES:
            name = "evaluation/" + name
        if isinstance(value, list):
            found.update({f"{name}/{i}": one for i, one in enumerate(value) if one is not None})
        elif isinstance(value, dict):
            found.update({f"{name}/{one}": number for one, number in curves(value).items()})
        elif isinstance(value, (int, float)) and name != "step":
            found[name] = value
    return found


def told_of(out):
    """[(step, {name: value})] of the lines of metrics.jsonl, as floats of 4 bytes."""
    rows = [json.loads(line) for line in read(os.path.join(out, "metrics.jsonl")).splitlines()]
    return [(row["step"], {name: rounded(value) for name, value in curves(row).items()}) for row in rows]


def fields_of(data):
    """[(field, value)] of a message, by the wire format of protocol buffers."""
    k, found = 0, []

    def varint():
        nonlocal k
        value = shift = 0
        while True:
            value |= (data[k] & 127) << shift
            k, shift = k + 1, shift + 7
            if data[k - 1] < 128:
                return value

    while k < len(data):
        key = varint()
        if key & 7 == 0:
            found.append((key >> 3, varint()))
            continue
        size = {1: 8, 5: 4}.get(key & 7)
        size = varint() if size is None else size
        k += size
        found.append((key >> 3, data[k - size:k]))
    return found


def events_of(out):
    """[(step, {tag: value})] of the run's files of events, read as TensorBoard does: after a START, but the first,
    those before have nothing of its step or later ones; a record that is cut off ends a file. tests/record looks at
    the CRCs."""
    events, starts = [], 0
    for board in sorted(name for name in os.listdir(out) if name.startswith("events.out.tfevents.")):
        raw, at = read(os.path.join(out, board)), 0
        while at + 12 <= len(raw):
            length = struct.unpack("<Q", raw[at:at + 8])[0]
            if at + 16 + length > len(raw):
                break
            event = dict(fields_of(raw[at + 12:at + 12 + length]))
            if at == 0:
                assert event[3] == b"brain.Event:2", event
            elif 7 in event:
                assert event[7] == b"\x08\x01", event
                starts += 1
                events = [one for one in events if starts == 1 or one[0] < event[2]]
            else:
                values = [dict(fields_of(value)) for _, value in fields_of(event[5])]
                events.append((event[2], {v[1].decode(): struct.unpack("<f", v[2])[0] for v in values}))
            at += 16 + length
    return events


def summary(out):
    with open(os.path.join(out, "summary.json")) as f:
        return json.load(f)


def tensors(path):
    """A safetensors file, read by the format's own rules with nothing but the standard library."""
    raw = read(path)
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], raw[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]])
            for name, t in header.items()}


def floats(path):
    values = []
    for name, (dtype, shape, data) in sorted(tensors(path).items()):
        assert dtype == "F32"
        values.extend(struct.unpack("<%df" % (len(data) // 4), data))
    return values


def idx_body(path):
    raw = read(path)
    return raw[4 + 4 * raw[3]:]


def mlp_evaluated(path, data, split="t10k", begin=0, end=None):
    """Mean loss and accuracy of the mlp in a safetensors file, of a run or of a worker's
    checkpoint, on these samples: computed here, without the program under test."""
    layers = {name.split("/")[-1].split("@")[0]: struct.unpack("<%df" % (len(body) // 4), body)
              for name, (_, _, body) in tensors(path).items() if name[0] in "024x"}
    training = idx_body(os.path.join(data, NAMES[0]))
    mean = sum(training) / len(training) / 255
    deviation = math.sqrt(sum(n * (value / 255 - mean) ** 2
                              for value, n in collections.Counter(training).items()) / len(training))
    level = [(value / 255 - mean) / deviation for value in range(256)]
    pixels, labels = (idx_body(os.path.join(data, split + "-images-idx3-ubyte")),
                      idx_body(os.path.join(data, split + "-labels-idx1-ubyte")))
    loss = hits = 0
    samples = range(begin, len(labels) if end is None else end)
    for sample in samples:
        x = [level[p] for p in pixels[784 * sample:784 * sample + 784]]
        for k in "024":
            weight, bias = layers[k + ".weight"], layers[k + ".bias"]
            x = [bias[o] + sum(map(operator.mul, weight[o * len(x):(o + 1) * len(x)], x)) for o in range(len(bias))]
            if k != "4":
                x = [max(0, v) for v in x]
        loss += math.log(sum(math.exp(v - max(x)) for v in x)) + max(x) - x[labels[sample]]
        hits += x.index(max(x)) == labels[sample]
    return loss / len(samples), hits / len(samples)


def list_of(folder):
    return os.listdir(folder) if os.path.isdir(folder) else []


def shm_entries():
    """Tutti's entries in shared memory. MPI libraries have their own there while a concurrent test
    runs, and tutti-test- is scratch() of such a test."""
    return sorted(e for e in os.listdir(MEMORY) if e.startswith("tutti") and not e.startswith("tutti-test-"))


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(p) for p in f.read().split()]
    except FileNotFoundError:
        return []


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def unequal_links(path, mbits, latency="50us"):
    """A platform whose host k has a link of mbits[k] Mbit/s in each direction; worker k is on
    it."""
    n = range(len(mbits))
    lines = ['<?xml version="1.0"?>', '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
             '<platform version="4.1"><zone id="z" routing="Full">']
    lines += ['<host id="h%d" speed="50Gf"/>' % k for k in n]
    lines += ['<link id="%s%d" bandwidth="%gMbps" latency="%s"/>' % (way, k, mbits[k], latency) for k in n
              for way in ("up", "down")]
    lines += ['<route src="h%d" dst="h%d" symmetrical="NO"><link_ctn id="up%d"/><link_ctn id="down%d"/></route>'
              % (a, b, a, b) for a in n for b in n if a != b]
    with open(path, "w") as f:
        f.write("\n".join(lines + ["</zone></platform>"]))
    return path


class Case(unittest.TestCase):
    IN_MEMORY = True

    @classmethod
    def setUpClass(cls):
        cls.folder = scratch(cls.IN_MEMORY)
        cls.data = small_mnist(os.path.join(cls.folder, "data"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def run(self, result=None):
        """Prints what has failed at once: a suite that takes too long is killed before its end, where unittest does."""
        result = result or self.defaultTestResult()
        before = {id(one) for one in result.failures + result.errors}
        super().run(result)
        for one in result.failures + result.errors:
            if id(one) not in before:
                print("\n%s\n%s" % one, file=sys.stderr, flush=True)
        return result

    def out(self, name):
        return os.path.join(self.folder, self.id().split(".")[-1] + "-" + name)

    def model(self, out):
        return read(os.path.join(out, "model.safetensors"))

    def files(self, out):
        """All of a directory, by name."""
        return {os.path.join(folder, name): read(os.path.join(folder, name)) for folder, _, names in os.walk(out)
                for name in names}

    def train(self, name, *arguments, code=0, **environment):
        """Trains into a folder of its own, which is not there before unless it is to go on; gives
        that folder."""
        out = self.out(name)
        if "--resume" not in arguments:
            shutil.rmtree(out, ignore_errors=True)
        done = tutti("train", "--out", out, *arguments, **environment)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return out

    def killed(self, n, victim, *arguments, of=None):
        """Trains the mlp, or `of` (a model and its data), on n ranks, and kills rank `victim` when
        training has begun, as the first line of the metrics shows; with a small learning rate, since
        asynchronous methods overflow within that time otherwise. The run ends with code 3; gives its
        output and the ranks' process ids."""
        model, data = of or ("mlp(hidden=64)", self.data)
        out = self.out("killed")
        shutil.rmtree(out, ignore_errors=True)
        run = subprocess.Popen([TUTTI, "train", "--model", model, "--data", data, "--batch", "16", "--epochs", "100000",
                                "--optimizer", "sgd(lr=0.001)", "--report-every", "1", "--quiet", "--out", out,
                                *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=clean_environment())
        deadline = time.monotonic() + 60
        while lines_told(out) == 0 and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        ranks = children_of(run.pid)
        if lines_told(out) == 0 or len(ranks) != n:
            run.kill()
            self.fail("%s ranks of %d, and nobody trains; the run says: %s%s" % (len(ranks), n, *run.communicate()))
        os.kill(ranks[victim], signal.SIGKILL)
        _, err = run.communicate(timeout=30)
        self.assertEqual(run.returncode, 3, err)
        return err, ranks

    def refused(self, sentence, *arguments, code=2, **environment):
        done = tutti(*arguments, **environment)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        self.assertIn(sentence, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, "one sentence: " + done.stderr)
