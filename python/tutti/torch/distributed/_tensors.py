"""Which tensors the backend takes, and flat contiguous memory for those that are not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

KINDS = ("cpu", "cuda", "xpu")  # of devices whose tensors are served


def check(what: str, tensors: Iterable[torch.Tensor]) -> None:
    """Refuses what no call takes. It depends on nothing but the arguments, so all ranks refuse alike."""
    device = None
    for t in tensors:
        if t.device.type not in KINDS:
            raise ValueError(
                f"{what}: the backend 'tutti' takes tensors in host memory and on {' or '.join(KINDS[1:])}, and this "
                f"one is on {t.device}; copy it to the CPU, or give that device's axis another backend"
            )
        if device is not None and t.device != device:
            raise ValueError(f"{what}: tensors on {device} and on {t.device}; all of one call are on the same device")
        device = t.device
        if t.layout != torch.strided:
            raise ValueError(
                f"{what}: the backend 'tutti' takes dense tensors, and in all_reduce torch.sparse_coo of host "
                f"memory; this one is {t.layout} on {t.device}"
            )


def alike(what: str, tensors: Sequence[torch.Tensor], dtype: torch.dtype) -> None:
    for t in tensors:
        if t.dtype != dtype:
            raise ValueError(f"{what}: tensors of {dtype} and of {t.dtype}; all of one call have the same dtype")


def plain(t: torch.Tensor) -> bool:
    """Are its values contiguous in memory, as they are?"""
    return t.is_contiguous() and not t.is_conj() and not t.is_neg()


def flat(t: torch.Tensor) -> torch.Tensor:
    """Its values in one dimension: its own memory if that is contiguous, else a copy."""
    return (t.detach() if plain(t) else t.detach().resolve_conj().resolve_neg().contiguous()).view(-1)


def room(t: torch.Tensor) -> torch.Tensor:
    """Memory for the values that t is to get, in one dimension: its own if that is contiguous. put() follows."""
    return t.detach().view(-1) if plain(t) else torch.empty(t.numel(), dtype=t.dtype)


def put(x: torch.Tensor, t: torch.Tensor) -> None:
    """t := x, unless x is t's own memory."""
    if x.data_ptr() != t.data_ptr() and t.numel() > 0:
        t.detach().copy_(x.view(t.shape))


def joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The values of all, in memory of their own."""
    return torch.cat([flat(t) for t in tensors])


def spread(x: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """The reverse of joined()."""
    for part, t in zip(x.split([t.numel() for t in tensors]), tensors, strict=True):
        put(part, t)
