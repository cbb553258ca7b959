package storage

import "fmt"

// manifest is the record whose presence commits an epoch at a level.
type manifest struct {
	epoch  Epoch
	size   int
	job    string
	level  string
	data   int         // at parity: shape of the groups; 0 elsewhere
	parity int         //
	shards []ShardInfo // by rank
}

func (m *manifest) encode() []byte {
	var e encoder
	e.u64(uint64(m.epoch))
	e.u32(uint32(m.size))
	e.str(m.job)
	e.str(m.level)
	e.u16(uint16(m.data))
	e.u16(uint16(m.parity))
	for i := range m.shards {
		m.shards[i].encode(&e)
	}
	return sealRecord(kindManifest, e.b)
}

func decodeManifest(file string, b []byte) (*manifest, error) {
	payload, n, err := openRecord(file, b, kindManifest)
	if err != nil {
		return nil, err
	}
	bad := func(reason string) (*manifest, error) {
		return nil, &CorruptError{File: file, Len: int64(len(b)), Reason: "manifest: " + reason}
	}
	d := &decoder{b: payload}
	m := &manifest{epoch: Epoch(d.u64())}
	size := d.u32()
	m.job, m.level = d.str(), d.str()
	m.data, m.parity = int(d.u16()), int(d.u16())
	if m.epoch == 0 || size == 0 || int64(size)*shardInfoMin > int64(len(d.b)) {
		return bad("epoch or size out of range")
	}
	if !m.shapeFits() {
		return bad(fmt.Sprintf("groups of %d data and %d parity at level %s", m.data, m.parity, m.level))
	}
	m.size = int(size)
	m.shards = make([]ShardInfo, m.size)
	for r := range m.shards {
		m.shards[r].decode(d)
		if m.shards[r].Rank != r {
			return bad(fmt.Sprintf("shard %d is of rank %d", r, m.shards[r].Rank))
		}
	}
	if !d.done() || n != len(b) {
		return bad("fields do not fit the length")
	}
	return m, nil
}

// maxParity bounds data and parity of a group together: Reed-Solomon code over
// GF(2^8) has no more.
const maxParity = 256

// shapeFits says whether groups can have the shape that the manifest gives.
func (m *manifest) shapeFits() bool {
	if m.level != LevelParity {
		return m.data == 0 && m.parity == 0
	}
	return m.data > 0 && m.parity > 0 && m.data+m.parity <= maxParity
}

// shard returns the entry of a rank.
func (m *manifest) shard(rank int) (ShardInfo, error) {
	if rank < 0 || rank >= m.size {
		return ShardInfo{}, fmt.Errorf("epoch %d has %d ranks and none numbered %d", m.epoch, m.size, rank)
	}
	return m.shards[rank], nil
}

// id identifies what was committed, at whatever level.
func (m *manifest) id() [16]byte {
	var e encoder
	e.u64(uint64(m.epoch))
	e.str(m.job)
	for i := range m.shards {
		e.sum(m.shards[i].Digest)
	}
	return hashOf(e.b)
}

// origins lists the earlier epochs that any shard refers to, ascending.
func (m *manifest) origins() []Epoch {
	seen := map[Epoch]bool{}
	for i := range m.shards {
		for _, o := range m.shards[i].origins {
			seen[o] = true
		}
	}
	return sortedEpochs(seen)
}
