package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// shape is one kind of program.
type shape struct {
	body        func(*run, context.Context) error
	setup       func(*run) error // makes and protects what it needs besides, before Restore
	closesFirst bool             // a rank may be done long before the others, and calls Close then
}

var shapes = map[string]shape{
	"stencil":   {body: (*run).stencil},
	"apart":     {body: (*run).apart},
	"broadcast": {body: (*run).broadcast},
	"grid":      {body: (*run).grid},
	"large":     {body: (*run).large},
	"tickets":   {body: (*run).tickets, setup: (*run).makeCounter},
	"polls":     {body: (*run).polls},
	"groups":    {body: (*run).groups, setup: (*run).makeEarly},
	"leaves":    {body: (*run).leaves, closesFirst: true},
	"mail":      {body: (*run).mail, setup: (*run).makePost},
	"stuck":     {body: (*run).stuck},
}

func shapeNames() string { return strings.Join(slices.Sorted(maps.Keys(shapes)), ", ") }

// stencil smooths a ring of values: halos by Isend and Irecv, a reduction every
// fifth step.
func (r *run) stencil(ctx context.Context) error {
	n, me := r.world.Size(), r.world.Rank()
	left, right := (me+n-1)%n, (me+1)%n
	for ; r.step < r.steps; r.step++ {
		if err := r.point(ctx); err != nil {
			return err
		}
		var fromLeft, fromRight [1]float64
		toLeft, toRight := []float64{r.field[0]}, []float64{r.field[r.size-1]}
		var reqs []*mpiwrap.Request
		for _, p := range []struct {
			post func() (*mpiwrap.Request, error)
		}{
			{func() (*mpiwrap.Request, error) { return mpiwrap.Irecv(r.world, fromLeft[:], left, 1) }},
			{func() (*mpiwrap.Request, error) { return mpiwrap.Irecv(r.world, fromRight[:], right, 2) }},
			{func() (*mpiwrap.Request, error) { return mpiwrap.Isend(r.world, toRight, right, 1) }},
			{func() (*mpiwrap.Request, error) { return mpiwrap.Isend(r.world, toLeft, left, 2) }},
		} {
			q, err := p.post()
			if err != nil {
				return err
			}
			reqs = append(reqs, q)
		}
		r.compute()
		if err := mpiwrap.WaitAll(reqs...); err != nil {
			return err
		}
		r.smooth(fromLeft[0], fromRight[0])
		if r.step%5 == 0 {
			if err := r.reduce(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) smooth(left, right float64) {
	prev := left
	for i := range r.field {
		next := right
		if i+1 < len(r.field) {
			next = r.field[i+1]
		}
		here := r.field[i]
		r.field[i] = 0.25*prev + 0.5*here + 0.25*next + 1e-3*float64((i+r.step)%7-3)
		prev = here
	}
}

func (r *run) reduce() error {
	total, mine := []float64{0}, []float64{0}
	for _, x := range r.field {
		mine[0] = math.Max(mine[0], math.Abs(x))
	}
	if err := mpiwrap.Allreduce(r.world, total, mine, mpiwrap.Max); err != nil {
		return err
	}
	r.sum = append(r.sum, total[0])
	return nil
}

// apart sends without waiting: every rank feeds its right neighbour, and the
// last one feeds no rank, so that ranks are iterations apart and messages are
// in flight at almost every moment. An acknowledgement every 16 steps bounds it.
func (r *run) apart(ctx context.Context) error {
	n, me := r.world.Size(), r.world.Rank()
	for ; r.step < r.steps; r.step++ {
		if err := r.point(ctx); err != nil {
			return err
		}
		if me > 0 {
			var in [1]float64
			if _, err := mpiwrap.Recv(r.world, in[:], me-1, r.step%7); err != nil {
				return err
			}
			r.field[r.step%r.size] += in[0]
		}
		r.compute()
		if me < n-1 {
			if err := mpiwrap.Send(r.world, []float64{r.field[r.step%r.size] * 0.5}, me+1, r.step%7); err != nil {
				return err
			}
		}
		if r.step%16 == 15 {
			if err := r.acknowledge(me, n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) acknowledge(me, n int) error {
	if me < n-1 {
		var in [1]int64
		if _, err := mpiwrap.Recv(r.world, in[:], me+1, 99); err != nil {
			return err
		}
		if in[0] != int64(r.step) {
			return fmt.Errorf("rank %d step %d: acknowledgement of step %d", me, r.step, in[0])
		}
	}
	if me > 0 {
		return mpiwrap.Send(r.world, []int64{int64(r.step)}, me-1, 99)
	}
	return nil
}

// broadcast lets the root run ahead: the ranks wait for each other only every
// eighth step.
func (r *run) broadcast(ctx context.Context) error {
	for ; r.step < r.steps; r.step++ {
		if err := r.point(ctx); err != nil {
			return err
		}
		x := []float64{r.field[r.step%r.size]}
		if err := mpiwrap.Bcast(r.world, x, 0); err != nil {
			return err
		}
		r.compute()
		r.field[(r.step+1)%r.size] += x[0] * 0.25
		if r.step%8 == 7 {
			if err := r.reduce(); err != nil {
				return err
			}
		}
	}
	return nil
}

// grid uses row and column communicators, a ring of Sendrecv and unequal Points.
func (r *run) grid(ctx context.Context) error {
	n, me := r.world.Size(), r.world.Rank()
	row, err := r.world.Split(me/2, me)
	if err != nil {
		return err
	}
	col, err := r.world.Split(me%2, me)
	if err != nil {
		return err
	}
	for ; r.step < r.steps; r.step++ {
		if err := r.point(ctx); err != nil {
			return err
		}
		x := []float64{r.field[r.step%r.size]}
		if err := mpiwrap.Bcast(row, x, 0); err != nil {
			return err
		}
		r.compute()
		total := []float64{0}
		if err := mpiwrap.Allreduce(col, total, x, mpiwrap.Sum); err != nil {
			return err
		}
		in := []float64{0}
		if _, err := mpiwrap.Sendrecv(r.world, []float64{total[0] * 0.1}, (me+1)%n, 3, in, (me+n-1)%n, 3); err != nil {
			return err
		}
		r.field[r.step%r.size] += in[0] * 1e-3
	}
	return nil
}

// large passes messages that no MPI sends eagerly round a ring.
func (r *run) large(ctx context.Context) error {
	n, me := r.world.Size(), r.world.Rank()
	out, in := make([]float64, 1<<16), make([]float64, 1<<16)
	for ; r.step < r.steps; r.step++ {
		if err := r.point(ctx); err != nil {
			return err
		}
		for i := range out {
			out[i] = r.field[i%r.size] + float64(i)
		}
		req, err := mpiwrap.Isend(r.world, out, (me+1)%n, 5)
		if err != nil {
			return err
		}
		r.compute()
		if _, err := mpiwrap.Recv(r.world, in, (me+n-1)%n, 5); err != nil {
			return err
		}
		if _, err := req.Wait(); err != nil {
			return err
		}
		for i := range r.field {
			r.field[i] = 0.5*r.field[i] + 1e-6*in[(i*37)%len(in)]
		}
	}
	return nil
}

// stuck never lets its last rank reach a Point again: it waits for a message
// that no rank sends. It shows the report about such a rank.
func (r *run) stuck(ctx context.Context) error {
	n, me := r.world.Size(), r.world.Rank()
	if me == n-1 {
		_, err := mpiwrap.Recv(r.world, r.field, 0, 1234)
		return err
	}
	for {
		if err := r.point(ctx); err != nil {
			return err
		}
		r.compute()
	}
}
