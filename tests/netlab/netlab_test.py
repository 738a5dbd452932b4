"""tools/netlab: what it promises of rates, bytes and faults, and that nothing stays behind. Bulk
transfers are plain sockets. Rates are held by the kernel, so five percent is a wide margin once a
transfer is long against the bucket; a busy machine can only be slower, so each is tried three
times."""
import importlib.machinery, importlib.util, json, os, shutil, signal, struct, subprocess, sys, tempfile, time, unittest

sys.path[:0] = [os.path.dirname(__file__), os.path.join(os.path.dirname(__file__), "..")]
from lab import *
from together import together

# ignored where a shell has put the tests in its background; what is started here would ignore it,
# too
signal.signal(signal.SIGINT, signal.default_int_handler)

SENDER = """
import hashlib, os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(float(sys.argv[1]))
body = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(4096))  # 128 KiB that no link can guess
if rank == 0:
    listener = socket.create_server(("", 5000))
    c, _ = listener.accept()
    got, begin, all = 0, None, hashlib.sha256()
    try:
        while True:
            part = c.recv(1 << 18)
            if not part: break
            begin = begin or time.monotonic()
            got += len(part)
            all.update(part)
        end = "end"
    except ConnectionResetError:
        end = "reset"
    # in one piece: the other one writes, too
    os.write(1, f"{got} {time.monotonic() - (begin or time.monotonic())} {end} {all.hexdigest()}\\n".encode())
else:
    for _ in range(200):
        try: c = socket.create_connection((os.environ["MASTER_ADDR"], 5000)); break
        except OSError: time.sleep(0.02)
    all = hashlib.sha256()
    try:
        while size > 0:
            part = body[:min(size, len(body))]
            c.sendall(part); all.update(part); size -= len(part)
        c.shutdown(socket.SHUT_WR)
        c.recv(1)
    except (ConnectionResetError, BrokenPipeError):
        pass
    os.write(1, f"sent {all.hexdigest()}\\n".encode())
"""


def traces():
    found = []
    for folder in ("/run/netns", "/etc/netns"):
        if os.path.isdir(folder):
            found += [os.path.join(folder, e) for e in os.listdir(folder) if e.startswith("netlab-")]
    return found


def traces_of(lab):
    return [t for t in traces() if os.path.basename(t).startswith(lab + "-")]


def gone(lab, seconds=20):
    """Within the time all traces of the lab have gone; gives those that have not."""
    until = time.monotonic() + seconds
    while traces_of(lab) and time.monotonic() < until:
        time.sleep(0.05)
    return traces_of(lab)


