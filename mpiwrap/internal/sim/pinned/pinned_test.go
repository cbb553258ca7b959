package pinned

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestIs(t *testing.T) {
	b := make([]byte, 100)
	if Is(b) || !Is(nil) || !Is(b[:0]) {
		t.Error("memory that nobody has pinned")
	}
	var p runtime.Pinner
	p.Pin(&b[0])
	if !Is(b) {
		t.Error("memory that is pinned")
	}
	p.Unpin()
	if Is(b) {
		t.Error("memory that is no longer pinned")
	}
	m, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	if !Is(m) {
		t.Error("memory that is not Go's")
	}
}
