"""What all tests of the package share: the fixture `run`, and which tests are left out here and why.

    def test_two_workers_agree(run):
        ranks = run("...script...", n=2).ranks
        assert ranks[0].out == ranks[1].out

Marks: torch (the test's own process or its runs need PyTorch), slow (not part of make test), cuda (needs a GPU).
"""

import importlib.util
import os
import sys

import processes
import pytest

os.environ["TUTTI_LIBRARY"] = str(processes.build() / "lib/libtutti.so")
sys.path.insert(0, str(processes.ROOT / "python"))


def pytest_report_header():
    return f"library: {os.environ['TUTTI_LIBRARY']}"


def pytest_collection_modifyitems(items):
    without_torch = importlib.util.find_spec("torch") is None
    for item in items:
        if without_torch and ("torch" in item.keywords or "cuda" in item.keywords):
            item.add_marker(pytest.mark.skip(reason="no PyTorch here: tools/setup --python installs it"))
        elif "cuda" in item.keywords:
            import torch
            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="no CUDA device here"))


@pytest.fixture(scope="session", autouse=True)
def _guard():
    with processes.guard() as guard:
        yield
        guard.stdin.close()


@pytest.fixture
def run(tmp_path):
    """Runs a script as n processes of a launcher: processes.Runner."""
    runner = processes.Runner(tmp_path, pytest.skip)
    yield runner
    runner.close()
