package mpiwrap

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
)

// Cart is a communicator whose ranks lie on a grid, row-major: the last
// coordinate varies fastest.
type Cart struct {
	*Comm
	dims     []int
	periodic []bool
}

// Cart lays the first product-of-dims ranks of c out on a grid; the others get
// nil. periodic says per dimension whether it closes on itself. It is collective
// over c.
func (c *Comm) Cart(dims []int, periodic []bool) (*Cart, error) {
	if err := c.channel().Usable("Cart"); err != nil {
		return nil, err
	}
	n := 1
	for _, d := range dims {
		if d <= 0 || n > c.size {
			n = c.size + 1
			break
		}
		n *= d
	}
	if n > c.size || len(dims) != len(periodic) {
		return nil, c.badLength(call.Create, "grid %v with periods %v does not fit %d ranks", dims, periodic, c.size)
	}
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	g, err := c.Create(ranks)
	if err != nil || g == nil {
		return nil, err
	}
	return &Cart{Comm: g, dims: append([]int(nil), dims...), periodic: append([]bool(nil), periodic...)}, nil
}

// Dims spreads n ranks over a grid of the given number of dimensions, as equal as n
// allows, longest first. Entries of fixed that are not zero are kept; nil fixes
// none. The error matches ErrLength when that is impossible.
func Dims(n int, fixed []int, dimensions int) ([]int, error) {
	out := make([]int, dimensions)
	copy(out, fixed)
	rest := n
	free := 0
	for _, d := range out {
		if d < 0 || d > 0 && rest%d != 0 {
			return nil, noFactors(n, out)
		}
		if d > 0 {
			rest /= d
		} else {
			free++
		}
	}
	if free == 0 && rest != 1 || n <= 0 {
		return nil, noFactors(n, out)
	}
	parts := factors(rest, free)
	for i, d := range out {
		if d == 0 {
			out[i], parts = parts[0], parts[1:]
		}
	}
	return out, nil
}

func noFactors(n int, dims []int) error {
	return &Error{Call: "Dims", Peer: NoPeer, Tag: NoTag, Err: ErrLength,
		Text: fmt.Sprintf("%d ranks cannot be spread over %v", n, dims)}
}

// factors splits n into k factors as equal as can be, in descending order.
func factors(n, k int) []int {
	parts := make([]int, 0, k)
	for ; k > 0; k-- {
		best := n
		for d := 1; d <= n; d++ {
			if n%d == 0 && atLeastRoot(d, n, k) {
				best = d
				break
			}
		}
		parts = append(parts, best)
		n /= best
	}
	return parts
}

// atLeastRoot says whether d^k >= n.
func atLeastRoot(d, n, k int) bool {
	p := 1
	for range k {
		if p *= d; p >= n {
			return true
		}
	}
	return p >= n
}

// Shape returns the grid's dimensions and which are periodic.
func (g *Cart) Shape() (dims []int, periodic []bool) { return g.dims, g.periodic }

// Coords returns the coordinates of a rank.
func (g *Cart) Coords(rank int) []int {
	out := make([]int, len(g.dims))
	for i := len(g.dims) - 1; i >= 0; i-- {
		out[i] = rank % g.dims[i]
		rank /= g.dims[i]
	}
	return out
}

// RankAt returns the rank at coordinates, which wrap in periodic dimensions, or
// ProcNull outside the grid.
func (g *Cart) RankAt(coords []int) int {
	rank := 0
	for i, d := range g.dims {
		x := coords[i]
		if g.periodic[i] {
			x = (x%d + d) % d
		} else if x < 0 || x >= d {
			return ProcNull
		}
		rank = rank*d + x
	}
	return rank
}

// Shift returns the ranks to receive from and to send to when everybody moves by
// steps along a dimension: the ranks steps below and steps above, or ProcNull.
func (g *Cart) Shift(dimension, steps int) (source, dest int, err error) {
	if dimension < 0 || dimension >= len(g.dims) {
		return ProcNull, ProcNull, g.badLength(call.Create, "dimension %d of %d", dimension, len(g.dims))
	}
	at := g.Coords(g.rank)
	x := at[dimension]
	at[dimension] = x - steps
	source = g.RankAt(at)
	at[dimension] = x + steps
	return source, g.RankAt(at), nil
}

// Sub splits the grid into the subgrids that keep the given dimensions; the
// caller gets its own. It is collective over g.
func (g *Cart) Sub(keep []bool) (*Cart, error) {
	if len(keep) != len(g.dims) {
		return nil, g.badLength(call.Split, "%d flags for %d dimensions", len(keep), len(g.dims))
	}
	at := g.Coords(g.rank)
	color, key := 0, 0
	sub := &Cart{}
	for i, d := range g.dims {
		if keep[i] {
			key = key*d + at[i]
			sub.dims, sub.periodic = append(sub.dims, d), append(sub.periodic, g.periodic[i])
		} else {
			color = color*d + at[i]
		}
	}
	var err error
	sub.Comm, err = g.Split(color, key)
	if err != nil {
		return nil, err
	}
	return sub, nil
}
