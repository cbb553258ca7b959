"""lengths in Python: see lengths.c."""

import os
import sys

import numpy as np

import holdfast

seed, until, at = (int(x) for x in sys.argv[1:4])
rank = int(os.environ.get("PMI_RANK", 0))


def mix(k, t, i):
    h = seed
    for v in (rank, k, t, i):
        h = (h * 1103 + v * 7919 + 12345) % 65521
    return h


def length(k, t):
    return mix(k, t // 3, -1) % 40


def filled(t):
    a = np.array([mix(0, t, i) for i in range(length(0, t))], float)
    b = np.array([mix(1, t, i) for i in range(length(1, t))], np.int32)
    s = np.array([mix(2, t, i) % 256 for i in range(length(2, t))], np.uint8)
    return {"a": a, "b": b, "s": s}


now = {"a": np.zeros(0), "b": np.zeros(7, np.int32), "s": np.zeros(3, np.uint8)}
step = np.zeros(1, np.int64)
with holdfast.Session(program="lengths") as hf:
    hf.protect("step", step)
    for name in now:
        hf.protect(name, lambda name=name: now[name], lambda x, name=name: now.update({name: x}))
    if hf.restore():
        want = filled(int(step[0]))
        for name in now:
            if now[name].dtype != want[name].dtype or not np.array_equal(now[name], want[name]):
                sys.exit(f"lengths: wrong at step {step[0]}: {name}")
    os.write(1, f"lengths: begins at step {step[0]}\n".encode())
    while True:
        now.update(filled(int(step[0])))
        if step[0] == at:
            hf.checkpoint()
        else:
            hf.point()
        if step[0] >= until:
            break
        step += 1
    hf.wait()
    os.write(1, f"lengths: ends at step {step[0]}\n".encode())
    if len(sys.argv) > 5:
        os._exit(0)
