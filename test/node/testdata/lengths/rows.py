"""rows protects an array of rows that a restart does not know how many there are of, and arrays that it uses or not.

    rows.py COLUMNS
"""

import sys
import warnings

import numpy as np

import holdfast

columns = int(sys.argv[1])
warnings.simplefilter("always")
x = np.zeros((0, columns))


def set_x(new):
    global x
    x = new


class Alone:  # what a session needs of a communicator
    rank, size = 0, 1

    def Dup(self):
        return self

    def Free(self):
        pass

    def Allgather(self, mine, all):
        all[:] = mine

    def Abort(self, code):
        sys.exit(code)


words = {}
with holdfast.Session(Alone(), program="rows") as hf:
    hf.protect_state("words", lambda: words, words.update, replicated=True)
    hf.protect("x", lambda: x, set_x)
    lost, kept, whole, inner = np.zeros(3), np.zeros(3), np.zeros(9), np.zeros(9)
    view = inner[2:]
    hf.protect("lost", lost)
    hf.protect("kept", kept)
    hf.protect("part", whole[3:])
    hf.protect("inner", inner)
    hf.protect("buffer", np.frombuffer(bytearray(16)))
    del inner
    try:
        hf.protect("wrong", x, set_x)
        sys.exit("rows: an array with a set is refused")
    except holdfast.ArgumentError:
        pass
    if hf.restore():
        if x.shape != (5, columns) or not np.array_equal(x, np.arange(5.0 * columns).reshape(5, columns)):
            sys.exit(f"rows: wrong: {x}")
        if words != {"long": "x" * 1000}:
            sys.exit(f"rows: wrong: {words}")
        print("rows: the same")
    x = np.arange(5.0 * columns).reshape(5, columns)
    words["long"] = "x" * 1000
    lost = lost + 1
    kept += 1
    hf.checkpoint()
    hf.checkpoint()
    hf.wait()
    print(f"rows: saved {lost[0]} {kept[0]} {whole[0]} {view[0]}")
