package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Source has the shards of an epoch.
type Source interface {
	// Own is this rank's shard; nil where the epoch is of another number of ranks.
	Own() *storage.Shard
	// Size is the number of ranks of the epoch.
	Size() int
	// Entries says what all ranks' shards have.
	Entries(ctx context.Context) ([]storage.ShardInfo, error)
	// With lends the shard of a rank.
	With(ctx context.Context, rank int, read func(sh *storage.Shard) error) error
}

// arrays reads what is global: each rank what it owns now, from the shards of those that owned it.
func (a *Load) arrays(ctx context.Context) error {
	for _, g := range a.l.p.globals {
		if err := g.renew(); err != nil {
			return fmt.Errorf("restore %q: %w", g.local.Name, err)
		}
	}
	owners, size, err := a.owners(ctx)
	if err != nil {
		return err
	}
	for _, g := range a.l.p.presentGlobals() {
		if err := a.keep(ctx, g, owners); err != nil {
			return fmt.Errorf("restore %q: %w", g.local.Name, err)
		}
	}
	for _, r := range a.l.p.presentReplicas() {
		if err := a.replica(ctx, r, owners); err != nil {
			return fmt.Errorf("restore %q: %w", r.name, err)
		}
	}
	for _, s := range a.l.p.items {
		if err := a.itemsOf(ctx, s, owners, size); err != nil {
			return err
		}
	}
	return a.fillArrays(ctx, owners, func(g *global) bool { return !a.later[g] }, true)
}

// owner is a rank of the epoch, and what it has.
type owner struct {
	rank   int
	arrays map[string]*layout.Local
}

// owners lists the ranks whose shards are to be looked into: this one alone, where it has all that it wants. size is
// the number of ranks of the epoch.
func (a *Load) owners(ctx context.Context) (list []owner, size int, err error) {
	p := a.l.p
	if own := a.src.Own(); own != nil {
		mine := own.Layout()
		if err := a.compareArrays(mine); err != nil ||
			len(p.presentGlobals())+len(p.presentReplicas())+len(p.items) == 0 {
			return nil, 0, err
		}
		o := newOwner(own.Rank(), mine)
		if o.suffices(p) {
			return []owner{o}, a.src.Size(), nil
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
		list = append(list, newOwner(r, infos[r].Layout))
	}
	return list, len(infos), nil
}

func newOwner(rank int, l *storage.Layout) owner {
	o := owner{rank, map[string]*layout.Local{}}
	if l != nil {
		for i := range l.Arrays {
			o.arrays[l.Arrays[i].Name] = &l.Arrays[i]
		}
	}
	return o
}

// suffices says whether the rank has all that the program wants here.
func (o *owner) suffices(p *Protected) bool {
	return !slices.ContainsFunc(p.presentGlobals(), func(g *global) bool {
		return !layout.Equal(layout.Join(o.arrays[g.local.Name].Parts), layout.Join(g.local.Parts))
	}) && !slices.ContainsFunc(p.presentReplicas(), func(r *replica) bool {
		l := o.arrays[r.name]
		return len(l.Parts) == 0 && l.Dims[0] > 0
	}) && !slices.ContainsFunc(p.items, func(s *items) bool { return s.owner != nil })
}

// compareArrays checks that the program declares just what a rank of the epoch has.
func (a *Load) compareArrays(l *storage.Layout) error {
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
			errs = append(errs, a.l.Mismatch(name, have[name], now))
		}
	}
	for _, g := range a.l.p.presentGlobals() {
		check(g.local.Name, describe(&g.local.Array))
	}
	for _, r := range a.l.p.presentReplicas() {
		check(r.name, "replicated "+r.kind())
	}
	for _, s := range a.l.p.items {
		check(s.local.Name, describe(&s.local.Array))
	}
	for name, saved := range have {
		if !want[name] {
			errs = append(errs, a.l.Mismatch(name, saved, ""))
		}
	}
	return errors.Join(errs...)
}

