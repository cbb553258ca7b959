package mpiwrap

import (
	"fmt"
	"math"
	"slices"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/request"
)

// Cart is a communicator whose ranks lie on a grid, row-major: the last
// coordinate varies fastest.
type Cart struct {
	*Comm
	dims     []int
	periodic []bool
}

// Cart lays the first product-of-dims ranks of c out on a grid; the others get nil. periodic says per dimension whether
// it closes on itself. It is collective over c. A grid of more ranks than c has is an error that matches ErrLength.
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
			if n%d == 0 && math.Pow(float64(d), float64(k)) > float64(n)-0.5 { // at least the root
				best = d
				break
			}
		}
		parts = append(parts, best)
		n /= best
	}
	return parts
}

// Shape returns the grid's dimensions and which are periodic. The slices are shared and must not be modified.
func (g *Cart) Shape() (dims []int, periodic []bool) { return g.dims, g.periodic }

// Coords returns the coordinates of a rank, one for each dimension, from 0. Local.
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

// Shift returns the ranks to receive from and to send to when all ranks move by steps along a dimension: the ranks
// steps below and steps above, or ProcNull.
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

// Neighborhood lists the ranks with which a rank exchanges data in neighbourhood collectives. Slot i of received data
// comes from Sources[i], slot i of sent data goes to Dests[i]. Slots of ProcNull are not written.
type Neighborhood struct {
	c              *Comm
	Sources, Dests []int
	rtags, stags   []int
}

// Neighbors returns the neighbourhood on a grid: for each dimension the rank one
// below, then the one above, both as sources and as destinations.
func (g *Cart) Neighbors() *Neighborhood {
	n := &Neighborhood{c: g.Comm}
	for d := range g.dims {
		below, above, _ := g.Shift(d, 1)
		n.Sources = append(n.Sources, below, above)
		n.Dests = append(n.Dests, below, above)
		// Data sent down arrives in the slot for above.
		n.rtags = append(n.rtags, 2*d, 2*d+1)
		n.stags = append(n.stags, 2*d+1, 2*d)
	}
	return n
}

// NewNeighborhood makes a Neighborhood from lists of ranks of c, which it copies. If a rank lists another several
// times, the slots match in order. It is local: the program must give lists that match on all ranks. A rank that is not
// of c is an error that matches ErrRank.
func (c *Comm) NewNeighborhood(sources, dests []int) (*Neighborhood, error) {
	if err := c.channel().Usable("NewNeighborhood"); err != nil {
		return nil, err
	}
	for _, r := range append(append([]int(nil), sources...), dests...) {
		if r != ProcNull && (r < 0 || r >= c.size) {
			return nil, c.ch.Fail("NewNeighborhood", r, NoTag, ErrRank, fmt.Sprintf("size is %d", c.size))
		}
	}
	return &Neighborhood{c: c, Sources: append([]int(nil), sources...), Dests: append([]int(nil), dests...),
		rtags: make([]int, len(sources)), stags: make([]int, len(dests))}, nil
}

// parts is the layout of one side of an exchange.
type parts[T Scalar] struct {
	buf            []T
	counts, displs []int
}

func (p parts[T]) slot(i int) []T { return p.buf[p.displs[i] : p.displs[i]+p.counts[i]] }

// even lays buf out in n equal slots.
func even[T Scalar](buf []T, n int) parts[T] {
	size := len(buf) / max(n, 1)
	p := parts[T]{buf: buf, counts: slices.Repeat([]int{size}, n), displs: make([]int, n)}
	for i := range n {
		p.displs[i] = i * size
	}
	return p
}

// same gives every slot all of buf.
func same[T Scalar](buf []T, n int) parts[T] {
	return parts[T]{buf, slices.Repeat([]int{len(buf)}, n), make([]int, n)}
}

func (p *parts[T]) check(c *Comm, what string, n int) error {
	if p.displs == nil {
		p.displs = make([]int, len(p.counts))
		at := 0
		for i, k := range p.counts {
			p.displs[i] = at
			at += k
		}
	}
	if len(p.counts) != n || len(p.displs) != n {
		return c.badLength(call.Neighbor, "%s: %d counts, %d displacements for %d neighbours", what, len(p.counts),
			len(p.displs), n)
	}
	for i, k := range p.counts {
		if k < 0 || p.displs[i] < 0 || p.displs[i]+k > len(p.buf) {
			return c.badLength(call.Neighbor, "%s: slot %d is elements %d to %d of %d", what, i, p.displs[i],
				p.displs[i]+k, len(p.buf))
		}
	}
	return nil
}

