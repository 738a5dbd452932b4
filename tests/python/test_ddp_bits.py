"""DistributedDataParallel gives what torch's gives: with two workers the same bits, with more up to rounding."""

import pathlib

import pytest

pytest.importorskip("torch", reason="no PyTorch here: tools/setup --python installs it")
import ddp_cases  # noqa: E402

pytestmark = pytest.mark.torch
SCRIPT = pathlib.Path(ddp_cases.__file__)


def test_with_two_workers_every_case_has_the_bits_of_torch(run):
    for rank in run(SCRIPT, n=2, timeout=150).ranks:
        assert rank.last == {name: [] for name in ddp_cases.CASES}


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 4])
def test_with_more_workers_every_case_is_equal_up_to_rounding(run, n):
    for rank in run(SCRIPT, n=n, timeout=200).ranks:
        assert rank.last == {name: [] for name in ddp_cases.CASES}


@pytest.mark.slow
def test_over_tcp_it_is_the_same(run):
    cases = ["cnn", "branches", "accumulating"]
    for rank in run(SCRIPT, n=2, args=cases, env={"TUTTI_TEST_TRANSPORT": "tcp"}, timeout=150).ranks:
        assert rank.last == {name: [] for name in cases}
