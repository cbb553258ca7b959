package campaigns

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/invariants"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

// claiming is a source that knows which of its chunks have changed, or believes so.
type claiming struct {
	storage.Bytes
	know  map[storage.Epoch][16]byte            // digests of the epochs that it remembers
	say   func(e storage.Epoch, chunk int) bool // unchanged since e
	reads *atomic.Int64                         // chunks read
	asked *[]storage.Epoch
}

func (c claiming) ReadAt(p []byte, off int64) (int, error) {
	c.reads.Add(int64((len(p) + format.ChunkBytes - 1) / format.ChunkBytes))
	return c.Bytes.ReadAt(p, off)
}

// Slice makes storage read: nil is for what is not in host memory.
func (c claiming) Slice(int64, int) []byte { return nil }

func (c claiming) UnchangedSince(e storage.Epoch, digest [16]byte) func(int) bool {
	*c.asked = append(*c.asked, e)
	if c.know[e] != digest {
		return nil
	}
	return func(chunk int) bool { return c.say(e, chunk) }
}

// device is a section of n chunks whose epochs change one chunk each, and the last one of which
// is short. Chunk 3 is zero.
type device struct {
	t     *testing.T
	store *storage.Store
	bytes storage.Bytes
	at    []storage.Epoch // that last changed a chunk
	know  map[storage.Epoch][16]byte
	reads atomic.Int64
	asked []storage.Epoch
	lie   int // a chunk that is said to be unchanged although it has changed; -1: none
}

func newDevice(t *testing.T, n int, l storage.LevelConfig) *device {
	d := &device{t: t, bytes: jobtest.Random(1, n*format.ChunkBytes-1000), at: make([]storage.Epoch, n),
		know: map[storage.Epoch][16]byte{},
		lie:  -1}
	clear(d.bytes[3*format.ChunkBytes : 4*format.ChunkBytes])
	d.store = jobtest.OpenStores(t, 1, func(int) []storage.LevelConfig { return []storage.LevelConfig{l} })[0]
	return d
}

func (d *device) change(e storage.Epoch, chunks ...int) {
	for _, c := range chunks {
		d.bytes[c*format.ChunkBytes+int(e)%1000]++
		d.at[c] = e
	}
}

func (d *device) put(e storage.Epoch) (storage.ShardInfo, error) {
	d.reads.Store(0)
	d.asked = nil
	src := claiming{Bytes: d.bytes, know: d.know, reads: &d.reads, asked: &d.asked,
		say: func(since storage.Epoch, chunk int) bool { return d.at[chunk] <= since || chunk == d.lie }}
	return d.store.Put(d.t.Context(), e, storage.LevelLocal,
		[]storage.Section{{Name: "gpu", Size: int64(len(d.bytes)), Source: src}})
}

// take puts, commits and remembers an epoch, and restores it.
func (d *device) take(e storage.Epoch, reads int) storage.ShardInfo {
	d.t.Helper()
	info, err := d.put(e)
	if err != nil {
		d.t.Fatal(err)
	}
	if got := d.reads.Load(); got != int64(reads) && !invariants.Enabled {
		d.t.Errorf("epoch %d: %d chunks were read, want %d", e, got, reads)
	}
	jobtest.CommitAll(d.t, []*storage.Store{d.store}, e, storage.LevelLocal, []storage.ShardInfo{info})
	d.know[e] = info.Digest
	jobtest.WantShard(d.t, d.store, e, []storage.Section{{Name: "gpu", Size: int64(len(d.bytes)), Source: d.bytes}})
	return info
}

// TestComparer: chunks that a source says to be unchanged are not read, and what is restored is
// what the source had: over epochs that came to nothing, epochs that the source does not remember,
// and a number that was used twice.
func TestComparer(t *testing.T) {
	const n = 12
	d := newDevice(t, n, storage.LevelConfig{Name: storage.LevelLocal, Dir: t.TempDir(), FullEvery: 9})
	d.take(1, n)
	d.take(2, 0)
	d.change(3, 0, 7, n-1)
	d.take(3, 3)
	d.change(4, 3) // it was zero
	d.take(4, 1)
	d.change(5, 1)
	if _, err := d.put(5); err != nil { // and it is not committed
		t.Fatal(err)
	}
	d.change(6, 2)
	d.take(6, 2) // since 4
	if len(d.asked) != 1 || d.asked[0] != 4 {
		t.Errorf("asked about epochs %v, want 4: 5 was not committed", d.asked)
	}
	other := d.know[6]
	other[0]++
	d.know[6] = other // as if the number had been used for other bytes before
	d.take(7, n)
	delete(d.know, 7)
	d.take(8, n)
	d.take(9, n) // whole
	d.bytes = append(d.bytes[:len(d.bytes):len(d.bytes)], make([]byte, 500)...)
	d.take(10, 1) // the last chunk is longer, whatever the source says
	d.bytes = d.bytes[:len(d.bytes)-700]
	if got := d.take(11, 1); len(got.Origins) != 1 || got.Origins[0] != 9 {
		t.Errorf("epoch 11 refers to %v, want 9", got.Origins)
	}
	if got := d.take(12, 0); got.Stored != 0 || len(got.Origins) != 2 {
		t.Errorf("epoch 12 stores %d bytes and refers to %v, want none, and 9 and 11", got.Stored, got.Origins)
	}
}

// TestComparerLies: a chunk that a source takes for unchanged although it has changed is found at
// the latest when all is written; the build with invariants finds it at once.
func TestComparerLies(t *testing.T) {
	const n = 12
	d := newDevice(t, n, storage.LevelConfig{Name: storage.LevelLocal, Dir: t.TempDir(), FullEvery: 16})
	d.take(1, n)
	for e := storage.Epoch(2); e < 40; e++ {
		if e == 3 {
			d.lie = 5
			d.change(e, 5)
		}
		d.change(e, int(e)%4)
		info, err := d.put(e)
		if err != nil {
			if !errors.Is(err, storage.ErrClaim) {
				t.Fatal(err)
			}
			if invariants.Enabled && e != 3 {
				t.Errorf("found at epoch %d, want 3", e)
			}
			if e > 16 {
				t.Errorf("found at epoch %d, want 16 at the latest", e)
			}
			return
		}
		jobtest.CommitAll(t, []*storage.Store{d.store}, e, storage.LevelLocal, []storage.ShardInfo{info})
		d.know[e] = info.Digest
	}
	t.Error("the chunk was never read")
}
