package persist_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect/connecttest"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// bulk is a program with enough state to be captured in the pool. Its data
// follow from the step, so what a restart finds can be checked.
type bulk struct {
	epochs   int                                        // to be taken
	ask      func(epochs []coordinated.EpochStats) bool // whether rank 0 may ask for one more
	until    func(epochs []coordinated.EpochStats) bool // whether rank 0 has enough before that; nil: never
	restored [3]int                                     // step at which each rank went on; 0: a first start
	stats    [3]coordinated.Stats
	fs       *slowFS
	opt      coordinated.Options
	files    vfs.FS // fs, or around it; nil: the system's
	seam     connect.Seam
	die      error // what ends the program right after a restore; nil: nothing
	hook     func(rank int, at string)
	wired    bool                                   // the ranks speak over real connections
	each     func(rank int, o *coordinated.Options) // what is a rank's own; nil: nothing
}

func newBulk(t *testing.T, levels ...string) *bulk {
	t.Helper()
	mem := crashfs.New()
	mem.SetDirect(true)
	b := &bulk{epochs: 1, ask: func([]coordinated.EpochStats) bool { return true }, fs: &slowFS{FS: mem}}
	b.opt = coordinated.Options{Job: "bulk", CheckpointSignals: []os.Signal{}, StopSignals: []os.Signal{}, Keep: 9,
		PeerTimeout: time.Minute,
		Logger:      slog.New(slog.NewTextHandler(io.Discard, nil)),
		OnLost:      func(e *coordinated.LostError) { t.Errorf("%v", e) }}
	b.files = b.fs
	b.seam.Phase = func(rank int, at string) {
		if b.hook != nil {
			b.hook(rank, at)
		}
	}
	for _, l := range levels {
		mem.MkdirAll("/" + l)
		switch l {
		case storage.LevelLocal:
			b.opt.Local = "/local"
		case storage.LevelGlobal:
			b.opt.Global = "/global"
		}
	}
	return b
}

const bulkLen = 40_000

func (b *bulk) run() error {
	if !b.wired {
		b.wire(len(b.stats))
	}
	return mpitest.NewWorld(len(b.stats), mpitest.Options{Seed: 1}).Run(func(world *mpiwrap.Comm) error {
		ctx := b.under(context.Background())
		opt := b.opt
		if b.each != nil {
			b.each(world.Rank(), &opt)
		}
		ck, err := coordinated.Open(ctx, world, opt)
		if err != nil {
			return err
		}
		if err := b.body(ctx, world, ck); err != nil {
			ck.Abort(err)
			return err
		}
		err = ck.Close()
		b.stats[world.Rank()] = ck.Stats()
		return err
	})
}

// wire connects ranks within the process.
func (b *bulk) wire(ranks int) { b.seam.Plane = connecttest.NewNet(ranks).Plane }

// under returns the context that ranks are opened under.
func (b *bulk) under(ctx context.Context) context.Context {
	return vfs.With(connect.WithSeam(ctx, b.seam), b.files)
}

func (b *bulk) body(ctx context.Context, world *mpiwrap.Comm, ck *coordinated.Checkpointer) error {
	me, step, data := world.Rank(), 0, make([]float64, bulkLen)
	if err := errors.Join(ck.Protect("step", &step), ck.Protect("data", &data)); err != nil {
		return err
	}
	restored, err := ck.Restore(ctx)
	if err != nil {
		return err
	}
	if restored {
		b.restored[me] = step
		if b.die != nil {
			return b.die
		}
		for i, v := range data {
			if v != float64(step+i+me) {
				return fmt.Errorf("rank %d, step %d: data[%d] is %v", me, step, i, v)
			}
		}
	}
	for asked, done := 0, false; !done; {
		step++
		for i := range data {
			data[i] = float64(step + i + me)
		}
		taken := ck.Stats().Epochs
		if me == 0 && len(taken) == asked && asked < b.epochs && b.ask(taken) {
			asked++
			if err := ck.Request(ctx); err != nil {
				return err
			}
		}
		if err := ck.Point(ctx); err != nil {
			return err
		}
		least := []int{0}
		n := len(ck.Stats().Epochs)
		if me == 0 && b.until != nil && b.until(ck.Stats().Epochs) {
			n += b.epochs
		}
		op := mpiwrap.Min
		if b.until != nil {
			op = mpiwrap.Max // rank 0 decides
		}
		if err := mpiwrap.Allreduce(world, least, []int{n}, op); err != nil {
			return err
		}
		done = least[0] >= b.epochs
	}
	return nil
}

