"""Runs of real processes: started by any launcher, watched, and gone in the end.

Each run has its own mark in the environment of all its processes. A process that has the mark and is still there
after the run was left behind, whatever session or group it has put itself into.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import json
import os
import pathlib
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
MARK = "PYTEST_RUN_OF_TUTTI"
SESSION = secrets.token_hex(8)
FOREIGN = ("TUTTI_", "OMPI_", "PMI", "MV2_", "MPI_LOCAL", "SLURM_", "MASTER_", "TORCHELASTIC_", "GROUP_", "ROLE_")
FOREIGN_EXACTLY = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", MARK)
MPI = {"openmpi": ("mpirun.openmpi", "--oversubscribe"), "mpich": ("mpirun.mpich",)}
# Open MPI refuses root without the first two. Its hwloc would look for GPUs on X displays,
# and for these ask a name server.
MPI_VARIABLES = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "HWLOC_COMPONENTS": "-gl"}
LAUNCHERS = ("torchrun", "tutti", "mpirun", *MPI, "variables")


def build() -> pathlib.Path:
    """The build tree whose library is tested: TUTTI_BUILD, else that of build/dev and build/release linked last."""
    if os.environ.get("TUTTI_BUILD"):
        return pathlib.Path(os.environ["TUTTI_BUILD"]).resolve()
    built = [ROOT / "build" / name for name in ("dev", "release")]
    built = [b for b in built if (b / "lib/libtutti.so").exists() and (b / "bin/tutti").exists()]
    if not built:
        raise RuntimeError("nothing is built: run make, or name a build tree in TUTTI_BUILD")
    return max(built, key=lambda b: (b / "lib/libtutti.so").stat().st_mtime)


def environment(extra: Mapping[str, str | None] = {}) -> dict[str, str]:
    """This process's, without other launchers' words, and with the package and the library of the tree.

    A value None takes a variable away.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN) and k not in FOREIGN_EXACTLY}
    env["PYTHONPATH"] = os.pathsep.join((str(ROOT / "python"), str(HERE)))
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    env["PYTHONFAULTHANDLER"] = "1"  # a run that takes too long is ended by SIGABRT and prints where it was
    env["TUTTI_LIBRARY"] = str(build() / "lib/libtutti.so")
    env["OMP_NUM_THREADS"] = "1"
    for key, value in extra.items():
        if value is None:
            env.pop(key, None)
        else:
            env[key] = str(value)
    return env


def marked(mark: str) -> list[int]:
    """The processes that have this word in their environment, without this one."""
    found, wanted = [], f"{MARK}={mark}".encode()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry.name}/environ", "rb") as f:
                if any(word.startswith(wanted) for word in f.read().split(b"\0")):
                    found.append(int(entry.name))
        except OSError:  # it has ended, or is another user's
            continue
    return found


def kill_marked(mark: str) -> None:
    """Kills until none is left, at two looks: one may just be starting another, or becoming another program."""
    looks = 0
    while looks < 2:
        left = marked(mark)
        looks = 0 if left else looks + 1
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)


def guard() -> subprocess.Popen[bytes]:
    """Kills all runs of this session when this process has died, however that was. Close its stdin at the end."""
    code = f"import sys; sys.stdin.read(); sys.path.insert(0, {str(HERE)!r}); import processes; " \
           f"processes.kill_marked({SESSION!r})"
    return subprocess.Popen([sys.executable, "-B", "-c", code], stdin=subprocess.PIPE, start_new_session=True)


def command_line(pid: int) -> str:
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        words = [b"(ended)"]
    return f"{pid}: " + b" ".join(words).decode(errors="replace")[:300]


@dataclasses.dataclass
class Rank:
    """What one rank has written."""

    out: str
    err: str

    @property
    def last(self):
        """The last line of its output, read as JSON: how a script gives a result back."""
        lines = self.out.strip().splitlines()
        assert lines, "it has written nothing; on stderr: " + self.err
        return json.loads(lines[-1])


