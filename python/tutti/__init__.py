"""Tutti: distributed training that spends as little time as possible waiting.

This package lists methods, codecs and graphs, and reads checkpoints, without PyTorch. tutti.torch trains. tutti.plan
times a module of PyTorch and ranks the methods for it.
"""

from . import checkpoints
from ._library import library as _c
from ._plan import Plan, Planned, plan
from .catalogue import Codec, Family, Method, Option, codecs, method, methods, topologies
from .errors import CorruptError, Error, NumberError, PeerError, StateError
from .graph import Graph, Row, topology

__version__: str = _c.tutti_version().decode()

__all__ = [
    "Codec", "CorruptError", "Error", "Family", "Graph", "Method", "NumberError", "Option", "PeerError", "Plan",
    "Planned", "Row", "StateError", "checkpoints", "codecs", "method", "methods", "plan", "topologies", "topology",
]
