"""ondevice protects an array with __cuda_array_interface__, saves, and restores it. usage: ondevice.py"""

import ctypes

import holdfast

cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *args):
    code = getattr(cuda, name)(*args)
    if code != 0:
        raise SystemExit(f"{name}: {code}")


class OnDevice:
    """n values of 32 bits."""

    def __init__(self, n):
        self.at = ctypes.c_uint64(0)
        call("cuMemAlloc_v2", ctypes.byref(self.at), ctypes.c_size_t(4 * n))
        self.n = n
        self.__cuda_array_interface__ = {"shape": (n,), "typestr": "<u4", "data": (self.at.value, False), "version": 3}

    def fill(self, value):
        call("cuMemsetD32Async", self.at, value, ctypes.c_size_t(self.n), None)

    def values(self):
        host = (ctypes.c_uint32 * self.n)()
        call("cuCtxSynchronize")
        call("cuMemcpyDtoH_v2", host, self.at, ctypes.c_size_t(4 * self.n))
        return set(host)


context, device = ctypes.c_void_p(), ctypes.c_int()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxPushCurrent_v2", context)
a = OnDevice(1000)
a.fill(1)
with holdfast.Session(program="cuda") as hf:
    hf.protect("a", a)
    if hf.restore():
        print("cuda: the same" if a.values() == {6} else f"cuda: {a.values()}")
    else:
        a.fill(6)
        hf.checkpoint()
        hf.wait()
        print("cuda: saved")
