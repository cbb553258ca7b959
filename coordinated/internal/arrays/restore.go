package arrays

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Source has the shards of an epoch.
type Source interface {
	// Own is this rank's shard; nil where the epoch is of another number of ranks.
	Own() *storage.Shard
	// Size is the number of ranks of the epoch.
	Size() int
	// Entries returns the manifest's entries of all ranks.
	Entries(ctx context.Context) ([]storage.ShardInfo, error)
	// With lends the shard of a rank.
	With(ctx context.Context, rank int, read func(sh *storage.Shard) error) error
}

// Restoring is capture.Restoring for everything that is protected.
type Restoring struct {
	*capture.Restoring
	p      *Protected
	log    *slog.Logger
	shares map[*array]*gpustate.Mark // buffers as they were
}

// Restore begins to restore everything. The caller closes it.
func (p *Protected) Restore(c capture.Callbacks, log *slog.Logger) *Restoring {
	return &Restoring{p.Protected.Restore(c), p, log, map[*array]*gpustate.Mark{}}
}

// Close drops the previous contents, and gives the memory to captures.
func (r *Restoring) Close() {
	for g, m := range r.shares {
		if err := m.Release(); err != nil {
			r.log.Warn("holdfast: cannot release device memory that a restore used", "array", g.local.Name, "error",
				err)
		}
	}
	r.Restoring.Close()
}

// Attempt is capture.Attempt for everything that is protected: Read is its first step.
type Attempt struct {
	*capture.Attempt
	Assigned []Assignment // owners of items, which the ranks have to agree on before Apply

	r        *Restoring
	src      Source
	deferred map[*array]bool // read by Apply, or there already
}

// Attempt begins with nothing read.
func (r *Restoring) Attempt() *Attempt {
	return &Attempt{Attempt: r.Restoring.Attempt(), r: r, deferred: map[*array]bool{}}
}

// Read is the first step. An epoch of another number of ranks has no shard of this one, so it only gives arrays,
// replicated values and items.
func (a *Attempt) Read(ctx context.Context, src Source) error {
	a.src = src
	if src.Own() == nil {
		return a.arrays(ctx)
	}
	if err := a.Open(ctx, src.Own()); err != nil {
		return err
	}
	if err := a.ReadMemory(ctx); err != nil {
		return err
	}
	if err := a.arrays(ctx); err != nil {
		return err
	}
	a.Over(time.Now(), capture.PartMemory)
	return a.ReadDevices(ctx)
}

// arrays reads the state that all ranks share: each rank reads the elements that it owns now from the shards of their
// owners.
func (a *Attempt) arrays(ctx context.Context) error {
	for _, g := range a.r.p.arrays {
		if err := g.renew(); err != nil {
			return fmt.Errorf("restore %q: %w", g.local.Name, err)
		}
	}
	holders, size, err := a.holders(ctx)
	if err != nil {
		return err
	}
	for _, g := range a.r.p.presentArrays() {
		if err := a.saveContents(ctx, g, holders); err != nil {
			return fmt.Errorf("restore %q: %w", g.local.Name, err)
		}
	}
	for _, r := range a.r.p.presentReplicas() {
		if err := a.replica(ctx, r, holders); err != nil {
			return fmt.Errorf("restore %q: %w", r.Name, err)
		}
	}
	for _, s := range a.r.p.items {
		if err := a.itemsOf(ctx, s, holders, size); err != nil {
			return err
		}
	}
	return a.fillArrays(ctx, holders, func(g *array) bool { return !a.deferred[g] }, true)
}

// holder is a rank of the epoch, with its layout.
type holder struct {
	rank   int
	arrays map[string]*layout.Local
}

