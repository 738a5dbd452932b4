"""DistributedDataParallel gives what torch's gives: with two workers the same bits, with more up to rounding."""

import forked
import processes
import pytest

pytestmark = pytest.mark.torch
SCRIPT = processes.HERE / "ddp_cases.py"  # whose cases are imported where all are run: that needs PyTorch here, too
SHORT = ["cnn", "branches", "accumulating", "mixed"]


def right(ranks, names):
    for rank in ranks:
        assert rank.last == {name: [] for name in names}


def every_case():
    import ddp_cases
    return list(ddp_cases.CASES)


def test_with_two_workers_it_has_the_bits_of_torch(run):
    right(run(SCRIPT, n=2, launcher="tutti", args=SHORT, timeout=150).ranks, SHORT)


@pytest.mark.slow
def test_with_two_workers_every_case_has_the_bits_of_torch(run):
    right(run(SCRIPT, n=2, launcher="torchrun", timeout=150).ranks, every_case())


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, pytest.param(4, marks=pytest.mark.long)])
def test_with_more_workers_every_case_is_equal_up_to_rounding(n):
    forked.compiler()
    right(forked.script(SCRIPT.read_text(), n, timeout=200), every_case())


@pytest.mark.slow
def test_two_workers_over_tcp_are_bit_identical_to_torch(run):
    cases = ["cnn", "branches", "accumulating"]
    right(run(SCRIPT, n=2, args=cases, env={"TUTTI_TEST_TRANSPORT": "tcp"}, timeout=150).ranks, cases)
