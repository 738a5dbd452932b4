"""`tutti doctor`, in surroundings that lack something: a namespace with a small /dev/shm and no names, Pythons of every
kind. What is found is compared, line by line."""
import shutil, sys, time, unittest
from command import *

# torch as far as doctor asks it. `cards`: their names.
TORCH = """
import types
__version__ = "2.11.0"
version = types.SimpleNamespace(cuda=%r, hip=None)
cards = %r
get_num_threads = lambda: 4
distributed = types.SimpleNamespace(is_available=lambda: True, is_gloo_available=lambda: True,
                                    is_nccl_available=lambda: bool(cards))
def ones(n, device):
    if "broken" in cards[int(device[-1])]:
        raise RuntimeError("CUDA error: no kernel image is available\\nfor execution on the device")
    return types.SimpleNamespace(sum=lambda: types.SimpleNamespace(item=lambda: 2.0))
cuda = types.SimpleNamespace(
    is_available=lambda: bool(cards), device_count=lambda: len(cards),
    get_device_properties=lambda k: types.SimpleNamespace(name=cards[k], major=9, minor=0, total_memory=140 << 30))
"""


def namespaces():
    """Whether this process may make its own network and mounts."""
    return shutil.which("unshare") and subprocess.run(["unshare", "-mn", "true"], capture_output=True).returncode == 0


