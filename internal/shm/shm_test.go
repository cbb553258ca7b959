package shm

import (
	"bytes"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestShared: two mappings are the same memory, whose size and seals cannot change.
func TestShared(t *testing.T) {
	const n = 3 << 20
	f, mine, err := New("test", n)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Map(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(Collapse(mine), Populate(other)); err != nil {
		t.Fatal(err)
	}
	if mine[n-1] = 7; len(mine) != n || len(other) != n || other[n-1] != 7 {
		t.Errorf("the mappings have %d and %d bytes, the last is %d", len(mine), len(other), other[n-1])
	}
	for _, size := range []int64{0, n - 1, n + 1} {
		if err := f.Truncate(size); !errors.Is(err, unix.EPERM) {
			t.Errorf("truncate to %d: got %v, want %v", size, err, unix.EPERM)
		}
	}
	if err := Seal(f, unix.F_SEAL_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("another seal: got %v, want %v", err, unix.EPERM)
	}
	if err := errors.Join(Free(mine), Free(other), Free(nil), f.Close()); err != nil {
		t.Error(err)
	}
}

// TestMapRefuses: files that can shrink, or have no bytes, are not mapped.
func TestMapRefuses(t *testing.T) {
	plain, err := os.Create(t.TempDir() + "/plain")
	if err == nil {
		err = plain.Truncate(4096)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	unsealed := os.NewFile(uintptr(fd), "unsealed")
	defer unsealed.Close()
	if err := unsealed.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	empty, err := Create("empty", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	for _, f := range []*os.File{plain, unsealed, empty} {
		if b, err := Map(f); !errors.Is(err, ErrSize) {
			t.Errorf("%s: got %d bytes, %v; want %v", f.Name(), len(b), err, ErrSize)
		}
	}
}

// TestPopulate: where the system has no memory for the pages, none of them is written to; a kernel that cannot
// populate them has them touched.
func TestPopulate(t *testing.T) {
	defer func(f func([]byte) error) { populate = f }(populate)
	for _, c := range []struct{ answer, want error }{{unix.ENOMEM, unix.ENOMEM}, {unix.EHWPOISON, unix.EHWPOISON},
		{unix.EFAULT, unix.EFAULT}, {unix.EINVAL, nil}, {unix.ENOSYS, nil}} {
		b := bytes.Repeat([]byte{1}, 3*4096)
		populate = func([]byte) error { return c.answer }
		err := Populate(b)
		touched := b[0] == 0 && b[4096] == 0 && b[2*4096] == 0
		if !errors.Is(err, c.want) || touched != (c.want == nil) || b[1] != 1 {
			t.Errorf("%v: got %v, touched: %v", c.answer, err, touched)
		}
	}
}

// TestFiles: files arrive, and are closed when another program takes the place of this one.
func TestFiles(t *testing.T) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range pair {
		f := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
		defer c.Close()
	}
	f, b, err := New("passed", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(b)
	b[0] = 9
	if _, _, err := ends[0].WriteMsgUnix([]byte{1}, unix.UnixRights(int(f.Fd()), int(f.Fd())), nil); err != nil {
		t.Fatal(err)
	}
	_ = f.Close() // the message holds it
	oob := make([]byte, 128)
	_, n, _, _, err := ends[1].ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		t.Fatal(err)
	}
	files, err := Files(oob[:n])
	if err != nil || len(files) != 2 {
		t.Fatalf("got %d files, %v", len(files), err)
	}
	for _, f := range files {
		got, err := Map(f)
		flags, ferr := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
		if err := errors.Join(err, ferr, f.Close()); err != nil || got[0] != 9 || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("got %v, flags %d, %v", got[:1], flags, err)
		}
		_ = Free(got)
	}
}

// TestWait: a word that has changed is not waited for, a change wakes, and a wait ends by itself.
func TestWait(t *testing.T) {
	f, b, err := New("words", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(b)
	defer f.Close()
	word := (*atomic.Uint32)(unsafe.Pointer(&b[64]))
	Wait(word, 1, time.Hour)
	Wait(word, 0, time.Millisecond)
	go func() {
		word.Store(1)
		Wake(word)
	}()
	for word.Load() == 0 {
		Wait(word, 0, time.Hour)
	}
}
