"""Tutti under PyTorch: one line of a training script changes."""

from .ddp import DistributedDataParallel
from .hook import comm_hook
from .prepare import Optimizer, evaluate, prepare
from .sampler import sampler

__all__ = ["DistributedDataParallel", "Optimizer", "comm_hook", "evaluate", "prepare", "sampler"]
