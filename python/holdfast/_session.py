"""The session of a process, and its steps."""

import ctypes
import os
import pickle
import sys
import traceback
import warnings
from types import TracebackType
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Sequence, Tuple, Type

from ._errors import ArgumentError, DaemonError, OrderError, Stopped
from ._library import (
    ALLGATHER,
    BEFORE,
    RESIZE,
    Box,
    Config,
    c_int64,
    c_text,
    check,
    load,
    read_stream,
    strings,
    write_stream,
)
from ._memory import Memory, bytes_at, is_unused, item_of, look_of, memory_of, share_of

_RESTORED = _STOP = _FOUND = 1
_INT64 = 5


def start() -> None:
    """Finds the node daemon, or starts it. Local, optional: Session does it otherwise.

    Call it before mpi4py.MPI is imported if no process may be started after MPI_Init. Raises DaemonError.
    """
    check(load().hf_start())


def _going_on(code: int) -> int:
    """The death of a daemon ends no run: the library has said so, and another daemon takes a checkpoint soon."""
    return 0 if code == DaemonError.code else code


class Session:
    """This process's connection to the node daemon, and its protected objects.

    Collective: all ranks make one, protect the same names, and reach the same number of points and checkpoints. A
    process makes one session in its life. Use it in a `with` block, whose end waits until the last checkpoint is at
    all levels. If an exception ends the block, it does not wait; with a communicator it prints the exception and
    aborts MPI, so that the other ranks end, too.

    comm is an mpi4py communicator of all ranks of the job, or any object with rank, size, Dup(), Free(), Abort(code)
    and Allgather(mine, all). Dup returns a communicator for the session only; Abort ends all ranks. Allgather copies
    the bytes of mine, whose number is the same on each rank, to all, in order of rank. Without comm, all ranks are on
    this node, and rank and size come from the arguments or from the launcher's environment. program is the name of
    the job in `holdfast status`.

    With elastic, the job can continue from a checkpoint of another number of ranks. Protect all state by
    protect_global or protect_replicated; `steps` does so with the number of the step.
    """

    def __init__(
        self,
        comm: Any = None,
        *,
        rank: int = -1,
        size: int = -1,
        program: Optional[str] = None,
        elastic: bool = False,
    ) -> None:
        self._lib = load()
        self._comm = comm
        self._arrays: Dict[str, Memory] = {}
        self._functions: Dict[str, Tuple[Callable[[], Any], Any]] = {}  # and their last results
        self._how: Dict[str, Callable[[str, Any], Memory]] = {}  # a name is protected, if not by hf_protect
        self._orders: Dict[str, str] = {}  # of the memory with a name: Memory.orders
        self._looks: Dict[str, Any] = {}  # of the arrays as they were protected: look_of
        self._shares: Dict[str, Any] = {}  # the arrays of protect_global
        self._resizes: Dict[str, Any] = {}  # functions that the library calls
        self._made: Dict[str, Any] = {}  # restored arrays that set has not taken, by name
        self._setters: Dict[str, Callable[[Any], None]] = {}
        self._unused: Dict[str, Memory] = {}  # warned of
        self._elastic = elastic
        self._states: Dict[str, Tuple[Callable[[], Any], Callable[[Any], None]]] = {}
        self._replicated: Dict[str, bytearray] = {}  # pickled
        self._requests: Dict[str, Any] = {}
        self._before = BEFORE(self._refresh)  # the library has its address
        self._raised: Optional[BaseException] = None  # by functions that _refresh has called
        self._finalized = False
        self._in_step = False  # the program is in the middle of one of Steps
        self.restored: Optional[bool] = None
        """Whether restore has restored a checkpoint; None before it."""
        if comm is not None and (rank, size) != (-1, -1):
            raise ArgumentError("Session: give a communicator, or rank and size, not both")
        if program is None:
            program = _program_name()
        if elastic:
            check(self._lib.hf_elastic())
        config = Config(ctypes.sizeof(Config), rank, size, c_text(program) if program else None)
        if comm is None:
            check(self._lib.hf_init(ctypes.byref(config)))
        else:
            self._init_by(comm, config)
        check(self._lib.hf_before(self._before, None))

    def _init_by(self, comm: Any, config: Config) -> None:
        own = comm.Dup()
        failed = []

        def allgather(everyone: int, mine: int, n: int, _: Any) -> int:
            try:
                own.Allgather(bytes_at(mine, n), bytes_at(everyone, n * own.size))
                return 0
            except BaseException as e:  # no exception may pass the library
                failed.append(e)
                return -1

        mpi = sys.modules.get("mpi4py.MPI")
        if mpi is not None and isinstance(comm, mpi.Comm):
            config.world = mpi.COMM_WORLD.size
        config.rank, config.size = own.rank, own.size
        config.allgather = ALLGATHER(allgather)
        code = self._lib.hf_init(ctypes.byref(config))
        if failed:
            raise failed[0]
        check(code)
        own.Free()

    def protect(self, name: str, array: Any, set: Optional[Callable[[Any], None]] = None) -> None:
        """Makes an array part of every checkpoint under a name. Local.

        array is a contiguous NumPy array, one of a device with __cuda_array_interface__ (CuPy, Numba, PyTorch), or
        any object with a writable buffer. Numbers keep their type; other elements are saved as bytes. The session
        holds a reference. At a restart, array must have as many elements as at the checkpoint.

        To replace the array, as after `u = u + 1`, protect the new one under the same name; its elements must have
        the same type. Or let array be a function without arguments that returns the current array, and that is
        called before each checkpoint: `hf.protect("u", lambda: u)`. All of these arrays must be stored by rows, or
        all by columns as many results of SciPy are, because bytes are saved in their order in memory.

        With set, a restarted program need not know the length. If the checkpoint has another number of rows than
        array(), restore and recover call set with a new NumPy array. The other dimensions must be the same. set also
        gets the array if array() makes another one at each call; without set, such a function is refused:

            def set_trades(a): w.trades = a
            hf.protect("trades", lambda: w.trades, set_trades)

        A restarted program protects everything that it had protected at the checkpoint before it calls restore.
        Copies nothing now. Raises ArgumentError for a bad name or array, OrderError after finalize.
        """
        if set is None:
            self._setters.pop(name, None)
            self._protect(name, array, None)
            return
        if not callable(array) or hasattr(array, "__array_interface__"):
            raise ArgumentError(f'protect "{name}": with set, give a function that returns the array of the moment')
        self._resizes[name] = RESIZE(lambda count, _: self._resize(name, count))
        self._setters[name] = set
        self._protect(name, array, self._place_resizable)

    def _place_resizable(self, name: str, array: Any) -> Memory:
        m = self._memory_of(name, array)
        item = item_of(name, array, m)
        check(
            self._lib.hf_protect_resizable(c_text(name), m.address, m.count, m.type, item, self._resizes[name], None)
        )
        return m

    def _resize(self, name: str, count: int) -> Optional[int]:
        """hf_resize_fn: makes an array of count elements in the place of the one that is protected."""
        try:
            import numpy

            x = self._arrays[name].holder
            rows = count // item_of(name, x, self._arrays[name])
            made = numpy.empty_like(x, shape=(rows, *x.shape[1:]))
            self._arrays[name], self._made[name] = self._memory_of(name, made), made
            self._looks[name] = look_of(made)
            return self._arrays[name].address
        except BaseException as e:  # no exception may pass the library
            self._raised = e
            return None

    def _hand_over(self, names: Iterable[str]) -> None:
        """Gives the functions of protect the arrays that a restore has made, or that array() does not return."""
        for name in self._setters.keys() & set(names) - self._made.keys():
            if look_of(self._functions[name][0]()) != self._looks[name]:
                self._made[name] = self._arrays[name].holder
        made, self._made = self._made, {}
        for name, array in made.items():
            self._functions[name] = (self._functions[name][0], array)
            self._setters[name](array)

    def protect_replicated(self, name: str, array: Any) -> None:
        """Makes an array that is the same on all ranks part of every checkpoint. Local, on all ranks.

        Any number of ranks can restore it. It is stored once, or with every rank if it is small. A checkpoint fails
        if the ranks' bytes differ:

            hf.protect_replicated("parameters", parameters)
        """

        def place(name: str, array: Any) -> Memory:
            m = self._memory_of(name, array)
            check(self._lib.hf_protect_replicated(c_text(name), m.address, m.count, m.type))
            return m

        self._protect(name, array, place)

    def protect_global(
        self,
        name: str,
        array: Any,
        size: Sequence[int],
        start: Sequence[Any],
        *,
        block: Sequence[int] = (),
        stride: Sequence[int] = (),
    ) -> None:
        """Makes this rank's share of a global array part of every checkpoint: any number of ranks can restore it.

        size is the shape of the global array. array is this rank's part, and start the index of its first element.
        The part may be a slice of a larger array, such as one without its ghosts:

            hf.protect_global("u", u[1:-1, 1:-1], (n, n), (row, col))

        For several parts, array is a list of arrays and start a list of their indices. For a block-cyclic division,
        block is the length of a block along each dimension, and stride the distance from the begin of one block to
        that of the rank's next. A block of 0 means one run. array may be a function, as for protect.

        Local, but every rank declares the array, with the same name, type and size. Each element belongs to exactly
        one rank; otherwise the checkpoint fails and names the elements and ranks. restore reads only the part that the
        rank has then. All numbers are elements, counted from 0.
        """
        several = lambda a: isinstance(a, (list, tuple))  # noqa: E731

        def place(name: str, array: Any) -> Memory:
            if several(array) and len(array) != len(start):
                raise ArgumentError(f'protect "{name}": {len(array)} parts have {len(start)} starts')
            self._shares[name] = array
            parts = list(zip(array, start)) if several(array) else [(array, start)]
            s = share_of(name, size, parts, block, stride)
            m, dims = s.memory, len(s.size)
            lengths, boxes = (ctypes.c_int64 * dims)(*s.size), (Box * len(s.boxes))(*s.boxes)
            check(
                self._lib.hf_protect_global(
                    c_text(name), m.address, m.count, m.type, dims, lengths, boxes, len(s.boxes)
                )
            )
            return m

        self._protect(name, array, place)

    def _protect(self, name: str, array: Any, how: Optional[Callable[[str, Any], Memory]]) -> None:
        function = callable(array) and not hasattr(array, "__array_interface__")
        now = array() if function else array
        if function and name not in self._setters and look_of(array()) != look_of(now):
            raise ArgumentError(
                f'protect "{name}": the function makes a new array at each call, and one that is restored would be '
                "lost; return the array that the program uses, or give set, which takes the restored one"
            )
        self._place(name, now, how)
        if how is None:
            self._how.pop(name, None)
            self._shares.pop(name, None)
        else:
            self._how[name] = how
        if function:
            self._functions[name] = (array, now)
        else:
            self._functions.pop(name, None)

    def protect_state(
        self, name: str, get: Callable[[], Any], set: Callable[[Any], None], *, replicated: bool = False
    ) -> None:
        """Makes an object of any kind part of every checkpoint under a name. Local.

        get returns an object that pickle accepts; it is called before each checkpoint. restore and recover call set
        with the saved object:

            hf.protect_state("random", rng.bit_generator.__getstate__, rng.bit_generator.__setstate__)

        With replicated it is the same object on all ranks, down to the bytes that pickle makes of it. Any number of
        ranks can then restore it. Cost: pickle copies the object at each checkpoint while the program waits. An
        exception of get passes through the call, and this rank takes no checkpoint.
        """
        if replicated:
            self._replicated[name] = bytearray()
            self._states[name] = get, set
            return
        check(self._lib.hf_protect_stream(c_text(name)))
        self._states[name] = get, set

    def protect_file(self, name: str, path: str) -> None:
        """Makes a file part of every checkpoint under a name. Local.

        A checkpoint reads it while the program waits, and fails if it is missing. A restore writes a new file, syncs
        it, and then replaces the one at path. Open it after the restore: what is written to the replaced one is lost.

            hf.protect_file("log", "run.log")
        """
        check(self._lib.hf_protect_file(c_text(name), os.fsencode(path)))

    def protect_cuda(self) -> None:
        """Makes all device memory of the process part of every checkpoint: CuPy's, PyTorch's, JAX's. Local.

        Call it before restore. The process must run with libholdfast-cuda in front of the driver. A restarted
        program makes the same allocations in the same order before it calls restore: see hf_protect_cuda in
        holdfast.h, and docs/CUDA.md. Raises FailedError for memory that cannot be saved, and names the allocation.
        """
        check(self._lib.hf_protect_cuda())

    def protect_request(self, name: str, request: Any) -> None:
        """Makes an mpi4py request part of every checkpoint under a name, in a program with libholdfast-mpi. Local.

        request is the object that the program waits for: MPI.Request(), or MPI.Prequest() of a persistent one, which
        may be null. After a restart, restore posts a receive that was pending again, into the same place of the same
        protected array, and makes persistent requests again; holdfast_mpi.h says more:

            hf.protect("ghosts", ghosts)
            request = MPI.Request()
            hf.protect_request("from left", request)

        A method of a communicator returns another object: protect that one again, under the same name.
        """
        from mpi4py import MPI  # the program has it

        check(self._lib.hf_protect_handle(c_text(name), MPI._addressof(request), 0))
        self._requests[name] = request

    def unprotect(self, name: str) -> None:
        """Takes an array, object, file or request out of later checkpoints. Local.

        Raises ArgumentError if nothing has this name.
        """
        check(self._lib.hf_unprotect(c_text(name)))
        for what in (
            self._arrays,
            self._functions,
            self._states,
            self._how,
            self._orders,
            self._looks,
            self._shares,
            self._setters,
            self._replicated,
            self._requests,
        ):
            what.pop(name, None)

    def _memory_of(self, name: str, array: Any) -> Memory:
        """memory_of, for an array in the order of those before by the name.

        A checkpoint has the bytes as they lie, and a restarted program's first array is as its first one was.
        """
        m, before = memory_of(name, array), self._orders.get(name, "CF")
        both = "".join(o for o in before if o in m.orders)
        if not both:
            now, first = ("columns", "rows") if m.orders == "F" else ("rows", "columns")
            raise ArgumentError(
                f'protect "{name}": the array is stored by {now}, and the one before by {first}, as that of a restart '
                f"would be; give numpy.{'ascontiguousarray' if m.orders == 'F' else 'asfortranarray'}(x), or make the "
                "first one so, too"
            )
        self._orders[name] = both
        return m

    def _place(self, name: str, array: Any, how: Optional[Callable[[str, Any], Memory]]) -> None:
        if how is not None:
            m = how(name, array)
        else:
            m = self._memory_of(name, array)
            check(self._lib.hf_protect(c_text(name), m.address, m.count, m.type))
        self._arrays[name] = m  # the earlier object is released only now
        self._looks[name] = look_of(array)

    def _update(self) -> None:
        """Protects the arrays again that functions return, if they are others, and those that have moved."""
        for name, m in list(self._arrays.items()):
            if name in self._functions:
                function, before = self._functions[name]
                now = function()
                self._functions[name] = (function, now)
            elif isinstance(m.holder, tuple):
                continue  # a plain buffer does not move
            else:
                now = before = self._shares.get(name, m.holder)
            if now is before and look_of(now) == self._looks[name]:
                continue
            how = self._how.get(name)
            new = self._memory_of(name, now) if how is None else None
            if new is not None and new[:3] == m[:3]:  # another view of the same memory
                self._arrays[name], self._looks[name] = new, look_of(now)
            else:
                self._place(name, now, how)

    def _warn_of_unused(self) -> None:
        """Says which arrays the program does not have any more: after `u = u + 1` the session alone has the first u."""
        for name, m in self._arrays.items():
            if name in self._functions or self._unused.get(name) is m:
                continue
            if is_unused(m, self._arrays.values()):
                self._unused[name] = m
                warnings.warn(
                    f'holdfast: "{name}" is no longer used by the program, and checkpoints have its old contents: '
                    f'the program has another array now; protect lambda: {name}, or write to the first one',
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _refresh(self, _: Any) -> int:
        """hf_before_fn: brings everything into the protected memory."""
        try:
            self._update()
            self._warn_of_unused()
            for name, (get, _set) in self._states.items():
                if name in self._replicated:
                    self._replicate(name, bytearray(pickle.dumps(get())))
                else:
                    write_stream(name, pickle.dumps(get()))
            return 0
        except BaseException as e:  # no exception may pass the library
            self._raised = e
            return -1

    def _replicate(self, name: str, data: bytearray) -> None:
        m = memory_of(name, data)
        check(self._lib.hf_protect_replicated(c_text(name), m.address, m.count, m.type))
        self._arrays[name], self._replicated[name] = m, data

    def _done(self, code: int) -> int:
        """check, after a call that may have called _refresh."""
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised
        return check(code)

    def _set(self, names: Iterable[str]) -> None:
        """Gives functions of protect_state the restored contents."""
        for name in names:
            data = self._replicated[name] if name in self._replicated else read_stream(name)
            self._states[name][1](pickle.loads(data))

    def restore(self) -> bool:
        """Reads the newest checkpoint that all ranks can read into everything protected.

        Returns False on a first start, which changes nothing. Collective, once, before the first point. `steps` calls
        it if the program has not:

            hf.protect("u", u)
            if not hf.restore():
                u[:] = initial()

        Every byte is verified while it is read. Raises FailedError on all ranks if there are checkpoints but none can
        be restored; protected arrays are unchanged then.
        """
        self._update()
        for name in self._replicated:
            n = ctypes.c_size_t(0)
            check(self._lib.hf_saved(c_text(name), ctypes.byref(n), None))
            self._replicate(name, bytearray(n.value))
        self.restored = self._done(self._lib.hf_restore()) == _RESTORED
        if self.restored:
            self._hand_over(self._functions)
            self._set(self._states)
        return self.restored

    def steps(self, stop: int, start: int = 0, *, every: int = 0, name: str = "step") -> "Steps":
        """Returns the steps from start to stop - 1; after a restart from the checkpoint's step on.

            for step in hf.steps(1000):
                ...

        The loop is collective. Each step begins with a point, and each multiple of every with a checkpoint, which
        holds the state after the previous step. Call neither point nor checkpoint in the loop.

        The number of the step is protected under name. The loop calls restore if the program has not; a program that
        does calls it after steps. After a final checkpoint the loop raises Stopped, which ends the program with exit
        code 75. Code after the loop runs only when all steps are done. Raises OrderError after restore.
        """
        if self.restored is not None:
            raise OrderError(
                "steps: restore has been called, and new names come before it; let the loop restore, or call "
                "steps before restore: steps = hf.steps(n); hf.restore(); for step in steps: ..."
            )
        return Steps(self, start, stop, every, name)

    def point(self) -> bool:
        """Takes a checkpoint if one is asked for. Collective: all ranks reach the same number of points.

        None of their messages is in flight. With libholdfast-mpi, which `holdfast run` preloads, neither is required:
        messages in flight become part of the checkpoint, or it fails and names the call.

            if hf.point():
                sys.exit(75)

        Returns True when the final checkpoint is durable: finish, with exit code 75 to be started again. Cost: one
        short call of the library if no checkpoint is asked for. Otherwise it waits until all ranks are here and the
        state is copied. Raises LostError if another rank has ended.
        """
        self._between_steps("point")
        return self._point()

    def _point(self) -> bool:
        return self._done(_going_on(self._lib.hf_point())) == _STOP

    def checkpoint(
        self, name: Optional[str] = None, version: int = 0, arrays: Optional[Iterable[str]] = None
    ) -> bool:
        """Takes a checkpoint here and now. Collective.

        It returns when the state is copied; wait waits until it is durable. Without a name it is also a point, with
        the result of point. With a name it has a version of 0 or more that the program chooses, for restart. It holds
        everything that is protected, or only the given arrays:

            hf.checkpoint("converged", version=step, arrays=["u"])

        Raises FailedError on all ranks if it could not be taken.
        """
        self._between_steps("checkpoint")
        if name is None:
            return self._checkpoint()
        version = c_int64("version", version)
        if arrays is None:
            self._done(self._lib.hf_checkpoint(c_text(name), version))
        else:
            some = strings(arrays)
            self._done(self._lib.hf_checkpoint_some(c_text(name), version, some, len(some)))
        return False

    def _checkpoint(self) -> bool:
        return self._done(_going_on(self._lib.hf_checkpoint(None, 0))) == _STOP

    def keep(self, name: str, versions: int) -> None:
        """Sets the number of checkpoints of a name to keep, at least 2. Local, before the name is first used.

        All ranks give the same number.
        """
        check(self._lib.hf_keep(c_text(name), versions))

    def find(self, name: str, at_most: int = -1) -> Optional[int]:
        """Returns the highest version of a name that all ranks can read, or None. Collective.

        It is not above at_most, if that is not negative. Cost: reads that version completely, to verify it:

            version = hf.find("converged")
            if version is not None:
                hf.restart("converged", version)
        """
        version, most = ctypes.c_int64(0), c_int64("version", at_most)
        found = check(self._lib.hf_restart_test(c_text(name), most, ctypes.byref(version))) == _FOUND
        return version.value if found else None

    def restart(self, name: str, version: int, arrays: Optional[Iterable[str]] = None) -> None:
        """Goes back to a version of a name: everything that it holds, or only the given arrays. Collective.

        Raises FailedError on all ranks if they cannot read it; then nothing has changed.
        """
        with Recovery(self, name, version) as r:
            r.recover(arrays)

    def begin_restart(self, name: str, version: int) -> "Recovery":
        """Reads a version of a name into the daemon's memory, for count and recover. Collective.

            with hf.begin_restart("converged", 7) as r:
                u = np.zeros(r.count("u"))
                hf.protect("u", u)
                r.recover(["u"])

        Raises FailedError on all ranks if they cannot read it.
        """
        return Recovery(self, name, version)

    def _between_steps(self, call: str) -> None:
        if self._in_step:
            raise OrderError(
                f"{call}: a checkpoint in the middle of a step would repeat the step at a restart; the loop takes "
                "checkpoints where steps begin: call request, or give steps an every"
            )

    def wait(self, level: Optional[str] = None) -> None:
        """Waits until the newest checkpoints are durable at a level. Local.

        Levels are "local", "partner", "parity" and "global"; None is all levels in use. Raises FailedError if the
        newest checkpoint will not get there.
        """
        check(self._lib.hf_wait(c_text(level) if level is not None else None))

    def durable(self, level: Optional[str] = None) -> bool:
        """Returns whether wait would return at once. Local. Raises the error that wait would raise."""
        return check(self._lib.hf_test(c_text(level) if level is not None else None)) == _FOUND

    def request(self, stop: bool = False) -> None:
        """Asks for a checkpoint at the next point; with stop for a final one. Local, on any rank, from any thread."""
        check(self._lib.hf_request(int(stop)))

    @property
    def stopped(self) -> bool:
        """Reports whether the final checkpoint is durable. Local, from any thread."""
        return self._lib.hf_stop_asked() != 0

    def finalize(self) -> None:
        """Waits until the last checkpoint is at all levels, and ends the session. Collective.

        The end of a `with` block calls it. A second call does nothing. Raises FailedError if the last checkpoint is
        not at all levels, LostError if another rank has ended.
        """
        if self._finalized:
            return
        self._finalized = True
        self._done(self._lib.hf_finalize())
        self._arrays.clear()
        self._functions.clear()
        self._states.clear()

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], e: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        if kind is None or issubclass(kind, SystemExit):
            self.finalize()
        elif self._comm is not None:
            traceback.print_exception(kind, e, where)
            sys.stderr.flush()
            sys.stdout.flush()
            self._comm.Abort(1)


