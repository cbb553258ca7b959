package mpiwrap

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/elf"
	"github.com/holdfast-hpc/holdfast/internal/regcache"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/abi"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim"
)

// ThreadLevel is the number of goroutines that may be inside MPI at once: one or several.
type ThreadLevel int

const (
	// ThreadSerialized allows one call at a time, from whichever goroutine. The default.
	ThreadSerialized ThreadLevel = iota
	// ThreadMultiple allows calls to overlap. Slower, and not all libraries grant it.
	ThreadMultiple
)

// Options shape Init. The zero value is right for most programs.
type Options struct {
	// Library is the file name or path of the MPI library. Empty means: the one
	// that is mapped into the process already, else the one of the launcher in
	// whose environment the process runs, else the first that can be opened.
	Library string
	// Threads is the level asked for.
	Threads ThreadLevel
	// FinalizeTimeout bounds MPI_Finalize, which hangs in some libraries. It counts
	// from when all ranks have come to Finalize. Zero means 30 s.
	FinalizeTimeout time.Duration
}

// DeviceMessages counts this rank's large messages of device memory: handed to MPI as they lie on the
// device, or through host memory; and the collectives that were handed device memory. Why is the reason why one that
// waits for its receiver was not sent or received directly; it is empty if none was.
//
// A message goes directly in SendDevice, SsendDevice and SendrecvDevice if its receiver waits for it. So do pieces that
// a receive waits for and that come over MPI: from another node, or sent directly. BcastDevice, AllgatherDevice,
// AlltoallDevice and AlltoallvDevice of 64 KiB and more do so on every rank for itself. All others go through host
// memory, and so does everything with ThreadMultiple. A library that claims to take device memory is tried once for
// each device, with a message to the rank itself. If other bytes arrive, messages go through host memory, and rank 0
// logs a warning. With HOLDFAST_GPU_AWARE=off, or coordinated.Options.NoGPUAware, MPI is given none.
//
//	SentDirect, SentStaged, ReceivedDirect, ReceivedStaged, CollectivesDirect uint64
//	Why                                                                       string
type DeviceMessages = devmsg.Stats

// DeviceMessages returns the numbers of large messages of device memory that went directly or through host memory so
// far. It is local.
func (c *Comm) DeviceMessages() DeviceMessages { return c.st.Device.Stats() }

// gpuAwareVar is auto, as if it were not set, or off.
const gpuAwareVar = "HOLDFAST_GPU_AWARE"

// process is the one real world there can be.
var process struct {
	mu    sync.Mutex
	begun bool
	world *Comm
	limit time.Duration // Options.FinalizeTimeout
}

// Init initialises MPI and returns the world. It may be called once per process and
// is collective over all ranks. It restores signal handlers that the library
// replaces, so that USR1, USR2 and TERM still reach the program.
//
// Errors: ErrNoLibrary, ErrInitialized, a HOLDFAST_GPU_AWARE that is not understood, an error of MPI, or a library that
// does not belong to the launcher: several ranks were started and each is alone in its world. If a linked C library has
// initialised MPI, Init uses it, and Finalize does not end it.
//
// Messages of linked C or Fortran code are neither counted nor drained: call Point only
// while no rank is inside such code and none of its messages is in flight. Init warns
// through slog's default logger of such objects that are mapped by then; it does not
// see those opened later.
func Init(opt Options) (*Comm, error) {
	process.mu.Lock()
	defer process.mu.Unlock()
	if process.begun {
		return nil, &Error{Call: "Init", Peer: NoPeer, Tag: NoTag, Err: ErrInitialized}
	}
	aware := os.Getenv(gpuAwareVar)
	if aware != "" && aware != "auto" && aware != "off" {
		return nil, &Error{Call: "Init", Peer: NoPeer, Tag: NoTag,
			Err: fmt.Errorf("%s: %q is none of auto and off", gpuAwareVar, aware)}
	}
	level := abi.ThreadSerialized
	if opt.Threads == ThreadMultiple {
		level = abi.ThreadMultiple
	}
	warnOfOthers()                 // before the library maps parts of its own
	err := regcache.Here().Apply() // before the library reads its environment
	var d driver.Driver
	t := newThread()
	if err == nil {
		opened := make(chan struct{})
		t <- func() { defer close(opened); d, err = abi.Open(opt.Library, level) }
		<-opened
	}
	if err != nil {
		close(t)
		return nil, &Error{Call: "Init", Peer: NoPeer, Tag: NoTag, Err: err}
	}
	process.begun, process.limit = true, opt.FinalizeTimeout
	if process.world, err = newWorld(d); err == nil {
		process.world.st.thread = t
		process.world.st.Device.HostOnly.Store(aware == "off")
	}
	return process.world, err
}

// Single returns a world of one simulated rank, for programs that run without MPI. Its Library says so. It starts no
// MPI, needs no launcher, and is local.
func Single() *Comm {
	c, err := newWorld(sim.New(1, sim.Options{}).Rank(0))
	if err != nil {
		panic("mpiwrap: a simulated world of one rank cannot fail: " + err.Error())
	}
	return c
}

