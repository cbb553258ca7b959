package request

import (
	"errors"
	"runtime"
	"slices"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// live reports whether r still has something to report.
func (r *Request) live() bool { return r != nil && (r.state == active || r.state == complete) }

// publishMany publishes a wait for several requests.
func publishMany(op call.Op, rs []*Request, all bool) (*Activity, error) {
	if err := wakeAny(rs); err != nil {
		return nil, err
	}
	var c *Channel
	waits := 0
	for _, r := range rs {
		if r.live() {
			c = r.c
			if r.state == active {
				waits++
				break
			}
		}
	}
	if c == nil {
		return nil, nil
	}
	if waits == 0 {
		return c.Quick(op, AnySource, AnyTag)
	}
	a, err := c.Publish(op, NoPeer, NoTag, flagBusy|flagBlocked|flagMany)
	if err != nil {
		return nil, err
	}
	a.waitsFor(rs, all)
	return a, nil
}

// WaitAll is mpiwrap.WaitAll.
func WaitAll(rs ...*Request) error { return waitAll(nil, rs) }

func waitAll(dest []Status, rs []*Request) error {
	a, err := publishMany(call.WaitAll, rs, true)
	if err != nil || a == nil {
		return err
	}
	defer a.done()
	if err := driveAll(rs); err != nil {
		return err
	}
	return consumeAll(dest, rs)
}

// WaitAllStatus is mpiwrap.WaitAllStatus.
func WaitAllStatus(dest []Status, rs ...*Request) ([]Status, error) {
	dest = emptyStatuses(dest, len(rs))
	return dest, waitAll(dest, rs)
}

func emptyStatuses(dest []Status, n int) []Status {
	if cap(dest) < n {
		dest = make([]Status, n)
	}
	dest = dest[:n]
	for i := range dest {
		dest[i] = emptyStatus
	}
	return dest
}

// consumeAll consumes all requests, and notes their statuses unless dest is nil.
func consumeAll(dest []Status, rs []*Request) error {
	var errs []error
	for i, r := range rs {
		if !r.live() {
			continue
		}
		st, err := r.consume()
		if dest != nil {
			dest[i] = st
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// batch is how many requests one driver call waits for.
const batch = 128

// waitBatch is room for one such call. A rank has one and uses it for all; nested or simultaneous waits make another.
type waitBatch struct {
	busy bool
	hs   [batch]driver.Handle
	who  [batch]*Request
	st   [batch]driver.Status
	errs [batch]error
}

func (s *Rank) takeBatch() *waitBatch {
	s.Lock()
	defer s.Unlock()
	if s.batch.busy {
		return &waitBatch{}
	}
	s.batch.busy = true
	return &s.batch
}

func (s *Rank) giveBatch(b *waitBatch) {
	s.Lock()
	clear(b.who[:])
	b.busy = false
	s.Unlock()
}

// driveAll blocks until no request is active.
func driveAll(rs []*Request) error {
	i := slices.IndexFunc(rs, func(r *Request) bool { return r.live() && r.state == active })
	if i < 0 {
		return nil
	}
	s := rs[i].c.rank
	b := s.takeBatch()
	defer s.giveBatch(b)
	n := 0
	for _, r := range rs[i:] {
		if !r.live() || r.state != active || r.listed {
			continue
		}
		if r.rest != nil {
			if _, err := r.rest.step(r, true); err != nil {
				return err
			}
			continue
		}
		b.hs[n], b.who[n], r.listed = r.h, r, true
		if n++; n == batch {
			if err := b.drive(n); err != nil {
				return err
			}
			n = 0
		}
	}
	return b.drive(n)
}

func (b *waitBatch) drive(n int) error {
	if n == 0 {
		return nil
	}
	c := b.who[0].c
	failed, err := c.rank.Driver.WaitAll(b.hs[:n], b.st[:n], b.errs[:n])
	unlist(b.who[:n])
	if err != nil {
		return c.Wrap("WaitAll", NoPeer, NoTag, err)
	}
	for i, r := range b.who[:n] {
		r.completed(b.st[i], b.errs[i], waiting)
	}
	if failed > 0 {
		clear(b.errs[:n])
	}
	return nil
}

func unlist(rs []*Request) {
	for _, r := range rs {
		r.listed = false
	}
}

// WaitAny is mpiwrap.WaitAny.
func WaitAny(rs ...*Request) (int, Status, error) {
	a, err := publishMany(call.WaitAny, rs, false)
	if err != nil || a == nil {
		return Undefined, emptyStatus, err
	}
	defer a.done()
	return waitAny(rs)
}

func waitAny(rs []*Request) (int, Status, error) {
	if i := slices.IndexFunc(rs, func(r *Request) bool { return r != nil && r.state == complete }); i >= 0 {
		st, err := rs[i].consume()
		return i, st, err
	}
	if slices.ContainsFunc(rs, func(r *Request) bool { return r.live() && r.rest != nil }) {
		// MPI cannot wait for these in one call.
		for {
			if i, st, ok, err := testAny(rs); ok || err != nil {
				return i, st, err
			}
			runtime.Gosched()
		}
	}
	s := rs[slices.IndexFunc(rs, (*Request).live)].c.rank
	b := s.takeBatch()
	defer s.giveBatch(b)
	hs, who := b.hs[:0], b.who[:0]
	for _, r := range rs {
		if r.live() && !r.listed { // Open MPI reports phantoms for one named twice
			hs, who = append(hs, r.h), append(who, r)
			r.listed = true
		}
	}
	n, st, err := s.Driver.WaitAny(hs)
	unlist(who)
	if n < 0 || n >= len(who) {
		return Undefined, Status{}, who[0].c.Wrap("WaitAny", NoPeer, NoTag, err)
	}
	r := who[n]
	r.completed(st, err, waiting)
	out, err := r.consume()
	return slices.Index(rs, r), out, err
}

// testAny consumes the first request that is complete now.
func testAny(rs []*Request) (int, Status, bool, error) {
	for i, r := range rs {
		if !r.live() {
			continue
		}
		if ok, err := r.progress(testing); err != nil {
			return Undefined, Status{}, false, err
		} else if ok {
			st, err := r.consume()
			return i, st, true, err
		}
	}
	return Undefined, Status{}, false, nil
}

// WaitSome is mpiwrap.WaitSome.
func WaitSome(rs ...*Request) ([]int, []Status, error) {
	a, err := publishMany(call.WaitAny, rs, false)
	if err != nil || a == nil {
		return nil, nil, err
	}
	defer a.done()
	i, st, err := waitAny(rs)
	if i == Undefined {
		return nil, nil, err
	}
	more, sts, err2 := collect(rs)
	return append([]int{i}, more...), append([]Status{st}, sts...), errors.Join(err, err2)
}

// collect consumes every request that is complete now.
func collect(rs []*Request) ([]int, []Status, error) {
	var index []int
	var sts []Status
	var errs []error
	for i, r := range rs {
		if !r.live() {
			continue
		}
		if ok, err := r.progress(testing); err != nil || !ok {
			errs = append(errs, err)
			continue
		}
		st, err := r.consume()
		index, sts, errs = append(index, i), append(sts, st), append(errs, err)
	}
	return index, sts, errors.Join(errs...)
}

// quickMany guards the Test forms; nil when no request has anything to report.
func quickMany(rs []*Request) (*Activity, error) {
	if err := wakeAny(rs); err != nil {
		return nil, err
	}
	for _, r := range rs {
		if r.live() {
			return r.c.Quick(call.Test, AnySource, AnyTag)
		}
	}
	return nil, nil
}

// TestAll is mpiwrap.TestAll.
func TestAll(rs ...*Request) (bool, error) {
	a, err := quickMany(rs)
	if err != nil || a == nil {
		return err == nil, err
	}
	defer a.Leave()
	all := true
	for _, r := range rs {
		if r.live() {
			ok, err := r.progress(testing)
			if err != nil {
				return false, err
			}
			all = all && ok
		}
	}
	if !all {
		a.polledMany(rs)
		return false, nil
	}
	return true, consumeAll(nil, rs)
}

// TestAny is mpiwrap.TestAny.
func TestAny(rs ...*Request) (int, Status, bool, error) {
	a, err := quickMany(rs)
	if err != nil || a == nil {
		return Undefined, emptyStatus, err == nil, err
	}
	defer a.Leave()
	i, st, ok, err := testAny(rs)
	if !ok && err == nil {
		a.polledMany(rs)
	}
	return i, st, ok, err
}

// TestSome is mpiwrap.TestSome.
func TestSome(rs ...*Request) ([]int, []Status, error) {
	a, err := quickMany(rs)
	if err != nil || a == nil {
		return nil, nil, err
	}
	defer a.Leave()
	index, sts, err := collect(rs)
	if len(index) == 0 {
		a.polledMany(rs)
	}
	return index, sts, err
}
