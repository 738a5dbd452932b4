"""Real models under DDP and FSDP2 on the backend 'tutti': each trains to the bits of Gloo.

With two ranks the order of sums cannot differ. The models are in dist_models.py. All are trained by the same two
processes: to import their packages takes longer. Without transformers they are skipped: tools/setup --frameworks.
"""

import importlib.util
import math

import forked
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch")

if importlib.util.find_spec("transformers") is None:
    pytest.skip("no transformers here: tools/setup --frameworks installs it", allow_module_level=True)

import dist_models  # noqa: E402
from distributed_test import on_ranks  # noqa: E402


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    forked.compiler()
    folder = str(tmp_path_factory.mktemp("models"))
    return on_ranks(2, dist_models.every, folder, ["gloo", "tutti"], transport="shm", timeout=300)


@pytest.mark.parametrize("way", ["ddp", "fsdp"])
@pytest.mark.parametrize("name", dist_models.MODELS)
def test_a_model_trains_to_the_bits_of_gloo(answers, name, way):
    for answer in answers:
        gloo, ours = answer[f"{name}/{way}/gloo"], answer[f"{name}/{way}/tutti"]
        assert isinstance(gloo, list), gloo
        assert isinstance(ours, list), ours
        assert gloo == ours
        losses, begin, end, _ = ours
        assert all(map(math.isfinite, losses)) and begin != end
    of = [answer[f"{name}/{way}/tutti"] for answer in answers]
    assert of[0][1:3] == of[1][1:3], "ranks have different parameters"
    assert of[0][0] != of[1][0], "ranks have the same batches"


def test_models_and_ways_differ(answers):
    """Two that are the same would be one."""
    ends = [of[2] for key, of in answers[0].items() if key.endswith("/ddp/tutti")]
    assert len(set(ends)) == len(dist_models.MODELS) >= 20
