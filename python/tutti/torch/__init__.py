"""Tutti under PyTorch: one line of a training script changes."""

from .ddp import DistributedDataParallel
from .hook import comm_hook
from .pipeline import Pipeline, pipeline
from .prepare import Optimizer, evaluate, prepare
from .sampler import sampler

__all__ = ["DistributedDataParallel", "Optimizer", "Pipeline", "comm_hook", "evaluate", "pipeline", "prepare",
           "sampler"]
