package persist_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect/connecttest"
	"github.com/holdfast-hpc/holdfast/gpustate"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// everything is a program that protects one thing of each kind, and takes two
// epochs between which all of them change.
type everything struct {
	value int
	array [5]float64
	grow  []int64   // longer than its capacity in the second epoch
	spare []float64 // longer within its capacity
	big   []float64
	rng   *rand.PCG
	state *picky
	req   *mpiwrap.Request
	done  *mpiwrap.Request
	win   *mpiwrap.Win[int64]
	dev   *gpustate.Device
	q     *gpustate.Queue
	a     *gpustate.Buffer
	late  *gpustate.Buffer // in the second epoch only
	ck    *coordinated.Checkpointer
	w     *mpiwrap.Comm
}

type counter struct{ n uint64 }

func (c *counter) SaveTo(w io.Writer) error   { return binary.Write(w, binary.LittleEndian, c.n) }
func (c *counter) LoadFrom(r io.Reader) error { return binary.Read(r, binary.LittleEndian, &c.n) }

// picky is a State that refuses contents on request.
type picky struct {
	counter
	refuse uint64
}

func (p *picky) LoadFrom(r io.Reader) error {
	err := p.counter.LoadFrom(r)
	if p.refuse != 0 && p.n == p.refuse {
		return errors.New("refused by the program")
	}
	return err
}

const everythingBig = 300_000

// newEverything makes a rank's state, as it is before Restore, on a device that has
// been used.
func newEverything(ctx context.Context, w *mpiwrap.Comm, opt coordinated.Options, withLate bool) (p *everything,
	err error) {
	p = &everything{w: w, value: -1, array: [5]float64{-1, -2}, grow: []int64{-1}, spare: make([]float64, 3, 8),
		big: make([]float64, everythingBig), rng: rand.NewPCG(7, 7), state: &picky{counter: counter{99}}}
	for i := range p.spare[:8] {
		p.spare[:8][i] = -7
	}
	for i := range p.big[:everythingBig/3] {
		p.big[i] = float64(-i)
	}
	p.req, p.done = mpiwrap.NewRequest(w, make([]int64, 1)), mpiwrap.NewRequest(w, make([]int64, 1))
	if p.win, err = mpiwrap.WinAllocate[int64](w, 4); err != nil {
		return p, err
	}
	p.win.Memory()[1] = 5
	if p.dev, err = gpustate.Open(gpustate.Select{Kind: "fake"}); err != nil {
		return p, err
	}
	if p.q, err = p.dev.Queue("q"); err != nil {
		return p, err
	}
	if p.a, err = p.dev.Buffer("a", 4096); err != nil {
		return p, err
	}
	err = p.q.Write(p.a, 0, bytes.Repeat([]byte{3}, 4096))
	if withLate {
		err = errors.Join(err, p.makeLate(4))
	}
	if err != nil {
		return p, err
	}
	if p.ck, err = coordinated.Open(ctx, w, opt); err != nil {
		return p, err
	}
	for _, x := range []struct {
		name string
		x    any
	}{{"value", &p.value}, {"array", &p.array}, {"grow", &p.grow}, {"state", p.state}, {"spare", &p.spare},
		{"big", &p.big},
		{"rng", p.rng}, {"req", p.req}, {"done", p.done}, {"win", p.win}, {"dev", p.dev}} {
		err = errors.Join(err, p.ck.Protect(x.name, x.x))
	}
	return p, err
}

func (p *everything) makeLate(v byte) (err error) {
	if p.late, err = p.dev.Buffer("late", 1000); err != nil {
		return err
	}
	return p.q.Write(p.late, 0, bytes.Repeat([]byte{v}, 1000))
}

