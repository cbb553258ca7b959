package mpiwrap

import "errors"

// waitParts completes a request that is made of several transfers.
func (r *Request) waitParts() (Status, error) {
	if err := driveAll(r.parts); err != nil {
		return Status{}, err
	}
	r.joinParts()
	return r.consume()
}

// progressParts tests every transfer.
func (r *Request) progressParts() (bool, error) {
	for _, q := range r.parts {
		if q.state != active {
			continue
		}
		if ok, err := q.progress(); err != nil || !ok {
			return false, err
		}
	}
	r.joinParts()
	return true, nil
}

// joinParts ends the request when all its transfers are complete.
func (r *Request) joinParts() {
	var errs []error
	for _, q := range r.parts {
		_, err := q.consume()
		errs = append(errs, err)
	}
	r.err, r.state = errors.Join(errs...), complete
	r.parts = nil
}
