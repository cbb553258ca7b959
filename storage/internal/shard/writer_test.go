package shard

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/shm"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// TestWriterInFlight: what several requests write at a time is what one would have written, and room
// that was reserved for nothing is given back.
func TestWriterInFlight(t *testing.T) {
	dir := t.TempDir()
	pool := NewPool(8)
	defer pool.Close()
	rng := rand.New(rand.NewPCG(3, 5))
	for _, direct := range []bool{true, false} {
		for range 4 {
			name := filepath.Join(dir, "shard")
			f, err := vfs.OS{}.Create(name, direct)
			if err != nil {
				t.Fatal(err)
			}
			mapped, err := shm.Touched(3 * BlockBytes)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(mapped); i += 8 {
				binary.LittleEndian.PutUint64(mapped[i:], rng.Uint64())
			}
			w := NewWriter(t.Context(), f, pool, nil)
			w.reserve(64 << 20)
			var want []byte
			for range 6 {
				at, n := rng.IntN(100)*vfs.Align, rng.IntN(2*BlockBytes)
				p := mapped[at:][:n]
				want = append(want, p...)
				if err := w.Append(p, nil); err != nil {
					t.Fatal(err)
				}
			}
			gap := -len(want) & (vfs.Align - 1)
			want = append(want, make([]byte, gap)...)
			if err := w.AlignTo(vfs.Align, 0); err != nil {
				t.Fatal(err)
			}
			if err := w.Finish(); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(name)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("direct %v: got %d bytes, %v, want %d, alike: %v", direct, len(got), err, len(want),
					bytes.Equal(got, want))
			}
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}
