package cuda

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// built is where the library, the fake driver and the program lie.
var built struct{ dir string }

// The folders of libcuda.so.1: the fake driver alone, and the library by that name.
const fake, front = "fake", "front"

// How a program finds the driver's functions.
const linked, resolved = "linked", "resolved"

func TestMain(m *testing.M) {
	if runtime.GOARCH != "amd64" {
		fmt.Println("libholdfast-cuda has stubs for x86-64 alone")
		return
	}
	dir, err := os.MkdirTemp("", "holdfast-cuda-")
	if err == nil {
		built.dir = dir
		err = build(dir, "-O1 -g")
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// build makes all of it in a folder, with the compiler's flags.
func build(dir, flags string) error {
	for _, d := range []string{fake, front} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	driver := filepath.Join(dir, fake, "libcuda.so.1")
	compile := append([]string{"cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "-I../../lib/cuda/src"},
		strings.Fields(flags)...)
	for _, c := range [][]string{
		{"make", "-s", "-C", "../..", "cuda", "LIB=" + dir, "CFLAGS=" + flags},
		slices.Concat(compile, []string{"-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "testdata/fake.c",
			"-o", driver}),
		slices.Concat(compile, []string{"testdata/program.c", driver, "-o", filepath.Join(dir, linked)}),
		slices.Concat(compile, []string{"testdata/share.c", driver, "-o", filepath.Join(dir, "share")}),
		slices.Concat(compile, []string{"-rdynamic", "testdata/odd.c", driver, "-o", filepath.Join(dir, "odd")}),
		slices.Concat(compile, []string{"testdata/ends.c", driver, "-o", filepath.Join(dir, "ends")}),
		slices.Concat(compile, []string{"-DRESOLVED", "testdata/program.c", "-o", filepath.Join(dir, resolved)}),
	} {
		if err := run(c); err != nil {
			return err
		}
	}
	return errors.Join(os.Symlink("libcuda.so.1", filepath.Join(dir, fake, "libcuda.so")),
		os.Symlink("../libholdfast-cuda.so", filepath.Join(dir, front, "libcuda.so.1")))
}

func run(line []string) error {
	if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(line, " "), err, out)
	}
	return nil
}

// A ran is what a program has said, and what the library has said of it.
type ran struct{ out, said string }

// A way leads a program to a driver.
type way []string

// alone returns the driver without the library.
func alone() way { return way{"LD_LIBRARY_PATH=" + filepath.Join(built.dir, fake)} }

// preloaded and path are the two ways to put a library in front.
func preloaded(library string) way {
	return way{"LD_PRELOAD=" + library, "LD_LIBRARY_PATH=" + filepath.Join(built.dir, fake)}
}

// audited has the dynamic linker ask a library for each file that the program opens.
func audited(library string) way {
	return way{"LD_AUDIT=" + library, "LD_LIBRARY_PATH=" + filepath.Join(built.dir, fake)}
}

func path() way {
	return way{"LD_LIBRARY_PATH=" + filepath.Join(built.dir, front) + ":" + filepath.Join(built.dir, fake)}
}

func library() string { return filepath.Join(built.dir, "libholdfast-cuda.so") }

func (w way) with(variables ...string) way { return append(w[:len(w):len(w)], variables...) }

// try runs a program and returns its error, too.
func (w way) try(t *testing.T, program string, args ...string) (ran, error) {
	t.Helper()
	var out, said strings.Builder
	c := exec.CommandContext(t.Context(), inBuilt(program), args...)
	c.Env = append(os.Environ(), w...)
	c.Stdout, c.Stderr = &out, &said
	err := c.Run()
	return ran{out.String(), said.String()}, err
}

// run runs a program that must succeed.
func (w way) run(t *testing.T, program string, args ...string) ran {
	t.Helper()
	r, err := w.try(t, program, args...)
	if err != nil {
		t.Fatalf("%s %v under %v: %v\n%s%s", program, args, w, err, r.out, r.said)
	}
	return r
}

// has checks for a part of what the library has said.
func (r ran) has(t *testing.T, part string) {
	t.Helper()
	if !strings.Contains(r.said, part) {
		t.Errorf("the library has not said %q:\n%s", part, r.said)
	}
}

// same checks that a program has computed what it computes without the library.
func (r ran) same(t *testing.T, want ran) {
	t.Helper()
	if r.out != want.out {
		t.Errorf("got\n%s\nwant\n%s\nthe library has said\n%s", r.out, want.out, r.said)
	}
}
