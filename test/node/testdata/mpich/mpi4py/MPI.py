"""The calls, with the handles of MPICH, which are integers."""

import atexit
import ctypes
import pickle

_mpi = ctypes.CDLL("libmpich.so.12", mode=ctypes.RTLD_GLOBAL)
_WORLD, _BYTE, _STATUS_IGNORE = 0x44000000, 0x4C00010D, 1


def _call(name, *args):
    code = getattr(_mpi, name)(*args)
    if code != 0:
        raise RuntimeError(f"{name}: code {code}")


def _ints(*values):
    return (ctypes.c_int * len(values))(*values)


def _bytes(x):
    """Address and number of the bytes of an array."""
    interface = getattr(x, "__array_interface__", None)
    if interface is not None:
        return ctypes.c_void_p(interface["data"][0]), x.nbytes
    view = memoryview(x)
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(view))), view.nbytes


class Comm:
    def __init__(self, handle):
        self.handle = handle
        rank, size = ctypes.c_int(), ctypes.c_int()
        _call("MPI_Comm_rank", handle, ctypes.byref(rank))
        _call("MPI_Comm_size", handle, ctypes.byref(size))
        self.rank, self.size = rank.value, size.value

    def Dup(self):
        new = ctypes.c_int()
        _call("MPI_Comm_dup", self.handle, ctypes.byref(new))
        return Comm(new.value)

    def Free(self):
        _call("MPI_Comm_free", ctypes.byref(ctypes.c_int(self.handle)))

    def Abort(self, code):
        _call("MPI_Abort", self.handle, code)

    def Allgather(self, mine, everyone):
        at, n = _bytes(mine)
        to, _ = _bytes(everyone)
        _call("MPI_Allgather", at, n, _BYTE, to, n, _BYTE, self.handle)

    def Create_cart(self, dims):
        new = ctypes.c_int()
        no = _ints(*[0] * len(dims))
        _call("MPI_Cart_create", self.handle, len(dims), _ints(*dims), no, 0, ctypes.byref(new))
        cart = Comm(new.value)
        coords = _ints(*dims)
        _call("MPI_Cart_coords", cart.handle, cart.rank, len(dims), coords)
        cart.dims, cart.coords = list(dims), list(coords)
        return cart

    def Shift(self, direction, by):
        source, dest = ctypes.c_int(), ctypes.c_int()
        _call("MPI_Cart_shift", self.handle, direction, by, ctypes.byref(source), ctypes.byref(dest))
        return source.value, dest.value

    def Sendrecv(self, mine, dest, recvbuf, source):
        at, n = _bytes(mine)
        to, m = _bytes(recvbuf)
        status = ctypes.c_void_p(_STATUS_IGNORE)
        _call("MPI_Sendrecv", at, n, _BYTE, dest, 0, to, m, _BYTE, source, 0, self.handle, status)

    def gather(self, x):
        mine = bytearray(pickle.dumps(x))
        n, counts = bytearray(ctypes.c_int(len(mine))), bytearray(4 * self.size)
        self.Allgather(n, counts)
        counts = list((ctypes.c_int * self.size).from_buffer(counts))
        places = [sum(counts[:i]) for i in range(self.size)]
        everyone = bytearray(sum(counts))
        _call("MPI_Gatherv", _bytes(mine)[0], len(mine), _BYTE, _bytes(everyone)[0], _ints(*counts), _ints(*places),
              _BYTE, 0, self.handle)
        return [pickle.loads(everyone[at : at + k]) for at, k in zip(places, counts)] if self.rank == 0 else None


def Compute_dims(nodes, dims):
    d = _ints(*[0] * dims)
    _call("MPI_Dims_create", nodes, dims, d)
    return list(d)


_call("MPI_Init", None, None)
atexit.register(_call, "MPI_Finalize")
COMM_WORLD = Comm(_WORLD)
