"""A wheel is built from the repository and installed where there is nothing else: it needs no compiler, no package
of the system and no place that the build knew. And the same from a clone whose Python files stay where they are.

The C files are compiled without optimisation, which is most of the time; what they do optimised is seen elsewhere.
"""

import os
import re
import subprocess
import sys
import zipfile

import processes
import pytest

pytestmark = pytest.mark.slow
NEEDED = {"libhwloc.so.15", "libjansson.so.4", "libsodium.so.23", "libxxhash.so.0", "libyaml-0.so.2",
          "liblapacke.so.3", "liblapack.so.3", "libtmglib.so.3", "libblas.so.3", "libgfortran.so.5", "libquadmath.so.0",
          "liburing.so.2"}
BY_COMMAND = ("libdnnl.so.", "libgomp.so.", "libpng16.so.", "libturbojpeg.so.")  # their versions are the machine's
BY_ONEDNN = "libOpenCL.so.1"  # where it is built with it
SETTINGS = {"cmake.define.CMAKE_C_FLAGS_RELEASE": "-O0"}


def told(*words, **env):
    """Outside of the repository, without a compiler to be found."""
    clean = processes.environment({"PYTHONPATH": None, "TUTTI_LIBRARY": None, "LD_LIBRARY_PATH": None, **env})
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, cwd="/", env=clean)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """The settings of both builds: they share one build directory."""
    pytest.importorskip("scikit_build_core", reason="no scikit-build-core here: tools/setup --python installs it")
    return SETTINGS | {"build-dir": str(tmp_path_factory.mktemp("build"))}


