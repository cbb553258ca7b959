package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// page returns page-aligned memory.
func page(t *testing.T, n int) []byte {
	t.Helper()
	p, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(p) })
	return p
}

// TestReadsPastAndThroughTheCache reads a file whose pages are cached, not
// cached, and partly beyond the end, into aligned and other memory.
func TestReadsPastAndThroughTheCache(t *testing.T) {
	const size = 1<<20 + 777
	want := make([]byte, size)
	for i := range want {
		want[i] = byte(i * i >> 7)
	}
	name := filepath.Join(t.TempDir(), "f")
	w, err := OS{}.Create(name, true)
	if err != nil {
		t.Fatal(err)
	}
	mem := page(t, 2<<20)
	whole := size &^ (Align - 1)
	copy(mem, want)
	if _, err := w.WriteAt(mem[:whole], 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Sync(), w.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteAt(want[whole:], int64(whole))
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	for _, cached := range []bool{false, true} {
		r, err := OS{}.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if cached {
			os.ReadFile(name)
		}
		for _, c := range []struct{ at, off, n int }{
			{0, 0, 256 << 10}, {0, 4096, 512 << 10}, {0, 100, 128 << 10}, {8, 0, 128 << 10},
			{0, 0, size}, {0, 1 << 20, 777}, {0, 900 << 10, size - 900<<10},
		} {
			got := mem[c.at : c.at+c.n]
			clear(got)
			n, err := r.ReadAt(got, int64(c.off))
			if n != c.n || err != nil && err != io.EOF || !bytes.Equal(got, want[c.off:c.off+c.n]) {
				t.Errorf("cached=%v %+v: got %d bytes, %v, or wrong ones", cached, c, n, err)
			}
		}
		if n, err := r.ReadAt(mem[:256<<10], 900<<10); n != size-900<<10 || err != io.EOF {
			t.Errorf("beyond the end: got %d, %v, want %d, EOF", n, err, size-900<<10)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestNamesThatAreTaken(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	for _, direct := range []bool{false, true} {
		os.Remove(name)
		f, err := OS{}.Create(name, direct)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if _, err := (OS{}).Create(name, direct); !errors.Is(err, fs.ErrExist) {
			t.Errorf("direct=%v: got %v, want ErrExist", direct, err)
		}
	}
	if err := (OS{}).Mkdir(dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("mkdir: got %v, want ErrExist", err)
	}
	if err := (OS{}).Link(name, name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("link: got %v, want ErrExist", err)
	}
}

func TestDirectWriteOfOddLengthFallsBack(t *testing.T) {
	f, err := OS{}.Create(filepath.Join(t.TempDir(), "f"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !f.Direct() {
		t.Skip("this file system has no direct writes")
	}
	if n, err := f.WriteAt(make([]byte, 100), 0); n != 100 || err != nil || f.Direct() {
		t.Errorf("got %d, %v, direct %v, want a buffered write", n, err, f.Direct())
	}
}

// TestDirectFileReadBack: what was written directly is read back at an odd
// offset, as verifying a copy does.
func TestDirectFileReadBack(t *testing.T) {
	f, err := OS{}.Create(filepath.Join(t.TempDir(), "f"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(-1, 0, Align, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		b[i] = byte(i)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 100)
	if n, err := f.ReadAt(got, 33); n != 100 || err != nil || got[0] != 33 || got[99] != 132 {
		t.Errorf("got %d bytes, %v, beginning with %d", n, err, got[0])
	}
}

// TestAdopt takes over what another has opened, with what that has asked for.
func TestAdopt(t *testing.T) {
	dir := t.TempDir()
	f, err := OS{}.Create(filepath.Join(dir, "f"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dup := func(f *os.File) *os.File {
		fd, err := unix.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fd), "dup")
	}
	got, err := Adopt(OS{}, dup(f.(*osFile).File), "f")
	if err != nil {
		t.Fatal(err)
	}
	if got.Direct() != f.Direct() {
		t.Errorf("direct is %v, want %v", got.Direct(), f.Direct())
	}
	if err := got.Close(); err != nil {
		t.Error(err)
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Adopt(OS{}, dup(d), "d"); !errors.Is(err, ErrUnsafe) {
		t.Errorf("a directory: got %v, want ErrUnsafe", err)
	}
	if _, err := Adopt(struct{ FS }{OS{}}, d, "d"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("another file system: got %v, want ErrUnsupported", err)
	}
	if err := d.Close(); err == nil {
		t.Error("what was not taken over is still open")
	}
}
