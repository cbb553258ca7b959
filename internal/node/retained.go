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

// retained is the newest capture of a rank that ended without hf_finalize, or whose hf_finalize failed because another
// rank was lost, in sealed arenas. The rank's next start on this node restores from there. The memory is freed when
// that start takes checkpoints, whether it has restored or not.
type retained struct {
	shard    *storage.MemoryShard
	segments []*segment
}

// retainKey identifies a capture: that of a rank's points, or, with a name, of its checkpoints with that name.
type retainKey struct {
	job        string
	rank, size int
	name       string
}

func (k *retained) free(log *slog.Logger) {
	k.shard.Forget()
	var errs []error
	for _, s := range k.segments {
		errs = append(errs, s.close())
	}
	if err := errors.Join(errs...); err != nil {
		log.Warn("holdfast node: cannot free shared memory", "error", err)
	}
}

func (d *daemon) retain(by retainKey, k *retained) {
	d.mu.Lock()
	was := d.retained[by]
	d.retained[by] = k
	d.mu.Unlock()
	if was != nil {
		was.free(d.log)
	}
}

// takeRetained removes and returns all captures of a rank, by name.
func (d *daemon) takeRetained(of retainKey) map[string]*retained {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]*retained{}
	for by, k := range d.retained {
		if of.name = by.name; by == of {
			out[by.name] = k
			delete(d.retained, by)
		}
	}
	return out
}

// freeRetained frees the captures of ranks that the new start does not have on this node. All its ranks have taken
// theirs.
func (d *daemon) freeRetained() {
	d.mu.Lock()
	all := d.retained
	d.retained = map[retainKey]*retained{}
	d.mu.Unlock()
	for _, k := range all {
		k.free(d.log)
	}
}

func (s *session) retainKey(name string) retainKey {
	return retainKey{s.opt.Job, s.rank.rank, s.rank.size, name}
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

// finalize closes the Checkpointers. If another rank is lost before all have called it, the job starts again: the
// memory is retained for that, and for a rank whose client disconnects before.
func (s *session) finalize() error {
	if !s.phase.CompareAndSwap(phaseRunning, phaseFinalizing) {
		return errDisconnected
	}
	s.d.setOnAll(wire.PointEnded, (*session).finalizes)
	var errs []error
	s.each(func(ck *coordinated.Proxy, r *arenas) {
		shard, err := ck.CloseAndRetain()
		r.mu.Lock()
		r.forNext = shard
		r.mu.Unlock()
		errs = append(errs, err)
	})
	err := errors.Join(errs...)
	if err == nil || !s.isLoss(err) {
		s.phase.Store(phaseFinalized)
	}
	return err
}

// retainMemory gives the daemon, at the end of a rank that has not finalized, the captures that its next start may
// restore from. The rest is closed later.
func (s *session) retainMemory() {
	give := func(name string, r *arenas) {
		if k := r.seal(); k != nil {
			s.d.retain(s.retainKey(name), k)
		}
	}
	give("", s.rank.arenas)
	for _, n := range s.named {
		give(n.name, n.arenas)
	}
	for name, k := range s.retained {
		s.d.retain(s.retainKey(name), k)
	}
	clear(s.retained)
}

// freeUnclaimed frees the captures of names that this start has not restarted from: it takes checkpoints now.
func (s *session) freeUnclaimed() {
	for _, k := range s.retained {
		k.free(s.log)
	}
	clear(s.retained)
}

// How often and how long to try to seal memory that a driver holds. The next start of the rank waits for that.
const (
	sealEvery = 20 * time.Millisecond
	sealTime  = 10 * time.Second
)

// seal takes the captures out of the arenas for a restart of the next start, or returns nil. No client and no
// Checkpointer uses them any more.
func (r *arenas) seal() *retained {
	k := r.previous // of an earlier start, which this one has not got to restoring
	r.previous = nil
	if k == nil && r.forNext != nil {
		k = &retained{shard: r.forNext}
		var since time.Time
		retry := func() bool { // the driver of a GPU may hold page-locked pages of a process after its end
			if since.IsZero() {
				since = time.Now()
				r.s.log.Info("holdfast node: waiting for a driver that holds memory of the ended rank", "at_most",
					sealTime)
			}
			time.Sleep(sealEvery)
			return time.Since(since) < sealTime
		}
		for _, a := range r.list {
			if !k.shard.LiesIn(a.bytes) {
				continue // it is closed with the rest
			}
			if err := a.seal(retry); err != nil {
				r.s.log.Warn("holdfast node: the next start of this rank restores from a level, not from memory",
					"error", err)
				return nil
			}
			a.sealed = true
			k.segments = append(k.segments, a.segment)
		}
		_ = k.shard.Verify() // the restore verifies again, and logs an error
	}
	maps.DeleteFunc(r.list, func(_ *byte, a *arena) bool { return k != nil && a.sealed })
	return k
}
