package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"golang.org/x/sys/unix"
)

var errDisconnected = errors.New("the program of this rank has ended without hf_finalize: it crashed, was killed, " +
	"or left")

// disconnectedBy is errDisconnected with its cause, unless that is the end of the connection.
func disconnectedBy(err error) error {
	for _, end := range []error{errDisconnected, io.EOF, net.ErrClosed, unix.ECONNRESET, unix.EPIPE} {
		if errors.Is(err, end) {
			return errDisconnected
		}
	}
	return fmt.Errorf("%w (%w)", errDisconnected, err)
}

// rank is a session as its agent sees it: the program.
type rank struct {
	s          *session
	rank, size int
	gathers    bool   // by itself
	kind       byte   // wire.HelloGoesOn, or 0: the same for all ranks of a start
	group      *group // if it does not, after Meet
	fence      bool   // there is no membarrier
	pages      *pages
	counts     *counts // of its messages; nil without libholdfast-mpi
	signals    chan os.Signal
	armed      chan struct{} // sent to when a flag changes
	*arenas
}

var _ coordinated.Program = (*rank)(nil)

func (r *rank) Rank() int                 { return r.rank }
func (r *rank) Size() int                 { return r.size }
func (r *rank) Points() uint64            { return r.pages.count() }
func (r *rank) Signals() <-chan os.Signal { return r.signals }

// Arm stores the flag before the agent loads the points; see docs/internals/NODE.md.
func (r *rank) Arm(armed bool) {
	r.pages.set(wire.PointArmed, armed)
	if !r.fence {
		if err := membarrier(); err != nil { // it worked when the client connected
			r.s.log.Error("holdfast node: the memory barrier failed; the next checkpoint may be given up", "error", err)
		}
	}
	select {
	case r.armed <- struct{}{}:
	default: // it is full: checkpoint will look
	}
}

// Meet gathers nothing from all ranks.
func (r *rank) Meet(ctx context.Context) (missing []int, err error) {
	if r.gathers {
		all := make([]byte, r.size)
		err := r.gather(ctx, all, []byte{r.kind &^ wire.HelloGoesOn})
		if other := slices.Index(all, wire.MeetsOff); err == nil && other >= 0 {
			err = fmt.Errorf("rank %d runs without checkpoints (HOLDFAST_GLOBAL=off or HOLDFAST_LOCAL=off), and rank "+
				"%d with them; give all ranks the same settings (mpirun -x for the variables)", other, r.rank)
		}
		if err == nil && r.kind&wire.HelloGoesOn == 0 {
			err = r.unlike(all)
		}
		return nil, err
	}
	if r.s.reconnected { // a rank may compute for hours before it comes
		ctx = context.WithoutCancel(ctx)
	}
	r.group, missing, err = r.s.d.hub.meet(ctx, r)
	return missing, err
}

// unlike returns an error if the kinds of the ranks differ: some go on after their daemon has died, or have
// libholdfast-mpi, and others do not.
func (r *rank) unlike(kinds []byte) error {
	other := slices.IndexFunc(kinds, func(k byte) bool { return k != r.kind })
	switch {
	case other < 0:
		return nil
	case (kinds[other]^r.kind)&wire.HelloGoesOn != 0:
		return errMixed
	}
	with, without := other, r.rank
	if r.counts != nil {
		with, without = r.rank, other
	}
	return fmt.Errorf("rank %d runs with libholdfast-mpi, and rank %d without; give it to all ranks, or to none", with,
		without)
}

// Allgather is by way of the program, or of this daemon.
func (r *rank) Allgather(all, mine []byte) error {
	if r.gathers {
		return r.gather(context.Background(), all, mine)
	}
	c := &contribution{all: all, mine: mine, done: make(chan error, 1)}
	if _, err := r.group.join(r, c); err != nil {
		return err
	}
	select {
	case err := <-c.done:
		return err
	case <-r.group.whole.Done():
		return errBroken
	case <-r.s.disconnected:
		return errDisconnected
	}
}

func (r *rank) gather(ctx context.Context, all, mine []byte) error {
	seg, err := newSegment("exchange", len(mine)+len(all))
	if err != nil {
		return err
	}
	copy(seg.bytes, mine)
	m, err := r.s.ask(ctx, wire.TypeExchanged, wire.Exchange(uint64(len(mine))), int(seg.file.Fd()))
	if err == nil && m.Code != 0 {
		err = fmt.Errorf("the program's function for gathering bytes from all ranks failed with code %d", m.Code)
	}
	if err == nil {
		copy(all, seg.bytes[len(mine):])
	}
	return errors.Join(err, seg.close())
}

// close frees all memory of the rank. The Checkpointer is closed.
func (r *rank) close() error { return errors.Join(r.pages.close(), r.arenas.close(), r.counts.close()) }
