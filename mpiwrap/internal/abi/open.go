package abi

/*
#include <stdlib.h>
#include "neutral.h"
#include "open.h"
*/
import "C"

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/sigguard"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// Thread levels of MPI, as it numbers them.
const (
	ThreadSerialized = 2
	ThreadMultiple   = 3
)

// slotBytes is the C memory for small non-blocking receives.
const slotBytes = 256 << 10

// Sonames by family. Development packages install the last ones.
var (
	openMPINames = []string{"libmpi.so.40", "libmpi.so.80"}
	mpichNames   = []string{"libmpich.so.12", "libmpi.so.12", "libmpi_cray.so.12", "libmpi_intel.so.12"}
)

// Open finds the MPI library, initialises it with signals guarded and checks
// that the launcher and the library belong together. library is a file name or
// path, or empty to look for one.
func Open(library string, threads int) (driver.Driver, error) {
	l := &lib{}
	err := sigguard.Around(func() error { return l.start(library, threads) })
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (l *lib) start(library string, threads int) error {
	kind, err := choose(library, os.Getenv)
	if err != nil {
		return err
	}
	var provided, wasUp C.int
	if err := l.check(C.hfmpi_init(C.int(threads), &provided, &wasUp)); err != nil {
		return fmt.Errorf("initialise MPI: %w", err)
	}
	l.wasUp = wasUp != 0
	l.info.Pin = true
	if p := C.calloc(1, slotBytes); p != nil {
		l.info.Slots = unsafe.Slice((*byte)(p), slotBytes)
	}
	l.info.Name = []string{"Open MPI", "MPICH"}[kind]
	if err := l.describe(); err != nil {
		return err
	}
	if int(provided) < threads {
		err := fmt.Errorf("%s grants thread level %d, %d is needed", l.info.Name, int(provided), threads)
		_ = l.Finalize()
		return err
	}
	// MPICH 4.0.2's Reduce copies from the in-place marker (5000 int64, 2 ranks).
	l.info.CopyReduce = l.info.Name == "MPICH"
	if C.hfmpi_takes_cuda() != 0 {
		l.info.Takes = []string{"cuda"}
	}
	l.info.Concurrent = threads >= ThreadMultiple
	if err := l.pairing(os.Getenv); err != nil {
		_ = l.Finalize()
		return err
	}
	return nil
}

func (l *lib) describe() error {
	var text [8192]C.char
	var maxTag C.int
	if err := l.check(C.hfmpi_library(&text[0], C.int(len(text)))); err != nil {
		return err
	}
	if err := l.check(C.hfmpi_tag_ub(&maxTag)); err != nil {
		return err
	}
	l.info.Library = strings.TrimSpace(C.GoString(&text[0]))
	l.info.MaxTag = int(maxTag)
	return nil
}

// choose opens the library that fits best and returns its kind.
func choose(library string, env func(string) string) (int, error) {
	if library != "" {
		kind, err := open(library, false)
		if err != nil {
			return 0, fmt.Errorf("%w; %s: %w", driver.ErrNoLibrary, library, err)
		}
		return kind, nil
	}
	first, second := openMPINames, mpichNames
	if launcherOf(env) == "MPICH" {
		first, second = second, first
	}
	failed := driver.ErrNoLibrary
	for _, mappedOnly := range []bool{true, false} {
		for _, n := range slices.Concat(first, second) {
			kind, err := open(n, mappedOnly)
			if err == nil {
				return kind, nil
			}
			if !mappedOnly {
				failed = fmt.Errorf("%w; %s: %w", failed, n, err)
			}
		}
	}
	return 0, failed
}

func cbool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func open(name string, mappedOnly bool) (int, error) {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	var text [512]C.char
	kind := C.hfmpi_open(cname, cbool(mappedOnly), &text[0], C.int(len(text)))
	if kind < 0 {
		return 0, fmt.Errorf("%s", C.GoString(&text[0]))
	}
	return int(kind), nil
}

// launcherOf names the family of the launcher whose environment this is, or "".
func launcherOf(env func(string) string) string {
	switch {
	case env("OMPI_COMM_WORLD_SIZE") != "" || env("PMIX_RANK") != "":
		return "Open MPI"
	case env("PMI_RANK") != "" || env("PMI_SIZE") != "":
		return "MPICH"
	}
	return ""
}

// launched returns the number of ranks that the launcher reports; 0 without
// a report.
func launched(env func(string) string) (n int, by string) {
	for _, v := range []string{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"} {
		if n, err := strconv.Atoi(env(v)); err == nil {
			return n, v
		}
	}
	if env("SLURM_PROCID") != "" { // srun; its plugin for PMIx does not say
		if n, err := strconv.Atoi(env("SLURM_STEP_NUM_TASKS")); err == nil {
			return n, "SLURM_STEP_NUM_TASKS"
		}
	}
	return 0, ""
}

// pairing refuses a library that does not know its launcher: there every rank
// believes to be the only one.
func (l *lib) pairing(env func(string) string) error {
	_, size := l.CommRank(l.World())
	if n, by := launched(env); size == 1 && n > 1 {
		plugin := map[string]string{"Open MPI": "pmix", "MPICH": "pmi2"}[l.info.Name]
		return fmt.Errorf("launcher and MPI library do not match: %s=%d, but with %s every rank is alone; start the "+
			"program with %s's own mpirun or with srun --mpi=%s, or name the launcher's library in Options.Library",
			by, n, l.info.Name, l.info.Name, plugin)
	}
	return nil
}

// SetLimit makes messages of more than n elements travel as one element of a
// derived type, as those over 2^31 do. It returns the limit before. For tests.
func SetLimit(n int64) int64 {
	old := int64(C.hfmpi_limit)
	C.hfmpi_limit = C.int64_t(n)
	return old
}

// Finalize ends MPI, unless the program began it. No rank may have anything left
// to do in MPI.
func (l *lib) Finalize() error {
	if l.wasUp {
		return nil
	}
	if hangs(l.info.Library) {
		C.hfmpi_skip_disconnect = 1
	}
	return l.check(C.hfmpi_finalize())
}

var mpichVersion = regexp.MustCompile(`MPICH Version:\s*(\d+)\.(\d+)`)

// hangs reports whether this is an MPICH whose MPI_Finalize hangs over UCX and
// TCP, 4.0.2 nearly every time: the first ranks wait for the others in the
// launcher's barrier, where they make no progress, and the others for the first
// to disconnect. Mended in 4.2 (pmodels/mpich PR 6596).
func hangs(library string) bool {
	v := mpichVersion.FindStringSubmatch(library)
	if v == nil {
		return false
	}
	major, _ := strconv.Atoi(v[1]) // digits by the pattern
	minor, _ := strconv.Atoi(v[2])
	return major < 4 || major == 4 && minor < 2
}
