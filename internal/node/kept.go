package node

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/holdfast-hpc/holdfast/storage"
)

// kept is what a rank has left in memory that ended without hf_finalize, or whose hf_finalize failed because another
// rank was lost: its newest capture, in
// arenas that nobody can write to any more. The rank's next start on this node restores from
// there. Its memory is freed when that has begun, whether it restores or not.
type kept struct {
	shard    *storage.MemoryShard
	segments []*segment
}

// keptBy says whose it is: of the points of a program, or, with a name, of the checkpoints with that name.
type keptBy struct {
	job        string
	rank, size int
	name       string
}

func (k *kept) free(log *slog.Logger) {
	k.shard.Forget()
	var errs []error
	for _, s := range k.segments {
		errs = append(errs, s.close())
	}
	if err := errors.Join(errs...); err != nil {
		log.Warn("holdfast node: cannot free shared memory", "error", err)
	}
}

// keep notes what a rank has left.
func (d *daemon) keep(by keptBy, k *kept) {
	d.mu.Lock()
	was := d.kept[by]
	d.kept[by] = k
	d.mu.Unlock()
	if was != nil {
		was.free(d.log)
	}
}

// take hands over all that a rank has left, by name.
func (d *daemon) take(of keptBy) map[string]*kept {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]*kept{}
	for by, k := range d.kept {
		if of.name = by.name; by == of {
			out[by.name] = k
			delete(d.kept, by)
		}
	}
	return out
}

// freeKept frees what is left of ranks that the start which all its ranks have joined does not have
// on this node.
func (d *daemon) freeKept() {
	d.mu.Lock()
	all := d.kept
	d.kept = map[keptBy]*kept{}
	d.mu.Unlock()
	for _, k := range all {
		k.free(d.log)
	}
}

// whose is what the session's memory is kept by.
func (s *session) whose(name string) keptBy {
	return keptBy{s.opt.Job, s.rank.rank, s.rank.size, name}
}

// each calls do for the Checkpointers and their arenas, that of the points last.
func (s *session) each(do func(ck *coordinated.Proxy, r *arenas)) {
	s.mu.Lock()
	named := slices.Clone(s.named)
	s.mu.Unlock()
	for _, n := range named {
		s.mu.Lock()
		ck, r := n.ck, n.arenas
		s.mu.Unlock()
		if ck != nil {
			do(ck, r)
		}
	}
	do(s.ck, s.rank.arenas)
}

// leave notes what the Checkpointers of a rank that has gone have in memory.
func (s *session) leave() {
	s.each(func(ck *coordinated.Proxy, r *arenas) {
		shard := ck.Leave()
		r.mu.Lock()
		r.leaves = shard
		r.mu.Unlock()
	})
}

// finalize closes the Checkpointers. If another rank is lost before all have called it, the job starts again: the
// memory stays for that, and for one whose client has gone first.
func (s *session) finalize() error {
	if !s.end.CompareAndSwap(endNone, endFinalize) {
		return errGone
	}
	s.d.note(wire.PointEnded, func(one *session) bool { return one.end.Load() == endFinalize })
	var errs []error
	s.each(func(ck *coordinated.Proxy, r *arenas) {
		shard, err := ck.CloseAndLeave()
		r.mu.Lock()
		r.leaves = shard
		r.mu.Unlock()
		errs = append(errs, err)
	})
	err := errors.Join(errs...)
	s.finalized = err == nil || !s.isLoss(err)
	return err
}

// handOver gives the daemon, at the end of a rank that has not finalized, what its next start may
// restore from. The rest is closed later.
func (s *session) handOver() {
	give := func(name string, r *arenas) {
		if k := r.seal(); k != nil {
			s.d.keep(s.whose(name), k)
		}
	}
	give("", s.rank.arenas)
	for _, n := range s.named {
		give(n.name, n.arenas)
	}
	for name, k := range s.kept {
		s.d.keep(s.whose(name), k)
	}
	clear(s.kept)
}

// freeUnasked frees what the start before has left of names that this one does not restart from: it has begun to
// take checkpoints.
func (s *session) freeUnasked() {
	for _, k := range s.kept {
		k.free(s.log)
	}
	clear(s.kept)
}

// How often and how long to try to seal memory that a driver holds. The next start of the rank waits for that.
const (
	sealEvery = 20 * time.Millisecond
	sealTime  = 10 * time.Second
)

// drivers waits for those that still hold pages of a process that has ended, as the one of a GPU does for which they
// were page-locked, and says whether it is worth another try.
func (r *arenas) drivers() (again func() bool) {
	var since time.Time
	return func() bool {
		if since.IsZero() {
			since = time.Now()
			r.s.log.Info("holdfast node: waiting for a driver that holds memory of the ended rank", "at_most", sealTime)
		}
		time.Sleep(sealEvery)
		return time.Since(since) < sealTime
	}
}

// seal takes out of the arenas what is to be kept; nil: nothing. No client has them, and no
// Checkpointer.
func (r *arenas) seal() *kept {
	k := r.left // of an earlier start, which this one has not got to restoring
	r.left = nil
	if k == nil && r.leaves != nil {
		k = &kept{shard: r.leaves}
		again := r.drivers()
		for _, a := range r.list {
			if !k.shard.LiesIn(a.bytes) {
				continue // it is closed with the rest
			}
			if err := a.seal(again); err != nil {
				r.s.log.Warn("holdfast node: the next start of this rank restores from a level, not from memory",
					"error", err)
				return nil
			}
			a.sealed = true
			k.segments = append(k.segments, a.segment)
		}
		_ = k.shard.Verify() // the restore asks again, and says so
	}
	maps.DeleteFunc(r.list, func(_ *byte, a *arena) bool { return k != nil && a.sealed })
	return k
}
