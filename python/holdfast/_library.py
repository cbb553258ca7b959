"""libholdfast, by ctypes."""

import ctypes
import functools
import os
import pathlib
from typing import Iterator

from ._errors import ProtocolError, error_of

NAME = "libholdfast.so.0"

ALLGATHER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class Config(ctypes.Structure):
    """hf_config of holdfast.h."""

    _fields_ = [
        ("size_of", ctypes.c_size_t),
        ("rank", ctypes.c_int),
        ("size", ctypes.c_int),
        ("program", ctypes.c_char_p),
        ("allgather", ALLGATHER),
        ("arg", ctypes.c_void_p),
    ]


_calls = {
    "hf_start": [],
    "hf_init": [ctypes.POINTER(Config)],
    "hf_protect": [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int],
    "hf_restore": [],
    "hf_point": [],
    "hf_checkpoint": [],
    "hf_request": [ctypes.c_int],
    "hf_wait": [ctypes.c_char_p],
    "hf_stop_asked": [],
    "hf_finalize": [],
}


def _places() -> Iterator[str]:
    """Where the library may be: what the user says, else beside this package, else where the linker looks."""
    named = os.environ.get("HOLDFAST_LIBRARY")
    if named:
        yield named
        return
    for folder in pathlib.Path(__file__).resolve().parents:
        for lib in (folder, folder / "lib"):
            if (lib / NAME).exists():
                yield str(lib / NAME)
    yield NAME


@functools.lru_cache(maxsize=None)
def load() -> ctypes.CDLL:
    """The library, opened once."""
    reasons = []
    for place in _places():
        try:
            lib = ctypes.CDLL(place)
            for name, args in _calls.items():
                call = getattr(lib, name)
                call.argtypes, call.restype = args, ctypes.c_int
            lib.hf_error.argtypes, lib.hf_error.restype = [], ctypes.c_char_p
            return lib
        except (OSError, AttributeError) as e:
            reasons.append(str(e))
    raise ProtocolError(
        f"open {NAME}: {'; '.join(reasons)}; set HOLDFAST_LIBRARY to its path, or LD_LIBRARY_PATH to its folder"
    )


def check(code: int) -> int:
    """Raises what a call has returned, unless it is a result."""
    if code < 0:
        raise error_of(code, load().hf_error().decode(errors="replace"))
    return code
