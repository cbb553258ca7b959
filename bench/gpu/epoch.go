package gpu

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/storage"
)

// maxEpoch bounds the state of the epochs that are written.
const maxEpoch = 4 << 30

// incremented measures the restore of an epoch of which nine tenths are references to the one
// before, as storage reads and verifies it from files in memory.
func (s *suite) incremented(ctx context.Context, where string, size int64) (err error) {
	size = min(size, maxEpoch)
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = os.TempDir()
	}
	dir, err := os.MkdirTemp(parent, "holdfast-bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	st, err := storage.Open(ctx, storage.Options{Job: "bench", Size: 1, Node: "n",
		Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: dir}}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	record, err := s.twoEpochs(ctx, st, size)
	if err != nil {
		return err
	}
	sh, err := st.Fetch(ctx, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	d, err := gpustate.Open(s.Select)
	if err != nil {
		return err
	}
	defer d.Close()
	took, err := bench.InTurn(ctx, s.Runs, bench.Timed(func() error {
		return d.Restore(ctx, record, func(i int, dst []byte, off int64) error {
			return sh.ReadAt(ctx, contentName(i), dst, off)
		})
	}))
	if err != nil {
		return err
	}
	s.Add(row(where+", a tenth changed", "restore from files", "GB/s").Of(took[0].Rates(float64(size)/1e9),
		bench.Samples{s.upload / 1e9}, s.goal(bench.AtLeast(0.8))))
	return nil
}

// twoEpochs writes a state of noise as epoch 1, changes a tenth of it and writes epoch 2. It gives
// the device's record.
func (s *suite) twoEpochs(ctx context.Context, st *storage.Store, size int64) (record []byte, err error) {
	d, err := gpustate.Open(s.Select)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	q, err := d.Queue("fill")
	if err != nil {
		return nil, err
	}
	var bufs []*gpustate.Buffer
	for left := size; left > 0; left -= int64(bufs[len(bufs)-1].Bytes()) {
		b, err := d.Buffer(fmt.Sprint("state ", len(bufs)), int(min(left, largest(s.info), 256<<20)))
		if err != nil {
			return nil, err
		}
		bufs = append(bufs, b)
		if err := q.Write(b, 0, noise(b.Bytes(), uint64(len(bufs)))); err != nil {
			return nil, err
		}
	}
	var before [][]gpustate.Hash
	var digest [16]byte
	for e := storage.Epoch(1); e <= 2; e++ {
		c, err := d.Capture(ctx, nil)
		if err != nil {
			return nil, err
		}
		now, _ := c.Hashes(ctx) // none: the epoch is written whole
		var sections []storage.Section
		for i, content := range c.Contents() {
			sections = append(sections, storage.Section{Name: contentName(i), Size: content.Bytes,
				Source: &source{ctx, c, i, before, now, digest}})
		}
		info, err := st.Put(ctx, e, storage.LevelLocal, sections)
		if err == nil {
			err = errors.Join(st.Commit(ctx, e, storage.LevelLocal, []storage.ShardInfo{info}),
				st.Committed(e, storage.LevelLocal))
		}
		record, before, digest = c.Record(), now, info.Digest
		if err = errors.Join(err, c.Release()); err != nil {
			return nil, err
		}
		for _, b := range bufs {
			if err := change(q, b, byte(e)); err != nil {
				return nil, err
			}
		}
	}
	return record, nil
}

func contentName(i int) string { return fmt.Sprint("content ", i) }

// noise is bytes that do not compress.
func noise(n int, seed uint64) []byte {
	const share = 16 << 20
	b := make([]byte, n)
	var g errgroup.Group
	g.SetLimit(readers)
	for off := 0; off < n; off += share {
		g.Go(func() error {
			_, err := rand.NewChaCha8([32]byte{byte(seed), byte(off / share), 1}).Read(b[off:min(off+share, n)])
			return err
		})
	}
	_ = g.Wait() // it cannot fail
	return b
}

// source is a content of a capture, for storage.
type source struct {
	ctx         context.Context
	c           *gpustate.Capture
	i           int
	before, now [][]gpustate.Hash
	digest      [16]byte // of the epoch before
}

// ReadAt reads from the capture.
func (s *source) ReadAt(p []byte, off int64) (int, error) {
	return len(p), s.c.ReadAt(s.ctx, s.i, p, off)
}

// UnchangedSince compares hashes.
func (s *source) UnchangedSince(e storage.Epoch, digest [16]byte) func(chunk int) bool {
	if s.before == nil || s.now == nil || e != 1 || digest != s.digest {
		return nil
	}
	was, is := s.before[s.i], s.now[s.i]
	return func(k int) bool { return k < len(was) && is[k] == was[k] && is[k] != gpustate.Hash{} }
}
