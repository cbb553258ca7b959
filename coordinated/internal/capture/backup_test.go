package capture

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBackup fills memory of all kinds of pages, saves it, writes over it and puts
// it back.
func TestBackup(t *testing.T) {
	const size = 3 << 20
	mapped := func() []byte {
		b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(b) })
		return b
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for trial := range 50 {
		whole := mapped()
		for range rng.IntN(20) { // the other pages are never touched
			from := rng.IntN(size)
			for i := range whole[from:min(from+rng.IntN(40_000), size)] {
				whole[from+i] = byte(rng.Uint32())
			}
		}
		from := rng.IntN(pageBytes)
		mem := whole[from : size-rng.IntN(pageBytes)]
		p := newPool(0, nil, nil)
		k := newBackup(p, 2)
		back := k.save(mem)
		want := bytes.Clone(mem)
		for i := range mem {
			mem[i] = byte(i)
		}
		back()
		if !bytes.Equal(mem, want) {
			t.Fatalf("trial %d: not what it was", trial)
		}
		k.close()
	}
}

// TestBackupLeavesFreshMemory: looking at pages that the program never touched would
// map them, which costs more than reading the checkpoint.
func TestBackupLeavesFreshMemory(t *testing.T) {
	const size = 64 << 20
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(b) }()
	b[size/2] = 1
	k := newBackup(newPool(0, nil, nil), 1)
	defer k.close()
	if !k.look(b) {
		t.Skip("this system does not show a process its own pages: /proc/self/pagemap")
	}
	n := 0
	for _, piece := range k.touched(b) {
		n += len(piece)
	}
	if n == 0 || n > 4<<20 { // one huge page at most, and what lies around
		t.Errorf("%d bytes of %d are looked at, want those around the one that was written", n, size)
	}
}
