"""The exceptions of calls."""


class Error(RuntimeError):
    """A call failed. Its text names the failed operation, its object, the cause and the remedy.

    code is that of holdfast.h.
    """

    code: int = 0


class ArgumentError(Error, ValueError):
    """An argument is wrong."""

    code = -1


class OrderError(Error):
    """The call is out of order."""

    code = -2


class NoMemoryError(Error, MemoryError):
    """There is no memory, or no address space."""

    code = -3


class DaemonError(Error):
    """The node daemon cannot be started, or has ended. The program may go on without checkpoints."""

    code = -4


class ProtocolError(Error):
    """Daemon and library are of different releases, or the library cannot be used at all."""

    code = -5


class LostError(Error):
    """Another rank has ended: leave, the job is over."""

    code = -6


class FailedError(Error):
    """The operation failed."""

    code = -7


class Stopped(SystemExit):
    """The final checkpoint is durable: the program ends, to be started again.

    Its exit code, 75, says so to `holdfast run` and to the Slurm scripts.
    """

    def __init__(self) -> None:
        super().__init__(75)


_by_code = {
    c.code: c
    for c in (ArgumentError, OrderError, NoMemoryError, DaemonError, ProtocolError, LostError, FailedError)
}


def error_of(code: int, text: str) -> Error:
    """The exception for the result of a call of the library."""
    return _by_code.get(code, FailedError)(text)
