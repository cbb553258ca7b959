package mpiwrap

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/call"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"
	"github.com/holdfast-hpc/holdfast/mpiwrap/internal/request"
)

// Neighborhood is whom a rank exchanges with in neighbourhood collectives. Slot i
// of what is received comes from Sources[i], slot i of what is sent goes to
// Dests[i]; slots of ProcNull are left alone.
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
		// What goes down arrives in the slot for above.
		n.rtags = append(n.rtags, 2*d, 2*d+1)
		n.stags = append(n.stags, 2*d+1, 2*d)
	}
	return n
}

// NewNeighborhood makes one from lists of ranks of c. If a rank lists another
// several times, the slots match in order. It is local: the program must give lists
// that match on all ranks.
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
	p := parts[T]{buf: buf, counts: make([]int, n), displs: make([]int, n)}
	for i := range n {
		p.counts[i], p.displs[i] = len(buf)/n, i*(len(buf)/n)
	}
	return p
}

// same gives every slot all of buf.
func same[T Scalar](buf []T, n int) parts[T] {
	p := parts[T]{buf: buf, counts: make([]int, n), displs: make([]int, n)}
	for i := range n {
		p.counts[i] = len(buf)
	}
	return p
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
	recv, send := make([]request.Transfer, len(n.Sources)), make([]request.Transfer, len(n.Dests))
	for i, from := range n.Sources {
		recv[i] = request.Transfer{Buf: bytesOf(dest.slot(i)), Peer: from, Tag: n.rtags[i]}
	}
	for i, to := range n.Dests {
		send[i] = request.Transfer{Buf: bytesOf(src.slot(i)), Peer: to, Tag: n.stags[i]}
	}
	r, err := c.ch.Exchange(call.Neighbor, &side.ch, recv, send)
	return (*Request)(r), err
}

// NeighborAllgather sends all of src to every destination and stores what came
// from source i in the i-th of equal parts of dest, each as long as src.
func NeighborAllgather[T Scalar](n *Neighborhood, dest, src []T) error {
	return waitFor(IneighborAllgather(n, dest, src))
}

// IneighborAllgather starts a NeighborAllgather.
func IneighborAllgather[T Scalar](n *Neighborhood, dest, src []T) (*Request, error) {
	if len(dest) != len(src)*len(n.Sources) {
		return nil, n.c.badLength(call.Neighbor, "dest has %d elements, want %d from each of %d neighbours",
			len(dest), len(src), len(n.Sources))
	}
	return exchange(n, even(dest, len(n.Sources)), same(src, len(n.Dests)))
}

// NeighborAllgatherv is NeighborAllgather with counts and displs for dest.
func NeighborAllgatherv[T Scalar](n *Neighborhood, dest []T, counts, displs []int, src []T) error {
	return waitFor(IneighborAllgatherv(n, dest, counts, displs, src))
}

// IneighborAllgatherv starts a NeighborAllgatherv.
func IneighborAllgatherv[T Scalar](n *Neighborhood, dest []T, counts, displs []int, src []T) (*Request, error) {
	return exchange(n, parts[T]{dest, counts, displs}, same(src, len(n.Dests)))
}

// NeighborAlltoall sends the i-th of equal parts of src to destination i and
// stores what came from source j in the j-th of equal parts of dest.
func NeighborAlltoall[T Scalar](n *Neighborhood, dest, src []T) error {
	return waitFor(IneighborAlltoall(n, dest, src))
}

// IneighborAlltoall starts a NeighborAlltoall.
func IneighborAlltoall[T Scalar](n *Neighborhood, dest, src []T) (*Request, error) {
	in, out := len(n.Sources), len(n.Dests)
	if in > 0 && len(dest)%in != 0 || out > 0 && len(src)%out != 0 {
		return nil, n.c.badLength(call.Neighbor, "dest has %d elements for %d sources, src %d for %d destinations",
			len(dest), in, len(src), out)
	}
	return exchange(n, even(dest, in), even(src, out))
}

// NeighborAlltoallv is NeighborAlltoall with counts and displacements.
func NeighborAlltoallv[T Scalar](n *Neighborhood, dest []T, rcounts, rdispls []int, src []T, scounts,
	sdispls []int) error {
	return waitFor(IneighborAlltoallv(n, dest, rcounts, rdispls, src, scounts, sdispls))
}

// IneighborAlltoallv starts a NeighborAlltoallv.
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