// over builds a world on a driver, with a function that is called before every call of the
// program, or nil.
func over(d driver.Driver, observer func(op string)) (*Comm, error) {
	c, err := newWorld(d)
	if err == nil && observer != nil {
		c.st.Observer = func(op call.Op) { observer(op.String()) }
	}
	return c, err
}

// Finalize ends MPI, on the OS thread that Init began it on, whichever goroutine
// calls. It is collective over all ranks; every request must be complete. Windows that the
// program has not freed are freed. Without Init, or a second time, it does nothing.
//
// It waits without limit for all ranks to call it, and then until MPI has ended, but
// at most Options.FinalizeTimeout. After that time it logs a warning through slog's
// default logger and returns nil, so that the program can end with its own exit
// code. Launchers react differently: mpirun and mpiexec may kill the other ranks
// when the first has left, and mpiexec may return 0 whatever the ranks return. So
// write results before Finalize.
func Finalize() error {
	process.mu.Lock()
	defer process.mu.Unlock()
	w := process.world
	if w == nil || w.st.Finalized.Load() {
		return nil
	}
	return w.finalize(process.limit)
}

const defaultFinalizeTimeout = 30 * time.Second

// finalize is Finalize for the world, once.
func (c *Comm) finalize(limit time.Duration) error {
	s := c.st
	s.Device.Flush()
	// A rank that waits for one still computing is no hang; after the barrier there
	// is none.
	if err := s.private.Barrier(); err != nil {
		return c.ch.Wrap("Finalize", NoPeer, NoTag, err)
	}
	s.Device.DropCTS()
	if _, err := c.ch.Quick(call.Finalize, NoPeer, NoTag); err != nil {
		return err
	}
	// The call is never left: later ones are refused as those at the same time are.
	s.Finalized.Store(true)
	if limit <= 0 {
		limit = defaultFinalizeTimeout
	}
	done := make(chan error, 1)
	end := func() { done <- errors.Join(s.freeWindows(), s.Driver.Finalize()) }
	if s.thread != nil {
		s.thread <- end
	} else {
		go end()
	}
	select {
	case err := <-done:
		if err != nil {
			return c.ch.Wrap("Finalize", NoPeer, NoTag, err)
		}
	case <-time.After(limit):
		slog.Warn("holdfast: MPI_Finalize hangs although all ranks have called it; Finalize returns without it",
			"rank", c.rank, "waited", limit, "library", s.Info.Name)
	}
	return nil
}

// freeWindows frees windows that the program has left: MPICH aborts otherwise. All ranks of a window have it, and
// windows in the same order. Epochs that are open are closed.
func (s *state) freeWindows() error {
	var errs []error
	for _, w := range s.windows {
		for target := range w.locks {
			errs = append(errs, s.Driver.WinSync(w.h, driver.WinSync{Kind: driver.Unlock, Rank: target}))
		}
		if w.all {
			errs = append(errs, s.Driver.WinSync(w.h, driver.WinSync{Kind: driver.UnlockAll}))
		}
		errs = append(errs, s.Driver.WinFree(w.h))
		w.freed = true
		w.unpinAll()
	}
	s.windows = nil
	return errors.Join(errs...)
}

// newThread starts an OS thread that runs the functions that it is given and nothing else. MPI is begun and ended on
// one, as it demands: goroutines move between threads.
func newThread() (work chan func()) {
	work = make(chan func())
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for f := range work {
			f()
		}
	}()
	return work
}

// Linked C and Fortran code that calls MPI goes past this package. It cannot be
// counted; it can be found.

// warnOfOthers says which objects of the process may call MPI past this package.
func warnOfOthers() {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	self, _ := os.Readlink("/proc/self/exe")
	for _, file := range mappedObjects(maps) {
		if abi.Direct && file == self {
			continue
		}
		if usesMPI(file) {
			slog.Warn("holdfast: a linked object calls MPI itself; its messages are neither counted nor drained: "+
				"call Point only while no rank is inside it", "object", file)
		}
	}
}

// mappedObjects lists the files with code that a process has mapped, in the format of
// /proc/PID/maps.
func mappedObjects(maps io.Reader) []string {
	var out []string
	in := bufio.NewScanner(maps)
	for in.Scan() {
		f := strings.Fields(in.Text())
		if len(f) >= 6 && strings.Contains(f[1], "x") && filepath.IsAbs(f[5]) && !slices.Contains(out, f[5]) {
			out = append(out, f[5])
		}
	}
	return out
}

// usesMPI reports whether an object is linked with MPI, and no part of it.
func usesMPI(file string) bool {
	for _, part := range []string{"libmpi", "libmca", "mca_", "libopen-"} {
		if strings.HasPrefix(filepath.Base(file), part) {
			return false
		}
	}
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	object, err := elf.Read(f)
	if err != nil {
		return false
	}
	needed, err := object.Needed()
	return err == nil && slices.ContainsFunc(needed, func(l string) bool { return strings.HasPrefix(l, "libmpi") })
}