@dataclasses.dataclass
class Result:
    """A run that has ended. code: the launcher's exit status, negative where a signal ended it."""

    code: int
    out: str
    err: str
    ranks: list[Rank]
    seconds: float

    def __str__(self) -> str:
        parts = [("launcher, stdout", self.out), ("launcher, stderr", self.err)]
        for r, rank in enumerate(self.ranks):
            parts += [(f"rank {r}, stdout", rank.out), (f"rank {r}, stderr", rank.err)]
        return f"exit status {self.code} after {self.seconds:.1f} s\n" + \
            "".join(f"--- {name}\n{text.rstrip()}\n" for name, text in parts if text.strip())


class Job:
    """A run in progress. Each rank writes to its own file, so none waits for a reader."""

    def __init__(self, folder: pathlib.Path, argv: Sequence[str], n: int, env: dict[str, str]):
        self.n, self._folder = n, folder
        self.mark = f"{SESSION}-{secrets.token_hex(4)}"
        self._began = time.monotonic()
        with open(folder / "launcher.out", "wb") as out, open(folder / "launcher.err", "wb") as err:
            self.launcher = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                             env=env | {MARK: self.mark}, cwd=folder, start_new_session=True)

    def _read(self, name: str) -> str:
        try:
            return (self._folder / name).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def _until(self, what: str, seconds: float, ask: Callable):
        end = time.monotonic() + seconds
        while not (answer := ask()):
            if time.monotonic() > end or (self.launcher.poll() is not None and not ask()):
                result = self.now()
                self.end()
                raise AssertionError(f"{what} did not come within {seconds} s\n{result}")
            time.sleep(0.01)
        return answer

    def pid(self, rank: int, seconds: float = 30) -> int:
        """The process of a rank, once it has started."""
        return int(self._until(f"rank {rank}", seconds, lambda: self._read(f"{rank}.pid")))

    def says(self, rank: int, text: str, seconds: float = 120) -> None:
        """Waits until a rank has written this to its stdout."""
        self._until(f"{text!r} of rank {rank}", seconds, lambda: text in self._read(f"{rank}.out"))

    def kill(self, rank: int, how: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pid(rank), how)

    def alive(self, rank: int) -> bool:
        """Has it not ended? Its launcher, or the system, may not have asked for it yet."""
        try:
            return pathlib.Path(f"/proc/{self.pid(rank)}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False

    def interrupt(self) -> None:
        """Ctrl-C: what the terminal sends to the launcher and its group."""
        os.killpg(self.launcher.pid, signal.SIGINT)

    def now(self) -> Result:
        """What there is until now."""
        ranks = [Rank(self._read(f"{r}.out"), self._read(f"{r}.err")) for r in range(self.n)]
        code = self.launcher.poll()
        return Result(-1 if code is None else code, self._read("launcher.out"), self._read("launcher.err"), ranks,
                      time.monotonic() - self._began)

    def wait(self, timeout: float = 180, code: int | None = 0) -> Result:
        """Waits for the end, which has to come in time, with this exit status (None: any), and leave no process."""
        try:
            self.launcher.wait(timeout)
        except subprocess.TimeoutExpired:
            self._abort()
            result = self.now()
            self.end()
            raise AssertionError(f"the run has not ended after {timeout} s\n{result}") from None
        result = self.now()
        left = self._left(3)
        lines = "\n".join(map(command_line, left))
        self.end()
        assert not left, f"the run has left processes behind:\n{lines}\n{result}"
        assert code is None or result.code == code, f"wanted exit status {code}\n{result}"
        return result

    def _left(self, seconds: float) -> list[int]:
        """Processes of the run that are still there `seconds` seconds after the launcher's end."""
        end = time.monotonic() + seconds
        while (left := marked(self.mark)) and time.monotonic() < end:
            time.sleep(0.02)
        return left

    def _abort(self) -> None:
        for rank in range(self.n):
            try:
                os.kill(int(self._read(f"{rank}.pid")), signal.SIGABRT)
            except (ProcessLookupError, ValueError):
                pass
        time.sleep(1)

    def end(self) -> None:
        """Kills what there still is."""
        kill_marked(self.mark)
        self.launcher.wait()


def mpi_launcher(wanted: str) -> list[str]:
    """The start of a command line; empty where there is no such launcher, or the library has no transport for it."""
    for kind, (program, *options) in MPI.items():
        if wanted in ("mpirun", kind) and shutil.which(program) and \
                (build() / f"lib/libtutti_transport_mpi-{kind}.so").exists():
            return [program, *options]
    return []


class Runner:
    """The fixture `run`: called, it runs a script to its end; start() gives a run in progress."""

    def __init__(self, folder: pathlib.Path, skip: Callable[[str], None]):
        self._folder, self._skip, self._jobs = folder, skip, []

    def _script(self, folder: pathlib.Path, script) -> str:
        if isinstance(script, os.PathLike):
            return os.fspath(script)
        if callable(script):
            source = textwrap.dedent(inspect.getsource(script)) + f"\n\n{script.__name__}()\n"
        elif "\n" in script:
            source = textwrap.dedent(script)
        else:
            return script
        (folder / "script.py").write_text(source)
        return str(folder / "script.py")

    def _key(self) -> str:
        file = self._folder / "run.key"
        if not file.exists():
            subprocess.run([build() / "bin/tutti", "key", file], check=True, capture_output=True)
        return str(file)

    def start(self, script, n: int = 2, launcher: str = "tutti", env: Mapping[str, str | None] = {},
              args: Sequence[object] = ()) -> Job:
        """script: a path, the text of a script (with a line's end), or a function whose body imports all it needs.

        launcher: "torchrun", which imports PyTorch itself before its ranks do, "tutti" (tutti run), "mpirun" (any
        MPI), "openmpi", "mpich", or "variables": no launcher, only the four variables of docs/CLUSTERS.md.
        """
        assert launcher in LAUNCHERS, f"no launcher {launcher!r}, only {', '.join(LAUNCHERS)}"
        folder = self._folder / f"run{len(self._jobs)}"
        folder.mkdir()
        worker = [str(HERE / "worker.py"), str(folder), self._script(folder, script), *map(str, args)]
        given: dict[str, str | None] = {}
        if launcher == "torchrun":
            if importlib.util.find_spec("torch") is None:
                self._skip("no PyTorch here: tools/setup --python installs it")
            # as --standalone, which wants a name server or /etc/hosts to know `localhost`
            argv = [sys.executable, "-m", "torch.distributed.run", "--rdzv-backend", "c10d", "--rdzv-endpoint",
                    "127.0.0.1:0", "--local-addr", "127.0.0.1", "--nproc-per-node", str(n), *worker]
        elif launcher == "tutti":
            argv = [str(build() / "bin/tutti"), "run", "-n", str(n), "--", sys.executable, *worker]
        elif launcher == "variables":
            argv = [sys.executable, "-B", str(HERE / "worker.py"), "--variables", str(n), *worker]
            given["TUTTI_RUN_KEY_FILE"] = self._key()
        else:
            argv = mpi_launcher(launcher)
            if not argv:
                self._skip(f"no launcher of MPI for {launcher!r}, or built without it")
            argv += ["-n", str(n), sys.executable, *worker]
            given |= MPI_VARIABLES
        self._jobs.append(Job(folder, argv, n, environment(given | dict(env))))
        return self._jobs[-1]

    def __call__(self, script, n: int = 2, launcher: str = "tutti", env: Mapping[str, str | None] = {},
                 timeout: float = 180, args: Sequence[object] = (), code: int | None = 0) -> Result:
        """start() and wait(): fails with all that was written unless the run ends in time with exit status `code`."""
        return self.start(script, n, launcher, env, args).wait(timeout, code)

    def close(self) -> None:
        """Kills what the test has not waited for."""
        for job in self._jobs:
            job.end()


# A shell that has put the tests in its background has SIGINT ignored, nohup SIGHUP, and what is
# started here would ignore them too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
