package scale

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/storage"
)

// hall is where all ranks vote: the real ones by themselves, and each simulated one as the
// rank at its place on the second node.
type hall struct {
	size, perNode int
	real          int // ranks 0 to real-1 are

	mu     sync.Mutex
	stages map[stage]*meeting // guarded by mu
	heard  map[hearer]int64   // guarded by mu: bytes that real ranks got
}

// hearer is a receiver of votes.
type hearer struct {
	global bool // in a vote at global
	first  bool // of the ranks of its node
}

type stage struct {
	epoch storage.Epoch
	name  string
	node  int // that meets; -1: all
}

// meeting is one stage.
type meeting struct {
	votes [][]byte // of the real ranks that meet, in order of rank
	here  int
	over  chan struct{} // closed when blobs and err are there
	blobs []cut.Blob
	err   error
}

func newHall(size, perNode, real int) *hall {
	return &hall{size: size, perNode: perNode, real: real, stages: map[stage]*meeting{}, heard: map[hearer]int64{}}
}

// meet returns the meet of the control plane, for a real rank.
func (h *hall) meet(rank int, with cut.Meeting) ([]cut.Blob, error) {
	key, first, n := stage{storage.Epoch(with.Epoch), with.Stage, -1}, 0, h.real
	if with.Node {
		key.node = rank / h.perNode
		first = key.node * h.perNode
		n = min(h.perNode, h.size-first)
	}
	h.mu.Lock()
	m := h.stages[key]
	if m == nil {
		m = &meeting{votes: make([][]byte, n), over: make(chan struct{})}
		h.stages[key] = m
	}
	m.votes[rank-first] = with.Data
	m.here++
	last := m.here == n
	if last {
		delete(h.stages, key)
	}
	h.mu.Unlock()
	if last {
		if with.Node {
			for i, v := range m.votes {
				m.blobs = append(m.blobs, cut.Blob{Rank: first + i, Data: v})
			}
		} else {
			m.blobs, m.err = h.count(with.Stage, m.votes)
		}
		close(m.over)
	}
	<-m.over
	blobs := m.blobs
	if with.Brief != nil && !with.Whole(rank) {
		blobs = with.Brief(m.blobs)
	}
	h.hear(rank, with.Stage, blobs)
	return blobs, m.err
}

// hear counts a rank's bytes, in their length on the wire: neighbours that say the same share them.
func (h *hall) hear(rank int, name string, blobs []cut.Blob) {
	msg := cut.Message{Kind: cut.KindPublish, Stage: name, Blobs: blobs}
	n := int64(len(msg.Append(nil)))
	h.mu.Lock()
	defer h.mu.Unlock()
	if rank == 0 { // tells and is not told
		return
	}
	h.heard[hearer{strings.HasSuffix(name, " "+storage.LevelGlobal), rank%h.perNode == 0}] += n
}

// Told is the number of bytes that one rank gets.
type Told struct {
	First float64 // the first rank of a node, which writes the manifests of the node's directory
	Other float64 // each other one
}

// over returns the n-th part.
func (t Told) over(n float64) Told { return Told{First: t.First / n, Other: t.Other / n} }

// take returns the bytes that one rank got in votes since the last call.
func (h *hall) take() (local, global Told) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := (h.real+h.perNode-1)/h.perNode - 1 // without rank 0
	other := h.real - 1 - first
	told := func(global bool) Told {
		return Told{First: float64(h.heard[hearer{global, true}]) / float64(max(first, 1)),
			Other: float64(h.heard[hearer{global, false}]) / float64(max(other, 1))}
	}
	local, global = told(false), told(true)
	clear(h.heard)
	return local, global
}

// count has the votes of all ranks.
func (h *hall) count(name string, votes [][]byte) ([]cut.Blob, error) {
	blobs := make([]cut.Blob, h.size)
	for r := range blobs {
		blobs[r] = cut.Blob{Rank: r}
		if r < h.real {
			blobs[r].Data = votes[r]
			continue
		}
		like := h.like(r)
		data := votes[like]
		if strings.HasPrefix(name, "put ") {
			var err error
			if data, err = h.shift(data, r-like); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		blobs[r].Data = data
	}
	return blobs, nil
}

// like returns the real rank as which a simulated one votes.
func (h *hall) like(rank int) int { return h.perNode + rank%h.perNode }

// shift makes the vote on a rank's shards that of the rank so much further on. Shards of
// ranks that do not exist, on a last node that is not full, are left out.
func (h *hall) shift(data []byte, by int) ([]byte, error) {
	if len(data) == 0 || data[0] != 0 {
		return data, nil
	}
	infos, err := decodePut(data)
	if err != nil {
		return nil, err
	}
	var out []storage.ShardInfo
	for _, info := range infos {
		if info.Rank += by; info.Rank >= h.size {
			continue
		}
		if info.Pack >= 0 {
			info.Pack += by
		}
		info.Node = nodeName(info.Rank / h.perNode)
		binary.LittleEndian.PutUint64(info.Digest[:], uint64(info.Rank))
		out = append(out, info)
	}
	return vote.EncodePut(out, nil), nil
}

// decodePut reads the vote of one rank.
func decodePut(data []byte) ([]storage.ShardInfo, error) {
	return vote.DecodePuts("put", []cut.Blob{{Data: data}}, nil)
}

func nodeName(i int) string { return fmt.Sprintf("node%05d", i) }
