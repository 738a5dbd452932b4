"""A thread that does one thing after the other, and is gone before the interpreter is."""

import atexit
import queue
import threading
from collections.abc import Callable
from typing import Any

_running: "list[Worker]" = []


class Worker:
    """Calls work(item) for each item that is put, in order. `work` raises nothing.

    A thread that is within torch while the interpreter ends would abort the process. So all are ended before that;
    one that hangs in a collective, whose peers are gone, is waited for shortly.
    """

    def __init__(self, work: Callable[[Any], None], name: str) -> None:
        self._items: queue.SimpleQueue[tuple[Any] | None] = queue.SimpleQueue()
        self._work = work
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _running.append(self)

    def put(self, item: Any) -> None:
        self._items.put((item,))

    def close(self, seconds: float | None = None) -> bool:
        """Ends the thread, once all that was put is done. False: that takes longer than so many seconds."""
        if self in _running:
            _running.remove(self)
            self._items.put(None)
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (item := self._items.get()) is not None:
            self._work(*item)


@atexit.register
def _end() -> None:
    for worker in list(_running):
        worker.close(2)
