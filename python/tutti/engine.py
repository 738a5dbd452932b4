"""World and engine: the public API of the C library (engine.h), a method a call."""

import ctypes

from . import _abi
from ._library import library as _c
from .errors import check

_F32 = ctypes.POINTER(ctypes.c_float)


def _text(value):
    return None if value is None else str(value).encode()


class World:
    """This process's view of the run: its rank among all. Opened from the environment of the launcher (comm.h)."""

    def __init__(self, transport=""):
        self._at = ctypes.c_void_p()
        check(_c.tutti_world_open, self._at, _text(transport))
        self.rank = _c.tutti_world_rank(self._at)
        self.size = _c.tutti_world_size(self._at)
        self.transport = _c.tutti_world_transport(self._at).decode()

    def close(self):
        at, self._at = self._at, None
        if at:
            _c.tutti_world_close(at)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Engine:
    """One method on one world. `params`: (name, shape, unit) each, in the order in which gradients become ready."""

    def __init__(self, world, params, **options):
        array = (_abi.tutti_param * len(params))()
        for p, (name, shape, unit) in zip(array, params):
            shape = tuple(shape) or (1,)
            p.name, p.dims, p.unit = _text(name), min(len(shape), 4), unit
            for k, d in enumerate(shape[:4]):
                p.dim[k] = d
            for d in shape[4:]:
                p.dim[3] *= d
        self._options = _abi.tutti_engine_options()
        self._kept = [world]
        for name, value in options.items():
            setattr(self._options, name, _text(value) if isinstance(value, str) else value)
        self._at = ctypes.c_void_p()
        check(_c.tutti_engine_open, self._at, world._at, array, len(params), self._options)
        self.method = _c.tutti_engine_method(self._at).contents

    def close(self):
        at, self._at = self._at, None
        if at:
            _c.tutti_engine_close(at)

    def values(self, tensor):
        """The address of its values."""
        return ctypes.addressof(_c.tutti_engine_values(self._at, tensor).contents)

    def gradient(self, tensor):
        return ctypes.addressof(_c.tutti_engine_gradient(self._at, tensor).contents)

    def begin(self):
        """The next pass of this step; None: they are over."""
        p = _abi.tutti_pass()
        return p if check(_c.tutti_engine_pass, self._at, p) else None

    def ready(self, tensor):
        check(_c.tutti_engine_ready, self._at, tensor)

    def passed(self, loss_sum=0.0):
        check(_c.tutti_engine_passed, self._at, loss_sum)

    def step(self):
        check(_c.tutti_engine_step, self._at)

    def finish(self):
        check(_c.tutti_engine_finish, self._at)
