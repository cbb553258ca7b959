package capture

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/invariants"
	"github.com/holdfast-hpc/holdfast/storage"
)

// hashedProgram is a program whose device is captured and written by random steps.
type hashedProgram struct {
	t     *testing.T
	r     *rand.Rand
	dev   *gpustate.Device
	q     *gpustate.Queue
	bufs  []*gpustate.Buffer
	names int
	p     *Protected
	store *storage.Store
	dir   string
	read  int64 // bytes that were read from captures
	all   int64 // bytes of captures
}

func openHashed(t *testing.T, seed uint64) *hashedProgram {
	t.Helper()
	h := &hashedProgram{t: t, r: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir()}
	var err error
	if h.dev, err = gpustate.Open(gpustate.Select{Kind: "fake"}); err != nil {
		t.Fatal(err)
	}
	if h.q, err = h.dev.Queue("q"); err != nil {
		t.Fatal(err)
	}
	h.p = New(0, 1, nil, slog.New(slog.DiscardHandler))
	h.p.HashDevices()
	if err := h.p.Add("gpu", h.dev); err != nil {
		t.Fatal(err)
	}
	h.store, err = storage.Open(t.Context(), storage.Options{Job: "j", Size: 1, Node: "n",
		Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: h.dir, FullEvery: 7}}})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		h.create()
	}
	return h
}

func (h *hashedProgram) ok(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// create makes a buffer, of zeros or of noise.
func (h *hashedProgram) create() {
	h.names++
	n := []int{storage.ChunkBytes, 3*storage.ChunkBytes + 100, 9 * storage.ChunkBytes, 5000}[h.r.IntN(4)]
	b, err := h.dev.Buffer(fmt.Sprint("b", h.names), n)
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
	switch k := h.r.IntN(10); {
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

// epoch captures, writes while the program goes on, commits or does not, and compares what a
// restart would read with what the capture held.
func (h *hashedProgram) epoch(e storage.Epoch) {
	h.t.Helper()
	h.dev.LimitShadow([]int64{-1, -1, -1, 0, 3 << 20}[h.r.IntN(5)])
	s, err := h.p.Capture(h.t.Context(), func() ([]byte, error) { return nil, nil })
	h.ok(err)
	want := map[string][]byte{}
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
		return
	}
	h.ok(h.store.Commit(h.t.Context(), e, storage.LevelLocal, []storage.ShardInfo{info}))
	h.ok(h.store.Committed(e, storage.LevelLocal))
	h.ok(s.Release())
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

// counting counts what is read of a content.
type counting struct {
	*deviceContent
	n *int64
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	*c.n += int64(len(p))
	return c.deviceContent.ReadAt(p, off)
}

// TestHashedPrograms runs random programs whose device is captured, with epochs that are not
// committed, memory that is released, made again, and captured to the host, and changes while the
// epoch is written. What is restored is what was captured, and most of it is not read again.
func TestHashedPrograms(t *testing.T) {
	var read, all int64
	for seed := range uint64(2) {
		h := openHashed(t, seed)
		for e := storage.Epoch(1); e <= 16; e++ {
			for range h.r.IntN(4) {
				h.change()
			}
			h.epoch(e)
		}
		read, all = read+h.read, all+h.all
		h.ok(h.store.Close())
		h.ok(h.dev.Close())
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("read %d of %d MiB", read>>20, all>>20)
	if read > all*4/5 && !invariants.Enabled {
		t.Errorf("read %d of %d bytes", read, all)
	}
}