// holders lists the ranks whose shards are read: only this one, if it has all that it wants. size is the number of
// ranks of the epoch.
func (a *Attempt) holders(ctx context.Context) (list []holder, size int, err error) {
	p := a.r.p
	if own := a.src.Own(); own != nil {
		mine := own.Layout()
		if err := a.compareArrays(mine); err != nil ||
			len(p.presentArrays())+len(p.presentReplicas())+len(p.items) == 0 {
			return nil, 0, err
		}
		o := newHolder(own.Rank(), mine)
		if o.suffices(p) {
			return []holder{o}, a.src.Size(), nil
		}
	}
	infos, err := a.src.Entries(ctx)
	if err != nil {
		return nil, 0, err
	}
	for r := range infos {
		if err := a.compareArrays(infos[r].Layout); err != nil {
			return nil, 0, fmt.Errorf("rank %d of the epoch: %w", r, err)
		}
		list = append(list, newHolder(r, infos[r].Layout))
	}
	return list, len(infos), nil
}

func newHolder(rank int, l *storage.Layout) holder {
	o := holder{rank, map[string]*layout.Local{}}
	if l != nil {
		for i := range l.Arrays {
			o.arrays[l.Arrays[i].Name] = &l.Arrays[i]
		}
	}
	return o
}

// suffices reports whether the rank has all that the program wants here.
func (o *holder) suffices(p *Protected) bool {
	return !slices.ContainsFunc(p.presentArrays(), func(g *array) bool {
		return !layout.Equal(layout.Join(o.arrays[g.local.Name].Parts), layout.Join(g.local.Parts))
	}) && !slices.ContainsFunc(p.presentReplicas(), func(r *replica) bool {
		l := o.arrays[r.Name]
		return len(l.Parts) == 0 && l.Dims[0] > 0
	}) && !slices.ContainsFunc(p.items, func(s *items) bool { return s.owner != nil })
}

// compareArrays checks that the program declares exactly the arrays of a rank of the epoch.
func (a *Attempt) compareArrays(l *storage.Layout) error {
	have := map[string]string{}
	if l != nil {
		for i := range l.Arrays {
			have[l.Arrays[i].Name] = describe(&l.Arrays[i].Array)
		}
	}
	var errs []error
	want := map[string]bool{}
	check := func(name, now string) {
		want[name] = true
		if have[name] != now {
			errs = append(errs, a.Mismatch(name, have[name], now))
		}
	}
	for _, g := range a.r.p.presentArrays() {
		check(g.local.Name, describe(&g.local.Array))
	}
	for _, r := range a.r.p.presentReplicas() {
		check(r.Name, "replicated "+r.Kind())
	}
	for _, s := range a.r.p.items {
		check(s.local.Name, describe(&s.local.Array))
	}
	for name, saved := range have {
		if !want[name] {
			errs = append(errs, a.Mismatch(name, saved, ""))
		}
	}
	return errors.Join(errs...)
}

// describe names an array's type for people; different arrays have different texts.
func describe(a *layout.Array) string {
	if a.Kind == layout.Replicated {
		return "replicated " + a.Type
	}
	if a.Keyed() {
		return "items " + a.Type
	}
	return fmt.Sprintf("array of %s, %v", a.Type, a.Dims)
}

// saveContents saves the previous contents of an array's memory, so that a failed restore can put them back. Without
// room the bytes are verified now, and read when all ranks know theirs to be good.
func (a *Attempt) saveContents(ctx context.Context, g *array, holders []holder) error {
	if err := g.inMemory(); err != nil {
		return err
	}
	if g.foreign != nil {
		return a.saveForeign(g, holders)
	}
	undo, err := a.before(ctx, g)
	if err != nil {
		return err
	}
	if undo != nil {
		a.OnUndo(undo)
		return nil
	}
	only := func(o *array) bool { return o == g }
	if err := a.fillArrays(ctx, holders, only, false); err != nil {
		return err
	}
	a.deferred[g] = true
	a.ReadLater(g.local.Name, func(ctx context.Context) error { return a.fillArrays(ctx, holders, only, true) })
	return nil
}

