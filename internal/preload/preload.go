// Package preload finds libholdfast-mpi and libholdfast-cuda, and says in which programs the first can stand before
// MPI.
package preload

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/elf"
)

// Layer is the library's file.
const Layer = "libholdfast-mpi.so.0"

// CUDA is the file of libholdfast-cuda, which no linker must find: it has the name of CUDA's driver for it.
const CUDA = "libholdfast-cuda.so"

// Var is the variable by which the dynamic linker loads a library before those of a program.
const Var = "LD_PRELOAD"

// Audit is the variable by which it asks a library for the file of each library that a program opens.
const Audit = "LD_AUDIT"

// Beside returns a library of the installation that a command is of; empty: there is none.
func Beside(command, name string) string {
	for _, dir := range []string{"../lib", ".", "../lib64"} {
		if path := filepath.Join(filepath.Dir(command), dir, name); exists(path) {
			return path
		}
	}
	return ""
}

// Find returns a library that the dynamic linker finds, and the reason; empty: none. Local.
func Find(ctx context.Context, name string) (path, by string) {
	for _, dir := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		if path := filepath.Join(dir, name); exists(path) {
			return path, "LD_LIBRARY_PATH"
		}
	}
	known, _ := exec.CommandContext(ctx, "/sbin/ldconfig", "-p").Output() // without it nothing is known
	for line := range strings.Lines(string(known)) {
		if strings.HasPrefix(strings.TrimSpace(line), name+" ") {
			_, path, _ := strings.Cut(strings.TrimSpace(line), "=> ")
			return path, "the dynamic linker"
		}
	}
	return "", ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// With returns the value of Var or Audit that loads libraries, with colons between them, followed by the variable's old
// value.
func With(libraries, before string) string {
	for _, l := range slices.Backward(strings.Split(libraries, ":")) {
		switch {
		case before == "":
			before = l
		case !strings.Contains(before, filepath.Base(l)):
			before = l + ":" + before
		}
	}
	return before
}

// ErrGo marks a program in Go, whose messages mpiwrap counts.
var ErrGo = errors.New("it counts its messages by mpiwrap")

// Refused returns the reason why the layer cannot stand before MPI in a program; nil if it can, or if that is unknown:
// a script, or a program that is not to be seen from here.
func Refused(program string) error {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	head := make([]byte, 20)
	if _, err := io.ReadFull(f, head); err != nil || !bytes.HasPrefix(head, []byte("\x7fELF")) {
		return nil
	}
	if info, err := f.Stat(); err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		return errors.New("it is setuid or setgid, and the dynamic linker preloads nothing into such a program; link " +
			"it with -lholdfast-mpi instead")
	}
	own, ok := machines[runtime.GOARCH]
	if of := binary.LittleEndian.Uint16(head[18:]); ok && (head[4] != class64 || of != own) {
		return fmt.Errorf("it is for another processor (ELF class %d, machine %d) than libholdfast-mpi", head[4], of)
	}
	e, err := elf.Read(f)
	if err != nil {
		return fmt.Errorf("it cannot be read: %w", err)
	}
	return refused(e)
}

// class64 is the class of 64-bit files, and machines are the numbers of processors that Holdfast is built for.
const class64 = 2

var machines = map[string]uint16{"amd64": 62, "arm64": 183, "ppc64le": 21, "riscv64": 243}

func refused(e *elf.File) error {
	switch {
	case e.Section(".go.buildinfo") != nil:
		return ErrGo
	case e.Section(".interp") == nil:
		return errors.New("it is linked statically, so nothing can stand before its MPI; link MPI as a shared library")
	}
	needed, err := e.Needed()
	if err != nil {
		return nil
	}
	for _, name := range needed {
		for _, first := range []string{"libasan.", "libtsan.", "libmsan."} {
			if strings.HasPrefix(name, first) {
				return fmt.Errorf("it needs %s as the first library; link it with -lholdfast-mpi instead", name)
			}
		}
	}
	return nil
}