// describe names an array's type for people, and tells arrays apart that differ.
func describe(a *layout.Array) string {
	if a.Kind == layout.Replicated {
		return "replicated " + a.Type
	}
	if a.Keyed() {
		return "items " + a.Type
	}
	return fmt.Sprintf("array of %s, %v", a.Type, a.Dims)
}

// keep notes what the memory of an array held before, so that a failed restore can put it back. Where there is no room
// for that, the bytes are verified now and read when all ranks know theirs to be good.
func (a *Load) keep(ctx context.Context, g *global, owners []owner) error {
	if err := g.inMemory(); err != nil {
		return err
	}
	if g.away != nil {
		return a.keepAway(g, owners)
	}
	undo, err := a.before(ctx, g)
	if err != nil {
		return err
	}
	if undo != nil {
		a.undone = append(a.undone, undo)
		return nil
	}
	only := func(o *global) bool { return o == g }
	if err := a.fillArrays(ctx, owners, only, false); err != nil {
		return err
	}
	a.later[g], a.Fallible = true, true
	a.steps = append(a.steps, step{g.local.Name, func(ctx context.Context) error {
		return a.fillArrays(ctx, owners, only, true)
	}, true})
	return nil
}

// before notes what the memory of an array holds; nil: there is no room for that.
func (a *Load) before(ctx context.Context, g *global) (undo func() error, err error) {
	if g.changing != nil && g.changing.fresh {
		return func() error { return nil }, nil
	}
	if g.dev != nil {
		mark, err := a.l.keepBuffer(ctx, g)
		if mark == nil {
			return nil, err
		}
		return func() error { return mark.Undo(context.WithoutCancel(ctx)) }, err
	}
	back := a.l.backup.save(g.slice.mem())
	if back == nil {
		return nil, nil
	}
	return func() error { back(); return nil }, nil
}

// keepAway makes room in shared memory for the share of a program in another process, which copies it to its array when
// all ranks have theirs. Nothing of the program changes before. Where an earlier start has left just this share in
// memory, it is taken from there.
func (a *Load) keepAway(g *global, owners []owner) error {
	var s *staged
	var err error
	mem := []byte(nil)
	if len(owners) == 1 && a.isOwn(owners[0].rank) &&
		layout.Equal(owners[0].arrays[g.local.Name].Parts, g.local.Parts) {
		mem = a.sh.View(g.local.Section)
	}
	if mem != nil {
		s, err = g.away.stageFrom(mem)
		a.later[g] = true
		a.l.Read(int64(len(mem)))
	} else {
		s, err = g.away.stage(g.bytes())
	}
	if err == nil {
		a.last = append(a.last, s.last)
	}
	return err
}

// replica reads a value from this rank's shard, or from the first that has it.
func (a *Load) replica(ctx context.Context, r *replica, owners []owner) error {
	from := -1
	for i := range owners {
		if len(owners[i].arrays[r.name].Parts) > 0 && (from < 0 || a.isOwn(owners[i].rank)) {
			from = i
		}
	}
	if from < 0 {
		from = 0 // it is empty
	}
	l := owners[from].arrays[r.name]
	read := func(ctx context.Context, dst []byte) error {
		if len(dst) == 0 {
			return nil
		}
		return a.src.With(ctx, owners[from].rank, func(sh *storage.Shard) error {
			return sh.ReadAt(ctx, l.Section, dst, 0)
		})
	}
	verify := func(ctx context.Context) error { return read(ctx, make([]byte, l.Dims[0])) }
	a.l.Read(l.Dims[0])
	return a.region(ctx, r.namedRegion, l.Dims[0], read, verify)
}

func (a *Load) isOwn(rank int) bool { return a.src.Own() != nil && a.src.Own().Rank() == rank }