class Recovery:
    """A checkpoint with a name that is being restarted from, made by Session.begin_restart.

    No checkpoint may be taken until its end, that of the `with` block.
    """

    def __init__(self, session: Session, name: str, version: int) -> None:
        self._session = session
        check(session._lib.hf_restart_begin(c_text(name), c_int64("version", version)))

    def count(self, name: str) -> Optional[int]:
        """Returns the number of elements that it holds under a name, or None. Local. Objects and files count bytes."""
        n = ctypes.c_size_t(0)
        found = check(self._session._lib.hf_saved(c_text(name), ctypes.byref(n), None)) == _FOUND
        return n.value if found else None

    def recover(self, arrays: Optional[Iterable[str]] = None) -> None:
        """Copies everything that it holds, or only the given arrays, to the protected arrays. Local.

        Each must be protected by now. Raises an Error if one is too small or of another type; then nothing is
        copied.
        """
        s = self._session
        s._update()
        for name in s._replicated:
            s._replicate(name, bytearray(self.count(name) or 0))
        if arrays is None:
            s._done(s._lib.hf_recover(None, 0))
            s._hand_over(name for name in s._functions if self.count(name) is not None)
            s._set([name for name in s._states if self.count(name) is not None])
            return
        names = list(arrays)
        some = strings(names)
        s._done(s._lib.hf_recover(some, len(some)))
        s._hand_over(names)
        s._set([name for name in names if name in s._states])

    def __enter__(self) -> "Recovery":
        return self

    def __exit__(self, *_: Any) -> None:
        check(self._session._lib.hf_restart_end())


