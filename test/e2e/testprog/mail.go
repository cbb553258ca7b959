package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// post is what mail has under way.
type post struct {
	in    [3][]float64        // of ahead and kept
	ahead [2]*mpiwrap.Request // receives, each posted a step ahead
	kept  *mpiwrap.Request    // a prepared receive
	send  *mpiwrap.Request    // what it gets
	out   []float64           // of send
}

// The tags of mail.
const (
	tagAhead = iota // and the one after it
	_
	tagKept
	tagPlain
	tagAside
	tagLate
)

// makePost makes and protects the requests that may be pending at a checkpoint.
func (r *run) makePost() error {
	n, me := r.world.Size(), r.world.Rank()
	p := &r.post
	var errs [2]error
	for i := range p.in {
		p.in[i] = make([]float64, 1)
	}
	for i := range p.ahead {
		p.ahead[i] = mpiwrap.NewRequest(r.world, p.in[i])
	}
	p.kept, errs[0] = mpiwrap.RecvInit(r.world, p.in[2], (me+n-1)%n, tagKept)
	p.out = make([]float64, 1)
	p.send, errs[1] = mpiwrap.SendInit(r.world, p.out, (me+1)%n, tagKept)
	for i, q := range []*mpiwrap.Request{p.ahead[0], p.ahead[1], p.kept} {
		errs[0] = errors.Join(errs[0], r.protect(fmt.Sprint("in ", i), &p.in[i]), r.protect(fmt.Sprint("request ", i),
			q))
	}
	return errors.Join(errs[:]...)
}

// mail has messages under way across its Points in every manner: some that are received
// steps later, receives that are protected and pending, prepared ones, one that is not
// protected, and a message that a probe has set aside.
func (r *run) mail(ctx context.Context) error {
	const lag = 3 // steps between sending and receiving
	n, me := r.world.Size(), r.world.Rank()
	left, right := (me+n-1)%n, (me+1)%n
	for ; r.step < r.steps; r.step++ {
		if (r.step+me)%2 == 0 {
			if err := r.point(ctx); err != nil {
				return err
			}
		}
		source := left
		if r.step%3 == 0 {
			source = mpiwrap.AnySource
		}
		plain := []float64{0}
		q, err := mpiwrap.Irecv(r.world, plain, source, tagPlain)
		if err != nil {
			return err
		}
		if r.phase == 0 { // not at the checkpoint: nothing is sent yet
			if err := r.sendMail(left, right); err != nil {
				return err
			}
			r.phase = 1
		}
		msg, err := r.world.Mprobe(left, tagAside)
		if err != nil {
			return err
		}
		if err := r.point(ctx); err != nil {
			return err
		}
		r.compute()
		aside := []float64{0}
		_, err = mpiwrap.Mrecv(msg, aside)
		if err := errors.Join(err, mpiwrap.WaitAll(q, r.post.ahead[r.step%2], r.post.kept)); err != nil {
			return err
		}
		r.field[0] = 0.5*r.field[0] + 0.25*plain[0] + 0.125*aside[0] + 0.0625*r.post.in[r.step%2][0] +
			0.03125*r.post.in[2][0]
		if r.step >= lag {
			if err := r.takeLate(left, r.step-lag); err != nil {
				return err
			}
		}
		r.phase = 0
	}
	for ; r.step < r.steps+lag; r.step++ {
		if err := r.point(ctx); err != nil {
			return err
		}
		if err := r.takeLate(left, r.step-lag); err != nil {
			return err
		}
	}
	return nil
}

// sendMail posts the protected receives and sends this step's messages.
func (r *run) sendMail(left, right int) error {
	p := &r.post
	post := func(step int) error {
		if step >= r.steps {
			return nil
		}
		return p.ahead[step%2].Irecv(left, tagAhead+step%2)
	}
	var err error
	if r.step == 0 {
		err = post(0)
	}
	p.out[0] = r.field[0] + 1
	if err := errors.Join(err, post(r.step+1), mpiwrap.Start(p.kept, p.send), mpiwrap.WaitAll(p.send)); err != nil {
		return err
	}
	for i, tag := range []int{tagPlain, tagAhead + r.step%2, tagAside} {
		if err := mpiwrap.Send(r.world, []float64{r.field[0] + float64(2+i)}, right, tag); err != nil {
			return err
		}
	}
	late := make([]float64, lateLength(r.step))
	late[len(late)-1] = r.field[0] + float64(r.step)
	return mpiwrap.Send(r.world, late, right, tagLate)
}

// lateLength returns how long the late message of a step is: short enough that every MPI
// buffers it.
func lateLength(step int) int { return 1 + step%5*60 }

// takeLate receives the late message of a step.
func (r *run) takeLate(left, step int) error {
	in := make([]float64, lateLength(step))
	st, err := mpiwrap.Recv(r.world, in, left, tagLate)
	if err == nil && mpiwrap.StatusCount[float64](st) != len(in) {
		return fmt.Errorf("the late message of step %d has %d bytes", step, st.Bytes)
	}
	r.field[1] = 0.5*r.field[1] + in[len(in)-1]
	return err
}
