"""Tutti under PyTorch: one line of a training script changes."""

from .ddp import DistributedDataParallel
from .hook import comm_hook

__all__ = ["DistributedDataParallel", "comm_hook"]
