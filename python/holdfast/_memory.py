"""Where the bytes of an object lie that is to be protected."""

import ctypes
import os
import sys
from typing import Any, Collection, List, NamedTuple, Optional, Sequence, Tuple

from ._errors import ArgumentError
from ._library import Box

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
    orders: str = "CF"  # "C" by rows, "F" by columns, "CF" if there is no difference


def bytes_at(address: int, n: int) -> memoryview:
    """n bytes that can be written, of the plain kind that mpi4py knows."""
    make = ctypes.pythonapi.PyMemoryView_FromMemory
    make.argtypes, make.restype = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int], ctypes.py_object
    writable = 0x200
    return make(address, n, writable)


def memory_of(name: str, x: Any) -> Memory:
    """The memory of x: an array of NumPy or of a device, or any object with a writable buffer."""
    _refuse_mask(name, x)
    device = getattr(x, "__cuda_array_interface__", None)
    if device is not None:
        _need_driver(name)
        return _of_interface(name, device, x)
    host = getattr(x, "__array_interface__", None)
    try:
        if _is_scalar(x):
            raise TypeError
        if isinstance(host, dict) and isinstance(host.get("data"), tuple):
            return _of_interface(name, host, x)
        view = memoryview(x)
    except TypeError:
        raise ArgumentError(
            f'protect "{name}": a {type(x).__name__} has no memory that could be restored in place; protect a NumPy '
            "array, of one element for a number"
        ) from None
    return _of_view(name, view)


def item_of(name: str, x: Any, m: Memory) -> int:
    """How many elements of m a row of the array x is: all indices but the first."""
    shape = getattr(x, "shape", ())
    item = m.count // shape[0] if shape and shape[0] > 0 else 0
    if shape and shape[0] == 0:
        item = x.itemsize if m.type == BYTE else 1
        for n in shape[1:]:
            item *= n
    if item == 0:
        raise ArgumentError(f'protect "{name}": with set, it is a NumPy array whose rows have elements')
    return item


def _is_scalar(x: Any) -> bool:
    """Whether x is a number of NumPy, such as an element or a sum: it has an interface, to a copy that is gone."""
    return any((c.__module__, c.__name__) == ("numpy", "generic") for c in type(x).__mro__)


def look_of(x: Any) -> Any:
    """What changes if an array, or one of a list, has other memory or another shape; None if it has no memory."""
    if isinstance(x, (list, tuple)):
        return [look_of(part) for part in x]
    for name in ("__cuda_array_interface__", "__array_interface__"):
        d = getattr(x, name, None)
        if isinstance(d, dict) and isinstance(d.get("data"), tuple):
            return d["data"][0] if 0 not in d["shape"] else None, d["shape"], d.get("strides"), d["typestr"]
    try:
        view = memoryview(x)
        return view.nbytes and ctypes.addressof((ctypes.c_char * view.nbytes).from_buffer(view)), view.nbytes
    except (TypeError, ValueError, BufferError):
        return None


def _references_of_local() -> int:
    """The result of sys.getrefcount for an object that only one local variable has."""
    x = object()
    return sys.getrefcount(x)


def is_unused(m: Memory, held: Collection[Memory]) -> bool:
    """Whether nothing but held refers to the memory of m, by itself or by views. Only an array of NumPy can tell."""
    x = m.holder
    base = getattr(x, "base", None)
    if not getattr(getattr(x if base is None else base, "flags", None), "owndata", False):
        return False  # the owner of its memory may use it without the array
    alone = _references_of_local()
    direct = sum(h.holder is x for h in held)
    if base is None:
        return sys.getrefcount(x) <= alone + direct + _views_of(x, held)
    whole = sum(h.holder is base for h in held)
    return sys.getrefcount(x) <= alone + direct and sys.getrefcount(base) <= alone + whole + _views_of(base, held)


def _views_of(x: Any, held: Collection[Memory]) -> int:
    return len({id(h.holder) for h in held if getattr(h.holder, "base", None) is x})


class Share(NamedTuple):
    """A rank's part of a global array: boxes in the memory of an object."""

    memory: Memory
    size: List[int]
    boxes: List[Box]


