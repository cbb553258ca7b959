package capture

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/invariants"
	"github.com/holdfast-hpc/holdfast/storage"
)

// hashedProgram is a program whose device is captured and written by random steps.
type hashedProgram struct {
	t      *testing.T
	r      *rand.Rand
	dev    *gpustate.Device
	q      *gpustate.Queue
	bufs   []*gpustate.Buffer
	ranges map[*gpustate.Buffer]bool // of buffers that are released
	saved  map[string]int            // buffers at the last epoch that was committed, and their bytes
	taken  map[string]bool           // names of those buffers
	names  int
	p      *Protected
	store  *storage.Store
	dir    string
	every  int
	read   int64 // bytes that were read from captures
	all    int64 // bytes of captures
}

func openHashed(t *testing.T, seed uint64) *hashedProgram {
	t.Helper()
	h := &hashedProgram{t: t, r: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(),
		ranges: map[*gpustate.Buffer]bool{}, taken: map[string]bool{}}
	h.every = []int{7, 7, 2, 1}[seed%4]
	h.start()
	for range 4 {
		h.create()
	}
	return h
}

// start opens everything as a process does.
func (h *hashedProgram) start() {
	h.t.Helper()
	var err error
	h.dev, err = gpustate.Open(gpustate.Select{Kind: "fake"})
	h.ok(err)
	h.q, err = h.dev.Queue("q")
	h.ok(err)
	h.p = New(0, 1, nil, slog.New(slog.DiscardHandler))
	h.p.HashDevices()
	h.p.least = 0
	h.ok(h.p.Add("gpu", h.dev))
	h.store, err = storage.Open(h.t.Context(), storage.Options{Job: "j", Size: 1, Node: "n",
		Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: h.dir, FullEvery: h.every}}})
	h.ok(err)
}

func (h *hashedProgram) stop() {
	h.t.Helper()
	h.ok(h.store.Close())
	h.ok(h.dev.Close())
	h.ok(h.p.Close())
}

// restart ends the process and restores an epoch in another one. Some buffers the program makes before that, in another
// order, the others it asks for afterwards.
func (h *hashedProgram) restart(e storage.Epoch) {
	h.t.Helper()
	h.stop()
	names := h.saved
	h.start()
	h.bufs, h.ranges = nil, map[*gpustate.Buffer]bool{}
	sorted := slices.Sorted(maps.Keys(names))
	for _, name := range slices.Backward(sorted) {
		if h.r.IntN(3) == 0 {
			_, err := h.dev.Buffer(name, names[name])
			h.ok(err)
		}
	}
	sh, err := h.store.Fetch(h.t.Context(), e)
	h.ok(err)
	l := h.p.Restore(Callbacks{Mailbox: func([]byte) (func(), error) { return func() {}, nil },
		Over: func(time.Time, string) {}})
	a := l.Attempt()
	h.ok(a.Open(h.t.Context(), sh))
	h.ok(a.ReadMemory(h.t.Context()))
	h.ok(a.ReadDevices(h.t.Context()))
	h.ok(a.Apply(h.t.Context()))
	a.Finish()
	if !h.store.Adopt(sh) {
		h.t.Error("the restored shard is not adopted")
	}
	l.Close()
	h.ok(sh.Close())
	for _, name := range sorted {
		b, err := h.dev.Buffer(name, names[name])
		h.ok(err)
		h.bufs = append(h.bufs, b)
	}
	if len(h.bufs) == 0 {
		h.create()
	}
}

