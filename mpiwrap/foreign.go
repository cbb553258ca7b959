package mpiwrap

import (
	"bufio"
	"debug/elf"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/abi"
)

// Linked C and Fortran code that calls MPI goes past this package. It cannot be
// counted; it can be found.

// communicates are the names, in C and Fortran, of calls that send, receive or meet.
var communicates = regexp.MustCompile(
	`(?i)^mpi_(i?[bsr]?send|i?m?recv|start|i?barrier|i?bcast|i?gather|i?scatter|i?all(gather|reduce|toall)|` +
		`i?reduce|i?scan|i?exscan|i?neighbor_|r?put|r?get($|_?$|_accumulate)|` +
		`r?accumulate|fetch_and_op|compare_and_swap|file_(i?read|i?write))`)

// warnOfOthers says which objects of the process call MPI past this package.
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
		if calls := mpiCalls(file); len(calls) > 0 {
			slog.Warn("holdfast: a linked object calls MPI itself; its messages are neither counted nor drained: "+
				"call Point only while no rank is inside it",
				"object", file, "calls", strings.Join(calls[:min(len(calls), 8)], " "))
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

// mpiCalls returns the calls of MPI's communication that an object imports. What
// belongs to MPI itself has none.
func mpiCalls(file string) []string {
	base := filepath.Base(file)
	if strings.HasPrefix(base, "libmpi") || strings.HasPrefix(base, "libmca") || strings.HasPrefix(base, "mca_") ||
		strings.HasPrefix(base, "libopen-") {
		return nil
	}
	f, err := elf.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil || !slices.ContainsFunc(needed, func(l string) bool { return strings.HasPrefix(l, "libmpi") }) {
		return nil
	}
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return nil
	}
	var out []string
	for _, s := range symbols {
		if communicates.MatchString(s.Name) && !slices.Contains(out, s.Name) {
			out = append(out, s.Name)
		}
	}
	slices.Sort(out)
	return out
}
