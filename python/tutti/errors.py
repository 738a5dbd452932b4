"""What a failure of the library becomes: the sentence that the command would print, as an exception."""

from . import _abi


class Error(RuntimeError):
    """A run failed. Its text says what is wrong, where, and what mends it."""


class PeerError(Error):
    """A worker that this call needs has died or left."""

    def __init__(self, text, rank):
        super().__init__(text)
        self.rank = rank


class CorruptError(Error):
    """A message or a file is not what its format says."""


class NumberError(Error, ArithmeticError):
    """A value that has to be finite is not."""


class StateError(Error):
    """A call out of order."""


def _exception(status, error):
    text = error.text.decode(errors="replace")
    if status == _abi.TUTTI_ERR_USAGE:
        return ValueError(text)
    if status == _abi.TUTTI_ERR_MEMORY:
        return MemoryError(text)
    if status == _abi.TUTTI_TIMEOUT:
        return TimeoutError(text)
    if status == _abi.TUTTI_ERR_IO:
        return OSError(error.cause, text) if error.cause else OSError(text)
    if status == _abi.TUTTI_ERR_PEER:
        return PeerError(text, error.rank)
    if status == _abi.TUTTI_ERR_CORRUPT:
        return CorruptError(text)
    if status == _abi.TUTTI_ERR_NUMBER:
        return NumberError(text)
    return StateError(text) if status == _abi.TUTTI_ERR_STATE else Error(text)


def check(call, *arguments):
    """call(*arguments, err); raises what it says. False where it gave TUTTI_CLOSED, which is no failure."""
    error = _abi.tutti_error()
    status = call(*arguments, error)
    if status in (_abi.TUTTI_OK, _abi.TUTTI_CLOSED):
        return status == _abi.TUTTI_OK
    raise _exception(status, error)