// before saves the contents of an array's memory; nil without room.
func (a *Attempt) before(ctx context.Context, g *array) (undo func() error, err error) {
	if g.changing != nil && g.changing.fresh {
		return func() error { return nil }, nil
	}
	if g.dev != nil {
		mark, err := a.r.saveBuffer(ctx, g)
		if mark == nil {
			return nil, err
		}
		return func() error { return mark.Undo(context.WithoutCancel(ctx)) }, err
	}
	back := a.Keep(g.slice.Mem())
	if back == nil {
		return nil, nil
	}
	return func() error { back(); return nil }, nil
}

// saveForeign makes room in shared memory for the share of a program in another process, which copies it to its array
// when all ranks have theirs. Nothing of the program changes before. If an earlier start has left exactly this share in
// memory, it is taken from there.
func (a *Attempt) saveForeign(g *array, holders []holder) error {
	if len(holders) == 1 && a.isOwn(holders[0].rank) &&
		layout.Equal(holders[0].arrays[g.local.Name].Parts, g.local.Parts) {
		if mem := a.src.Own().View(g.local.Section); mem != nil {
			a.deferred[g] = true
			return a.PutForeign(g.foreign, mem)
		}
	}
	return a.MakeRoom(g.foreign, g.bytes())
}

// replica reads a value from this rank's shard, or from the first that has it.
func (a *Attempt) replica(ctx context.Context, r *replica, holders []holder) error {
	from := -1
	for i := range holders {
		if len(holders[i].arrays[r.Name].Parts) > 0 && (from < 0 || a.isOwn(holders[i].rank)) {
			from = i
		}
	}
	if from < 0 {
		from = 0 // it is empty
	}
	l := holders[from].arrays[r.Name]
	read := func(ctx context.Context, dst []byte) error {
		if len(dst) == 0 {
			return nil
		}
		return a.src.With(ctx, holders[from].rank, func(sh *storage.Shard) error {
			return sh.ReadAt(ctx, l.Section, dst, 0)
		})
	}
	verify := func(ctx context.Context) error { return read(ctx, make([]byte, l.Dims[0])) }
	return a.ReadRegion(ctx, r.Named, l.Dims[0], read, verify)
}

func (a *Attempt) isOwn(rank int) bool { return a.src.Own() != nil && a.src.Own().Rank() == rank }

// fillArrays reads arrays shard by shard: into the program's memory, or only to verify them. Each element has to come
// from one shard.
func (a *Attempt) fillArrays(ctx context.Context, holders []holder, of func(g *array) bool, into bool) error {
	got := map[*array]int64{}
	for i := range holders {
		o := &holders[i]
		wanted := map[*array][]piece{}
		for _, g := range a.r.p.presentArrays() {
			if !of(g) {
				continue
			}
			list, err := g.wants(o.arrays[g.local.Name])
			if err != nil {
				return fmt.Errorf("restore %q: %w", g.local.Name, err)
			}
			for k := range list {
				got[g] += list[k].n
			}
			if len(list) > 0 {
				wanted[g] = list
			}
		}
		if len(wanted) == 0 {
			continue
		}
		if err := a.src.With(ctx, o.rank, func(sh *storage.Shard) error {
			return a.fillFrom(ctx, sh, wanted, into)
		}); err != nil {
			return err
		}
	}
	for _, g := range a.r.p.presentArrays() {
		if of(g) && got[g] != g.bytes() {
			return fmt.Errorf("restore %q: the epoch has %d of the %d bytes that the rank wants: %w", g.local.Name,
				got[g], g.bytes(), storage.ErrCorrupt)
		}
	}
	return nil
}

func (a *Attempt) fillFrom(ctx context.Context, sh *storage.Shard, wanted map[*array][]piece, into bool) error {
	for _, g := range a.r.p.arrays {
		list := wanted[g]
		if len(list) == 0 {
			continue
		}
		err := g.into(ctx, into, func(t target) error {
			return readPieces(list, t, func(dst []byte, off int64) error {
				return sh.ReadAt(ctx, g.local.Section, dst, off)
			})
		})
		if err != nil {
			return fmt.Errorf("restore %q: %w", g.local.Name, err)
		}
	}
	return nil
}
