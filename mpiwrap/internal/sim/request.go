package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
)

// ready reports whether q is complete, finishing a collective if it can.
func (q *request) ready() bool {
	if !q.done && q.coll != nil {
		if q.done, q.err = q.coll(); q.done {
			q.owner.touch(q, q.held...)
		}
	}
	return q.done || !q.active
}

// finish hands out the result of a complete request.
func (r *rank) finish(q *request) (driver.Status, error) {
	if !q.active {
		return driver.Status{Source: driver.AnySource, Tag: driver.AnyTag}, nil
	}
	q.active = false
	if !q.persistent {
		delete(r.requests, q.h)
	}
	st := q.st
	st.Cancelled = q.cancelled
	return st, q.err
}

func (r *rank) lookup(h driver.Handle) (*request, error) {
	q := r.requests[h]
	if q == nil {
		return nil, fail(driver.ClassRequest, "no such request")
	}
	return q, nil
}

// Wait blocks until the request is complete.
func (r *rank) Wait(h driver.Handle) (driver.Status, error) {
	var st [1]driver.Status
	var errs [1]error
	_, err := r.WaitAll([]driver.Handle{h}, st[:], errs[:])
	return st[0], cmp.Or(err, errs[0])
}

// Test reports whether the request is complete.
func (r *rank) Test(h driver.Handle) (st driver.Status, done bool, err error) {
	err = r.call(func() error {
		q, err := r.lookup(h)
		if err != nil {
			return err
		}
		r.poll()
		if !q.ready() || q.coll != nil && r.rng.Float64() < r.w.opt.Delay {
			return nil
		}
		done = true
		st, err = r.finish(q)
		return err
	})
	return st, done, err
}

// WaitAll completes every request.
func (r *rank) WaitAll(hs []driver.Handle, st []driver.Status, errs []error) (failed int, err error) {
	err = r.call(func() error {
		for i, h := range hs {
			q, err := r.lookup(h)
			if err == nil {
				err = r.await(q.ready, q.describe)
			}
			if err != nil {
				return err
			}
			if st[i], errs[i] = r.finish(q); errs[i] != nil {
				failed++
			}
		}
		return nil
	})
	return failed, err
}

// WaitAny blocks until one request is complete.
func (r *rank) WaitAny(hs []driver.Handle) (found int, st driver.Status, err error) {
	found = -1
	err = r.call(func() error {
		complete := func(h driver.Handle) bool {
			q := r.requests[h]
			return q != nil && q.active && q.ready()
		}
		err := r.await(func() bool { found = slices.IndexFunc(hs, complete); return found >= 0 },
			func() string { return fmt.Sprintf("one of %d requests", len(hs)) })
		if err == nil {
			st, err = r.finish(r.requests[hs[found]])
		}
		return err
	})
	return found, st, err
}

// Cancel withdraws a receive that is not matched.
func (r *rank) Cancel(h driver.Handle) error {
	return r.call(func() error {
		q, err := r.lookup(h)
		if i := slices.Index(r.posted, q); err == nil && i >= 0 {
			r.posted = slices.Delete(r.posted, i, i+1)
			q.done, q.cancelled = true, true
			q.st = driver.Status{Source: driver.AnySource, Tag: driver.AnyTag}
		}
		return err
	})
}

// FreeRequest drops a request.
func (r *rank) FreeRequest(h driver.Handle) error {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	delete(r.requests, h)
	return nil
}
