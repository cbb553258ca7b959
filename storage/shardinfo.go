package storage

import "fmt"

// noPack says that a shard is a file of its own.
const noPack = -1

// ShardInfo is what the manifest says about one rank's shard at one level.
type ShardInfo struct {
	Rank       int
	Node       string   // node whose rank wrote it
	Bytes      int64    // sum of the section sizes
	Stored     int64    // bytes of chunks in this shard: less when compressed or referenced
	ShardBytes int64    // length of the shard, header to footer
	Digest     [16]byte // xxh3-128 of what it says; the same at every level
	Holders    []string // nodes that keep a copy, at levels with copies

	index   [16]byte // xxh3-128 of the index record
	origins []Epoch  // earlier epochs that hold some of its chunks
	pack    int      // number of the pack file, or noPack
	base    int64    // where it starts in the pack file
}

// Origins lists the earlier epochs that hold chunks of this shard, ascending.
func (i *ShardInfo) Origins() []Epoch { return append([]Epoch(nil), i.origins...) }

const shardInfoMin = 4 + 2 + 8*3 + 16*2 + 4 + 8 + 4 + 4

func (i *ShardInfo) encode(e *encoder) {
	e.u32(uint32(i.Rank))
	e.str(i.Node)
	e.u64(uint64(i.Bytes))
	e.u64(uint64(i.Stored))
	e.u64(uint64(i.ShardBytes))
	e.sum(i.Digest)
	e.sum(i.index)
	e.u32(uint32(i.pack))
	e.u64(uint64(i.base))
	e.epochs(i.origins)
	e.u32(uint32(len(i.Holders)))
	for _, h := range i.Holders {
		e.str(h)
	}
}

func (i *ShardInfo) decode(d *decoder) {
	i.Rank = int(d.u32())
	i.Node = d.str()
	i.Bytes, i.Stored, i.ShardBytes = d.i64(), d.i64(), d.i64()
	i.Digest, i.index = d.sum(), d.sum()
	i.pack = int(int32(d.u32()))
	i.base = d.i64()
	i.origins = d.epochs()
	i.Holders = nil
	for range d.count(2) {
		i.Holders = append(i.Holders, d.str())
	}
	if i.pack < noPack || i.base+i.ShardBytes < 0 || i.base+i.ShardBytes > 1<<62 {
		d.bad = true
	}
}

// MarshalBinary encodes i to be sent to other ranks.
func (i *ShardInfo) MarshalBinary() ([]byte, error) {
	var e encoder
	i.encode(&e)
	return e.b, nil
}

// UnmarshalBinary decodes what MarshalBinary made.
func (i *ShardInfo) UnmarshalBinary(b []byte) error {
	d := &decoder{b: b}
	i.decode(d)
	if !d.done() {
		return fmt.Errorf("shard info of %d bytes: %w", len(b), ErrCorrupt)
	}
	return nil
}
