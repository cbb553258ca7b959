"""Checkpoints of programs in Python.

A program names the arrays that it needs to continue, and counts its steps by way of the session:

    import numpy as np
    import holdfast
    from mpi4py import MPI

    with holdfast.Session(MPI.COMM_WORLD) as hf:
        u = np.zeros((1000, 1000))
        hf.protect("u", u)
        for step in hf.steps(10_000):
            u += 1
    save(u)

`steps` restores the newest checkpoint, if there is one, and continues at its step. Where a step begins, a checkpoint
may be taken: arrays are whole there, and no message of the program is in flight, unless libholdfast-mpi is preloaded.
USR1 to any one rank, `holdfast request` or an interval asks for one; after a final one (USR2, TERM) `steps` raises
Stopped, which ends the program with exit code 75.

HOLDFAST_LOCAL and HOLDFAST_GLOBAL say where checkpoints go. `holdfast node`, which the session starts, takes them;
docs/NODE.md has more.

An array is protected where it lies. `u = u + 1` makes another array, which is not protected: write `u += 1`, or
`u[:] = ...`, or protect a function that says which array it is now: `hf.protect("u", lambda: u)`. Where it grows, add
a function that takes one: `hf.protect("u", lambda: u, set_u)`. What is no array goes by `protect_state`.
"""

from ._errors import (
    ArgumentError,
    DaemonError,
    Error,
    FailedError,
    LostError,
    NoMemoryError,
    OrderError,
    ProtocolError,
    Stopped,
)
from ._session import Recovery, Session, Steps, start

for _c in (Error, *Error.__subclasses__(), Stopped, Session, Steps, Recovery):
    _c.__module__ = __name__  # where programs find them
del _c

__version__ = "0.2.0"

__all__ = [
    "ArgumentError",
    "DaemonError",
    "Error",
    "FailedError",
    "LostError",
    "NoMemoryError",
    "OrderError",
    "ProtocolError",
    "Recovery",
    "Session",
    "Steps",
    "Stopped",
    "start",
]