def share_of(
    name: str,
    size: Sequence[int],
    parts: Sequence[Tuple[Any, Sequence[int]]],
    block: Sequence[int],
    stride: Sequence[int],
) -> Share:
    """The share that arrays are, each with the index of its first element in a global array of this size.

    The arrays may be parts of larger ones, such as the part without ghosts.
    """
    dims = len(size)
    views = [(_strided(name, x), start) for x, start in parts]
    for v, start in views:
        if len(v.shape) != dims or len(start) != dims or (block and len(block) != dims) or len(stride) != len(block):
            raise ArgumentError(
                f'protect "{name}": the array has {dims} dimensions; give the rank\'s part, and the index of its first '
                f"element, as many (they have {len(v.shape)} and {len(start)})"
            )
    views = [(v, start) for v, start in views if 0 not in v.shape]
    if not views:
        first = _strided(name, parts[0][0]) if parts else None
        kind, elem = (first.type, first.elem) if first is not None else (BYTE, 1)
        return Share(Memory(None, 0, kind, None), list(size) + ([elem] if kind == BYTE and elem > 1 else []), [])
    kind, elem = views[0][0].type, views[0][0].elem
    base = min(v.address for v, _ in views)
    bytes_each = elem if kind == BYTE else 1  # the bytes of an element are one more dimension
    boxes, count = [], 0
    for v, start in views:
        if (v.type, v.elem) != (kind, elem) or (v.address - base) % elem != 0:
            raise ArgumentError(f'protect "{name}": its parts have elements of several types')
        b = Box()
        b.offset = (v.address - base) // elem * bytes_each
        last = b.offset
        for d in range(dims):
            b.start[d], b.count[d] = start[d], v.shape[d]
            if block:
                b.block[d], b.stride[d] = block[d], stride[d] if block[d] else 0
            if d > 0:
                b.pitch[d] = v.steps[d - 1] // v.steps[d]
            last += (v.shape[d] - 1) * v.steps[d] // elem * bytes_each
        if bytes_each > 1:
            b.count[dims] = bytes_each
        count = max(count, last + bytes_each)
        boxes.append(b)
    memory = Memory(base, count, kind, [x for x, _ in parts])
    return Share(memory, list(size) + ([bytes_each] if bytes_each > 1 else []), boxes)


class _Strided(NamedTuple):
    address: int
    shape: Tuple[int, ...]
    steps: Tuple[int, ...]  # bytes between neighbours
    type: int
    elem: int


def _strided(name: str, x: Any) -> _Strided:
    _refuse_mask(name, x)
    d = getattr(x, "__cuda_array_interface__", None)
    if d is not None:
        _need_driver(name)
    else:
        d = getattr(x, "__array_interface__", None)
    if not isinstance(d, dict) or not isinstance(d.get("data"), tuple) or _is_scalar(x):
        raise ArgumentError(f'protect "{name}": a part of a global array is an array of NumPy or of a device')
    kind, elem = _element(d)
    _refuse(name, d["data"][1], kind == "O" or _has_objects(d.get("descr")), True)
    shape, given = tuple(d["shape"]), d.get("strides")
    steps = [0] * len(shape)
    due = elem
    for i in reversed(range(len(shape))):
        # Of a single index the stride says nothing.
        steps[i] = due if given is None or shape[i] < 2 else given[i]
        last = i == len(shape) - 1
        if steps[i] < due or (steps[i] != elem if last else steps[i] % steps[i + 1] != 0):
            raise ArgumentError(
                f'protect "{name}": the elements are not in the order of C, with no gaps along the last dimension; '
                "give an array that is, or its transpose with the dimensions of the whole in that order"
            )
        due = steps[i] * max(shape[i], 1)
    return _Strided(d["data"][0], shape, tuple(steps), _types.get((kind, elem), BYTE), elem)


def _need_driver(name: str) -> None:
    if not _has_driver():
        raise ArgumentError(
            f'protect "{name}": it is said to be memory of a CUDA device, but this process has loaded no driver '
            "(libcuda.so.1, libamdhip64.so)"
        )


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
    kind, size = _element(d)
    count = 1
    for n in d["shape"]:
        count *= n
    objects = kind == "O" or _has_objects(d.get("descr"))
    orders = _orders(d["shape"], d.get("strides"), size)
    _refuse(name, readonly, objects, orders != "")
    return _memory(address, count, kind, size, x)._replace(orders=orders)


def _element(d: dict) -> Tuple[str, int]:
    """Kind and bytes of an element; no kind if its bytes are in another order."""
    order, kind, width = d["typestr"][0], d["typestr"][1], d["typestr"][2:].partition("[")[0]
    size = int(width or ctypes.sizeof(ctypes.c_void_p))  # objects have no width here
    return "" if order == ">" else kind, size * 4 if kind == "U" else size


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


def _refuse_mask(name: str, x: Any) -> None:
    """The buffer of a masked array has its data alone: a restart would give another array."""
    if any(c.__name__ == "MaskedArray" for c in type(x).__mro__):
        raise ArgumentError(
            f'protect "{name}": a masked array is two arrays; protect x.data and x.mask, each under a name of its own '
            "(x.mask = numpy.ma.getmaskarray(x) first, so that there is one)"
        )


def _has_objects(descr: Any) -> bool:
    """Whether a structure has a field with Python objects."""
    if isinstance(descr, str):
        return descr[1:2] == "O"
    return isinstance(descr, list) and any(_has_objects(field[1]) for field in descr)


def _orders(shape: Sequence[int], strides: Optional[Tuple[int, ...]], size: int) -> str:
    """In which orders the elements lie one behind the other: Memory.orders, or none."""
    if sum(n != 1 for n in shape) < 2 and strides is None or 0 in shape:
        return "CF"
    if strides is None:
        return "C"

    def ordered(dims: Any) -> bool:
        due = size
        for n, stride in dims:
            if n != 1 and stride != due:
                return False
            due *= n
        return True

    pairs = list(zip(shape, strides))
    return ("C" if ordered(reversed(pairs)) else "") + ("F" if ordered(pairs) else "")