@pytest.fixture(scope="module")
def wheel(settings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    told(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-w",
         folder, *(f"--config-settings={key}={value}" for key, value in settings.items()), processes.ROOT,
         CMAKE_GENERATOR="Ninja")
    (found,) = folder.iterdir()
    return found


def environment_with(wheel, at):
    """The Python of an environment that has the wheel and nothing else."""
    told(sys.executable, "-m", "venv", "--without-pip", at)
    told(sys.executable, "-m", "pip", "--python", at / "bin/python", "install", "--quiet", "--no-deps", "--no-index",
         wheel)
    return at / "bin/python"


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    return environment_with(wheel, tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="module")
def editable(wheel, settings, tmp_path_factory):
    """What `pip install -e .` does: it asks the backend for a wheel of this kind, and installs that."""
    folder = tmp_path_factory.mktemp("editable")
    code = "import os, sys, scikit_build_core.build as b\nos.chdir(sys.argv[1])\n" \
        "b.build_editable(sys.argv[2], dict(word.split('=', 1) for word in sys.argv[3:]))"
    told(sys.executable, "-c", code, processes.ROOT, folder, *(f"{key}={value}" for key, value in settings.items()),
         CMAKE_GENERATOR="Ninja")
    (found,) = folder.iterdir()
    return environment_with(found, tmp_path_factory.mktemp("environment"))


def version():
    text = (processes.ROOT / "include/tutti/base.h").read_text()
    return ".".join(re.findall(r"#define TUTTI_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text))


def test_wheel_name_has_the_version_and_fits_any_python3(wheel):
    assert re.fullmatch(rf"tutti-{re.escape(version())}-py3-none-linux_\w+\.whl", wheel.name)


def test_wheel_contains_package_library_plugins_and_dependencies(wheel):
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
        assert not any((entry.external_attr >> 16) & 0o170000 == 0o120000 for entry in z.infolist())  # no links
    python = processes.ROOT / "python"
    sources = {str(p.relative_to(python)) for p in python.glob("tutti/**/*.py")} | {"tutti/py.typed"}
    assert sources <= set(names)
    libraries = {n.removeprefix("tutti/lib/") for n in names if n.startswith("tutti/lib/") and "licences" not in n}
    plugins = {p.name for p in (processes.build() / "lib").glob("libtutti_transport_*.so")}
    by_command = {n for n in libraries if n.startswith(BY_COMMAND)}
    assert len(by_command) == len(BY_COMMAND)
    assert libraries - by_command - {BY_ONEDNN} == NEEDED | plugins | \
        {"libtutti.so." + ".".join(version().split(".")[:2 if version()[0] == "0" else 1])}
    assert {n.partition("/data/")[2].partition("/")[0] for n in names if "/share/" in n} == {"mnist", "moby-dick"}
    assert not [n for n in names if n.endswith((".pyc", ".a", ".h", ".c"))]


def test_wheel_has_the_licence_of_each_library_inside(wheel):
    told(processes.ROOT / "tools/licences", wheel)


def test_extra_for_simulations_is_known_and_asks_for_no_package(wheel, tmp_path):
    told(sys.executable, "-m", "venv", "--without-pip", tmp_path / "v")
    done = subprocess.run([sys.executable, "-m", "pip", "--python", tmp_path / "v/bin/python", "install", "--dry-run",
                           "--no-index", f"{wheel}[sim]"], capture_output=True, text=True, cwd="/")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr  # pip warns of an extra that it does not know
    assert f"Would install tutti-{version()}\n" in done.stdout


def test_installed_package_runs_without_a_usable_path(installed):
    assert told(installed, "-c", "import tutti; print(tutti.__version__, len(tutti.methods()) > 25)",
                PATH="/nowhere") == f"{version()} True\n"
    assert told(installed, "-c", "from tutti.engine import World\nwith World() as w: print(w.rank, w.size)",
                PATH="/nowhere") == "0 1\n"


def test_package_loads_its_bundled_libraries(installed):
    code = "import tutti\nfor line in open('/proc/self/maps'):\n    print(line.split(None, 5)[-1].strip())"
    loaded = {line for line in told(installed, "-c", code).splitlines() if line.startswith("/")}
    home = os.path.realpath(installed.parent.parent)
    for name in NEEDED | {"libtutti.so"}:
        mine = {os.path.realpath(path) for path in loaded if os.path.basename(path).startswith(name)}
        assert mine and all(path.startswith(home) for path in mine), name


def test_installed_command_runs_without_a_usable_path(installed, tmp_path):
    command = installed.parent / "tutti"
    assert told(command, "version", PATH="/nowhere").split()[:2] == ["tutti", version()]
    told(command, "train", "-n", 2, "--model", "mlp(hidden=8)", "--steps", 4, "--quiet", "--out", tmp_path / "run",
         PATH="/nowhere")
    assert (tmp_path / "run/model.safetensors").exists()


def test_command_links_its_bundled_libraries(installed):
    (program,) = installed.parent.parent.glob("lib/python*/site-packages/tutti/bin/tutti")
    home = os.path.realpath(program.parent.parent / "lib")
    found = dict(re.findall(r"(\S+) => (\S+)", told("ldd", program)))
    ours = {name for name in found if name in NEEDED or name.startswith(BY_COMMAND) or name == BY_ONEDNN}
    assert len(ours) >= len(NEEDED) + len(BY_COMMAND)
    assert all(os.path.realpath(found[name]).startswith(home) for name in ours), found


def test_installed_and_built_command_ignore_the_same_signals(installed):
    """The interpreter that has become the command ignores some more."""
    said = [told(command, "run", "-n", 1, "--", "grep", "SigIgn", "/proc/self/status")
            for command in (installed.parent / "tutti", processes.build() / "bin/tutti")]
    assert said[0] == said[1]


def test_editable_install_uses_source_files_and_installed_library(editable):
    said = told(editable, "-c", "import tutti, tutti._library as t\nprint(tutti.__file__, t.library._name)",
                PATH="/nowhere").split()
    assert said[0] == str(processes.ROOT / "python/tutti/__init__.py")
    assert said[1].startswith(str(editable.parent.parent))
    assert told(editable.parent / "tutti", "version", PATH="/nowhere").split()[:2] == ["tutti", version()]


def test_plugins_are_found_next_to_the_library(installed):
    if not (processes.build() / "lib/libtutti_transport_mpi.so").exists():
        pytest.skip("built without MPI")
    code = "from tutti.engine import World\nwith World('mpi') as w: print(w.transport)"
    launcher = processes.mpi_launcher("mpirun")
    if not launcher:
        pytest.skip("no launcher of MPI")
    said = told(*launcher, "-n", "2", installed, "-c", code, **processes.MPI_VARIABLES)
    assert sorted(said) == sorted("mpi\nmpi\n")  # two processes write, word by word