// slowFS lets a test hold back the writes to some files.
type slowFS struct {
	*crashfs.FS
	before func(name string) // a write; may wait
	first  func(name string) // the first write to an open file, before it waits; nil: nothing
}

func (f *slowFS) Create(name string, direct bool) (vfs.File, error) {
	return f.wrap(name)(f.FS.Create(name, direct))
}

func (f *slowFS) Edit(name string, direct bool) (vfs.File, error) {
	return f.wrap(name)(f.FS.Edit(name, direct))
}

func (f *slowFS) Share(name string, direct bool) (vfs.File, error) {
	return f.wrap(name)(f.FS.Share(name, direct))
}

func (f *slowFS) wrap(name string) func(vfs.File, error) (vfs.File, error) {
	return func(file vfs.File, err error) (vfs.File, error) {
		if err != nil || f.before == nil {
			return file, err
		}
		return &slowFile{File: file, name: name, fs: f, before: f.before}, nil
	}
}

type slowFile struct {
	vfs.File
	name   string
	fs     *slowFS
	before func(name string) // that was set when the file was opened
	begun  sync.Once
}

func (f *slowFile) WriteAt(p []byte, off int64) (int, error) {
	if f.fs.first != nil {
		f.begun.Do(func() { f.fs.first(f.name) })
	}
	f.before(f.name)
	return f.File.WriteAt(p, off)
}

// sharedPack returns the pack of an epoch that the ranks write together.
func sharedPack(e storage.Epoch) string {
	return fmt.Sprintf("/global/epoch-%010d/pack-000000.shards", e)
}

// restartFromGlobal loses the local directory and restores an epoch.
func (b *bulk) restartFromGlobal(t *testing.T, e storage.Epoch) {
	t.Helper()
	b.fs.RemoveAll("/local")
	b.fs.MkdirAll("/local")
	b.fs.before = nil
	b.epochs, b.opt.Epoch = 0, e
	if err := b.run(); err != nil {
		t.Fatalf("restart from epoch %d: %v", e, err)
	}
	for r, s := range b.stats {
		if s.Restore.Epoch != e || s.Restore.Level != storage.LevelGlobal || b.restored[r] == 0 {
			t.Errorf("rank %d restored %+v, want epoch %d from the global level", r, s.Restore, e)
		}
	}
}

// TestCopiedFromMemory: the ranks of a node write one pack together and do not
// read their shards back.
func TestCopiedFromMemory(t *testing.T) {
	b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	writers, read := 0, int64(0)
	for _, op := range b.fs.Trace() {
		if strings.HasSuffix(op.Name, sharedPack(1)) && op.Kind == "sync" {
			writers++
		}
		if op.Kind == "read" && strings.HasPrefix(op.Name, "/local/epoch-0000000001/rank-") {
			read++
		}
	}
	if writers != 2+2 { // files in memory are not handed over; the flusher syncs before the footer, too
		t.Errorf("%d syncs of the pack, want one by each rank, and another by the one that seals it", writers)
	}
	if most := int64(3 * 2); read > most { // footer and index
		t.Errorf("%d reads of the local shards, want at most %d: they are in memory", read, most)
	}
	if left := b.fs.String(); strings.Contains(left, "/global/epoch-0000000001/rank-") ||
		strings.Contains(left, ".tmp") {
		t.Errorf("want packs and nothing else:\n%s", left)
	}
	b.restartFromGlobal(t, 1)
}

