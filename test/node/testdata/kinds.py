"""kinds protects arrays of many types. The first start fills them and takes a checkpoint, the second restores them and
compares. Errors are exceptions."""

import array
import sys

import numpy as np

import holdfast


def expect(holds, what):
    if not holds:
        sys.exit(f"kinds: wrong: {what}")


def expect_error(kind, word, call, *args):
    try:
        call(*args)
    except kind as e:
        expect(word in str(e), e)
        return
    sys.exit(f"kinds: wrong: no {kind.__name__} for {args}")


class OnDevice:
    __cuda_array_interface__ = {"shape": (1,), "typestr": "<f8", "data": (4096, False), "version": 3}


TYPES = "i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16 ?  >f8 M8[s] S3 U2 i4,f8".split()


def filled(t):
    return (np.arange(6) * 3 + 1).astype(t) if t != "i4,f8" else np.array([(1, 0.5), (2, 1.5)], t)


def go_back(hf):
    """Goes back to checkpoints with a name in the same process."""
    global now
    before = diary[:]
    now = np.full(3, 5.0)
    hf.checkpoint("main", np.int64(5))
    now = np.full(4, 6.0)
    hf.checkpoint("main", 6, ["now", "i4"])
    hf.wait()
    expect(hf.durable() and (hf.find("main"), hf.find("main", 5), hf.find("other")) == (6, 5, None), "versions")
    diary[:] = []
    with hf.begin_restart("main", 6) as r:
        expect((r.count("now"), r.count("i4"), r.count("i8")) == (4, 6, None), "what version 6 holds")
        now = np.zeros(r.count("now"))
        r.recover(["now"])
    expect((now == 6).all() and diary == [], "a part of version 6")
    expect_error(holdfast.FailedError, "main", hf.restart, "main", 7)
    now = np.zeros(3)
    hf.restart("main", 5)
    expect((now == 5).all() and diary == before, "version 5")
    diary[:] = ["bad"]
    expect_error(ZeroDivisionError, "bad", hf.checkpoint)
    diary[:] = before