// exchange starts all transfers of a neighbourhood collective.
func exchange[T Scalar](n *Neighborhood, dest, src parts[T]) (*Request, error) {
	c := n.c
	if err := c.channel().Usable(call.Neighbor.String()); err != nil {
		return nil, err
	}
	if err := dest.check(c, "dest", len(n.Sources)); err != nil {
		return nil, err
	}
	if err := src.check(c, "src", len(n.Dests)); err != nil {
		return nil, err
	}
	if driver.Overlap(bytesOf(dest.buf), bytesOf(src.buf)) {
		return nil, c.ch.Fail(call.Neighbor.String(), NoPeer, NoTag, ErrOverlap, "")
	}
	a, err := c.enter(call.Neighbor)
	if err != nil {
		return nil, err
	}
	defer a.Leave()
	side, err := c.side()
	if err != nil {
		return nil, c.ch.Wrap(call.Neighbor.String(), NoPeer, NoTag, err)
	}
	var all []request.Transfer
	for i, from := range n.Sources {
		all = append(all, request.Transfer{Buf: bytesOf(dest.slot(i)), Peer: from, Tag: n.rtags[i]})
	}
	for i, to := range n.Dests {
		all = append(all, request.Transfer{Send: true, Buf: bytesOf(src.slot(i)), Peer: to, Tag: n.stags[i]})
	}
	return c.ch.Exchange(call.Neighbor, &side.ch, all)
}

// NeighborAllgather sends all of src to every destination and stores the data from source i in the i-th of equal parts
// of dest, each as long as src. Collective over the neighbourhood's communicator.
func NeighborAllgather[T Scalar](n *Neighborhood, dest, src []T) error {
	return waitFor(IneighborAllgather(n, dest, src))
}

// IneighborAllgather starts a NeighborAllgather. Collective over the neighbourhood's communicator.
func IneighborAllgather[T Scalar](n *Neighborhood, dest, src []T) (*Request, error) {
	if len(dest) != len(src)*len(n.Sources) {
		return nil, n.c.badLength(call.Neighbor, "dest has %d elements, want %d from each of %d neighbours",
			len(dest), len(src), len(n.Sources))
	}
	return exchange(n, even(dest, len(n.Sources)), same(src, len(n.Dests)))
}

// NeighborAllgatherv is NeighborAllgather with counts and displs for dest. Collective over the neighbourhood's
// communicator.
func NeighborAllgatherv[T Scalar](n *Neighborhood, dest []T, counts, displs []int, src []T) error {
	return waitFor(IneighborAllgatherv(n, dest, counts, displs, src))
}

// IneighborAllgatherv starts a NeighborAllgatherv. Collective over the neighbourhood's communicator.
func IneighborAllgatherv[T Scalar](n *Neighborhood, dest []T, counts, displs []int, src []T) (*Request, error) {
	return exchange(n, parts[T]{dest, counts, displs}, same(src, len(n.Dests)))
}

// NeighborAlltoall sends the i-th of equal parts of src to destination i and stores the part from source j in the j-th
// of equal parts of dest. Collective over the neighbourhood's communicator.
func NeighborAlltoall[T Scalar](n *Neighborhood, dest, src []T) error {
	return waitFor(IneighborAlltoall(n, dest, src))
}

// IneighborAlltoall starts a NeighborAlltoall. Collective over the neighbourhood's communicator.
func IneighborAlltoall[T Scalar](n *Neighborhood, dest, src []T) (*Request, error) {
	in, out := len(n.Sources), len(n.Dests)
	if in > 0 && len(dest)%in != 0 || out > 0 && len(src)%out != 0 {
		return nil, n.c.badLength(call.Neighbor, "dest has %d elements for %d sources, src %d for %d destinations",
			len(dest), in, len(src), out)
	}
	return exchange(n, even(dest, in), even(src, out))
}

// NeighborAlltoallv is NeighborAlltoall with counts and displacements. Collective over the neighbourhood's
// communicator.
func NeighborAlltoallv[T Scalar](n *Neighborhood, dest []T, rcounts, rdispls []int, src []T, scounts,
	sdispls []int) error {
	return waitFor(IneighborAlltoallv(n, dest, rcounts, rdispls, src, scounts, sdispls))
}

// IneighborAlltoallv starts a NeighborAlltoallv. Collective over the neighbourhood's communicator.
func IneighborAlltoallv[T Scalar](n *Neighborhood, dest []T, rcounts, rdispls []int, src []T, scounts,
	sdispls []int) (*Request, error) {
	return exchange(n, parts[T]{dest, rcounts, rdispls}, parts[T]{src, scounts, sdispls})
}

func waitFor(r *Request, err error) error {
	if err != nil {
		return err
	}
	_, err = r.Wait()
	return err
}