// TestNextCaptureGetsItsMemory asks for an epoch while the one before is still
// being written from memory by a file system that hangs. The program must not
// wait for it, and both epochs must reach the global level.
func TestNextCaptureGetsItsMemory(t *testing.T) {
	for name, pool := range map[string]int64{"more memory": 0, "no more memory": bulkLen*8 + 200_000} {
		t.Run(name, func(t *testing.T) {
			b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
			b.epochs, b.opt.MaxPool = 2, pool
			var writing, captures atomic.Int64
			captured := make(chan struct{})
			b.fs.before = func(name string) {
				if strings.HasSuffix(name, sharedPack(1)) {
					<-captured
				}
			}
			b.fs.first = func(name string) {
				if strings.HasSuffix(name, sharedPack(1)) {
					writing.Add(1)
				}
			}
			b.hook = func(_ int, at string) {
				if at == "captured" && captures.Add(1) == 2*3 {
					close(captured)
				}
			}
			b.ask = func(taken []coordinated.EpochStats) bool { return len(taken) == 0 || writing.Load() == 3 }
			if err := b.run(); err != nil {
				t.Fatal(err)
			}
			for r, s := range b.stats {
				for _, es := range s.Epochs {
					if es.Err != nil || es.Durable[storage.LevelGlobal] == 0 {
						t.Errorf("rank %d, epoch %d: %v, durable %v", r, es.Epoch, es.Err, es.Durable)
					}
				}
				if mode := s.Epochs[1].Mode; !strings.Contains(mode,
					map[bool]string{true: "grown", false: "no room"}[pool == 0]) {
					t.Errorf("rank %d captured epoch 2 with %q", r, mode)
				}
			}
			if strings.Contains(b.fs.String(), ".tmp") {
				t.Errorf("left behind:\n%s", b.fs)
			}
			b.hook, b.fs.first = nil, nil
			b.restartFromGlobal(t, 1)
			b.restartFromGlobal(t, 2)
		})
	}
}

// TestGivesWayAtOnce takes epochs one after the other while the copying of one
// holds up all others: they wait without memory, or are passed over, and no capture
// has to map any.
func TestGivesWayAtOnce(t *testing.T) {
	defer func(d time.Duration) { capture.ClaimPatience = d }(capture.ClaimPatience)
	capture.ClaimPatience = 3 * time.Second // for those that give way on a slow machine
	b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
	b.epochs = 4
	var once sync.Once
	var captures atomic.Int64
	all := make(chan struct{})
	b.fs.before = func(name string) {
		if strings.HasPrefix(name, "/global/epoch-0000000002") {
			once.Do(func() { <-all })
		}
	}
	b.hook = func(_ int, at string) {
		if at == "captured" && captures.Add(1) == 4*3 {
			close(all)
		}
	}
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	for r, s := range b.stats {
		grown := 0
		for _, es := range s.Epochs {
			newer, over := es.Skipped[storage.LevelGlobal]
			there := es.Durable[storage.LevelGlobal] > 0
			if es.Err != nil || there == over || over && newer <= es.Epoch {
				t.Errorf("rank %d, epoch %d: %v, durable %v, skipped %v", r, es.Epoch, es.Err, es.Durable, es.Skipped)
			}
			if es.Mode != "pool" {
				grown++
			}
		}
		if grown > 1 { // only the one that is being written is waited for
			t.Errorf("rank %d: %d captures mapped memory: %+v", r, grown, s.Epochs)
		}
	}
	b.restartFromGlobal(t, 4)
}

