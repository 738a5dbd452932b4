"""A wheel is built from the repository and installed where there is nothing else: it needs no compiler, no package
of the system and no place that the build knew."""

import os
import re
import subprocess
import sys
import zipfile

import processes
import pytest

pytestmark = pytest.mark.slow
NEEDED = {"libhwloc.so.15", "libjansson.so.4", "libsodium.so.23", "libxxhash.so.0", "libyaml-0.so.2"}


def told(*words, **env):
    """Outside of the repository, without a compiler to be found."""
    clean = processes.environment({"PYTHONPATH": None, "TUTTI_LIBRARY": None, "LD_LIBRARY_PATH": None, **env})
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, cwd="/", env=clean)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("scikit_build_core", reason="no scikit-build-core here: tools/setup --python installs it")
    folder = tmp_path_factory.mktemp("wheel")
    told(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-w",
         folder, processes.ROOT, CMAKE_GENERATOR="Ninja")
    (found,) = folder.iterdir()
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The Python of an environment that has the wheel and nothing else."""
    at = tmp_path_factory.mktemp("environment")
    told(sys.executable, "-m", "venv", at)
    told(at / "bin/python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel)
    return at / "bin/python"


def version():
    text = (processes.ROOT / "include/tutti/base.h").read_text()
    return ".".join(re.findall(r"#define TUTTI_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text))


def test_its_name_has_the_version_of_the_headers_and_asks_for_no_python_in_particular(wheel):
    assert re.fullmatch(rf"tutti-{re.escape(version())}-py3-none-linux_\w+\.whl", wheel.name)


def test_it_has_the_package_the_library_its_plugins_and_what_they_need(wheel):
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
        assert not any((entry.external_attr >> 16) & 0o170000 == 0o120000 for entry in z.infolist())  # no links
    python = processes.ROOT / "python"
    sources = {str(p.relative_to(python)) for p in python.glob("tutti/**/*.py")} | {"tutti/py.typed"}
    assert sources <= set(names)
    libraries = {n.removeprefix("tutti/lib/") for n in names if n.startswith("tutti/lib/") and "licences" not in n}
    plugins = {p.name for p in (processes.build() / "lib").glob("libtutti_transport_*.so")}
    assert libraries == {"libtutti.so." + ".".join(version().split(".")[:2 if version()[0] == "0" else 1])} | \
        NEEDED | plugins
    assert not [n for n in names if n.endswith((".pyc", ".a", ".h", ".c"))]


def test_it_runs_where_there_is_nothing_else(installed):
    assert told(installed, "-c", "import tutti; print(tutti.__version__, len(tutti.methods()) > 25)",
                PATH="/nowhere") == f"{version()} True\n"
    assert told(installed, "-c", "from tutti.engine import World\nwith World() as w: print(w.rank, w.size)",
                PATH="/nowhere") == "0 1\n"


def test_what_it_loads_is_its_own(installed):
    code = "import tutti\nfor line in open('/proc/self/maps'):\n    print(line.split(None, 5)[-1].strip())"
    loaded = {line for line in told(installed, "-c", code).splitlines() if line.startswith("/")}
    home = os.path.realpath(installed.parent.parent)
    for name in NEEDED | {"libtutti.so"}:
        mine = {os.path.realpath(path) for path in loaded if os.path.basename(path).startswith(name)}
        assert mine and all(path.startswith(home) for path in mine), name


def test_plugins_are_found_beside_the_library(installed):
    if not (processes.build() / "lib/libtutti_transport_mpi.so").exists():
        pytest.skip("built without MPI")
    code = "from tutti.engine import World\nwith World('mpi') as w: print(w.transport)"
    launcher = processes.mpi_launcher("mpirun")
    if not launcher:
        pytest.skip("no launcher of MPI")
    said = told(*launcher, "-n", "2", installed, "-c", code, OMPI_ALLOW_RUN_AS_ROOT="1",
                OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    assert said == "mpi\nmpi\n"
