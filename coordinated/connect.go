package coordinated

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
)

// connectTimeout bounds the building of the control tree.
const connectTimeout = 60 * time.Second

// topology is who sits where.
type topology struct {
	nodes    []string // node of each rank
	network  string   // of the control plane at this rank; "" for a simulated one
	parent   int      // rank, -1 at rank 0
	children []int    // ranks
}

// nodeOf lists the ranks on the node of a rank, ascending. The first copies to
// the global level for all of them.
func (t *topology) nodeOf(rank int) []int {
	var out []int
	for r, n := range t.nodes {
		if n == t.nodes[rank] {
			out = append(out, r)
		}
	}
	return out
}

func (t *topology) neighbours() []int {
	n := slices.Clone(t.children)
	if t.parent >= 0 {
		n = append(n, t.parent)
	}
	return n
}

// connect builds the control plane: names of nodes, the job's key and the
// addresses travel over MPI, everything later over TCP. Collective.
func connect(ctx context.Context, priv ranks, opt *Options) (_ plane, t *topology, key control.Key, err error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	if opt.host != "" {
		host = opt.host
	}
	found, err := control.FindNetwork(control.Fastest)
	if err != nil {
		found = control.Network{} // Listen says so
	}
	nodes, err := exchange(priv, host+"\n"+found.Kind)
	if err != nil {
		return nil, nil, control.Key{}, err
	}
	var kinds []string
	for r, s := range nodes {
		var kind string
		nodes[r], kind, _ = strings.Cut(s, "\n")
		kinds = append(kinds, kind)
	}
	t = place(priv.Rank(), nodes, opt.Fanout)
	if opt.plane != nil {
		return opt.plane(priv.Rank()), t, control.Key{}, nil
	}
	if key, err = shareKey(priv); err != nil {
		return nil, nil, key, err
	}
	iface := opt.Interface
	switch {
	case iface != "":
	case len(distinct(nodes)) == 1:
		iface = "127.0.0.1"
	case len(distinct(kinds)) > 1: // a node without the fast network does not reach the others there
		iface = control.Common
		if priv.Rank() == 0 {
			opt.Logger.Warn("holdfast: the nodes do not all have the same fast network, so the control plane uses the "+
				"common one; control.interface overrides that", "networks", strings.Join(distinct(kinds), ", "))
		}
	}
	p, err := control.Listen(control.Options{Rank: priv.Rank(), Size: priv.Size(), Key: key, Interface: iface,
		Heartbeat: opt.Heartbeat, PeerTimeout: opt.PeerTimeout, Logger: opt.Logger})
	if err == nil {
		defer func() {
			if err != nil {
				err = errors.Join(err, p.Close())
			}
		}()
	}
	if err = agree(priv, "open control plane", err); err != nil {
		return nil, nil, key, err
	}
	t.network = p.Network().String()
	if priv.Rank() == 0 {
		opt.Logger.Info("holdfast: control plane", "network", t.network, "address", p.Addr())
	}
	addrs, err := exchange(priv, p.Addr())
	if err != nil {
		return nil, nil, key, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err = agree(priv, "connect control plane", p.Start(ctx, addrs, t.neighbours()))
	return p, t, key, err
}

// plane is what the agent needs of the control plane.
type plane interface {
	Send(to int, payload []byte) error
	Messages() <-chan control.Inbound
	Lost() <-chan control.Loss
	Flush(ctx context.Context)
	Stats() control.Stats
	Close() error
}

// distinct are the names in a list of nodes, sorted.
func distinct(nodes []string) []string { return slices.Compact(slices.Sorted(slices.Values(nodes))) }

// place orders the ranks by node, in order of each node's first rank, and lays
// the tree over that order, so that most of its edges stay inside a node.
// Rank 0 comes first either way.
func place(rank int, nodes []string, fanout int) *topology {
	first := map[string]int{}
	for r, n := range nodes {
		if _, ok := first[n]; !ok {
			first[n] = r
		}
	}
	order := make([]int, len(nodes))
	for r := range order {
		order[r] = r
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(first[nodes[a]], first[nodes[b]]) })
	t := &topology{nodes: nodes, parent: -1}
	parent, children := cut.Place(slices.Index(order, rank), len(order), fanout)
	if parent >= 0 {
		t.parent = order[parent]
	}
	for _, c := range children {
		t.children = append(t.children, order[c])
	}
	return t
}

// fieldBytes is the length of a string in an exchange.
const fieldBytes = 256

// exchange gives every rank's string to all ranks, in order of rank. Longer
// ones are cut short.
func exchange(priv ranks, s string) ([]string, error) {
	mine := make([]byte, fieldBytes)
	copy(mine[:fieldBytes-1], s)
	all := make([]byte, fieldBytes*priv.Size())
	if err := priv.Allgather(all, mine); err != nil {
		return nil, fmt.Errorf("coordinated: exchange between ranks: %w", err)
	}
	out := make([]string, priv.Size())
	for r := range out {
		out[r] = string(bytes.TrimRight(all[r*fieldBytes:(r+1)*fieldBytes], "\x00"))
	}
	return out, nil
}

// agree makes all ranks succeed or fail together. Collective; err is this
// rank's own outcome.
func agree(priv ranks, op string, err error) error {
	text := ""
	if err != nil {
		text = cmp.Or(err.Error(), "unknown error")
	}
	all, xerr := exchange(priv, text)
	if xerr != nil {
		return errors.Join(err, xerr)
	}
	return vote.Failed(op, all, err)
}

func shareKey(priv ranks) (control.Key, error) {
	var key control.Key
	var err error
	if priv.Rank() == 0 {
		key, err = control.NewKey()
	}
	if err := agree(priv, "make the job's key", err); err != nil {
		return key, err
	}
	if err := broadcast(priv, key[:]); err != nil {
		return key, fmt.Errorf("coordinated: share the job's key: %w", err)
	}
	return key, nil
}
