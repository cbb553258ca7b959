package scale

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/arrays"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// world is the ranks of a job.
type world struct {
	Options
	nodes   int
	real    int      // ranks 0 to real-1 are
	names   []string // of the nodes, by rank
	hall    *hall
	ranks   []*rank // the real ones
	removed meter
}

// rank is a real rank.
type rank struct {
	w     *world
	n     int
	m     meter
	data  []byte
	store *storage.Store
	state *arrays.Protected
	work  sync.WaitGroup
	way   *persist.Persister
	ended context.CancelFunc
}

func newWorld(o Options) *world {
	w := &world{Options: o, nodes: (o.Ranks + o.PerNode - 1) / o.PerNode}
	w.real = min(o.Ranks, 2*o.PerNode)
	if o.all {
		w.real = o.Ranks
	}
	for r := range o.Ranks {
		w.names = append(w.names, nodeName(r/o.PerNode))
	}
	return w
}

func (w *world) global() string        { return filepath.Join(w.Dir, "global") }
func (w *world) local(node int) string { return filepath.Join(w.Dir, "local", nodeName(node)) }
func (w *world) members(node int) []int {
	return span(node*w.PerNode, min((node+1)*w.PerNode, w.Ranks))
}

// firsts is by rank the first rank of the node.
func (w *world) firsts() (out []int) {
	for r := range w.Ranks {
		out = append(out, r/w.PerNode*w.PerNode)
	}
	return out
}

func span(from, to int) (out []int) {
	for r := from; r < to; r++ {
		out = append(out, r)
	}
	return out
}

func (w *world) makeDirs() error {
	err := os.MkdirAll(w.global(), 0o700)
	for n := range (w.real + w.PerNode - 1) / w.PerNode {
		err = errors.Join(err, os.MkdirAll(w.local(n), 0o700))
	}
	return err
}

// forgetLocal empties the local directories: the job comes back on other nodes.
func (w *world) forgetLocal() error {
	return errors.Join(os.RemoveAll(filepath.Join(w.Dir, "local")), w.makeDirs())
}

