# Arrays, kernels, mappings and images with pyopencl; prints what came of them. With a file name it stands still
# until the file is there.
import sys, os, time, hashlib
import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pyopencl.clmath as clmath
from pyopencl.elementwise import ElementwiseKernel
from pyopencl.reduction import ReductionKernel
ctx = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(ctx)
print(ctx.devices[0].platform.name, file=sys.stderr)
rng = np.random.default_rng(7)
a = cl_array.to_device(queue, rng.random(50000, dtype=np.float32))
b = cl_array.to_device(queue, rng.random(50000, dtype=np.float32))
k = ElementwiseKernel(ctx, "float *x, float *y, float s, float *z", "z[i] = x[i]*y[i] + s*x[i]", "axs")
z = cl_array.empty_like(a)
k(a, b, np.float32(3), z)
def sha(x): return hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest()[:16]
print("elementwise", sha(z.get()), np.allclose(z.get(), a.get()*b.get() + 3*a.get()))
if len(sys.argv) > 1:
    print("half", flush=True)
    while not os.path.exists(sys.argv[1]): time.sleep(0.01)
dot = ReductionKernel(ctx, np.float32, neutral="0", reduce_expr="a+b", map_expr="x[i]*y[i]",
                      arguments="__global const float *x, __global const float *y")
print("dot", abs(float(dot(a, b).get()) - float(np.dot(a.get().astype(np.float64), b.get()))) < 1e-1)
n = cl_array.arange(queue, 20000, dtype=np.int32)
print("array", sha((a + 2*b - a*b).get()), float(cl_array.sum(n.astype(np.int64)).get()))
# from the package's documentation: a buffer program, a mapped one, an image
mf = cl.mem_flags
x = np.arange(1 << 16, dtype=np.float32)
bx = cl.Buffer(ctx, mf.READ_ONLY | mf.COPY_HOST_PTR, hostbuf=x)
res = cl.Buffer(ctx, mf.WRITE_ONLY, x.nbytes)
prg = cl.Program(ctx, """
__kernel void sq(__global const float *a, __global float *r) { int g = get_global_id(0); r[g] = a[g]*a[g]; }
""").build()
knl = prg.sq
knl(queue, x.shape, None, bx, res)
out = np.empty_like(x)
cl.enqueue_copy(queue, out, res); print("square", sha(out), (out == x*x).all())
m, ev = cl.enqueue_map_buffer(queue, res, cl.map_flags.READ, 0, x.shape, x.dtype)
ev.wait(); print("map", sha(m)); m.base.release(queue)
ok = rng.integers(0, 255, (48, 64, 4), dtype=np.uint8)
img = cl.image_from_array(ctx, ok, 4)
back = np.empty_like(ok)
cl.enqueue_copy(queue, back, img, origin=(0, 0), region=(64, 48)); print("image", (back == ok).all())
p2 = cl.Program(ctx, ctx.devices, [prg.get_info(cl.program_info.BINARIES)[0]]).build()
p2.sq(queue, x.shape, None, bx, res); queue.finish(); print("binary", True)
