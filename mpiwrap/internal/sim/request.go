package sim

import (
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
	err := r.enter()
	defer r.w.mu.Unlock()
	if err != nil {
		return driver.Status{}, err
	}
	q, err := r.lookup(h)
	if err != nil {
		return driver.Status{}, err
	}
	if err := r.await(q.ready, q.describe); err != nil {
		return driver.Status{}, err
	}
	return r.finish(q)
}

// Test reports whether the request is complete.
func (r *rank) Test(h driver.Handle) (driver.Status, bool, error) {
	err := r.enter()
	defer r.w.mu.Unlock()
	if err != nil {
		return driver.Status{}, false, err
	}
	q, err := r.lookup(h)
	if err != nil {
		return driver.Status{}, false, err
	}
	r.poll()
	if !q.ready() || q.coll != nil && r.rng.Float64() < r.w.opt.Delay {
		return driver.Status{}, false, nil
	}
	st, err := r.finish(q)
	return st, true, err
}

// WaitAll completes every request.
func (r *rank) WaitAll(hs []driver.Handle, st []driver.Status, errs []error) (failed int, err error) {
	err = r.enter()
	defer r.w.mu.Unlock()
	if err != nil {
		return 0, err
	}
	for i, h := range hs {
		q, err := r.lookup(h)
		if err != nil {
			return 0, err
		}
		if err := r.await(q.ready, q.describe); err != nil {
			return 0, err
		}
		if st[i], errs[i] = r.finish(q); errs[i] != nil {
			failed++
		}
	}
	return failed, nil
}

// WaitAny blocks until one request is complete.
func (r *rank) WaitAny(hs []driver.Handle) (int, driver.Status, error) {
	err := r.enter()
	defer r.w.mu.Unlock()
	if err != nil {
		return -1, driver.Status{}, err
	}
	found := -1
	err = r.await(func() bool {
		found = slices.IndexFunc(hs, func(h driver.Handle) bool {
			q := r.requests[h]
			return q != nil && q.active && q.ready()
		})
		return found >= 0
	}, func() string { return fmt.Sprintf("one of %d requests", len(hs)) })
	if err != nil {
		return -1, driver.Status{}, err
	}
	st, err := r.finish(r.requests[hs[found]])
	return found, st, err
}

// Cancel withdraws a receive that is not matched.
func (r *rank) Cancel(h driver.Handle) error {
	err := r.enter()
	defer r.w.mu.Unlock()
	if err != nil {
		return err
	}
	q, err := r.lookup(h)
	if err != nil {
		return err
	}
	if i := slices.Index(r.posted, q); i >= 0 {
		r.posted = slices.Delete(r.posted, i, i+1)
		q.done, q.cancelled = true, true
		q.st = driver.Status{Source: driver.AnySource, Tag: driver.AnyTag}
	}
	return nil
}

// FreeRequest drops a request.
func (r *rank) FreeRequest(h driver.Handle) error {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	delete(r.requests, h)
	return nil
}