// TestGlobalDirectoryVanishes takes the shared file system away in the middle of
// a run and gives it back, empty. The epoch under way fails there, the program and
// the local level go on, and so does the global one when it is back.
func TestGlobalDirectoryVanishes(t *testing.T) {
	b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
	b.epochs = 4
	b.ask = func(taken []coordinated.EpochStats) bool { // one after the other
		last := coordinated.EpochStats{Err: errors.New("none yet")}
		if len(taken) > 0 {
			last = taken[len(taken)-1]
		}
		return last.Err != nil || last.Durable[storage.LevelGlobal] > 0
	}
	var settled [3]atomic.Int64 // epochs, by rank
	b.hook = func(rank int, at string) {
		if at != "drained" {
			return
		}
		switch n := settled[rank].Add(1); {
		case rank == 0 && n == 2:
			b.fs.RemoveAll("/global")
		case rank == 0 && n == 4:
			b.fs.MkdirAll("/global")
		}
	}
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	for r, s := range b.stats {
		last := s.Epochs[len(s.Epochs)-1]
		if last.Err != nil || last.Durable[storage.LevelGlobal] == 0 {
			t.Errorf("rank %d: the epoch after: %v, durable %v", r, last.Err, last.Durable)
		}
		if s.Epochs[0].Err != nil || s.Epochs[1].Err == nil || s.Epochs[2].Err == nil {
			t.Errorf("rank %d: %+v, want the epochs to fail that had no directory", r, s.Epochs)
		}
		for _, es := range s.Epochs {
			if es.Durable[storage.LevelLocal] == 0 {
				t.Errorf("rank %d: epoch %d is not at local: %v", r, es.Epoch, es.Err)
			}
		}
	}
	b.hook = nil
	b.restartFromGlobal(t, 4)
}

// TestNoNodeForRedundancy: where the ranks have moved together on too few nodes
// for copies or parity, one warning says so and epochs go to the other levels.
func TestNoNodeForRedundancy(t *testing.T) {
	for _, redundancy := range []string{"partner:1", "parity:2+1"} {
		t.Run(redundancy, func(t *testing.T) {
			b := newBulk(t)
			b.wired, b.files, b.opt.Redundancy = true, nil, redundancy
			b.opt.Local, b.opt.Global = t.TempDir(), t.TempDir()
			var log strings.Builder
			b.opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
			if err := b.run(); err != nil {
				t.Fatal(err)
			}
			level, _, _ := strings.Cut(redundancy, ":")
			if got := log.String(); strings.Count(got, "no epoch will be at "+level) != 1 ||
				!strings.Contains(got, "use more nodes") || strings.Index(got, "no epoch") > strings.Index(got,
				"committed") {
				t.Errorf("want one warning before the first epoch, got\n%s", got)
			}
			for r, s := range b.stats {
				if es := s.Epochs[0]; es.Durable[storage.LevelGlobal] == 0 || es.Err != nil {
					t.Errorf("rank %d: %v, durable %v, want the epoch at global and no error", r, es.Err, es.Durable)
				}
			}
			b.opt.Local, b.epochs = t.TempDir(), 0
			if err := b.run(); err != nil || b.restored[2] == 0 {
				t.Errorf("restart from global: %v, rank 2 at step %d", err, b.restored[2])
			}
		})
	}
}

