"""Checkpoints of programs in Python.

A program names the arrays that it needs to continue, and counts its steps with the session:

    import numpy as np
    import holdfast
    from mpi4py import MPI

    with holdfast.Session(MPI.COMM_WORLD) as hf:
        u = np.zeros((1000, 1000))
        hf.protect("u", u)
        for step in hf.steps(10_000):
            u += 1
    save(u)

`steps` restores the newest checkpoint, if there is one, and continues at its step. A checkpoint can be taken at the
begin of each step. The arrays must be complete there, and no message of the program in flight, unless libholdfast-mpi
is preloaded. USR1 to any one rank, `holdfast request` or an interval asks for a checkpoint. After a final one (USR2,
TERM) `steps` raises Stopped, which ends the program with exit code 75.

HOLDFAST_LOCAL and HOLDFAST_GLOBAL name the directories. The session starts `holdfast node`, which takes the
checkpoints: docs/NODE.md.

An array is protected where it lies. `u = u + 1` makes another array, which is not protected: write `u += 1`, or
`u[:] = ...`, or protect a function that returns the current array: `hf.protect("u", lambda: u)`. If its length changes,
add a function that stores a new array: `hf.protect("u", lambda: u, set_u)`. For other objects use `protect_state`.
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
