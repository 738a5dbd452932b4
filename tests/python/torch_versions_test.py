"""Which PyTorch the package takes: what is too old or missing is refused by its import in a sentence, what is newer
than tested works without a word, and calls of ProcessGroup that it has are served or refused in a sentence."""

import json
import os
import re
import subprocess
import sys
import textwrap

import processes
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402
import torch.distributed as dist  # noqa: E402

import tutti.torch.distributed  # noqa: E402
from tutti.torch import _versions  # noqa: E402


def script(text, folder=None, **variables):
    """Runs it by this Python, where modules in `folder` come before all others."""
    env = processes.environment(variables)
    if folder is not None:
        env["PYTHONPATH"] = f"{folder}{os.pathsep}{env['PYTHONPATH']}"
    command = [sys.executable, "-W", "error", "-c", text]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


def last_line(ended):
    return ended.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("version", ["2.5.1+cu124", "1.13.1", "2.0.0a0+git1", "2.9", "2.9a0", "2"])
@pytest.mark.parametrize("module", ["tutti.torch", "tutti.torch.distributed", "tutti.torch.sampler"])
def test_an_older_one_is_refused_by_the_import_before_anything_of_it_is_used(tmp_path, version, module):
    (tmp_path / "torch.py").write_text(f"__version__ = {version!r}\n")  # and has nothing else
    ended = script(f"import {module}", tmp_path)
    assert ended.returncode == 1
    assert last_line(ended) == (f"ImportError: tutti.torch needs PyTorch {_versions.FLOOR} or newer, and this one is "
                                f"{version}: pip install --upgrade 'torch>={_versions.FLOOR}'")