// TestCommittedAndGone: where every shard of what was committed is gone, or the
// manifest is damaged, the program does not start over without being told to.
func TestCommittedAndGone(t *testing.T) {
	for _, name := range []string{"shards", "manifest"} {
		t.Run(name, func(t *testing.T) {
			b := newBulk(t, storage.LevelGlobal)
			if err := b.run(); err != nil {
				t.Fatal(err)
			}
			dir := "/global/epoch-0000000001"
			list, err := b.fs.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list {
				file, isShard := dir+"/"+e.Name, strings.HasPrefix(e.Name, "rank-")
				switch {
				case name == "shards" && isShard:
					err = b.fs.Remove(file)
				case name == "manifest" && !isShard:
					err = damage(b.fs, file)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			b.opt.OnLost = func(*coordinated.LostError) {} // the rank that gives up first
			var none *coordinated.NoCommonEpochError
			if err := b.run(); !errors.As(err, &none) || fmt.Sprint(none.Unreadable) != "[1]" {
				t.Errorf("got %v, want a *NoCommonEpochError for epoch 1", err)
			}
			b.opt.Fresh = true
			if err := b.run(); err != nil || b.restored[0] != 0 {
				t.Errorf("told to start over: %v, restored at step %d", err, b.restored[0])
			}
		})
	}
}

// TestPassedOver: where the newest epoch cannot be had by all ranks the program
// continues from the one before, and the log says which was passed over and for
// whom.
func TestPassedOver(t *testing.T) {
	for _, c := range []struct {
		gone []int // ranks whose shards of epoch 2 are gone
		says string
	}{
		{[]int{1}, "rank(s) 1 cannot read it from any level"},
		{[]int{0, 1, 2}, "rank(s) 0,1,2 cannot read it from any level"},
		{nil, ""},
	} {
		t.Run(fmt.Sprint(c.gone), func(t *testing.T) {
			b := newBulk(t, storage.LevelLocal)
			b.epochs = 2
			if err := b.run(); err != nil {
				t.Fatal(err)
			}
			for _, r := range c.gone {
				if err := b.fs.Remove(fmt.Sprintf("/local/epoch-0000000002/rank-%06d.shard", r)); err != nil {
					t.Fatal(err)
				}
			}
			var log testbuf.Buffer
			b.opt.Logger, b.epochs = slog.New(slog.NewTextHandler(&log, nil)), 0
			if err := b.run(); err != nil {
				t.Fatal(err)
			}
			want := storage.Epoch(2)
			if c.gone != nil {
				want = 1
			}
			if got := b.stats[0].Restore.Epoch; got != want {
				t.Errorf("restored epoch %d, want %d", got, want)
			}
			said := strings.Contains(log.String(), "restoring an epoch older than the newest")
			if said != (c.gone != nil) || !strings.Contains(log.String(), c.says) {
				t.Errorf("shards of %v gone, want it to say %q:\n%s", c.gone, c.says, &log)
			}
		})
	}
}

// damage turns a byte in the middle of a file.
func damage(fsys vfs.FS, name string) error {
	st, err := fsys.Stat(name)
	if err != nil {
		return err
	}
	f, err := fsys.Edit(name, false)
	if err != nil {
		return err
	}
	var c [1]byte
	_, rerr := f.ReadAt(c[:], st.Size/2)
	c[0] ^= 0xff
	_, werr := f.WriteAt(c[:], st.Size/2)
	return errors.Join(rerr, werr, f.Close())
}

// TestManyVariables protects 10,000 small values: they are one section of one
// file, and come back each with its own value.
func TestManyVariables(t *testing.T) {
	b := newBulk(t, storage.LevelLocal)
	const n = 10_000
	for run := range 2 {
		b.wire(1)
		err := mpitest.NewWorld(1, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
			ck, err := coordinated.Open(b.under(t.Context()), world, b.opt)
			if err != nil {
				return err
			}
			values := make([]int, n)
			for i := range values {
				if err := ck.Protect(fmt.Sprint("v", i), &values[i]); err != nil {
					return err
				}
			}
			restored, err := ck.Restore(t.Context())
			if err != nil || restored != (run == 1) {
				return fmt.Errorf("run %d: restored %v, %w", run, restored, err)
			}
			for i := range values {
				if run == 1 && values[i] != i*7 {
					return fmt.Errorf("v%d is %d", i, values[i])
				}
				values[i] = i * 7
			}
			if err := ck.RequestStop(t.Context()); err != nil {
				return err
			}
			for err = nil; err == nil; {
				err = ck.Point(t.Context())
			}
			if !errors.Is(err, coordinated.ErrStop) {
				return err
			}
			return ck.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	e, err := b.fs.Stat("/local/epoch-0000000001/rank-000000.shard")
	if err != nil || e.Size > 1<<20 {
		t.Errorf("%d bytes for %d integers, %v", e.Size, n, err)
	}
}