// each runs f for all real ranks at once.
func (w *world) each(f func(r *rank) error) error {
	errs := make([]error, len(w.ranks))
	var all sync.WaitGroup
	for i, r := range w.ranks {
		all.Go(func() {
			if errs[i] = f(r); errs[i] != nil {
				errs[i] = fmt.Errorf("rank %d: %w", r.n, errs[i])
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// start starts a run of the job with a name.
func (w *world) start(ctx context.Context, run string) error {
	w.hall = newHall(w.Ranks, w.PerNode, w.real)
	w.ranks = nil
	for n := range w.real {
		w.ranks = append(w.ranks, &rank{w: w, n: n, data: make([]byte, w.Bytes)})
	}
	if err := w.ranks[0].start(ctx, run, nil); err != nil {
		return err
	}
	common, own, err := w.ranks[0].store.Overview(ctx)
	if err != nil {
		return err
	}
	return w.each(func(r *rank) error {
		if r.n == 0 {
			return nil
		}
		return r.start(ctx, run, &storage.Overview{Common: common, Own: own(r.n)})
	})
}

func (r *rank) start(ctx context.Context, run string, told *storage.Overview) (err error) {
	w, node := r.w, r.n/r.w.PerNode
	ctx, r.ended = context.WithCancel(ctx)
	log := slog.New(slog.DiscardHandler)
	files := &countingFS{FS: vfs.OS{}, dir: w.global(), m: &r.m, removed: &w.removed}
	levels := []string{storage.LevelLocal, storage.LevelGlobal}
	r.store, err = storage.Open(vfs.With(ctx, files), storage.Options{Job: "scale", Rank: r.n, Size: w.Ranks,
		Node: w.names[r.n], Nodes: w.names, Run: run, Collective: true, Overview: told, Logger: log,
		Levels: []storage.LevelConfig{
			{Name: levels[0], Dir: w.local(node)}, {Name: levels[1], Dir: w.global()}}})
	if err != nil {
		return err
	}
	if _, err := r.store.Highest(ctx); err != nil {
		return err
	}
	r.state = arrays.New(0, 1, nil, log)
	if err := r.state.Add("data", &r.data); err != nil {
		return err
	}
	ops := persist.NewOperations(10*time.Minute, r.store.CopiedTo)
	r.way = persist.New(ctx, persist.Options{Store: r.store, Levels: levels, Rank: r.n, Node: w.members(node),
		State: r.state.Protected, Operations: ops, End: &persist.End{}, Log: log,
		Writers:   map[string][]int{storage.LevelLocal: w.firsts()},
		Meet:      func(m cut.Meeting) ([]cut.Blob, error) { return w.hall.meet(r.n, m) },
		Go:        r.work.Go,
		CopyTime:  func(storage.Epoch, string, string) time.Duration { return 0 },
		KillTime:  func(context.Context, time.Duration) time.Time { return time.Time{} },
		Begin:     func(persist.Step) func(int64, int64, error) { return func(int64, int64, error) {} },
		Freed:     func(storage.Epoch, error) {},
		Committed: func(storage.Epoch, string, time.Duration, time.Duration) {},
		Skipped:   func(storage.Epoch, string, storage.Epoch) {},
		Failed:    func(storage.Epoch, error) {},
		Phase:     func(string) {}})
	return nil
}

// end ends the run.
func (w *world) end() error {
	err := w.each(func(r *rank) error {
		if r.store == nil {
			return nil
		}
		r.work.Wait()
		r.ended()
		return errors.Join(r.store.Close(), r.state.Close())
	})
	w.ranks = nil
	return err
}

// take returns what all ranks together have asked for since the last call.
func (w *world) take() (c Count) {
	for _, r := range w.ranks {
		c.add(w.standsFor(r.n), r.m.take())
	}
	c.add(1, w.removed.take())
	return c
}

// standsFor returns how many ranks a real one counts for: those at its place on all nodes but the first.
func (w *world) standsFor(rank int) float64 {
	if rank < w.PerNode {
		return 1
	}
	have := func(size int) int { // ranks at that place on further nodes
		return (size - rank%w.PerNode - 1) / w.PerNode
	}
	return float64(have(w.Ranks)) / float64(have(w.real))
}

// epoch takes one and waits until it is at global.
func (w *world) epoch(e storage.Epoch) error {
	err := w.each(func(r *rank) error {
		for i := 0; i < len(r.data); i += 512 {
			r.data[i] = byte(e)
			r.data[i+1] = byte(r.n)
		}
		s, err := r.state.Capture(context.Background(), func() ([]byte, error) { return nil, nil })
		all := make(chan error, 1)
		all <- nil
		x := r.way.Persist(persist.Captured{Epoch: e, Snapshot: s, Err: err, All: all})
		<-x.Over
		return x.Err
	})
	if err != nil {
		return err
	}
	for node := (w.real + w.PerNode - 1) / w.PerNode; node < w.nodes; node++ {
		pack := filepath.Join(w.global(), epochDir(e), fmt.Sprintf("pack-%06d.shards", node*w.PerNode))
		if err := os.WriteFile(pack, nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// restart does what coordinated.Restore does.
func (w *world) restart(ctx context.Context) error {
	return w.each(func(r *rank) error {
		if _, err := r.store.Holdings(ctx); err != nil {
			return err
		}
		list, unreadable, err := r.store.Candidates(ctx)
		blobs, gerr := w.hall.meet(r.n, cut.Meeting{Stage: "candidates",
			Data: vote.EncodeCandidates(list, unreadable, err)})
		if gerr != nil {
			return errors.Join(err, gerr)
		}
		per, _, err := vote.DecodeCandidates("look for checkpoints", blobs, err)
		if err != nil {
			return err
		}
		both := vote.Common(per)
		if len(both) == 0 {
			return fmt.Errorf("no epoch is found after the restart: %v", per)
		}
		return r.restore(ctx, both[0])
	})
}

func (r *rank) restore(ctx context.Context, k vote.Candidate) error {
	r.store.Choose(k.Epoch, k.ID)
	durable := func() error { return nil }
	var err error
	if r.n == 0 {
		if durable, err = r.store.NoteRestore(ctx, k.Epoch); err != nil {
			return err
		}
	}
	sh, err := r.store.Fetch(ctx, k.Epoch)
	if err != nil {
		return err
	}
	if err := errors.Join(sh.Verify(ctx), durable(), sh.Close()); err != nil {
		return err
	}
	r.way.Repair(k.Epoch)
	<-r.way.Over()
	if r.n == 0 {
		return r.store.NoteSurvival(ctx)
	}
	return nil
}
