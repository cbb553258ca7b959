package scale

import (
	"encoding/binary"
	"errors"
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
	heard  map[bool]int64     // guarded by mu: bytes that the real ranks were told, of votes at global or not
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
	return &hall{size: size, perNode: perNode, real: real, stages: map[stage]*meeting{}, heard: map[bool]int64{}}
}

// meet is that of the control plane, for a real rank.
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
	if with.Brief != nil && rank > 0 {
		blobs = make([]cut.Blob, len(m.blobs))
		for i, b := range m.blobs {
			blobs[i] = cut.Blob{Rank: b.Rank, Data: with.Brief(b.Data)}
		}
	}
	h.hear(rank, with.Stage, blobs)
	return blobs, m.err
}

// hear counts what a rank is told, in the length that it has on the wire: neighbours that say the same share it.
func (h *hall) hear(rank int, name string, blobs []cut.Blob) {
	msg := cut.Message{Kind: cut.KindPublish, Stage: name, Blobs: blobs}
	n := int64(len(msg.Append(nil)))
	h.mu.Lock()
	defer h.mu.Unlock()
	if rank == 0 { // tells and is not told
		return
	}
	h.heard[strings.HasSuffix(name, " "+storage.LevelGlobal)] += n
}

// take says how many bytes one rank was told in votes since the last call.
func (h *hall) take() (local, global float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ranks := float64(max(h.real-1, 1))
	local, global = float64(h.heard[false])/ranks, float64(h.heard[true])/ranks
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

// like is the real rank as which a simulated one votes.
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
func decodePut(data []byte) (infos []storage.ShardInfo, err error) {
	for d := data[1:]; len(d) > 0; {
		n := int(binary.LittleEndian.Uint32(d))
		if len(d) < 4+n {
			return nil, errors.New("malformed vote")
		}
		var info storage.ShardInfo
		if err := info.UnmarshalBinary(d[4 : 4+n]); err != nil {
			return nil, err
		}
		infos = append(infos, info)
		d = d[4+n:]
	}
	return infos, nil
}

func nodeName(i int) string { return fmt.Sprintf("node%05d", i) }
