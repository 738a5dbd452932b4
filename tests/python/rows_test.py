"""Sparse gradients of torch.nn.Embedding as rows of a table: read when they are asked for, announced by their ids."""

import ctypes

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch")

from prepare_test import alone  # noqa: E402

from tutti import engine  # noqa: E402

ROWS, COLUMNS, STEPS = 40, 3, 6


def words(rank: int, step: int) -> torch.Tensor:
    """With some that stand twice; in one step rank 1 has none."""
    order = torch.Generator().manual_seed(10 * step + rank)
    return torch.randint(0, ROWS, (0 if rank == 1 and step == 2 else 5,), generator=order).repeat(2)


def trained(method: str) -> list[float]:
    table = torch.nn.Embedding(ROWS, COLUMNS, sparse=True)
    first = torch.linspace(-1, 1, ROWS * COLUMNS)
    e = engine.Engine(
        engine.World(), [engine.Param("bias", (COLUMNS,)), engine.Param("words", (ROWS, COLUMNS), row_sparse=True,
                                                                        asks_rows=True)],
        method=method, optimizer="sgd(lr=0.5)", batch=1,
        initial=lambda k, address: ctypes.memmove(address, first.data_ptr(), 4 * (COLUMNS, ROWS * COLUMNS)[k]),
    )  # fmt: skip
    x = [torch.frombuffer(e.values(k), dtype=torch.float32) for k in range(2)]
    g = [torch.frombuffer(e.gradient(k), dtype=torch.float32) for k in range(2)]
    for step in range(STEPS):
        while e.pass_begin() is not None:
            read = words(e.rank, step)
            e.rows_acquire(1, read.unique().tolist())
            bias = x[0].clone().requires_grad_()
            table.weight.data.copy_(x[1].view(ROWS, COLUMNS))
            table.weight.grad = None
            ((table(read) + bias) ** 2).sum().backward()
            g[0].copy_(bias.grad)
            e.grad_ready(0)
            rows = table.weight.grad.coalesce()  # ids ascend, and those that stand twice are one
            g[1].view(ROWS, COLUMNS)[rows.indices()[0]] = rows.values()
            e.grad_ready_rows(1, rows.indices()[0].tolist())
            e.pass_end()
        e.step()
    e.finish()
    return x[1].tolist() + x[0].tolist()


@pytest.mark.parametrize("method", ["parallax", "parallax(profile=2,threshold=0.1)", "parallax(servers=1)"])
def test_sparse_gradients_are_rows_at_servers_with_the_bits_of_ddp(method):
    first, second = alone(trained, method, n=2)
    assert first == second == alone(trained, "ddp", n=2)[0]