// change makes the state of an epoch.
func (p *everything) change(e int) error {
	p.value, p.array[4], p.state.n = e, float64(e), uint64(e)
	p.grow = make([]int64, 3*e)
	p.spare = p.spare[:2+e]
	for i := range p.spare {
		p.spare[i] = float64(100*e + i)
	}
	for i := range p.big {
		p.big[i] = float64(i * e)
	}
	for range e {
		p.rng.Uint64()
	}
	p.win.Memory()[0] = int64(e)
	err := p.q.Write(p.a, 0, bytes.Repeat([]byte{byte(10 * e)}, 4096))
	if e == 2 {
		err = errors.Join(err, p.makeLate(20))
	}
	if e == 1 { // pending in the first epoch, complete in the second
		err = errors.Join(err, p.req.Irecv(1-p.w.Rank(), 9), p.done.Irecv(1-p.w.Rank(), 8))
	} else {
		err = errors.Join(err, mpiwrap.Send(p.w, []int64{77}, 1-p.w.Rank(), 8))
	}
	for i := range e { // one message is in the mailbox in the first epoch, three in the second
		err = errors.Join(err, mpiwrap.Send(p.w, []int64{int64(10*e + i)}, 1-p.w.Rank(), 5))
	}
	return err
}

// dump describes all of the state.
func (p *everything) dump() (string, error) {
	var b strings.Builder
	mail, err := p.w.Endpoint().SaveMailbox()
	fmt.Fprintf(&b, "%d %v %v %v of %v\n%x\n%s\n%v\n", p.value, p.array, p.grow, p.spare, p.spare[:cap(p.spare)],
		sha256.Sum256(asBytes(p.big)), mail, p.win.Memory())
	for _, m := range []interface{ MarshalBinary() ([]byte, error) }{p.rng, p.req, p.done} {
		text, merr := m.MarshalBinary()
		err = errors.Join(err, merr)
		fmt.Fprintf(&b, "%s\n", text)
	}
	c, cerr := p.dev.Capture(context.Background(), nil)
	if cerr != nil {
		return "", errors.Join(err, cerr)
	}
	for i, content := range c.Contents() {
		got := make([]byte, content.Bytes)
		err = errors.Join(err, c.ReadAt(context.Background(), i, got, 0))
		fmt.Fprintf(&b, "%s %x\n", content.Name, sha256.Sum256(got))
	}
	fmt.Fprintf(&b, "state %d\n", p.state.n)
	return b.String(), errors.Join(err, c.Release())
}

// asBytes returns the memory of v, which the race detector looks at in one piece.
func asBytes(v []float64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 8*len(v))
}

func (p *everything) end() error {
	err := p.ck.Close()
	return errors.Join(err, p.win.Free(), p.dev.Close())
}

// fallback is a job with two epochs and what restarts find in them.
type fallback struct {
	fs     *crashfs.FS
	opt    coordinated.Options
	plane  func(rank int) connect.Plane
	refuse uint64 // what rank 1's State refuses
}

// under returns the context that ranks are opened under.
func (f *fallback) under() context.Context {
	return vfs.With(connect.WithSeam(context.Background(), connect.Seam{Plane: f.plane}), f.fs)
}

// outcome is what one restart found on each rank.
type outcome struct {
	epoch         storage.Epoch
	before, after [2]string
	err           error
}

