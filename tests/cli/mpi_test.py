"""`tutti train` under MPI's own launchers (every method and codec: transports_test.py). TUTTI_MPI
names those for which a transport was built:
"openmpi:/usr/bin/mpirun.openmpi|mpich:/usr/bin/mpiexec.mpich"."""
import itertools, json, os, signal, subprocess, time, unittest
from command import *

LAUNCHERS = dict(pair.split(":", 1) for pair in os.environ.get("TUTTI_MPI", "").split("|") if ":" in pair)
COMMON = ("--model", "mlp(hidden=48)", "--epochs", 2, "--batch", 16, "--seed", 7, "--threads", 1)
for kind in ("openmpi", "mpich"):
    if LAUNCHERS and kind not in LAUNCHERS:
        narrowed("nothing of this under " + kind)
MODEL = 784 * 48 + 48 + 48 * 48 + 48 + 48 * 10 + 10  # its elements


def mpirun(kind, n):
    """More ranks than cores, as root if need be, on this host only. A rank that waits in a call of
    MPI yields its core, even if there are as many cores as ranks, since other tests run concurrently.
    MPI leaks memory at its end, which these tests ignore. hwloc would look for GPUs on ten X displays of localhost,
    and where no file has that name it waits for a name server."""
    leaks = {"ASAN_OPTIONS": ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "detect_leaks=0"]))}
    if kind == "openmpi":
        return [LAUNCHERS[kind], "--oversubscribe", "-n", str(n)], {
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
            "HWLOC_COMPONENTS": "-gl", **leaks}
    return [LAUNCHERS[kind], "-n", str(n)], leaks


def in_turn(*items):
    """Each with a launcher: what does not go by the implementation is shown under one of them,
    since a job takes its time to start."""
    return zip(itertools.cycle(sorted(LAUNCHERS)), items)


def libfabric():
    """Has Open MPI the part that goes through libfabric, and libfabric its provider for TCP?"""
    try:
        mine = subprocess.run(["ompi_info"], capture_output=True, text=True, timeout=60).stdout
        providers = subprocess.run(["fi_info", "-p", "tcp;ofi_rxm"], capture_output=True, text=True, timeout=60)
        return "MCA mtl: ofi" in mine and providers.returncode == 0
    except OSError:
        return False


