package mpiwrap

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/regcache"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/abi"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/devmsg"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/sim"
)

// ThreadLevel is how many goroutines may be inside MPI at once.
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
	// GPUAware says when large messages of device memory go straight from and to the device. With
	// GPUAwareAuto the variable HOLDFAST_GPU_AWARE says it, if it is set. A
	// checkpointer that this world is given to sets it to its own.
	GPUAware GPUAware
}

// GPUAware says when an MPI library is given addresses of device memory.
//
// A message goes directly in SendDevice, SsendDevice and SendrecvDevice, when its receiver waits for it, and where a
// receive waits for pieces that come over MPI: from another node, or sent directly. BcastDevice,
// AllgatherDevice, AlltoallDevice and AlltoallvDevice of 64 KiB and more do so on every rank for itself. All others
// go through host memory, and so does everything with ThreadMultiple. A library that says that it takes
// device memory is tried once for each device, with a message to the rank itself; where other
// bytes come, messages go through host memory, and a warning of rank 0 says so.
type GPUAware int32

const (
	// GPUAwareAuto is where the library says that it takes device memory. The default.
	GPUAwareAuto = GPUAware(devmsg.DirectAuto)
	// GPUAwareOff is never.
	GPUAwareOff = GPUAware(devmsg.DirectOff)
	// GPUAwareOn is also where the library does not say so, after the trial. Most libraries that do not
	// take device memory crash in it.
	GPUAwareOn = GPUAware(devmsg.DirectOn)
)

// String is the word for the setting.
func (g GPUAware) String() string {
	switch g {
	case GPUAwareAuto:
		return "auto"
	case GPUAwareOff:
		return "off"
	case GPUAwareOn:
		return "on"
	}
	return fmt.Sprintf("GPUAware(%d)", int32(g))
}

// ParseGPUAware gives the setting for auto, off or on.
func ParseGPUAware(text string) (GPUAware, error) {
	for _, g := range []GPUAware{GPUAwareAuto, GPUAwareOff, GPUAwareOn} {
		if g.String() == text {
			return g, nil
		}
	}
	return GPUAwareAuto, fmt.Errorf("%q is none of auto, off and on", text)
}

// gpuAwareVar is the setting where the program leaves it open.
const gpuAwareVar = "HOLDFAST_GPU_AWARE"

// chosen is the setting that holds: the program's, else that of the environment.
func (g GPUAware) chosen() (GPUAware, error) {
	text := os.Getenv(gpuAwareVar)
	if g != GPUAwareAuto || text == "" {
		return g, nil
	}
	g, err := ParseGPUAware(text)
	if err != nil {
		return g, fmt.Errorf("%s: %w", gpuAwareVar, err)
	}
	return g, nil
}

// DeviceMessages counts this rank's large messages of device memory: handed to MPI as they lie on the
// device, or through host memory; and the collectives that were handed device memory. Why says why one that
// waits for its receiver was not sent or received directly, and is empty if none was.
type DeviceMessages struct {
	SentDirect, SentStaged, ReceivedDirect, ReceivedStaged, CollectivesDirect uint64
	Why                                                                       string
}

// DeviceMessages says which way large messages of device memory have gone so far. It is local.
func (c *Comm) DeviceMessages() DeviceMessages { return DeviceMessages(c.st.Device.Stats()) }

// LibraryError says that no MPI library could be opened: which ones were tried, and
// why each failed.
//
//	Tried   []string
//	Reasons []string
type LibraryError = driver.LibraryError

// PairingError says that the MPI library does not belong to the launcher: several
// ranks were started and each of them is alone.
//
//	Library  string // "Open MPI" or "MPICH"
//	Launched int    // ranks, according to the environment
//	Says     string // the environment variable
type PairingError = driver.PairingError

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
// Errors: *LibraryError, *PairingError, ErrInitialized, a HOLDFAST_GPU_AWARE that is not understood, or what MPI
// reports. If a
// linked C library has initialised MPI, Init uses it, and Finalize does not end it.
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
	aware, err := opt.GPUAware.chosen()
	if err != nil {
		return nil, &Error{Call: "Init", Peer: NoPeer, Tag: NoTag, Err: err}
	}
	level := abi.ThreadSerialized
	if opt.Threads == ThreadMultiple {
		level = abi.ThreadMultiple
	}
	warnOfOthers()                // before the library maps parts of its own
	err = regcache.Here().Apply() // before the library reads its environment
	var d driver.Driver
	t := newThread()
	if err == nil {
		t.do(func() { d, err = abi.Open(opt.Library, level) })
	}
	if err != nil {
		close(t.work)
		return nil, &Error{Call: "Init", Peer: NoPeer, Tag: NoTag, Err: err}
	}
	process.begun, process.limit = true, opt.FinalizeTimeout
	if process.world, err = newWorld(d); err == nil {
		process.world.st.thread = t
		process.world.st.Device.Direct.Store(int32(aware))
	}
	return process.world, err
}

// Single returns a world of one simulated rank, for programs that run without
// MPI. Its Library says so.
func Single() *Comm {
	c, err := newWorld(sim.New(1, sim.Options{}).Rank(0))
	if err != nil {
		panic("mpiwrap: a simulated world of one rank cannot fail: " + err.Error())
	}
	return c
}

// over builds a world on a driver, with a function that hears of every call the
// program makes, or nil.
func over(d driver.Driver, observer func(op string)) (*Comm, error) {
	c, err := newWorld(d)
	if err == nil && observer != nil {
		c.st.Observer = func(op call.Op) { observer(op.String()) }
	}
	return c, err
}