// fillArrays reads arrays shard by shard: into the program's memory, or only to verify them. Each element has to come
// from one shard.
func (a *Load) fillArrays(ctx context.Context, owners []owner, of func(g *global) bool, into bool) error {
	got := map[*global]int64{}
	for i := range owners {
		o := &owners[i]
		wanted := map[*global][]piece{}
		for _, g := range a.l.p.presentGlobals() {
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
	for _, g := range a.l.p.presentGlobals() {
		if of(g) && got[g] != g.bytes() {
			return fmt.Errorf("restore %q: the epoch has %d of the %d bytes that the rank wants: %w", g.local.Name,
				got[g], g.bytes(), storage.ErrCorrupt)
		}
	}
	return nil
}

func (a *Load) fillFrom(ctx context.Context, sh *storage.Shard, wanted map[*global][]piece, into bool) error {
	for _, g := range a.l.p.globals {
		list := wanted[g]
		if len(list) == 0 {
			continue
		}
		err := g.into(ctx, into, func(t target) error {
			return readPieces(list, t, func(dst []byte, off int64) error {
				a.l.Read(int64(len(dst)))
				return sh.ReadAt(ctx, g.local.Section, dst, off)
			})
		})
		if err != nil {
			return fmt.Errorf("restore %q: %w", g.local.Name, err)
		}
	}
	return nil
}

// piece is a run of bytes in a section, and where it goes in memory.
type piece struct{ from, to, n int64 }

// wants lists what a rank of the epoch has of that which this one wants.
func (g *global) wants(saved *layout.Local) (list []piece, err error) {
	base, size := int64(0), g.local.Elem
	for i := range saved.Parts {
		src := &saved.Parts[i]
		for k := range g.blocks {
			b := &g.blocks[k]
			if !layout.Reaches(src, &b.Part) {
				continue
			}
			err := layout.Meet(src, layout.Dense(src, base), &b.Part, b.At, func(from, to, n int64) error {
				if len(list) >= layout.MaxSpans {
					return &layout.LimitError{Runs: int64(len(list))}
				}
				list = append(list, piece{from * size, to * size, n * size})
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
		base += src.Elems()
	}
	return list, nil
}

const (
	readUnit  = 256 << 10 // bytes that are verified together: the length of a chunk
	mostRead  = 8 << 20   // bytes of small pieces that are read at once
	readAlone = 1 << 20   // from how many bytes on a run goes straight to its place
)

// readPieces has the pieces of a section read to their places. The whole units of long pieces go straight there. The
// rest is read together with what lies beside it, so no unit is read twice.
func readPieces(list []piece, t target, read func(dst []byte, off int64) error) error {
	var small []piece
	add := func(p piece, from, to int64) {
		for from < to { // groups of small pieces end at such a boundary
			n := min(to, (from/mostRead+1)*mostRead) - from
			small = append(small, piece{from, p.to + from - p.from, n})
			from += n
		}
	}
	var scratch []byte
	for _, p := range list {
		end := p.from + p.n
		lo, hi := (p.from+readUnit-1)/readUnit*readUnit, end/readUnit*readUnit
		if hi-lo < readAlone {
			add(p, p.from, end)
			continue
		}
		add(p, p.from, lo)
		add(p, hi, end)
		for at := lo; at < hi; at += mostRead {
			n := min(mostRead, hi-at)
			dst := t.direct(p.to+at-p.from, n)
			straight := dst != nil
			if !straight {
				dst = room(&scratch, n)
			}
			if err := read(dst, at); err != nil {
				return err
			}
			if straight {
				continue
			}
			if err := t.put([]piece{{at, p.to + at - p.from, n}}, dst, at); err != nil {
				return err
			}
		}
	}
	return readSmall(small, t, scratch, read)
}

// readSmall reads pieces in groups that lie near each other.
func readSmall(list []piece, t target, scratch []byte, read func(dst []byte, off int64) error) error {
	slices.SortFunc(list, func(a, b piece) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	for len(list) > 0 {
		first, end, n := list[0].from, list[0].from, 0
		limit := (first/mostRead + 1) * mostRead
		for n < len(list) && list[n].from < limit && list[n].from/readUnit <= end/readUnit+1 {
			end = max(end, list[n].from+list[n].n)
			n++
		}
		group := room(&scratch, end-first)
		if err := read(group, first); err != nil {
			return err
		}
		if err := t.put(list[:n], group, first); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// room makes the memory n bytes long.
func room(mem *[]byte, n int64) []byte {
	if int64(len(*mem)) < n {
		*mem = make([]byte, max(n, readAlone))
	}
	return (*mem)[:n]
}
