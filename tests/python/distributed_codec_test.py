"""Codecs on groups of the backend 'tutti' of torch.distributed. What the cases are is in dist_codecs.py,
dist_codec_axes.py and dist_codec_training.py."""

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import dist_codec_axes  # noqa: E402
import dist_codec_training  # noqa: E402
import dist_codecs  # noqa: E402
from distributed_test import LONG, SLOW, nothing_wrong, on_ranks  # noqa: E402

from tutti import StateError  # noqa: E402
from tutti.torch.distributed._coder import shapes_for  # noqa: E402
from tutti.torch.distributed._sites import Order, Site  # noqa: E402

# ---- the order of calls ----

A, B, C = (Site("all_reduce", "AVG", "float32", (size,)) for size in (2000, 3000, 4000))


def step(order, *sites):
    order.begin()
    places = [order.next(site) for site in sites]
    order.end()
    return places


def test_an_order_is_known_after_two_equal_steps():
    order = Order("")
    assert step(order, A, B) == step(order, B, A) == step(order, B, A) == [None, None]
    assert step(order, B, A) == [0, 1]
    assert step(order) == []  # a step without gradients is none


@pytest.mark.parametrize(("sites", "words"), [
    ([A, C], "4000 elements of float32 as its call 2 with a codec, which in those before was all_reduce (AVG) of 3000"),
    ([A, B, C], "as its call 3 with a codec, which in those before did not exist"),
    ([A], "has ended after 1 calls with a codec, and those before made 2"),
    ([Site("all_reduce", "SUM", "float32", (2000,)), B], "all_reduce (SUM) of 2000 elements"),
    ([Site("all_reduce", "AVG", "bfloat16", (2000,)), B], "of 2000 elements of bfloat16"),
    ([Site("reduce_scatter", "AVG", "float32", (1000, 1000)), B], "(AVG) of 2000 elements of float32 in 2 parts"),
])
def test_other_calls_are_refused_and_learned_anew(sites, words):
    order = Order("")
    for _ in range(3):
        step(order, A, B)
    with pytest.raises(StateError) as told:
        step(order, *sites)
    assert words in str(told.value) and "gradients(name, group)" in str(told.value)
    assert order.fixed is None and order.coder is None
    assert step(order, *sites) == step(order, *sites) == [None] * len(sites)
    assert step(order, *sites) == list(range(len(sites)))


def test_an_order_that_never_repeats_is_said():
    order = Order("critic")
    with pytest.warns(UserWarning, match="'critic' has made other calls than the time before"):
        for _ in range(10):
            step(order, A)
            step(order, B)


@pytest.mark.parametrize(("count", "known", "whole", "shapes"), [
    (3000, {}, False, [(1, 3000)]), (3000, {}, True, [(54, 56)]), (1024, {}, True, [(32, 32)]), (1, {}, True, [(1, 1)]),
    (3000, {3000: [(50, 59), (1, 50)]}, True, [(50, 59), (1, 50)]),
    (3000, {3000: [(50, 59), (1, 50)]}, False, [(50, 59), (1, 50)]), (3001, {3000: [(50, 60)]}, False, [(1, 3001)]),
])
def test_shapes_of_a_call(count, known, whole, shapes):
    assert shapes_for(count, known, whole) == shapes


# ---- calls ----

def test_calls_with_a_codec(tmp_path):
    names = [case.__name__ for case in (*dist_codecs.CASES, dist_codecs.disagree)]
    nothing_wrong(on_ranks(2, dist_codecs.cases, str(tmp_path), names))


@pytest.mark.parametrize("transport", ["tcp", pytest.param("shm", marks=SLOW)])
def test_a_codec_sends_what_it_has_encoded_and_no_more(tmp_path, transport):
    nothing_wrong(on_ranks(2, dist_codecs.cases, str(tmp_path), ["traffic"], transport=transport))


@SLOW
@pytest.mark.parametrize(("n", "transport"), [(3, "shm"), (4, "shm"), (2, "tcp"), (4, "tcp")])
def test_calls_with_a_codec_of_more_ranks(tmp_path, n, transport):
    names = [case.__name__ for case in dist_codecs.CASES]
    nothing_wrong(on_ranks(n, dist_codecs.cases, str(tmp_path), names, transport=transport, timeout=300))


@pytest.mark.parametrize(("n", "specs"), [
    (2, ["fp16", "ef(topk(ratio=0.05))", "qsgd(coding=elias)", "ef(powersgd(rank=4))"]),
    *(pytest.param(n, dist_codecs.SPECS, marks=SLOW) for n in (2, 3, 4))])
def test_a_reduce_scatter_is_an_all_reduce_of_each_part(tmp_path, n, specs):
    nothing_wrong(on_ranks(n, dist_codecs.every_codec, str(tmp_path), specs, timeout=300))


# ---- axes of a mesh ----

TOPK = dist_codec_axes.TOPK


@pytest.mark.parametrize(("shape", "transport", "ways"), [
    ((2, 2), "shm", [(TOPK, "fp16")]),
    *(pytest.param(shape, transport, [("fp16", None), ("", TOPK), (TOPK, TOPK)], marks=mark)
      for shape, transport, mark in (((2, 4), "tcp", SLOW), ((2, 4), "shm", LONG), ((4, 2), "tcp", LONG),
                                     ((4, 2), "shm", LONG)))])
