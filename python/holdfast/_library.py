"""libholdfast, by ctypes."""

import ctypes
import functools
import operator
import os
import pathlib
from typing import Any, Iterable, Iterator

from ._errors import ArgumentError, FailedError, NoMemoryError, ProtocolError, error_of

NAME = "libholdfast.so.0"

ALLGATHER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
BEFORE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
RESIZE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class Config(ctypes.Structure):
    """hf_config of holdfast.h."""

    _fields_ = [
        ("size_of", ctypes.c_size_t),
        ("rank", ctypes.c_int),
        ("size", ctypes.c_int),
        ("program", ctypes.c_char_p),
        ("allgather", ALLGATHER),
        ("arg", ctypes.c_void_p),
        ("world", ctypes.c_int),
    ]


class Box(ctypes.Structure):
    """hf_box of holdfast.h."""

    _fields_ = [
        (name, ctypes.c_int64 * 8) for name in ("start", "count", "low", "high", "pitch", "block", "stride")
    ] + [("offset", ctypes.c_int64)]


_calls = {
    "hf_start": [],
    "hf_elastic": [],
    "hf_init": [ctypes.POINTER(Config)],
    "hf_protect": [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int],
    "hf_protect_replicated": [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int],
    "hf_protect_resizable": [
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_size_t,
        RESIZE,
        ctypes.c_void_p,
    ],
    "hf_protect_global": [
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.POINTER(ctypes.c_int64),
        ctypes.POINTER(Box),
        ctypes.c_size_t,
    ],
    "hf_restore": [],
    "hf_point": [],
    "hf_before": [BEFORE, ctypes.c_void_p],
    "hf_checkpoint": [ctypes.c_char_p, ctypes.c_int64],
    "hf_checkpoint_some": [ctypes.c_char_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t],
    "hf_keep": [ctypes.c_char_p, ctypes.c_int],
    "hf_protect_cuda": [],
    "hf_protect_file": [ctypes.c_char_p, ctypes.c_char_p],
    "hf_protect_stream": [ctypes.c_char_p],
    "hf_protect_handle": [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int],
    "hf_unprotect": [ctypes.c_char_p],
    "hf_restart_test": [ctypes.c_char_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64)],
    "hf_restart_begin": [ctypes.c_char_p, ctypes.c_int64],
    "hf_saved": [ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_int)],
    "hf_recover": [ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t],
    "hf_restart_end": [],
    "hf_test": [ctypes.c_char_p],
    "hf_request": [ctypes.c_int],
    "hf_wait": [ctypes.c_char_p],
    "hf_stop_asked": [],
    "hf_finalize": [],
}


def _places() -> Iterator[str]:
    """Places of the library: the user's setting, else next to this package, else the linker's directories."""
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
            lib.hf_fopen.argtypes, lib.hf_fopen.restype = [ctypes.c_char_p, ctypes.c_char_p], ctypes.c_void_p
            lib.hf_error.argtypes, lib.hf_error.restype = [], ctypes.c_char_p
            return lib
        except (OSError, AttributeError) as e:
            reasons.append(str(e))
    raise ProtocolError(
        f"open {NAME}: {'; '.join(reasons)}; set HOLDFAST_LIBRARY to its path, or LD_LIBRARY_PATH to its folder"
    )


def c_text(text: str) -> bytes:
    """A text as C has it, where a zero byte is its end."""
    if "\0" in text:
        raise ArgumentError(f"{text!r} has a zero byte; use a name without")
    return text.encode()


def c_int64(what: str, number: Any) -> int:
    """A whole number of 8 bytes, of Python or of NumPy; ctypes would cut a larger one."""
    n = operator.index(number)
    if not -(2**63) <= n < 2**63:
        raise ArgumentError(f"{what} {n} is not of 8 bytes")
    return n


def strings(names: Iterable[str]) -> "ctypes.Array[ctypes.c_char_p]":
    """Names as C has them."""
    encoded = [c_text(n) for n in names]
    return (ctypes.c_char_p * len(encoded))(*encoded)


@functools.lru_cache(maxsize=None)
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    for name in ("fread", "fwrite"):
        call = getattr(libc, name)
        call.argtypes, call.restype = [ctypes.c_char_p, *[ctypes.c_size_t] * 2, ctypes.c_void_p], ctypes.c_size_t
    libc.fclose.argtypes, libc.fclose.restype = [ctypes.c_void_p], ctypes.c_int
    return libc


def write_stream(name: str, data: bytes) -> None:
    """Makes data the protected contents of a stream."""
    f = load().hf_fopen(c_text(name), b"w")
    if not f:
        raise FailedError(load().hf_error().decode(errors="replace"))
    written = _libc().fwrite(data, 1, len(data), f)
    if _libc().fclose(f) != 0 or written != len(data):
        raise NoMemoryError(f'protect "{name}": no memory for {len(data)} bytes')


def read_stream(name: str) -> bytes:
    """The protected contents of a stream."""
    f = load().hf_fopen(c_text(name), b"r")
    if not f:
        raise FailedError(load().hf_error().decode(errors="replace"))
    parts, room = [], ctypes.create_string_buffer(1 << 16)
    while True:
        n = _libc().fread(room, 1, len(room), f)
        if n == 0:
            break
        parts.append(room.raw[:n])
    _libc().fclose(f)
    return b"".join(parts)


def check(code: int) -> int:
    """Raises the error of a call's result, if it is one."""
    if code < 0:
        raise error_of(code, load().hf_error().decode(errors="replace"))
    return code
