package abi

// #include "neutral.h"
import "C"

import (
	"regexp"
	"strconv"
)

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
