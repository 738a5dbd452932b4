"""join() of a DistributedDataParallel (ddp.py): workers with unequal numbers of inputs."""

import contextlib
from collections.abc import Iterator
from typing import NoReturn

import torch
from torch.distributed.algorithms.join import _JoinConfig

from ._backward import Backward, Joining
from ._buffers import Copies


class Joins(Backward):
    """The part of a DistributedDataParallel that lets workers without inputs take part with zeros."""

    def _meet(self, sync: bool, send: bool) -> int:
        """All workers, before a forward of those that have inputs. Returns the rank whose buffers count."""
        join = self._join
        assert join is not None, "outside of join()"
        n = self.world.size
        said = self.world.reduce([float(r == self.world.rank) for r in range(n)] + [float(sync), float(send)])
        join.active = [r for r in range(n) if said[r] > 0]
        if join.throw and len(join.active) < n:
            self._early()
        return join.active[-1]

    @staticmethod
    def _early() -> NoReturn:
        raise RuntimeError("a worker has no more inputs; all leave (throw_on_early_termination)")

    @contextlib.contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:
        """For a loop over unequal numbers of inputs. A worker whose loop is over takes part with zeros until all are.

        The arguments are those of torch's join: gradients are divided by the number of all workers, or else by that
        of those that still have inputs. At the end all have the model and the buffers of one that came last.
        """
        if not enable or self.world.size == 1:
            yield
            return
        self._join = join = Joining(divide_by_initial_world_size, throw_on_early_termination)
        try:
            yield
            while self._idle():
                pass
            if join.active:
                self._last_model(join.active[-1])
        finally:
            self._join = None

    def _idle(self) -> bool:
        """A step of the workers that still have inputs, as one that has none. False: no worker has any."""
        join = self._join = self._join or Joining(self._divide_by_initial_world_size, False)
        n = self.world.size
        said = self.world.reduce([0.0] * (n + 2))
        active = [r for r in range(n) if said[r] > 0]
        if not active:
            return False
        join.active = active
        if join.throw:
            self._early()
        if said[n + 1] > 0:
            self._sync_module_buffers(active[-1])
        if said[n] > 0:
            self._shadow()
        return True

    def _all_joined(self) -> None:
        """The end of torch's Join: all have the model of one that came last."""
        join, self._join = self._join, None
        self._join_config = _JoinConfig.construct_disabled_join_config()
        if join is not None and join.active:
            self._last_model(join.active[-1])

    def _shadow(self) -> None:
        """A step without inputs of this worker."""
        self._used = bytearray(len(self._binding.bound))
        with self._failing(), torch.no_grad():
            if self._comm_hooks:
                self._by_hook(shadow=True)
                if self._record is not None:
                    self._record.step()
                return
            self._exchange.begin()
            self._exchange.end()
            self._used_by_nobody()
            if self._record is not None:
                self._record.step()

    def _last_model(self, root: int) -> None:
        tensors = [p.data for p in self.module.parameters()]
        if self.broadcast_buffers:
            tensors += [b for _, b in self._binding.buffers()]
        Copies(self.world).broadcast(tensors, root)