expect_error(holdfast.ArgumentError, "not both", lambda: holdfast.Session(object(), rank=0, size=1))
with holdfast.Session(program="kinds") as hf:
    arrays = {t: np.zeros_like(filled(t)) for t in TYPES}
    arrays["columns"] = np.zeros((3, 4), order="F")
    arrays["rows"] = np.zeros((5, 4))[1:3]
    arrays["empty"] = np.zeros((0, 3))
    arrays["scalar"] = np.zeros(())
    others = {"bytes": bytearray(3), "ints": array.array("i", [0, 0])}
    now = np.zeros(4)
    for name, a in {**arrays, **others}.items():
        hf.protect(name, a)
    hf.protect("now", lambda: now)
    items = [0.0, 0.0]
    hf.protect("items", lambda: np.array(items), lambda a: items.__setitem__(slice(None), a))
    whole, same = np.zeros((6, 5), "i4,f8"), np.zeros(2)
    hf.protect_global("whole", lambda: [whole[1:3, 1:-1], whole[3:-1, 1:-1]], (4, 3), [(0, 0), (2, 0)])
    hf.protect_replicated("same", same)
    dealt = np.zeros((2, 4), order="F")
    hf.protect_global("dealt", dealt.T, (4, 2), (0, 0))
    expect_error(ValueError, "order of C", hf.protect_global, "wrong", dealt, (2, 4), (0, 0))
    expect_error(ValueError, "outside", hf.protect_global, "wrong", np.zeros(3), (3,), (1,))
    expect_error(ValueError, "2 dimensions", hf.protect_global, "wrong", np.zeros(3), (3, 1), (1,))
    diary, saves = ["nothing"], []

    def get():
        saves.append(1)
        if diary == ["bad"]:
            raise ZeroDivisionError("bad")
        return diary

    hf.protect_state("diary", get, lambda d: diary.__setitem__(slice(None), d))
    readonly = np.zeros(3)
    readonly.flags.writeable = False
    for number in (3, np.float64(3), now.sum(), now[0], np.zeros(1, "i4,f8")[0], np.str_("a")):
        expect_error(ValueError, "no memory", hf.protect, "number", number)
        expect_error(ValueError, "no memory", hf.protect_replicated, "number", number)
    expect_error(ValueError, "is an array", hf.protect_global, "number", now[0], (), ())
    expect_error(ValueError, "one behind the other", hf.protect, "part", np.zeros(4)[::2])
    expect_error(ValueError, "one behind the other", hf.protect, "part", np.zeros((4, 4))[:, :2])
    expect_error(ValueError, "objects", hf.protect, "objects", np.array([1, "a"], object))
    expect_error(ValueError, "objects", hf.protect, "field", np.zeros(1, [("a", "i4"), ("b", "O")]))
    expect_error(ValueError, "read-only", hf.protect, "const", readonly)
    expect_error(ValueError, "x.mask", hf.protect, "masked", np.ma.array([1, 2], mask=[0, 1]))
    expect_error(ValueError, "CUDA", hf.protect, "device", OnDevice())
    expect_error(holdfast.FailedError, "another type", hf.protect, "f8", np.zeros(6, "f4"))
    for made in (lambda: np.array(items), lambda: bytearray(3), lambda: [np.zeros(3)]):
        expect_error(holdfast.ArgumentError, "new array at each call", hf.protect, "made", made)
    expect_error(ValueError, "read-only", hf.protect, "bytes", lambda: np.frombuffer(b"abc", "u1"))
    moved = [np.zeros(3), np.zeros((3, 3))]
    hf.protect("moved", moved[0])
    hf.protect_global("moved2", moved[1], (3, 3), (0, 0))
    moved[0].resize(1 << 20, refcheck=False)
    moved[1].resize((3, 1 << 20), refcheck=False)
    expect_error(ValueError, "outside", hf._update)
    hf.unprotect("moved2")
    hf._update()
    at = moved[0].__array_interface__["data"][0]
    expect(hf._arrays["moved"][:2] == (at, 1 << 20), "memory that has moved")
    hf.unprotect("moved")
    turned = np.zeros((2, 3))
    hf.protect("turned", lambda: turned)
    turned = np.asfortranarray(turned)
    expect_error(ValueError, "by columns", hf._update)
    turned = turned[:, :1].copy()
    hf._update()  # of one column it is the same
    expect_error(ValueError, "by columns", hf.protect, "turned", np.zeros((3, 2), order="F"))
    hf.unprotect("turned")
    hf.protect("turned", np.zeros((3, 2), order="F"))
    hf.unprotect("turned")
    expect_error(ValueError, "zero byte", hf.protect, "a\0b", np.zeros(3))
    expect_error(ValueError, "8 bytes", hf.checkpoint, "main", 2**64 + 5)
    steps = hf.steps(10, every=4)
    hf.restore()
    expect_error(holdfast.OrderError, "before", hf.steps, 3)
    if hf.restored:
        expect(steps.now == 8, f"step {steps.now}")
        for t in TYPES:
            expect((arrays[t] == filled(t)).all(), t)
        expect((arrays["columns"] == np.arange(12).reshape(3, 4)).all(), "columns")
        expect((arrays["rows"] == np.arange(8).reshape(2, 4)).all(), "rows")
        expect(arrays["scalar"][()] == 5, "scalar")
        expect(others["bytes"] == b"abc" and list(others["ints"]) == [7, -8], "buffers")
        expect((now == 8).all() and items == [1.5, 2.5], (now, items))
        expect(diary == ["a", {"b": 2}] * 3, diary)
        inner = np.zeros_like(whole)
        inner[1:-1, 1:-1] = np.array([(k, k / 2) for k in range(12)], "i4,f8").reshape(4, 3)
        expect((whole == inner).all() and (dealt == 3).all() and (same == 4).all(), "global and replicated")
        print("kinds: the same")
    else:
        for t in TYPES:
            arrays[t][...] = filled(t)
        arrays["columns"][...] = np.arange(12).reshape(3, 4)
        arrays["rows"][...] = np.arange(8).reshape(2, 4)
        arrays["scalar"][...] = 5
        others["bytes"][:] = b"abc"
        others["ints"][0], others["ints"][1] = 7, -8
        diary[:] = ["a", {"b": 2}] * 3
        items[:] = 1.5, 2.5
        whole = np.ones_like(whole)
        whole[1:-1, 1:-1] = np.array([(k, k / 2) for k in range(12)], "i4,f8").reshape(4, 3)
        dealt[...], same[...] = 3, 4
    for step in steps:
        now = now + 1  # another array each time
        expect_error(holdfast.OrderError, "middle of a step", hf.checkpoint)
    expect((now == 10).all(), now)
    if not hf.restored:
        expect(len(saves) == 2, f"{len(saves)} saves for two checkpoints")
        hf.wait("global")
        for name in ("whole", "same", "dealt"):
            hf.unprotect(name)
        go_back(hf)
        print("kinds: saved")
    else:
        hf.protect_file("gone", "/nonexistent/file")
        expect_error(holdfast.FailedError, '"gone"', hf.checkpoint)
        hf.unprotect("gone")
        hf.checkpoint()