@needs_lab
class Netlab(unittest.TestCase):
    def bulk(self, size, *options):
        """Sends `size` bytes from h2 to h1; gives received bytes, rate in bit/s, how it ended,
        whether the bytes were those sent, and the counters."""
        with tempfile.NamedTemporaryFile() as report:
            done = netlab("-n", 2, *options, "--each", "--timeout", 50, "--json", report.name, "--", sys.executable,
                          "-c", SENDER, size)
            self.assertEqual(done.returncode, 0, done.stderr)
            counters = json.load(report)
        lines = {len(l.split()): l.split() for l in done.stdout.splitlines()}
        self.assertIn(4, lines, done.stdout + done.stderr)
        got, seconds, end, digest = lines[4]
        return int(got), int(got) * 8 / max(float(seconds), 1e-9), end, digest == lines[2][1], counters

    def test_bytes_of_each_link_are_counted(self):
        got, _, end, same, counters = self.bulk(3e6)
        self.assertEqual((got, end, same), (3000000, "end", True))
        one, two = counters["hosts"]
        self.assertEqual((one["host"], two["host"], counters["code"], counters["by"]), ("h1", "h2", 0, "bridge"))
        self.assertGreaterEqual(two["bytes_sent"], 3000000)
        self.assertLessEqual(two["bytes_sent"], 3300000)  # headers
        self.assertLess(one["bytes_sent"], 300000)        # acknowledgements
        self.assertAlmostEqual(one["bytes_received"], two["bytes_sent"], delta=2000)

    def rate_is_held(self, rate, bits, *options, least=0.95):
        for _ in range(3):
            got, measured, _, same, _ = self.bulk(bits / 8 * 1.5, "--rate", rate, *options)
            self.assertTrue(same)
            self.assertLessEqual(measured, bits * 1.05)
            if measured >= least * bits * 1448 / 1514:  # headers are a part of the rate
                return
        self.fail("%s: %.1f Mbit/s of payload" % (rate, measured / 1e6))

    def test_rate_limits_are_kept_on_a_bridge(self):
        self.rate_is_held("100mbit", 100e6)
        self.rate_is_held("1gbit", 1e9, least=0.5)  # a busy machine does not fill it

    def test_a_steady_link_saves_up_one_offload_and_keeps_its_rate(self):
        self.rate_is_held("100mbit", 100e6, "--steady")
        shown = netlab("-n", 2, "--rate", "1gbit", "--steady", "--", "tc", "qdisc", "show", "dev", "eth0").stdout
        self.assertRegex(shown, r"rate 1Gbit .*peakrate 1010Mbit minburst (69|70)\d\d\db")

    def test_rates_are_held_on_a_pair_without_a_bridge_and_through_the_proxy(self):
        self.rate_is_held("100mbit", 100e6, "--direct")
        self.rate_is_held("50mbit", 50e6, "--proxy")

    def test_delay_is_added_and_lossy_links_lose_no_bytes(self):
        got, measured, end, same, _ = self.bulk(1e6, "--rate", "50mbit", "--delay", "10ms", "--loss", "1%",
                                                "--jitter", "2ms", "--duplicate", "1%", "--reorder", "1%")
        self.assertEqual((got, end, same), (1000000, "end", True))
        code = """
import os, socket, time
if os.environ["RANK"] == "0":
    c, _ = socket.create_server(("", 5000)).accept()
    while (part := c.recv(100)): c.sendall(part)
else:
    for _ in range(200):
        try: c = socket.create_connection((os.environ["MASTER_ADDR"], 5000)); break
        except OSError: time.sleep(0.02)
    times = []
    for _ in range(10):
        begin = time.monotonic(); c.sendall(b"x"); c.recv(1); times.append(time.monotonic() - begin)
    print(min(times))
"""
        done = netlab("-n", 2, "--delay", "10ms", "--each", "--timeout", 30, "--", sys.executable, "-c", code)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreaterEqual(float(done.stdout), 0.020)  # there and back

    def test_corrupted_bytes_pass_the_checksum_and_arrive(self):
        got, _, end, same, _ = self.bulk(1e6, "--rate", "100mbit", "--corrupt", "1%")
        self.assertEqual((got, end), (1000000, "end"))
        self.assertFalse(same)

    def test_connections_are_reset_after_the_given_bytes(self):
        got, _, end, same, _ = self.bulk(4e6, "--rate", "100mbit", "--reset-after", "1MB")
        self.assertEqual(end, "reset")
        self.assertLessEqual(got, 1000000 + 65536)
        # at least half was let through, and a reset may take a part of that from the receiver
        self.assertGreaterEqual(got, 300000)
        again = self.bulk(4e6, "--rate", "100mbit", "--reset-after", "1MB")
        self.assertEqual(again[2], "reset")

    def test_a_host_that_was_cut_off_is_silent_until_it_is_healed(self):
        for options in ((), ("--proxy",)):
            code = """
import os, socket, subprocess, time
answer = 'c, _ = socket.create_server(("", 5000)).accept(); c.sendall(c.recv(1)); c.sendall(c.recv(1))'
server = subprocess.Popen([os.environ["NETLAB_TOOL"], "rsh", "h2", "exec", "python3", "-c",
                           f"'import socket; {answer}'"])
for _ in range(200):
    try: c = socket.create_connection(("h2", 5000)); break
    except OSError: time.sleep(0.02)
c.settimeout(1)
c.sendall(b"a"); assert c.recv(1) == b"a"
subprocess.run([os.environ["NETLAB_TOOL"], "cut", "h2"], check=True)
c.sendall(b"b")
try: c.recv(1); print("heard")
except TimeoutError: print("silence")
subprocess.run([os.environ["NETLAB_TOOL"], "heal", "h2"], check=True)
c.settimeout(20)
print(c.recv(1))
server.wait()
"""
            done = netlab("-n", 2, *options, "--timeout", 50, "--", sys.executable, "-c", code,
                          environment=dict(os.environ, NETLAB_TOOL=NETLAB))
            self.assertEqual((done.returncode, done.stdout), (0, "silence\nb'b'\n"), done.stderr)

    def test_rsh_is_like_ssh_and_hosts_have_names(self):
        script = """
test "$(hostname)" = h1 || exit 1
echo given | {0} rsh h3 cat '|' sed s/given/taken/
{0} rsh -o BatchMode=yes -T me@h2 'hostname; exit 7'
echo $?
getent hosts h3
{0} rsh h9 true
""".format(NETLAB)
        done = netlab("-n", 3, "--", "sh", "-c", script)
        self.assertEqual(done.stdout.split(), ["taken", "h2", "7", "10.77.0.3", "h3"], done.stderr)
        self.assertIn("netlab: there is no host 'h9' in this lab; it has h1, h2, h3", done.stderr)

    def test_the_command_decides_the_exit_code(self):
        self.assertEqual(netlab("-n", 1, "--", "sh", "-c", "exit 9").returncode, 9)
        self.assertEqual(netlab("-n", 2, "--each", "--", "sh", "-c", "exit $((RANK * 5))").returncode, 5)
        self.assertEqual(netlab("-n", 1, "--", "sh", "-c", "kill -9 $$").returncode, 137)
        late = netlab("-n", 1, "--timeout", 0.3, "--", "sleep", 100)
        self.assertEqual(late.returncode, 124)
        self.assertIn("still running after 0.3 s", late.stderr)

    def start(self, *options):
        run = subprocess.Popen([NETLAB, "-n", "2", *options, "--each", "--", "sh", "-c",
                                "echo $NETLAB $$; exec sleep 1000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
        first = run.stdout.readline().split()
        second = run.stdout.readline().split()
        self.assertEqual(first[0], second[0], run.stderr.read() if not first else "")
        self.assertTrue(traces_of(first[0]))
        return run, first[0], [int(first[1]), int(second[1])]

    def processes_are_gone(self, pids):
        until = time.monotonic() + 20
        while any(os.path.exists("/proc/%d" % p) for p in pids):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)

    def test_signals_end_the_lab_with_all_in_it(self):
        for sign in (signal.SIGINT, signal.SIGTERM):
            run, lab, pids = self.start()
            run.send_signal(sign)
            run.communicate(timeout=30)
            self.assertEqual(run.returncode, 128 + sign)
            self.assertEqual(traces_of(lab), [])
            self.processes_are_gone(pids)

    def test_a_killed_lab_is_cleaned_up_behind_it(self):
        for options in ((), ("--proxy", "--rate", "10mbit")):
            run, lab, pids = self.start(*options)
            run.kill()
            run.communicate(timeout=30)
            self.assertEqual(gone(lab), [])
            self.processes_are_gone(pids)

    def test_remains_of_dead_owners_are_removed_at_next_start(self):
        """Its watching child was killed, too: a name of a process that is not there any more."""
        owner = subprocess.Popen(["sleep", "1000"])  # it lives until all is there: other labs may start at any time
        with open("/proc/%d/stat" % owner.pid) as f:
            lab = "netlab-%d-%s" % (owner.pid, f.read().rsplit(")", 1)[1].split()[19])
        subprocess.run(["ip", "netns", "add", lab + "-h1"], check=True)
        os.makedirs("/etc/netns/%s-h1" % lab)
        mine = subprocess.Popen(["ip", "netns", "exec", lab + "-h1", "sh", "-c", "echo in; exec sleep 1000"],
                                stdout=subprocess.PIPE)
        self.assertEqual(mine.stdout.readline(), b"in\n")
        owner.kill()
        owner.wait()
        other, lives, pids = self.start()
        self.assertEqual(traces_of(lab), [])
        self.assertEqual(mine.wait(20), -signal.SIGKILL)
        self.assertEqual(netlab("-n", 1, "--", "true").returncode, 0)  # and one that lives is left alone
        self.assertTrue(traces_of(lives))
        other.terminate()
        other.communicate(timeout=30)

    def test_invalid_arguments_are_rejected_with_a_message(self):
        for arguments, sentence in ((["-n", 2], "no command to run; write it behind --"),
                                    (["-n", 0, "--", "true"], "0 hosts with 1 ranks each"),
                                    (["-n", 3, "--direct", "--", "true"], "--direct joins 2 hosts, not 3"),
                                    (["-n", 2, "--rate", "fast", "--", "true"], "rate 'fast' is refused"),
                                    (["-n", 2, "--steady", "--", "true"], "--steady is of a --rate, such as 1gbit"),
                                    (["-n", 2, "--cc", "nonsense", "--", "true"],
                                     "congestion control 'nonsense' cannot be set")):
            done = netlab(*arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(sentence, done.stderr)
        self.assertEqual(netlab("-n", 2, "--each", "--corrupt", "2", "--", "true").returncode, 1)  # the proxy says why
        self.assertEqual(subprocess.run([NETLAB, "rsh", "h1", "true"], capture_output=True,
                                        env=dict(os.environ, NETLAB="netlab-0-0")).returncode, 2)


loader = importlib.machinery.SourceFileLoader("proxy", NETLAB + "-proxy")
proxy = importlib.util.module_from_spec(importlib.util.spec_from_loader("proxy", loader))
loader.exec_module(proxy)


class Unplugged(proxy.Proxy):
    """A proxy without ports: frames are given to it and noted."""
    def __init__(self, *words):
        self.sent = []
        super().__init__(proxy.options([*map(str, words), "a", "b"]))

    def open(self, port):
        return None

    def send(self, port, frame):
        self.sent.append((port, frame))


def frames(n):
    """TCP over IPv4 from a to b, with right checksums."""
    addresses = bytes([10, 77, 0, 1, 10, 77, 0, 2])
    for k in range(n):
        payload = bytes((k * 31 + i * 7) % 251 for i in range(200 + k % 7))
        tcp = struct.pack(">HHIIBBHHH", 40000, 5000, 1000 + 300 * k, 1, 5 << 4, 16, 1000, 0, 0) + payload
        tcp = tcp[:16] + struct.pack(">H",
                                     proxy.checksum(addresses + struct.pack(">BBH", 0, 6, len(tcp)) + tcp)) + tcp[18:]
        yield b"\2" * 6 + b"\1" * 6 + b"\x08\x00" + struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6,
                                                                0) + addresses + tcp


def fate(*words, n=400):
    """What comes out of n frames: for each copy its frame's number in sequence, and the frame."""
    p = Unplugged(*words)
    for frame in frames(n):
        p.take(0, frame, 0.0)
    return [((struct.unpack_from(">I", frame, 38)[0] - 1000) // 300, frame) for port, frame in p.sent if port == 1]


class Proxy(unittest.TestCase):
    def test_frame_faults_are_determined_by_the_seed(self):
        for words in (("--loss", "10%"), ("--duplicate", "10%"), ("--corrupt", "10%"),
                      ("--loss", "5%", "--duplicate", "5%", "--corrupt", "5%", "--reorder", "5%")):
            five = fate(*words, "--seed", 5)
            self.assertEqual(five, fate(*words, "--seed", 5), words)
            self.assertNotEqual(five, fate(*words, "--seed", 6), words)
            self.assertNotEqual(five, fate(), words)
        self.assertEqual([k for k, _ in fate()], list(range(400)))

    def test_corruption_flips_one_bit_and_fixes_the_checksum(self):
        sent, wrong = list(frames(400)), 0
        for k, got in fate("--corrupt", "10%"):
            if got == sent[k]:
                continue
            wrong += 1
            self.assertEqual(sum(bin(x ^ y).count("1") for x, y in zip(got[54:], sent[k][54:])), 1)
            self.assertEqual(got[:50] + got[52:54], sent[k][:50] + sent[k][52:54])
            self.assertEqual(proxy.checksum(got[26:34] + struct.pack(">BBH", 0, 6, len(got) - 34) + got[34:]), 0)
        self.assertTrue(20 <= wrong <= 60, wrong)


class Refusals(unittest.TestCase):
    @unittest.skipUnless(os.geteuid() == 0, "needs root to become somebody else")
    def test_missing_root_privileges_are_reported_with_exit_code_77(self):
        with tempfile.TemporaryDirectory() as folder: # the tree may lie where only root looks
            os.chmod(folder, 0o755)
            done = subprocess.run([shutil.copy(NETLAB, folder), "-n", "2", "--", "true"], capture_output=True,
                                  text=True, user=65534, group=65534)
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertIn("network namespaces need root; start it as root (it is user 65534 now)", done.stderr)

    def test_missing_programs_are_reported_with_exit_code_77(self):
        with tempfile.TemporaryDirectory() as empty:
            done = subprocess.run([sys.executable, NETLAB, "-n", "2", "--", "true"], capture_output=True, text=True,
                                  env={"PATH": empty})
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertRegex(done.stderr, "need root|there is no program 'ip'; install iproute2")


if __name__ == "__main__":
    together(4, alone=["test_rates"])