func newFallback(t *testing.T) *fallback {
	t.Helper()
	f := &fallback{fs: crashfs.New()}
	f.fs.MkdirAll("/local")
	f.opt = coordinated.Options{Job: "fallback", Local: "/local", CheckpointSignals: []os.Signal{},
		StopSignals: []os.Signal{}, Keep: 9,
		PeerTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler), OnLost: func(e *coordinated.LostError) {
			t.Errorf("%v", e)
		}}
	f.plane = connecttest.NewNet(2).Plane
	err := mpitest.NewWorld(2, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
		ctx := context.Background()
		p, err := newEverything(f.under(), w, f.opt, false)
		if err != nil {
			return err
		}
		if _, err := p.ck.Restore(ctx); err != nil {
			return err
		}
		for e := 1; e <= 2; e++ {
			if err := p.change(e); err != nil {
				return err
			}
			if w.Rank() == 0 {
				if err := p.ck.Request(ctx); err != nil {
					return err
				}
			}
			if err := w.Barrier(); err != nil {
				return err
			}
			if err := p.ck.Point(ctx); err != nil {
				return err
			}
			for len(p.ck.Stats().Epochs) < e {
				if err := p.ck.Point(ctx); err != nil {
					return err
				}
			}
			if err := p.ck.Wait(ctx, "local"); err != nil {
				return err
			}
		}
		return p.end()
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// restart starts the program up to the end of Restore.
func (f *fallback) restart(epoch storage.Epoch) (o outcome) {
	opt := f.opt
	opt.Epoch, f.plane = epoch, connecttest.NewNet(2).Plane
	var errs [2]error
	err := mpitest.NewWorld(2, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
		r := w.Rank()
		p, err := newEverything(f.under(), w, opt, true)
		if err != nil {
			return err
		}
		if r == 1 {
			p.state.refuse = f.refuse
		}
		if o.before[r], err = p.dump(); err != nil {
			return err
		}
		_, errs[r] = p.ck.Restore(context.Background())
		if o.after[r], err = p.dump(); err != nil {
			return err
		}
		if r == 0 {
			o.epoch = p.ck.Stats().Restore.Epoch
		}
		return p.end()
	})
	if o.err = errs[0]; (errs[0] == nil) != (errs[1] == nil) {
		err = errors.Join(err, fmt.Errorf("rank 0 got %v and rank 1 %v", errs[0], errs[1]))
	}
	o.err = errors.Join(o.err, err)
	return o
}

func shardOf(epoch, rank int) string {
	return fmt.Sprintf("/local/epoch-%010d/rank-%06d.shard", epoch, rank)
}

// offsets are places all over a shard, so that each section is hit.
func (f *fallback) offsets(t *testing.T, name string) (list []int64) {
	t.Helper()
	st, err := f.fs.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	step, fine := max(st.Size/24, 1), int64(97)
	if testing.Short() {
		step, fine = 8*step, 8*fine
	}
	for at := int64(3); at < st.Size; at += step {
		list = append(list, at)
	}
	for at := max(st.Size-1500, 0); at < st.Size; at += fine { // the small sections and the index
		list = append(list, at)
	}
	return list
}

// TestFallbackLeavesNoTrace damages the newest epoch on one rank, in all places of
// its shard in turn. What the program has after Restore is what the older epoch
// holds, and nothing else; when the older one is damaged too, it is what the program
// had before.
func TestFallbackLeavesNoTrace(t *testing.T) {
	for _, pool := range []int64{0, 1} { // 1: no room to keep what was there before
		t.Run(fmt.Sprint("pool ", pool), func(t *testing.T) {
			f := newFallback(t)
			f.opt.MaxPool = pool
			var want [3]outcome
			for e := 1; e <= 2; e++ {
				if want[e] = f.restart(storage.Epoch(e)); want[e].err != nil || want[e].epoch != storage.Epoch(e) {
					t.Fatalf("epoch %d: restored %d, %v", e, want[e].epoch, want[e].err)
				}
			}
			for rank := range 2 {
				f.damages(t, rank, want)
			}
		})
	}
}

func (f *fallback) damages(t *testing.T, rank int, want [3]outcome) {
	fell := 0
	for i, at := range f.offsets(t, shardOf(2, rank)) {
		flip := func(e int, at int64) {
			if err := f.fs.Flip(shardOf(e, rank), at, 0x40); err != nil {
				t.Fatal(err)
			}
		}
		flip(2, at)
		got := f.restart(0)
		switch {
		case got.err != nil:
			t.Errorf("rank %d, damage at %d: %v", rank, at, got.err)
		case got.after != want[got.epoch].after:
			t.Errorf("rank %d, damage at %d: restored epoch %d, and got\n%s\n%s\nwant\n%s\n%s", rank, at, got.epoch,
				got.after[0], got.after[1], want[got.epoch].after[0], want[got.epoch].after[1])
		case got.epoch == 1:
			fell++
		}
		if i%4 == 0 && got.epoch == 1 {
			st, err := f.fs.Stat(shardOf(1, rank))
			if err != nil {
				t.Fatal(err)
			}
			flip(1, st.Size/2)
			if got := f.restart(0); got.err == nil || got.after != got.before {
				t.Errorf("rank %d, both damaged: %v, and\n%s\n%s\nbefore\n%s\n%s", rank, got.err, got.after[0],
					got.after[1], got.before[0], got.before[1])
			}
			flip(1, st.Size/2)
		}
		flip(2, at)
	}
	least := 20
	if testing.Short() {
		least = 3
	}
	if fell < least {
		t.Errorf("only %d damages made the restart go back", fell)
	}
}