class Doctor(Case):
    def script(self, name, text):
        """An executable file of a folder of its own; the folder's path."""
        folder = self.out(name)
        os.makedirs(folder)
        with open(f"{folder}/python3", "w") as f:
            f.write("#!/bin/sh\n" + text)
        os.chmod(f"{folder}/python3", 0o755)
        return folder

    def bare(self, name, more=""):
        """A Python without packages but those in the folder `more`."""
        return self.script(name, f'[ -z "{more}" ] || export PYTHONPATH={more}\nexec {sys.executable} -S -B "$@"\n')

    def doctor(self, *words, code=0, before=(), **environment):
        done = subprocess.run([*before, TUTTI, "doctor", *words], capture_output=True, text=True, timeout=60,
                              env=clean_environment(VIRTUAL_ENV="", PYTHONPATH="", **environment))
        self.assertEqual((done.returncode, done.stderr), (code, ""), done.stdout)
        return done.stdout

    def findings(self, *words, **more):
        """Of each name the state, what was found, what mends it; of a name that is there twice a list of them."""
        answer = json.loads(self.doctor("--json", *words, **more))
        self.assertEqual(set(answer), {"tutti", "system", "works", "findings"})
        self.assertEqual(answer["works"], more.get("code", 0) == 0)
        named = {}
        for f in answer["findings"]:
            named.setdefault(f["name"], []).append((f["state"], f["found"], f["mend"]))
        return {name: rows[0] if len(rows) == 1 else rows for name, rows in named.items()}

    def test_the_page_has_every_finding_of_the_json(self):
        path = self.bare("plain")
        page, answer = self.doctor(PATH=path), json.loads(self.doctor("--json", PATH=path))
        self.assertTrue(page.startswith(f"Tutti {answer['tutti']} on {answer['system']}\n\n"))
        self.assertTrue(page.endswith("\nAll that Tutti needs works.\n"))
        words = " ".join(page.split())
        for f in answer["findings"]:
            if f["name"] not in ("/dev/shm", "memory"): # other programs change them
                found = f["found"].partition(" (")[0] # what a resolver says differs from one time to another
                self.assertIn(" ".join((f"{f['state']} {f['name']} {found}").split()), words)
            if f["mend"]:
                self.assertIn("to mend it " + f["mend"], words)
        self.assertTrue(all(len(line) <= 80 or " " not in line[24:] for line in page.splitlines()), page)
        self.assertEqual([f["name"] for f in answer["findings"]][:6],
                         ["cores", "memory", "shared memory", "/dev/shm", "open files", "loopback"])

    def test_python_without_pytorch(self):
        found = self.findings(PATH=self.bare("no-torch"))
        self.assertEqual(found["Python"][0], "works")
        self.assertEqual(found["PyTorch"], (
            "absent", "this Python has no module torch",
            "pip install torch, or name another with --python; the command trains without it"))
        self.assertEqual(found["package tutti"],
                         ("absent", "this Python has no module tutti", "pip install . in Tutti's folder"))
        self.assertNotIn("card", found)

    def modules(self, **texts):
        folder = scratch()
        self.addCleanup(shutil.rmtree, folder)
        for name, text in texts.items():
            with open(f"{folder}/{name}.py", "w") as f:
                f.write(text)
        return folder

    def test_a_pytorch_that_is_too_old(self):
        old = TORCH.replace("2.11.0", "2.9.1+cpu") % (None, [])
        found = self.findings(PATH=self.bare("old-torch", self.modules(torch=old)))
        self.assertEqual(found["PyTorch"], (
            "limited", "2.9.1+cpu, built for CPUs, 4 threads; tutti.torch needs 2.10 or newer",
            "pip install --upgrade 'torch>=2.10'"))

    def test_pytorch_and_its_cards(self):
        version = tutti("version").stdout.split()[1]
        folder = self.modules(torch=TORCH % ("13.0", ["NVIDIA H200", "a broken one"]),
                              tutti=f"__version__ = {version!r}")
        found = self.findings(PATH=self.bare("cards", folder))
        self.assertEqual(found["PyTorch"], ("works", "2.11.0, built for CUDA 13.0, 4 threads", ""))
        self.assertEqual(found["torch.distributed"], ("works", "backends: gloo, nccl", ""))
        self.assertEqual(found["card"], [
            ("works", "cuda:0 is NVIDIA H200, sm_90, 140 GiB", ""),
            ("limited", "cuda:1 is a broken one, sm_90, 140 GiB; it computes nothing: RuntimeError: CUDA error: no "
             "kernel image is available for execution on the device",
             "a driver and a build of torch that fit each other and the card")])
        self.assertEqual(found["package tutti"], ("works", f"{version}, {folder}", ""))

        folder = self.modules(torch=TORCH % (None, []), tutti="__version__ = '0.0.1'")
        found = self.findings(PATH=self.bare("cpu", folder))
        self.assertEqual(found["PyTorch"][1], "2.11.0, built for CPUs, 4 threads")
        self.assertEqual(found["torch.distributed"][1], "backends: gloo")
        if not os.path.exists("/dev/nvidiactl"):
            self.assertEqual(found["card"], ("absent", "PyTorch sees none; it computes on the cores", ""))
        self.assertEqual(found["package tutti"], ("limited", f"0.0.1, {folder}; the command is {version}",
                                                  "install the command and the package together"))

    def test_modules_that_cannot_be_imported_fail(self):
        folder = self.modules(torch="import nothing_of_this_name",
                              tutti="raise ImportError('libsodium.so.23: no file')")
        found = self.findings(PATH=self.bare("broken", folder), code=1)
        self.assertEqual(found["PyTorch"], (
            "fails", "import torch: ModuleNotFoundError: No module named 'nothing_of_this_name'",
            "install torch again"))
        self.assertEqual(found["package tutti"], ("fails", "import tutti: ImportError: libsodium.so.23: no file",
                                                  "install the command and the package together"))
        self.assertTrue(self.doctor(PATH=self.out("broken"), code=1).endswith("\n2 of what Tutti needs do not work.\n"))

    def test_python_that_hangs_is_ended_with_what_it_has_started(self):
        said = json.dumps({"name": "Python", "state": "works", "found": "3.12.0", "mend": ""})
        pid, ended = self.out("hangs") + "/pid", time.monotonic()
        path = self.script("hangs", f"echo '{said}'\nsleep 1000 & echo $! > {pid}\nwait\n") + ":/bin:/usr/bin"
        found = self.findings("--limit", "0.5", PATH=path, code=1)
        self.assertLess(time.monotonic() - ended, 30)
        self.assertEqual(found["Python"], [("works", "3.12.0", ""), (
            "fails", "python3 has not ended within 0.5 s; its last answer was of Python",
            "see what `python3 -c 'import torch, tutti'` does; where it only takes its time, --limit gives it more")])
        with open(pid) as f:
            sleeper = int(f.read())
        for _ in range(100): # whoever adopts it has to ask for it
            if not alive(sleeper):
                break
            time.sleep(0.05)
        self.assertFalse(alive(sleeper))

    def test_python_that_closes_its_output_and_hangs_is_ended(self):
        path, begun = self.script("closes", "exec >&- 2>&-\nsleep 1000\n") + ":/bin:/usr/bin", time.monotonic()
        found = self.findings("--limit", "0.5", PATH=path, code=1)
        self.assertLess(time.monotonic() - begun, 30)
        self.assertIn("has not ended within 0.5 s", found["Python"][1])

    def test_python_that_dies_is_told_of_with_its_last_words(self):
        for k, (text, ended) in enumerate((("kill -SEGV $$", "signal 11 after it answered of nothing"),
                ("echo 'no such library' >&2; exit 5", "exit code 5 after it answered of nothing: no such library"),
                ("printf 'a\\377\\tb\\n'; exit 5", "exit code 5 after it answered of nothing: a? b"),
                ("head -c 100000 /dev/zero | tr '\\0' x; exit 6", "exit code 6 after it answered of nothing"))):
            path = self.script(f"dies-{k}", text + "\n") + ":/bin:/usr/bin"
            state, found, mend = self.findings(PATH=path, code=1)["Python"]
            self.assertEqual((state, mend), ("fails", "see what `python3 -c 'import torch, tutti'` does"))
            self.assertTrue(found.startswith(f"python3 ended with {ended}"), found)

    def test_which_python_is_asked(self):
        empty = self.out("empty")
        os.makedirs(empty)
        self.assertEqual(self.findings(PATH=empty)["Python"], (
            "absent", "there is no 'python3' in $PATH, so nothing is known of PyTorch",
            "install python3, or name one with --python"))
        self.assertEqual(self.findings("--python", empty + "/snake", PATH=empty, code=1)["Python"],
                         ("fails", f"there is no '{empty}/snake'", "name one that is there"))
        home = self.out("home")
        os.makedirs(home)
        os.rename(self.script("in-home", f'exec {sys.executable} -S "$@"'), home + "/bin")
        os.rename(home + "/bin/python3", home + "/bin/python")
        done = subprocess.run([TUTTI, "doctor", "--json"], capture_output=True, text=True,
                              env=clean_environment(VIRTUAL_ENV=home, PATH=empty))
        self.assertEqual([f["state"] for f in json.loads(done.stdout)["findings"] if f["name"] == "Python"], ["works"])

    def test_limits_of_the_process(self):
        os.makedirs(self.out("nothing"))
        found = self.findings(PATH=self.out("nothing"), before=["/bin/sh", "-c", "ulimit -n 300; exec \"$@\"", "sh"])
        self.assertEqual(found["open files"], (
            "limited", "300 at most; over tcp a worker has a connection with each other",
            "raise the hard limit (ulimit -Hn, limits.conf)"))
        found = self.findings(PATH=self.out("nothing"), code=1,
                              before=["/bin/sh", "-c", "ulimit -f 1024; exec \"$@\"", "sh"])
        self.assertEqual(found["shared memory"], (
            "fails", "8 MiB by memfd_create, which the transport shm needs: File too large",
            "allow memfd_create, lift the limit of files (ulimit -f), or give the process more memory; else "
            "--transport tcp"))

    def test_surroundings_that_lack_something(self):
        if not namespaces():
            narrowed("no namespaces here, so a small /dev/shm and a host without names were not tried")
            self.skipTest("no namespaces here")
        os.makedirs(self.out("none"))
        for name, text in (("hosts", ""), ("nsswitch", "hosts: files\n")):
            with open(self.out(name), "w") as f:
                f.write(text)
        inside = (f"mount --bind {self.out('hosts')} /etc/hosts; "
                  f"[ ! -e /etc/nsswitch.conf ] || mount --bind {self.out('nsswitch')} /etc/nsswitch.conf; "
                  "mount -t tmpfs -o size=64m tmpfs /dev/shm; head -c 60m /dev/zero > /dev/shm/full; exec \"$@\"")
        found = self.findings(PATH=os.environ["PATH"], code=1, before=["unshare", "-mn", "/bin/sh", "-c", inside, "sh"])
        self.assertEqual(found["/dev/shm"], (
            "limited", "4 MiB free of 64; Tutti needs none, workers of a DataLoader, NCCL and MPI do",
            "docker run --shm-size=2g, or mount -o remount,size=2g /dev/shm"))
        self.assertEqual(found["shared memory"][0], "works")
        self.assertEqual(found["loopback"], (
            "fails", "no connection to 127.0.0.1, where workers of this host meet: Network is unreachable",
            "ip link set lo up"))
        self.assertEqual(found["network"], ("absent", "no interface but loopback: this host trains alone", ""))
        self.assertEqual(found["localhost"][0], "limited")
        self.assertRegex(found["localhost"][1], r"^'localhost' has no address \(.*\); Tutti asks for none, torchrun "
                         r"--standalone, Gloo and MPI do$")
        self.assertEqual(found["localhost"][2], "echo '127.0.0.1 localhost' >> /etc/hosts")
        self.assertEqual(found["host name"][2], f"echo '127.0.1.1 {os.uname().nodename}' >> /etc/hosts, or "
                         "GLOO_SOCKET_IFNAME=lo")

    def test_what_is_loaded_at_need(self):
        os.makedirs(self.out("path"))
        found = self.findings(PATH=self.out("path"))
        for title, name in (("Open MPI", "mpi-openmpi"), ("MPICH", "mpi-mpich"), ("SimGrid", "sim")):
            there = os.path.exists(os.path.join(os.path.dirname(TUTTI), f"../lib/libtutti_transport_{name}.so"))
            wanted = ("works", f"the transport {name} can be loaded") if there else \
                ("absent", f"this installation has no transport {name}")
            self.assertEqual(found[title][:2], wanted)
        self.assertEqual(found["transports"], ("works", "built in: shm, tcp", ""))
        # an installation of its own, whose plug-in is no library
        for folder in ("installed/bin", "installed/lib"):
            os.makedirs(self.out(folder))
        shutil.copy(TUTTI, self.out("installed/bin"))
        with open(self.out("installed/lib/libtutti_transport_sim.so"), "w") as f:
            f.write("nonsense")
        done = subprocess.run([self.out("installed/bin/tutti"), "doctor", "--json"], capture_output=True, text=True,
                              env=clean_environment(PATH=self.out("path")))
        self.assertEqual(done.returncode, 0, done.stderr)
        sim = next(f for f in json.loads(done.stdout)["findings"] if f["name"] == "SimGrid")
        self.assertEqual((sim["state"], sim["mend"]),
                         ("limited", "install again what it names, or build Tutti again here"))
        self.assertRegex(sim["found"], "^the transport sim cannot be loaded: .*libtutti_transport_sim.so.*")
        openmpi = next(f for f in json.loads(done.stdout)["findings"] if f["name"] == "Open MPI")
        self.assertEqual(openmpi["state"], "absent")

    def test_plugin_without_its_library_is_advised_to_install_that(self):
        for folder in ("wheel/bin", "wheel/lib"):
            os.makedirs(self.out(folder))
        shutil.copy(TUTTI, self.out("wheel/bin"))
        for source, flags in (("libother.so.7", ["-Wl,-soname,libother.so.7"]),
                              ("lib/libtutti_transport_sim.so", []), ("lib/libtutti_transport_mpi-openmpi.so", [])):
            needs = [] if flags else [self.out("wheel/libother.so.7")]
            subprocess.run([os.environ.get("CC", "cc"), "-shared", "-x", "c", "/dev/null", "-x", "none",
                            "-Wl,--no-as-needed", *needs, *flags, "-o", self.out(f"wheel/{source}")], check=True)
        os.remove(self.out("wheel/libother.so.7"))
        env = clean_environment(PATH=os.environ["PATH"])
        command = self.out("wheel/bin/tutti")
        done = subprocess.run([command, "doctor", "--json"], capture_output=True, text=True, env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {f["name"]: f for f in json.loads(done.stdout)["findings"]}
        self.assertEqual(found["SimGrid"], {
            "name": "SimGrid", "state": "limited",
            "found": "the transport 'sim' needs libother.so.7, which this machine has not",
            "mend": "install that SimGrid (Debian's package libsimgrid of the same number), or libsimgrid-dev and "
                    "Tutti from its source; only --transport sim needs it"})
        # its library has the number 40, and Debian 12's package 3
        self.assertEqual(found["Open MPI"]["mend"], (
            "install that Open MPI (Debian's package libopenmpi40, libopenmpi3 before Debian 13), or libopenmpi-dev "
            "and Tutti from its source; only --transport mpi needs it"))
        done = subprocess.run([command, "train", "--model", "mlp", "-n", "2", "--transport", "sim"],
                              capture_output=True, text=True, env=env)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "tutti: the transport 'sim' needs libother.so.7, which this machine has not; "
                                      "`tutti doctor` tells how to get it\n")

    def test_usage(self):
        self.refused("tutti doctor: it takes no 'nonsense'; see `tutti doctor --help`", "doctor", "nonsense")
        self.refused("--limit", "doctor", "--limit", "soon")
        self.refused("--limit", "doctor", "--limit", "0")
        page = " ".join(tutti("doctor", "--help").stdout.split())
        self.assertIn("The exit code is 1 if anything fails, else 0.", page)
        for option in ("--python", "--limit", "--json"):
            self.assertIn(option, page)


if __name__ == "__main__":
    unittest.main(verbosity=2)