def test_each_axis_of_a_mesh_has_a_codec_of_its_own(tmp_path, shape, transport, ways):
    """Gradients and bytes are those by definition of the codec on the replicate axis, and of that on the shard axis."""
    n = shape[0] * shape[1]
    nothing_wrong(on_ranks(n, dist_codec_axes.axes, str(tmp_path), shape, ways, transport=transport, timeout=120))


@SLOW
@pytest.mark.parametrize("transport", ["shm", pytest.param("tcp", marks=LONG)])
def test_powersgd_on_the_replicate_axis_is_by_its_definition(tmp_path, transport):
    wrong = on_ranks(8, dist_codec_axes.powersgd, str(tmp_path), (4, 2), [1, 2], transport=transport, timeout=120)
    nothing_wrong(wrong)


@SLOW
def test_codecs_that_draw_or_vote_give_replicas_the_same_bits(tmp_path):
    ways = [("qsgd(coding=elias)", "sign-vote"), ("ef(randomk(ratio=0.1))", "qsgd(bits=4)"), ("sign-vote", "alq")]
    nothing_wrong(on_ranks(8, dist_codec_axes.drawn, str(tmp_path), (4, 2), ways, transport="tcp", timeout=120))


@SLOW
def test_powersgd_has_the_matrices_of_hsdp_with_tensor_parallelism(tmp_path):
    """Of rank 2: a part of the first layer is 12 x 16 and its bias 12, of the second it is 16 x 24 and 16."""
    step = 4 * (2 * (12 + 16) + 12 + 2 * (16 + 24) + 16)
    answers = on_ranks(8, dist_codec_axes.with_tensor_parallelism, str(tmp_path), timeout=120)
    assert answers == [[step, 2 * dist_codec_axes.CODED, []]] * 8


# ---- training ----

def learned(answers, far, calls):
    """All ranks have the same parameters, and the loss is the uncompressed run's, within a share of its way."""
    begin, found = answers[0]
    exact = found[0][0]
    assert exact < 0.5 * begin, answers[0]
    for answer in answers:
        assert [row[:2] for row in answer[1]] == [row[:2] for row in found], "ranks have different parameters"
    for row, share in zip(found[1:], far, strict=True):
        assert abs(row[0] - exact) < share * (begin - exact), (row, begin, exact)
        assert row[2] == calls, row


NEAR = {"": 0, "qsgd(bits=8)": 0.05, "ef(powersgd(rank=4))": 0.2, "ef(topk(ratio=0.1))": 0.2, "ef(sign)": 0.3}


@pytest.mark.parametrize("specs", [
    ["", "qsgd(bits=8)", "ef(powersgd(rank=4))", "ef(topk(ratio=0.1))"], pytest.param(list(NEAR), marks=LONG)])
def test_hsdp_with_a_codec_on_the_replicate_axis_trains(tmp_path, specs):
    """Three calls a step, of 48 * 16 + 48, 48 * 48 + 48 and 4 * 48 + 4 elements, halved; two steps are exact."""
    answers = on_ranks(4, dist_codec_training.hsdp, str(tmp_path), specs, timeout=300)
    learned(answers, [NEAR[spec] for spec in specs[1:]], 3 * (dist_codec_training.STEPS - dist_codecs.LEARN))
    sent = dict(zip(specs[1:], [row[4] for row in answers[0][1][1:]], strict=True))
    dense = 4 * (48 * 16 + 48 + 48 * 48 + 48 + 4 * 48 + 4) // 2 * (dist_codec_training.STEPS - dist_codecs.LEARN)
    assert sent["qsgd(bits=8)"] < 0.3 * dense and sent["ef(topk(ratio=0.1))"] < 0.25 * dense, (sent, dense)
    assert sent["ef(powersgd(rank=4))"] < 0.5 * dense, (sent, dense)


@pytest.mark.parametrize("n", [pytest.param(2, marks=LONG), pytest.param(3, marks=SLOW)])
def test_fsdp_with_a_codec_trains(tmp_path, n):
    answers = on_ranks(n, dist_codec_training.fsdp, str(tmp_path), list(NEAR), timeout=300)
    learned(answers, list(NEAR.values())[1:], 3 * (dist_codec_training.STEPS - dist_codecs.LEARN))


@SLOW
def test_ddp_with_a_codec_trains(tmp_path):
    """Its first backward has other buckets than those that follow, so it is the fourth from which on they are coded."""
    answers = on_ranks(2, dist_codec_training.ddp, str(tmp_path), list(NEAR), timeout=300)
    calls = answers[0][1][1][2]
    assert calls > 0 and calls % (dist_codec_training.STEPS - 3) == 0, calls
    learned(answers, list(NEAR.values())[1:], calls)


def test_two_models_in_one_group_need_names(tmp_path):
    for told, orders in on_ranks(2, dist_codec_training.two_models, str(tmp_path)):
        assert "as its call 1 with a codec" in told or "has ended after" in told, told
        assert set(orders) == {"a", "b"} and min(orders.values()) >= 3, orders


@SLOW
def test_training_goes_on_with_what_the_codec_kept(tmp_path):
    for same, ends in on_ranks(2, dist_codec_training.resumed, str(tmp_path)):
        assert same, ends
