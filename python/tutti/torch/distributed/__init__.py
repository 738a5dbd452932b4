"""Tutti as a backend of torch.distributed (docs/TORCH-DISTRIBUTED.md). Importing this registers it.

    import tutti.torch.distributed
    torch.distributed.init_process_group("tutti")

or for one axis of a mesh only, of which the others keep their backend:

    init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"), backend_override={"replicate": "tutti"})

With a codec for gradients (_codec.py):

    backend_override={"replicate": ("tutti", tutti.torch.distributed.options(codec="ef(powersgd(rank=4))"))}

One world a job or one a group? _worlds.py says which, and why.
"""

from __future__ import annotations

from typing import Any, cast

import torch.distributed as dist

from ._codec import Codec, codec_of, gradients
from ._group import ProcessGroupTutti
from ._options import Options
from ._tensors import KINDS

__all__ = ["Codec", "Options", "ProcessGroupTutti", "codec_of", "gradients", "log", "options"]

options = Options


def log(*, loss: Any, group: dist.ProcessGroup | None = None) -> None:
    """Adds the mean loss of a batch of this rank to the record (trace=) of a group; None: the default group. Without a
    record it does nothing."""
    record = cast(ProcessGroupTutti, dist.group.WORLD if group is None else group)._shared.record
    if record is not None:
        record.loss(loss)


def _make(opts: Any, options: Any) -> ProcessGroupTutti:
    if options is not None and not isinstance(options, Options):
        raise TypeError(
            f"the backend 'tutti' takes pg_options=tutti.torch.distributed.Options(...), and this is a "
            f"{type(options).__name__}"
        )
    return ProcessGroupTutti(opts, options or Options())


if not hasattr(dist.Backend, "TUTTI"):
    dist.Backend.register_backend("tutti", _make, extended_api=True, devices=[*KINDS])