class Steps:
    """The steps of a session, which Session.steps returns. It can be iterated once."""

    def __init__(self, session: Session, start: int, stop: int, every: int, name: str) -> None:
        self._session = session
        self._now = ctypes.c_int64(c_int64("step", start))
        self._stop = stop
        self._every = every
        self._begun = False
        (session.protect_replicated if session._elastic else session.protect)(name, self._now)

    @property
    def now(self) -> int:
        """The number of the step that is next, or in progress. Local."""
        return self._now.value

    def __iter__(self) -> Iterator[int]:
        if self._begun:
            raise OrderError("steps: the loop has run; a program has one loop over its steps")
        self._begun = True
        if self._session.restored is None:
            self._session.restore()
        return self._run()

    def _run(self) -> Iterator[int]:
        session, first = self._session, self._now.value
        try:
            while self._now.value < self._stop:
                due = self._every > 0 and self._now.value % self._every == 0 and self._now.value > first
                if session._checkpoint() if due else session._point():
                    raise Stopped
                session._in_step = True
                yield self._now.value
                session._in_step = False
                self._now.value += 1
        finally:
            session._in_step = False


def _program_name() -> Optional[str]:
    """Name of the job: that of the script. The library would take that of the interpreter."""
    script = sys.argv[0] if sys.argv else ""
    base = script.rsplit("/", 1)[-1]
    return base[:-3] if base.endswith(".py") else base or None