func (h *hashedProgram) ok(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// name gives a name that no object has, now and then that of one that is gone, which may have had another size. That
// of a buffer of which a range is left is taken.
func (h *hashedProgram) name() string {
	if name := fmt.Sprint("b", h.r.IntN(h.names)); h.r.IntN(2) == 0 && !h.taken[name] &&
		!slices.ContainsFunc(h.bufs, func(b *gpustate.Buffer) bool { return b.Name() == name }) {
		return name
	}
	return fmt.Sprint("b", h.names)
}

// create makes a buffer, of zeros or of noise.
func (h *hashedProgram) create() {
	h.names++
	n := []int{storage.ChunkBytes, 3*storage.ChunkBytes + 100, 9 * storage.ChunkBytes, 5000}[h.r.IntN(4)]
	b, err := h.dev.Buffer(h.name(), n)
	h.ok(err)
	data := make([]byte, n)
	if h.r.IntN(3) > 0 {
		_, _ = rand.NewChaCha8([32]byte{byte(h.r.Uint32())}).Read(data)
	}
	h.ok(h.q.Write(b, 0, data))
	h.bufs = append(h.bufs, b)
}

// change does something to the device.
func (h *hashedProgram) change() {
	switch k := h.r.IntN(13); {
	case k == 10: // the hashes of before are those of another device
		h.ok(h.dev.MigrateTo(h.t.Context(), gpustate.Select{Kind: "fake", Index: h.r.IntN(2)}))
	case k == 11: // a range keeps the bytes of a buffer that is gone
		i := h.r.IntN(len(h.bufs))
		if h.bufs[i].Bytes() < 8192 || len(h.bufs) < 3 {
			return
		}
		h.names++
		sub, err := h.bufs[i].Sub(fmt.Sprint("b", h.names), 4096, 4096)
		h.ok(err)
		h.taken[h.bufs[i].Name()] = true
		h.ok(h.bufs[i].Release())
		h.bufs[i] = sub
		h.ranges[sub] = true
	case k == 12: // back to an earlier moment
		c, err := h.dev.Capture(h.t.Context(), nil)
		h.ok(err)
		h.ok(h.q.Write(h.bufs[0], 0, []byte{7}))
		h.ok(h.dev.Restore(h.t.Context(), c.Record(), func(i int, dst []byte, off int64) error {
			return c.ReadAt(h.t.Context(), i, dst, off)
		}))
		h.ok(c.Release())
	case k == 0 && len(h.bufs) > 2: // another object takes its place in the order
		i := h.r.IntN(len(h.bufs))
		h.ok(h.bufs[i].Release())
		h.bufs = append(h.bufs[:i], h.bufs[i+1:]...)
	case k == 1:
		h.create()
	case k == 2 && len(h.bufs) > 1:
		a, b := h.bufs[0], h.bufs[len(h.bufs)-1]
		_, err := h.q.Copy(a, 0, b, 0, min(a.Bytes(), b.Bytes()))
		h.ok(err)
	default: // one byte, which may become what it was
		b := h.bufs[h.r.IntN(len(h.bufs))]
		h.ok(h.q.Write(b, h.r.IntN(b.Bytes()), []byte{byte(h.r.IntN(2))}))
	}
}

// made returns the buffers that the program has now and asks for again after a restart.
func (h *hashedProgram) made() map[string]int {
	names := map[string]int{}
	for _, b := range h.bufs {
		if !h.ranges[b] { // one needs its buffer, which the program has released
			names[b.Name()] = b.Bytes()
		}
	}
	return names
}

// capture takes a snapshot whose reads are counted, and what it holds.
func (h *hashedProgram) capture() (s *Snapshot, want map[string][]byte) {
	h.t.Helper()
	s = h.p.Begin()
	h.ok(h.p.CaptureDevices(h.t.Context(), s))
	h.ok(h.p.CaptureMemory(s))
	s.AddMailbox(nil)
	want = map[string][]byte{}
	for i, sec := range s.Sections {
		b := make([]byte, sec.Size)
		_, err := sec.Source.ReadAt(b, 0)
		if sec.Size > 0 {
			h.ok(err)
		}
		want[sec.Name] = b
		if d, ok := sec.Source.(*deviceContent); ok {
			s.Sections[i].Source = &counting{deviceContent: d, n: &h.read}
			h.all += sec.Size
		}
	}
	return s, want
}

// commit commits what was put of a snapshot, prunes all but what it refers to, and compares what a restart would read
// with what the capture held.
func (h *hashedProgram) commit(e storage.Epoch, s *Snapshot, info storage.ShardInfo, want map[string][]byte) {
	h.t.Helper()
	h.ok(h.store.Commit(h.t.Context(), e, storage.LevelLocal, []storage.ShardInfo{info}))
	h.ok(h.store.Committed(e, storage.LevelLocal))
	h.ok(s.Release())
	_, err := h.store.Prune(h.t.Context(), storage.LevelLocal)
	h.ok(err)
	sh, err := h.store.Fetch(h.t.Context(), e)
	h.ok(err)
	for name, b := range want {
		got := make([]byte, len(b))
		h.ok(sh.ReadAt(h.t.Context(), name, got, 0))
		if !bytes.Equal(got, b) {
			h.t.Errorf("epoch %d, section %s: a restart reads other bytes than were captured", e, name)
		}
	}
	h.ok(sh.Close())
}

// epoch captures, writes while the program goes on, and commits or does not, which it reports.
func (h *hashedProgram) epoch(e storage.Epoch) bool {
	h.t.Helper()
	h.dev.LimitShadow([]int64{-1, -1, -1, 0, 3 << 20}[h.r.IntN(5)])
	s, want := h.capture()
	made := h.made()
	var program sync.WaitGroup
	program.Go(func() {
		for range 5 {
			h.change()
		}
	})
	info, err := h.store.Put(h.t.Context(), e, storage.LevelLocal, s.Sections)
	program.Wait()
	h.ok(err)
	if h.r.IntN(8) > 0 {
		s.Written(e, info.Digest) // else the process had no time for it
	}
	if h.r.IntN(4) == 0 { // the vote fails
		h.ok(h.store.Discard(h.t.Context(), e, storage.LevelLocal))
		h.ok(s.Release())
		return false
	}
	h.commit(e, s, info, want)
	h.saved = made
	return true
}

// take is epoch of a program that waits, and gives the bytes that were written.
func (h *hashedProgram) take(e storage.Epoch) (stored int64) {
	h.t.Helper()
	h.read = 0
	s, want := h.capture()
	info, err := h.store.Put(h.t.Context(), e, storage.LevelLocal, s.Sections)
	h.ok(err)
	s.Written(e, info.Digest)
	h.commit(e, s, info, want)
	h.saved = h.made()
	return info.Stored
}

// counting counts what is read of a content.
type counting struct {
	*deviceContent
	n *int64
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	*c.n += int64(len(p))
	return c.deviceContent.ReadAt(p, off)
}

var hashedSeeds = flag.Int("programs", 2, "random programs of TestHashedPrograms")

// TestHashedPrograms runs random programs whose device is captured and moved, with epochs that are not
// committed or are pruned, memory that is released, made again, and captured to the host, and changes while the
// epoch is written. What is restored is what was captured, and most of it is not read again.
func TestHashedPrograms(t *testing.T) {
	var read, all int64
	for seed := range uint64(*hashedSeeds) {
		h := openHashed(t, seed)
		last := storage.Epoch(0)
		for e := storage.Epoch(1); e <= 16; e++ {
			if last > 0 && h.r.IntN(4) == 0 {
				h.restart(last)
			}
			for range h.r.IntN(4) {
				h.change()
			}
			if h.epoch(e) {
				last = e
			}
		}
		read, all = read+h.read, all+h.all
		h.stop()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("read %d of %d MiB", read>>20, all>>20)
	if read > all*4/5 && !invariants.Enabled {
		t.Errorf("read %d of %d bytes", read, all)
	}
}

// TestRestartedIncrement: after a restart, and one after that, the first epoch reads and writes what has changed since
// the one that was restored.
func TestRestartedIncrement(t *testing.T) {
	const chunks, changed = 40, 4
	h := &hashedProgram{t: t, r: rand.New(rand.NewPCG(1, 1)), dir: t.TempDir(), ranges: map[*gpustate.Buffer]bool{}}
	h.start()
	b, err := h.dev.Buffer("b", chunks*storage.ChunkBytes)
	h.ok(err)
	data := make([]byte, b.Bytes())
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	h.ok(h.q.Write(b, 0, data))
	h.bufs = append(h.bufs, b)
	if h.take(1); h.read != int64(len(data)) {
		t.Errorf("epoch 1: %d bytes were read, want all %d", h.read, len(data))
	}
	for e := storage.Epoch(2); e <= 4; e++ {
		h.restart(e - 1)
		for i := range changed {
			h.ok(h.q.Write(h.bufs[0], (int(e)+9*i)*storage.ChunkBytes, []byte{byte(e), 1, 2, 3, 4, 5, 6, 7, 8}))
		}
		stored := h.take(e)
		if want := int64(changed * storage.ChunkBytes); h.read != want && !invariants.Enabled || stored > want+8192 {
			t.Errorf("epoch %d: %d bytes were read and %d written, want %d", e, h.read, stored, want)
		}
	}
	h.stop()
}

// TestRestartedOrder: a program that makes its buffers in another order before it restores, and then exchanges what is
// in them, gets in each section what its buffer holds.
func TestRestartedOrder(t *testing.T) {
	h := &hashedProgram{t: t, r: rand.New(rand.NewPCG(1, 1)), dir: t.TempDir(), ranges: map[*gpustate.Buffer]bool{}}
	h.start()
	const n = 2 * storage.ChunkBytes
	for i, name := range []string{"a", "b", "c"} {
		b, err := h.dev.Buffer(name, n)
		h.ok(err)
		h.ok(h.q.Write(b, 0, bytes.Repeat([]byte{byte(i + 1)}, n)))
		h.bufs = append(h.bufs, b)
	}
	for e := storage.Epoch(1); e <= 9; e++ {
		h.take(e)
		h.restart(e)
		v := make([]byte, n)
		for i := range h.bufs {
			h.ok(h.q.Read(h.bufs[i], 0, v[:1]))
			h.ok(h.q.Write(h.bufs[i], 0, bytes.Repeat([]byte{v[0]%3 + 1}, n)))
		}
	}
	h.stop()
}