def under(kind, n, *arguments, command=(TUTTI,), timeout=120, **environment):
    """Over mpi unless another transport is given: on one host `tutti train` would take shm."""
    launcher, variables = mpirun(kind, n)
    environment.setdefault("TUTTI_TRANSPORT", "mpi")
    return subprocess.run([*launcher, *command, *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                          env=clean_environment(**variables, **environment))


@unittest.skipIf(not LAUNCHERS, "skipped: built without MPI, or its launchers are not installed")
class MPI(Case):
    def test_rows_of_tables_go_to_servers(self):
        log = os.path.join(self.folder, "clicks.tsv")
        tutti("data", "clicks", "--samples", 3000, "--values", 10, "--out", log)
        ctr = ("--model", "ctr(dim=4,layers=1,hidden=16)", "--data", f"clicks(file={log},rows=2000,val=0.25)",
               "--steps", 12, "--batch", 16, "--seed", 7, "--threads", 1)
        shm = self.train("rows", *ctr, "-n", 3, "--method", "parameter-server")
        for kind, method in in_turn("parameter-server", "asgd", "ssp(staleness=1)", "parallax(profile=0)"):
            out = os.path.join(self.folder, "rows" + kind + method[:4])
            r = under(kind, 3, "train", *ctr, "--method", method, "--overwrite", "--out", out)
            self.assertEqual(r.returncode, 0, method + r.stderr + r.stdout)
            s = summary(out)
            self.assertLess(s["bytes_sent_total"],
                            0.1 * 12 * 3 * 2 * 4 * 26 * 2000 * 4 + 2 * 4 * (26 * 2000 * 4 + 4096), method)
            if method.startswith("par"):  # synchronous: one model
                self.assertEqual(read(os.path.join(out, "model.safetensors")),
                                 read(os.path.join(shm, "model.safetensors")))
            if method == "parameter-server":
                self.assertEqual(s["bytes_sent_total"], summary(shm)["bytes_sent_total"])

    def test_last_processes_may_be_dedicated_servers(self):
        shm = self.train("dedicated", *COMMON, "--data", self.data, "-n", 2, "--method", "parameter-server",
                         "--servers", 1)
        for kind, method in in_turn("ringmaster-asgd", "parameter-server"):
            out = os.path.join(self.folder, "dedicated" + kind + method)
            r = under(kind, 3, "train", *COMMON, "--data", self.data, "--method", method, "--servers", 1, "--out", out)
            self.assertEqual(r.returncode, 0, method + r.stderr + r.stdout)
            s = summary(out)
            self.assertEqual((s["transport"], s["workers"], s["servers"], s["events"]), ("mpi", 2, 1, []))
            if method == "parameter-server":
                self.assertEqual(read(os.path.join(out, "model.safetensors")),
                                 read(os.path.join(shm, "model.safetensors")))
                self.assertEqual(s["bytes_sent_total"], summary(shm)["bytes_sent_total"])
        r = under(kind, 2, "train", *COMMON, "--data", self.data, "--method", "asgd", "--servers", 2,
                  "--out", os.path.join(self.folder, "none"))
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("servers is 2, but", r.stderr + r.stdout)

    def test_ddp_gives_the_same_bytes_as_over_shared_memory(self):
        for n in (2, 4):
            shm = self.train("shm%d" % n, *COMMON, "--data", self.data, "-n", n)
            for kind in LAUNCHERS:
                out = os.path.join(self.folder, "%s%d" % (kind, n))
                r = under(kind, n, "train", *COMMON, "--data", self.data, "--out", out)
                self.assertEqual(r.returncode, 0, r.stderr + r.stdout)
                self.assertEqual(read(os.path.join(shm, "model.safetensors")),
                                 read(os.path.join(out, "model.safetensors")), kind)
                s = summary(out)
                self.assertEqual((s["transport"], s["workers"], s["events"]), ("mpi", n, []))
                self.assertEqual(s["bytes_sent_total"], summary(shm)["bytes_sent_total"])
                self.assertTrue(os.path.exists(os.path.join(out, "config.json")))

    def test_the_transport_may_be_named(self):
        for kind in LAUNCHERS:
            out = os.path.join(self.folder, "named" + kind)
            r = under(kind, 3, "train", *COMMON, "--data", self.data,
                      "--transport", "mpi(implementation=%s,threads=multiple)" % kind, "--out", out)
            self.assertEqual(r.returncode, 0, r.stderr + r.stdout)
            self.assertEqual(summary(out)["transport"], "mpi")

    def test_a_run_over_shared_memory_is_resumed_by_mpirun(self):
        half = self.train("half", *COMMON, "--data", self.data, "-n", 2, "--checkpoint-every", 10)
        with open(os.path.join(half, "config.json")) as f:
            self.assertEqual(json.load(f)["transport"], "shm")
        whole = self.train("whole", "--resume", half, "--epochs", 3)
        kind = sorted(LAUNCHERS)[-1]
        out = os.path.join(self.folder, "resumed")
        r = under(kind, 2, "train", "--resume", half, "--epochs", 3, "--out", out)
        self.assertEqual(r.returncode, 0, r.stderr + r.stdout)
        self.assertEqual(summary(out)["transport"], "mpi")
        self.assertEqual(read(os.path.join(out, "model.safetensors")), read(os.path.join(whole, "model.safetensors")))
        r = under(kind, 2, "train", "--resume", half, "--epochs", 4, "--transport", "sim",
                  "--out", os.path.join(self.folder, "said"))
        self.assertIn("live in one process", r.stderr)

    def test_numa_nodes_do_not_change_the_bits_of_sums(self):
        shm = self.train("nodes", *COMMON, "--data", self.data, "-n", 4)
        for kind, nodes in in_turn("1", "2"):
            out = os.path.join(self.folder, "nodes%s%s" % (nodes, kind))
            r = under(kind, 4, "train", *COMMON, "--data", self.data, "--collective", "hierarchy", "--out", out,
                      TUTTI_NODES=nodes)
            self.assertEqual(r.returncode, 0, r.stderr + r.stdout)
            self.assertEqual(read(os.path.join(shm, "model.safetensors")), read(os.path.join(out, "model.safetensors")),
                             (kind, nodes))
        r = under(kind, 2, "train", *COMMON, "--data", self.data, "--out", os.path.join(self.folder, "none"),
                  TUTTI_NODES="many")
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("TUTTI_NODES is 'many'; it must be the number of NUMA nodes of each host, 1 to 1024", r.stderr)

    @unittest.skipIf("openmpi" not in LAUNCHERS or not libfabric(), "skipped: no Open MPI with libfabric")
    def test_open_mpi_over_libfabric_gives_the_same_bytes(self):
        """InfiniBand, EFA and Slingshot are providers of the same path (docs/MPI.md); with pml cm
        and mtl ofi Open MPI takes it or does not start. Here its provider is TCP."""
        shm = self.train("shm", *COMMON, "--data", self.data, "-n", 4)
        out = os.path.join(self.folder, "fabric")
        fabric = dict(OMPI_MCA_pml="cm", OMPI_MCA_mtl="ofi", OMPI_MCA_mtl_ofi_provider_include="tcp;ofi_rxm")
        r = under("openmpi", 4, "train", *COMMON, "--data", self.data, "--out", out, **fabric)
        self.assertEqual(r.returncode, 0, r.stderr + r.stdout)
        self.assertEqual(read(os.path.join(shm, "model.safetensors")), read(os.path.join(out, "model.safetensors")))
        self.assertEqual(summary(out)["transport"], "mpi")
        r = under("openmpi", 4, "train", *COMMON, "--data", self.data, "--out", out + "-none",
                  **{**fabric, "OMPI_MCA_mtl_ofi_provider_include": "none-of-these"})
        self.assertNotEqual(r.returncode, 0) # so the first run did not go another way

    def test_mpi_thread_funneled_works_without_a_lane(self):
        shm = self.train("shm", *COMMON, "--data", self.data, "-n", 2)
        for kind in LAUNCHERS:
            out = os.path.join(self.folder, "funneled" + kind)
            r = under(kind, 2, "train", *COMMON, "--data", self.data, "--transport", "mpi(threads=funneled)",
                      "--lane", "off", "--out", out)
            self.assertEqual(r.returncode, 0, r.stderr + r.stdout)
            self.assertEqual(read(os.path.join(shm, "model.safetensors")), read(os.path.join(out, "model.safetensors")),
                             kind)
        # a small vector would wait for the end of the step, lane or not
        large = ("--model", "mlp(hidden=512)", *COMMON[2:])
        r = under(kind, 2, "train", *large, "--data", self.data, "--transport", "mpi(threads=funneled)", "--lane", "on",
                  "--out", out + "-lane")
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("MPI_THREAD_FUNNELED", r.stderr)

    def test_the_wrong_implementation_is_refused_before_anything_is_trained(self):
        for kind in LAUNCHERS:
            other = "mpich" if kind == "openmpi" else "openmpi"
            out = os.path.join(self.folder, "wrong" + kind)
            r = under(kind, 2, "train", *COMMON, "--data", self.data, "--transport", "mpi(implementation=%s)" % other,
                      "--out", out)
            self.assertNotEqual(r.returncode, 0)
            self.assertIn("a world of 1", r.stderr, f"{kind} ended with {r.returncode}: {r.stdout}")
            self.assertFalse(os.path.exists(os.path.join(out, "model.safetensors")))

    def test_missing_mpi_launcher_error_explains_how_to_start(self):
        r = tutti("train", *COMMON, "--data", self.data, "-n", 2, "--transport", "mpi",
                  "--out", os.path.join(self.folder, "alone"))
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("mpirun -n 4 tutti train", r.stderr)

    def test_a_number_of_workers_that_mpirun_contradicts_is_refused(self):
        r = under(sorted(LAUNCHERS)[0], 2, "train", *COMMON, "--data", self.data, "-n", 3,
                  "--out", os.path.join(self.folder, "three"))
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("asks for 3 workers", r.stderr)

    def test_a_killed_worker_ends_the_job_within_seconds(self):
        for kind in LAUNCHERS:
            launcher, variables = mpirun(kind, 3)
            out = os.path.join(self.folder, "killed" + kind)
            marker = "TUTTI_TEST_MARK=%d-%s" % (os.getpid(), kind)
            name, value = marker.split("=")
            p = subprocess.Popen([*launcher, TUTTI, "train", "--model", "mlp(hidden=48)", "--data", self.data,
                                  "--epochs", "100000", "--threads", "1", "--transport", "mpi", "--out", out],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                 env=clean_environment(**variables, **{name: value}))
            try:
                victim = worker_of_rank(marker, 1, out)
                os.kill(victim, signal.SIGKILL)
                started = time.monotonic()
                p.communicate(timeout=60)
                self.assertNotEqual(p.returncode, 0)
                self.assertLess(time.monotonic() - started, 30)
                self.assertEqual(processes(marker), {})
            finally:
                p.kill()
                p.wait()
                for pid in processes(marker):
                    os.kill(pid, signal.SIGKILL)


def processes(marker):
    """Our workers' process ids with their environment, by what is in it: never by a name that
    others' processes may have."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = read("/proc/%s/environ" % pid).decode(errors="replace").split("\0")
            if marker in words and os.path.realpath("/proc/%s/exe" % pid) == os.path.realpath(TUTTI):
                found[int(pid)] = words
        except OSError:
            continue
    return found


def worker_of_rank(marker, rank, out):
    """Once training has begun."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if lines_told(out) > 0:
            for pid, words in processes(marker).items():
                if "OMPI_COMM_WORLD_RANK=%d" % rank in words or "PMI_RANK=%d" % rank in words:
                    return pid
        time.sleep(0.05)
    raise AssertionError("training did not begin")


if __name__ == "__main__":
    unittest.main(verbosity=2)