// TestProgramRefuses: the program's own code refuses what the newest epoch holds on
// one rank. All ranks get the older one then.
func TestProgramRefuses(t *testing.T) {
	f := newFallback(t)
	want := f.restart(1)
	f.refuse = 2
	if got := f.restart(0); got.err != nil || got.epoch != 1 || got.after != want.after {
		t.Errorf("epoch %d, %v\n%s\n%s\nwant\n%s\n%s", got.epoch, got.err, got.after[0], got.after[1], want.after[0],
			want.after[1])
	}
	got := f.restart(2)
	var failed *coordinated.RestoreError
	if !errors.As(got.err, &failed) || fmt.Sprint(failed.Undefined) != "[rng state]" {
		t.Errorf("the only epoch allowed is refused: got %v, want a *RestoreError that names what is undefined",
			got.err)
	}
	for r := range 2 { // values, big memory, mailbox, window: the lines before the generator's
		after, before := strings.Split(got.after[r], "\n")[:4], strings.Split(got.before[r], "\n")[:4]
		if !slices.Equal(after, before) {
			t.Errorf("rank %d has\n%s\nbefore\n%s", r, after, before)
		}
	}
}

// TestRestoreCannotClose: a shard that cannot be closed after it was read and verified, and
// the ranks have agreed on it, is restored: the ranks would go separate ways.
func TestRestoreCannotClose(t *testing.T) {
	b := newBulk(t, storage.LevelLocal)
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	b.files = &oneRankFS{b.fs, "rank-000001.shard"}
	b.epochs = 0
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	if b.restored[0] == 0 || b.restored[1] != b.restored[0] {
		t.Errorf("the ranks continue from steps %v", b.restored)
	}
}

// oneRankFS fails to close files of a name.
type oneRankFS struct {
	*slowFS
	name string
}

func (f *oneRankFS) Open(name string) (vfs.File, error) {
	file, err := f.slowFS.Open(name)
	if err != nil || !strings.HasSuffix(name, f.name) {
		return file, err
	}
	return &failsToClose{File: file}, nil
}

// failsToClose is a file of a network file system, which tells of an error at the end when
// all of it was read.
type failsToClose struct {
	vfs.File
	read atomic.Int64
}

func (f *failsToClose) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.read.Add(int64(n))
	return n, err
}

func (f *failsToClose) Close() error {
	err := f.File.Close()
	if f.read.Load() >= bulkLen*8 {
		err = errors.Join(err, errors.New("stale file handle"))
	}
	return err
}

// TestRestoreParts: the parts of a restore are all of it.
func TestRestoreParts(t *testing.T) {
	b := newBulk(t, storage.LevelLocal, storage.LevelGlobal)
	b.epochs = 1
	for range 2 {
		if err := b.run(); err != nil {
			t.Fatal(err)
		}
	}
	r := b.stats[0].Restore
	var sum time.Duration
	seen := map[string]bool{}
	for _, p := range r.Parts {
		sum += p.Took
		seen[p.Name] = true
	}
	if r.Epoch == 0 || sum > r.Took {
		t.Errorf("got %v in all of %v, epoch %d", sum, r.Took, r.Epoch)
	}
	for _, want := range []string{coordinated.PartAgree, coordinated.PartNote, coordinated.PartOpen,
		coordinated.PartMemory, coordinated.PartVote} {
		if !seen[want] {
			t.Errorf("there is no part %q in %v", want, r.Parts)
		}
	}
}
