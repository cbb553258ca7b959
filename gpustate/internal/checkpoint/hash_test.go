package checkpoint

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/chunkhash"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/drivers"
)

const chunk = chunkhash.Bytes

// TestHashKernel runs the kernel on every device of this machine, on memory of odd lengths and at
// odd places, and compares with the host.
func TestHashKernel(t *testing.T) {
	ran := false
	for _, l := range drivers.All {
		infos, _ := l.Devices()
		for _, i := range infos {
			if driver.Can(i).OnRequest { // a fake
				continue
			}
			ran = true
			t.Run(i.String(), func(t *testing.T) {
				drv, err := l.Open(i.Index)
				if err != nil {
					t.Fatal(err)
				}
				s := NewSession(drv)
				hashesAgree(t, s)
				if err := s.Release(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	if !ran {
		t.Skip("no device")
	}
}

func hashesAgree(t *testing.T, s *Session) {
	t.Helper()
	const n = 3*chunk + 4096
	key := chunkhash.NewKey([32]byte{7})
	x, err := s.CreateMem(driver.MemDesc{Kind: driver.MemBuffer, Bytes: n})
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{5}).Read(data)
	l, err := s.take(&s.reads)
	if err == nil {
		_, err = l.write(x, driver.Bytes(0, n), data, true)
		s.reads.give(l)
	}
	if err != nil {
		t.Fatal(err)
	}
	var pieces []piece
	var want []chunkhash.Sum
	for _, c := range []struct{ off, bytes int64 }{{0, n}, {16, 1}, {4096, chunk}, {112, chunk + 17},
		{0, 2*chunk - 1}, {chunk, 4096 + 5}, {48, 15}, {0, 16}} {
		p := piece{mem: x, off: c.off, bytes: c.bytes, chunks: chunksOf(c.bytes)}
		p.to = make([]chunkhash.Sum, p.chunks)
		pieces = append(pieces, p)
		for b := data[c.off : c.off+c.bytes]; len(b) > 0; b = b[min(chunk, len(b)):] {
			want = append(want, key.Of(b[:min(chunk, len(b))]))
		}
	}
	if err := s.hash(context.Background(), key, pieces); err != nil {
		t.Fatal(err)
	}
	var sums []chunkhash.Sum
	for _, p := range pieces {
		sums = append(sums, p.to...)
	}
	if why := s.FallbackReason(s.hasher.program); why != "" {
		t.Errorf("the kernel was built from its source: %s", why)
	}
	if err := s.ReleaseMem(x); err != nil {
		t.Error(err)
	}
	for i, got := range sums {
		if got != want[i] {
			t.Errorf("chunk %d: the device gives %x, the host %x", i, got, want[i])
		}
	}
}

// TestHashPieces: the chunks that are hashed are those that lie in one part from end to end.
func TestHashPieces(t *testing.T) {
	for _, c := range []struct {
		p             part
		n             int64
		first, chunks int64
		off, bytes    int64
		ok            bool
	}{
		{part{off: 0, bytes: 100}, 100, 0, 1, 0, 100, true},
		{part{off: 0, bytes: 3 * chunk, memOff: 4096}, 3 * chunk, 0, 3, 4096, 3 * chunk, true},
		{part{off: 0, bytes: chunk + 4096}, 9 * chunk, 0, 1, 0, chunk, true},
		{part{off: chunk + 4096, bytes: 2 * chunk}, 9 * chunk, 2, 1, chunk - 4096, chunk, true},
		{part{off: chunk + 4096, bytes: chunk + 10}, 2*chunk + 4106, 2, 1, chunk - 4096, 4106, true},
		{part{off: 4096, bytes: 4096}, 9 * chunk, 0, 0, 0, 0, false},
		{part{off: 0, bytes: 100, host: bytes.Repeat([]byte{1}, 100)}, 100, 0, 0, 0, 0, false},
		{part{off: 0, bytes: chunk, memOff: 8}, chunk, 0, 0, 0, 0, false},
	} {
		x, ok := whole(c.p, c.n)
		if ok != c.ok || ok && (x.first != c.first || x.chunks != c.chunks || x.off != c.off || x.bytes != c.bytes) {
			t.Errorf("part %d+%d of %d: got %+v %v", c.p.off, c.p.bytes, c.n, x, ok)
		}
	}
}
