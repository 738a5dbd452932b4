"""Tutti under PyTorch: one line of a training script changes."""

from .ddp import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
