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
	heard  int64              // guarded by mu: bytes that the real ranks were told
}

type stage struct {
	epoch storage.Epoch
	name  string
}

// meeting is one stage.
type meeting struct {
	votes [][]byte // of the real ranks
	here  int
	over  chan struct{} // closed when blobs and err are there
	blobs []cut.Blob
	err   error
}

func newHall(size, perNode, real int) *hall {
	return &hall{size: size, perNode: perNode, real: real, stages: map[stage]*meeting{}}
}

// allgather is that of the control plane, for a real rank.
func (h *hall) allgather(rank int, e storage.Epoch, name string, data []byte) ([]cut.Blob, error) {
	key := stage{e, name}
	h.mu.Lock()
	m := h.stages[key]
	if m == nil {
		m = &meeting{votes: make([][]byte, h.real), over: make(chan struct{})}
		h.stages[key] = m
	}
	m.votes[rank] = data
	m.here++
	last := m.here == h.real
	if last {
		delete(h.stages, key)
	}
	h.mu.Unlock()
	if last {
		m.blobs, m.err = h.count(name, m.votes)
		close(m.over)
	}
	<-m.over
	n := int64(0)
	for i := range m.blobs {
		n += int64(len(m.blobs[i].Data))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard += n
	return m.blobs, m.err
}

// take says how many bytes real ranks were told in votes since the last call.
func (h *hall) take() (bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	bytes, h.heard = h.heard, 0
	return bytes
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
