// Package connect joins the ranks of a job: they meet in Open, find out their nodes and shared directories, exchange
// the job's key, and build the control plane. Until then MPI carries the messages, or a program in other processes, and
// each step succeeds or fails on all ranks alike.
package connect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/internal/handshake"
	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// connectTimeout bounds the building of the control tree.
const connectTimeout = 60 * time.Second

// Options describe the control plane.
type Options struct {
	Interface   string // address on which it listens; empty: chosen by the nodes' networks
	PeerTimeout time.Duration
	Fanout      int // children in the tree
	Logger      *slog.Logger

	Host  string               // of tests: the node that this rank plays; empty: the real one
	Plane func(rank int) Plane // of tests: the plane, in place of one over TCP
}

// Connect builds the control plane: names of nodes, the job's key and the
// addresses travel over MPI, everything later over TCP. Collective.
func Connect(ctx context.Context, priv Ranks, opt Options) (_ Plane, t *Topology, key control.Key, err error) {
	host, _ := os.Hostname()
	var found control.Network
	if opt.Plane == nil {
		found, _ = control.FindNetwork(control.Fastest) // Listen returns its error
	}
	nodes, err := Exchange(priv, cmp.Or(opt.Host, host, "unknown")+"\n"+found.Kind)
	if err != nil {
		return nil, nil, control.Key{}, err
	}
	var kinds []string
	for r, s := range nodes {
		var kind string
		nodes[r], kind, _ = strings.Cut(s, "\n")
		kinds = append(kinds, kind)
	}
	t = Place(priv.Rank(), nodes, opt.Fanout)
	if opt.Plane != nil {
		return opt.Plane(priv.Rank()), t, control.Key{}, nil
	}
	if key, err = shareKey(priv); err != nil {
		return nil, nil, key, err
	}
	iface := opt.Interface
	switch {
	case iface != "":
	case len(Distinct(nodes)) == 1:
		iface = "127.0.0.1"
	case len(Distinct(kinds)) > 1: // a node without the fast network does not reach the others there
		iface = control.Common
		if priv.Rank() == 0 {
			opt.Logger.Warn("holdfast: the nodes do not all have the same fast network, so the control plane uses the "+
				"common one; control.interface overrides that", "networks", strings.Join(Distinct(kinds), ", "))
		}
	}
	p, err := control.Listen(control.Options{Rank: priv.Rank(), Size: priv.Size(), Key: key, Interface: iface,
		PeerTimeout: opt.PeerTimeout, Logger: opt.Logger})
	if err == nil {
		defer func() {
			if err != nil {
				err = errors.Join(err, p.Close())
			}
		}()
	}
	if err = Agree(priv, "open control plane", err); err != nil {
		return nil, nil, key, err
	}
	t.Network = p.Network().String()
	if priv.Rank() == 0 {
		opt.Logger.Info("holdfast: control plane", "network", t.Network, "address", p.Addr())
	}
	addrs, err := Exchange(priv, p.Addr())
	if err != nil {
		return nil, nil, key, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err = Agree(priv, "connect control plane", p.Start(ctx, addrs, t.Neighbours()))
	return p, t, key, err
}

// Plane is the agent's face of the control plane.
type Plane interface {
	Send(to int, payload []byte) error
	Messages() <-chan control.Inbound
	Lost() <-chan control.Loss
	Flush(ctx context.Context)
	Close() error
}

// fieldBytes is the length of a string in an exchange.
const fieldBytes = 256

// Exchange gives every rank's string to all ranks, in order of rank. Longer
// ones are cut short.
func Exchange(priv Ranks, s string) ([]string, error) {
	out := make([]string, priv.Size())
	if err := exchange(priv, s[:min(len(s), fieldBytes-1)], out, fieldBytes); err != nil {
		return nil, fmt.Errorf("exchange between ranks: %w", err)
	}
	return out, nil
}

// Agree makes all ranks succeed or fail together. Collective; err is this
// rank's own outcome. Only where one fails do texts travel.
func Agree(priv Ranks, op string, err error) error {
	text := ""
	if err != nil {
		text = strings.ReplaceAll(cmp.Or(err.Error(), "unknown error"), "\n", "; ")
	}
	texts, xerr := gather(priv, units.Cut(text, mostReason(priv.Size())))
	if xerr != nil {
		return errors.Join(err, xerr)
	}
	return outcome.Failed(op, texts, err)
}

// mostReason bounds a rank's reason for a failure, as sent to all ranks: 2 KiB, and less for very many ranks.
func mostReason(size int) int { return max(fieldBytes, min(2<<10, 2<<20/size)) }

// gather gives every rank's string to all ranks: first the lengths, then the strings if any is not empty.
func gather(priv Ranks, s string) ([]string, error) {
	const width = 4
	size := priv.Size()
	lengths := make([]byte, width*size)
	err := priv.Allgather(lengths, binary.LittleEndian.AppendUint32(nil, uint32(len(s))))
	n := 0
	for r := range size {
		n = max(n, int(binary.LittleEndian.Uint32(lengths[width*r:])))
	}
	out := make([]string, size)
	if err == nil && n > 0 {
		err = exchange(priv, s, out, n)
	}
	if err != nil {
		return nil, fmt.Errorf("exchange between ranks: %w", err)
	}
	return out, nil
}

// exchange gives every rank's string of at most n bytes to all.
func exchange(priv Ranks, s string, out []string, n int) error {
	mine, all := make([]byte, n), make([]byte, n*len(out))
	copy(mine, s)
	if err := priv.Allgather(all, mine); err != nil {
		return err
	}
	for r := range out {
		out[r] = string(bytes.TrimRight(all[r*n:(r+1)*n], "\x00"))
	}
	return nil
}

func shareKey(priv Ranks) (control.Key, error) {
	key := handshake.NewKey() // rank 0's counts
	if err := Broadcast(priv, key[:]); err != nil {
		return key, fmt.Errorf("share the job's key: %w", err)
	}
	return key, nil
}

// Ranks are those of the job as Open finds them: how they reach each other before there
// is a control plane.
type Ranks interface {
	Rank() int
	Size() int
	// Meet returns when all ranks have called it, or names the missing ranks after the limit.
	Meet(limit time.Duration, log *slog.Logger) error
	// Allgather gives every rank's bytes to all, in order of rank. Collective; each gives
	// equally many.
	Allgather(all, mine []byte) error
}

// OverMPI are ranks that are here with their MPI.
type OverMPI struct{ *mpiwrap.Comm }

// Meet reports this rank to rank 0, in messages.
func (r OverMPI) Meet(limit time.Duration, log *slog.Logger) error { return meet(r.Comm, limit, log) }

// Allgather is that of MPI.
func (r OverMPI) Allgather(all, mine []byte) error { return mpiwrap.Allgather(r.Comm, all, mine) }

// Broadcast gives the bytes of rank 0 to all.
func Broadcast(r Ranks, b []byte) error {
	all := make([]byte, len(b)*r.Size())
	if err := r.Allgather(all, b); err != nil {
		return err
	}
	copy(b, all)
	return nil
}