def test_without_one_the_import_says_what_it_needs(tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    ended = script("import tutti.torch", tmp_path)
    assert last_line(ended) == (f"ImportError: tutti.torch needs PyTorch {_versions.FLOOR} or newer, and this Python "
                                f"has none: pip install 'torch>={_versions.FLOOR}'")
    (tmp_path / "torch.py").write_text("import numpie\n")
    assert last_line(script("import tutti.torch", tmp_path)) == "ModuleNotFoundError: No module named 'numpie'"


@pytest.mark.parametrize("version", ["99.0.0", "2.9999.1.dev20301231+cpu", _versions.FLOOR, f"{_versions.FLOOR}.0+cpu",
                                     *_versions.TESTED, "2.10a0", "2.13.0.dev20260801+cpu", "2.14.0a0+gitabc", "3",
                                     "2.10.0a0+b4e4ee81d3.nv25.11", "v2.11rc1", "1!2.11", "of-our-own", ""])
def test_the_floor_itself_and_what_is_newer_than_tested_are_taken(tmp_path, version):
    (tmp_path / "torch.py").write_text(f"__version__ = {version!r}\n")
    ended = script(f"import runpy; runpy.run_path({_versions.__file__!r})", tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize("version", ["2", "2.9", "2.9a0+x", "2.10a0", "2.10.0a0+b4e4ee81d3.nv25.11", "v2.9", "1!1.0",
                                     "3.dev1", "of-our-own", ""])
def test_doctor_takes_the_versions_that_the_import_takes(tmp_path, version):
    (tmp_path / "torch.py").write_text(textwrap.dedent(f"""\
        __version__ = {version!r}
        class version:
            cuda = None
        class cuda:
            is_available = staticmethod(bool)
        class distributed:
            is_available = staticmethod(bool)
        def get_num_threads():
            return 1
    """))
    taken = script("import tutti.torch._versions", tmp_path)
    env = processes.environment({"PYTHONPATH": str(tmp_path)})
    asked = subprocess.run([processes.build() / "bin/tutti", "doctor", "--json", "--python", sys.executable], env=env,
                           capture_output=True, text=True, timeout=60)
    found = [f for f in json.loads(asked.stdout)["findings"] if f["name"] == "PyTorch"]
    refused = "ImportError: tutti.torch needs PyTorch" in taken.stderr
    assert [f["state"] for f in found] == ["limited" if refused else "works"], (found, taken.stderr)


def test_the_package_has_no_word_about_one_that_is_newer_than_tested():
    ended = script("import torch; torch.__version__ = '99.0.0'; import tutti.torch.distributed")
    assert (ended.returncode, ended.stdout) == (0, "") and "utti" not in ended.stderr, ended.stderr


def test_the_floor_is_the_same_in_all_that_names_it():
    root = processes.ROOT
    for name, pattern in {"pyproject.toml": r"torch>=([\d.]+)", "packaging/conda/recipe.yaml": r"pytorch >=([\d.]+)",
                          "packaging/docker/Dockerfile": r"torch>=([\d.]+)",
                          "src/cli/doctor_python.c": r"torch>=([\d.]+)", **dict.fromkeys(
                              ("docs/PYTORCH.md", "docs/LIMITS.md", "docs/INSTALL.md"), r"PyTorch (\d+\.\d+),? or newer"
                          )}.items():
        found = re.findall(pattern, (root / name).read_text())
        assert found and set(found) == {_versions.FLOOR}, name
    tested = re.search(r"Tested are (.*?);", (root / "docs/INSTALL.md").read_text())[1]
    assert re.findall(r"\d+\.\d+", tested) == [version.rpartition(".")[0] for version in _versions.TESTED]
    assert f"torch=={_versions.TESTED[1]}\n" in (root / "tests/python/requirements.txt").read_text()


# ---- calls of ProcessGroup ----

# Those of torch's class itself, for any group.
OF_TORCH = {"rank", "size", "boxed", "unbox", "bound_device_id", "use_pg_for_symm_mem_rendezvous"}


def answers_of_a_group(folder):
    """What each public call of this torch's ProcessGroup answers: "served", a refusal's sentence, a property's value.
    In a process of its own, since other tests fork theirs."""
    for name in [name for name in os.environ if name.startswith("TUTTI_") and name != "TUTTI_LIBRARY"]:
        del os.environ[name]
    dist.init_process_group("tutti", init_method=f"file://{folder}/store", rank=0, world_size=1)
    ours, group, answers = vars(tutti.torch.distributed.ProcessGroupTutti), dist.group.WORLD, {}
    for name, of_torch in vars(dist.ProcessGroup).items():
        if name.startswith("_") or isinstance(of_torch, (type, dist.ProcessGroup.BackendType)) or name in OF_TORCH:
            continue
        answers[name] = "torch's" if name not in ours else "served"
        if name.startswith("supports_") and not callable(ours.get(name)):
            answers[name] = getattr(group, name)
        elif getattr(ours.get(name), "__qualname__", "").endswith("refused"):
            try:
                getattr(group, name)()
            except NotImplementedError as e:
                answers[name] = str(e)
    dist.destroy_process_group()
    return answers


def test_every_public_call_of_this_torch_is_served_or_refused_in_a_sentence(tmp_path):
    answers = forked.ranks(1, answers_of_a_group, str(tmp_path))[0]["value"]
    served = {name for name, answer in answers.items() if answer == "served"}
    assert {"allreduce", "reduce_scatter", "allgather", "send", "abort"} <= served
    refused = {name: answer for name, answer in answers.items() if answer not in ("served", False)}
    assert {"monitored_barrier", "merge_remote_group", "split_group"} <= {*refused}
    for name, answer in refused.items():
        assert str(answer).startswith(f"the backend 'tutti' has no {name}: "), (name, answer)


def test_a_call_that_a_later_torch_adds_is_refused():
    ended = script("""if True:
        import torch.distributed as dist
        dist.ProcessGroup.brand_new = lambda self: "torch's own answer"
        for asked in (dist.ProcessGroup, dist._Backend):
            setattr(asked, f"supports_of_{asked.__name__}", property(lambda self: True))
            setattr(asked, f"supports_in_{asked.__name__}", lambda self, *given: True)
        import tutti.torch.distributed
        ours = tutti.torch.distributed.ProcessGroupTutti
        print(ours.supports_of_ProcessGroup, ours.supports_of_Backend)
        print(ours.supports_in_ProcessGroup(None), ours.supports_in_Backend(None, "cpu"))
        tutti.torch.distributed.ProcessGroupTutti.brand_new(None)
    """)
    assert ended.stdout == "False False\nFalse False\n"
    assert last_line(ended) == ("NotImplementedError: the backend 'tutti' has no brand_new, which this version of "
                                "Tutti does not know")


def test_a_group_cannot_be_made_to_be_reconfigured(tmp_path):
    opts = dist.distributed_c10d._DistributedBackendOptions()
    if not hasattr(opts, "enable_reconfigure"):
        pytest.skip("this PyTorch has no reconfigure: 2.14 has")
    with pytest.raises(NotImplementedError, match="takes no enable_reconfigure=True.*elastic=True"):
        dist.init_process_group("tutti", init_method=f"file://{tmp_path}/store", rank=0, world_size=1,
                                enable_reconfigure=True)


def test_pytorchs_search_for_nan_is_refused_where_it_would_find_nothing(tmp_path, monkeypatch):
    if not hasattr(dist.distributed_c10d, "NanCheckHook"):
        pytest.skip("this PyTorch has no TORCH_DIST_NAN_CHECK: 2.14 has")
    monkeypatch.setenv("TORCH_DIST_NAN_CHECK", "1")
    with pytest.raises(NotImplementedError, match="TORCH_DIST_NAN_CHECK=1.*unset it"):
        dist.init_process_group("tutti", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
