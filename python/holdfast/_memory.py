"""Where the bytes of an object lie that is to be protected."""

import ctypes
import os
from typing import Any, NamedTuple, Optional, Sequence, Tuple

from ._errors import ArgumentError

BYTE, DOUBLE_COMPLEX = 1, 13

# Types of elements of holdfast.h, by kind and bytes of an element. All others are saved as bytes.
_types = {
    ("i", 1): 2,
    ("i", 2): 3,
    ("i", 4): 4,
    ("i", 8): 5,
    ("u", 1): 6,
    ("u", 2): 7,
    ("u", 4): 8,
    ("u", 8): 9,
    ("f", 4): 10,
    ("f", 8): 11,
    ("c", 8): 12,
    ("c", 16): DOUBLE_COMPLEX,
}

# Kinds of array.array and memoryview formats.
_kinds = {**dict.fromkeys("bhilqn", "i"), **dict.fromkeys("BHILQN", "u"), "f": "f", "d": "f", "Zf": "c", "Zd": "c"}


class Memory(NamedTuple):
    """Elements of one type that lie one behind the other."""

    address: Optional[int]
    count: int
    type: int
    holder: Any  # keeps them where they are


def bytes_at(address: int, n: int) -> memoryview:
    """n bytes that can be written, of the plain kind that mpi4py knows."""
    make = ctypes.pythonapi.PyMemoryView_FromMemory
    make.argtypes, make.restype = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int], ctypes.py_object
    writable = 0x200
    return make(address, n, writable)


def memory_of(name: str, x: Any) -> Memory:
    """The memory of x: an array of NumPy or of a device, or any object with a writable buffer."""
    device = getattr(x, "__cuda_array_interface__", None)
    if device is not None:
        if not _has_driver():
            raise ArgumentError(
                f'protect "{name}": it is said to be memory of a CUDA device, but this process has loaded no driver '
                "(libcuda.so.1, libamdhip64.so)"
            )
        return _of_interface(name, device, x)
    host = getattr(x, "__array_interface__", None)
    if isinstance(host, dict) and host.get("data") is not None:
        return _of_interface(name, host, x)
    try:
        view = memoryview(x)
    except TypeError:
        raise ArgumentError(
            f'protect "{name}": a {type(x).__name__} has no memory that could be restored in place; protect a NumPy '
            "array, of one element for a number"
        ) from None
    return _of_view(name, view)


def _has_driver() -> bool:
    """Whether the process has a GPU's driver: a program with device memory has, and the library asks it."""
    for name in ("libcuda.so.1", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"):
        try:
            ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            return True
        except OSError:
            continue
    return False


def _of_interface(name: str, d: dict, x: Any) -> Memory:
    address, readonly = d["data"]
    order, kind, width = d["typestr"][0], d["typestr"][1], d["typestr"][2:].partition("[")[0]
    size = int(width or ctypes.sizeof(ctypes.c_void_p))  # objects have no width here
    if kind == "U":
        size *= 4
    count = 1
    for n in d["shape"]:
        count *= n
    objects = kind == "O" or _has_objects(d.get("descr"))
    _refuse(name, readonly, objects, _contiguous(d["shape"], d.get("strides"), size))
    return _memory(address, count, "" if order == ">" else kind, size, x)


def _of_view(name: str, view: memoryview) -> Memory:
    _refuse(name, view.readonly, "O" in view.format, view.c_contiguous)
    kind = _kinds.get(view.format.lstrip("@=<"), "")
    at = (ctypes.c_char * view.nbytes).from_buffer(view)
    return _memory(ctypes.addressof(at), view.nbytes // view.itemsize, kind, view.itemsize, (at, view))


def _memory(address: int, count: int, kind: str, size: int, holder: Any) -> Memory:
    known = _types.get((kind, size))
    if known is None:
        return Memory(address or None, count * size, BYTE, holder)
    return Memory(address or None, count, known, holder)


def _refuse(name: str, readonly: bool, objects: bool, contiguous: bool) -> None:
    if readonly:
        raise ArgumentError(f'protect "{name}": the array is read-only, and a restart writes to it; protect a copy')
    if objects:
        raise ArgumentError(
            f'protect "{name}": the array holds Python objects, which are addresses; protect arrays of numbers'
        )
    if not contiguous:
        raise ArgumentError(
            f'protect "{name}": the elements do not lie one behind the other; protect the whole array that this is a '
            "part of"
        )


def _has_objects(descr: Any) -> bool:
    """Whether a structure has a field with Python objects."""
    if isinstance(descr, str):
        return descr[1:2] == "O"
    return isinstance(descr, list) and any(_has_objects(field[1]) for field in descr)


def _contiguous(shape: Sequence[int], strides: Optional[Tuple[int, ...]], size: int) -> bool:
    """Whether the elements lie one behind the other, by rows or by columns."""
    if strides is None or 0 in shape:
        return True

    def ordered(dims: Any) -> bool:
        due = size
        for n, stride in dims:
            if n != 1 and stride != due:
                return False
            due *= n
        return True

    pairs = list(zip(shape, strides))
    return ordered(pairs) or ordered(reversed(pairs))
