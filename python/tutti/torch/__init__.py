"""Tutti for PyTorch: distributed training with few changes to a training script."""

from . import _versions as _versions  # first: it refuses a PyTorch that is too old
from ._preempt import Checkpoints
from .ddp import DistributedDataParallel
from .hook import comm_hook
from .pipeline import Pipeline, pipeline
from .prepare import Optimizer, evaluate, prepare
from .sampler import sampler

__all__ = ["Checkpoints", "DistributedDataParallel", "Optimizer", "Pipeline", "comm_hook", "evaluate", "pipeline",
           "prepare", "sampler"]
