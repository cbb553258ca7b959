package format

import (
	"fmt"
)

// NoPack says that a shard is a file of its own.
const NoPack = -1

// ShardInfo is what the manifest says about one rank's shard at one level.
type ShardInfo struct {
	Rank       int
	Node       string   // node whose rank wrote it
	Bytes      int64    // sum of the section sizes
	Stored     int64    // bytes of chunks in this shard: less when compressed or referenced
	ShardBytes int64    // length of the shard, header to footer
	Digest     [16]byte // xxh3-128 of what it says; the same at every level
	Holders    []string // nodes that keep a copy, at levels with copies

	Index   [16]byte // xxh3-128 of the index record
	Origins []Epoch  // earlier epochs that hold some of its chunks
	Pack    int      // number of the pack file, or NoPack
	Base    int64    // where it starts in the pack file

	Layout *Layout // what it has of global arrays; nil: none. Pack indices do not repeat it
}

const shardInfoMin = 4 + 2 + 8*3 + 16*2 + 4 + 8 + 4 + 4

func (i *ShardInfo) encode(e *Encoder) {
	e.U32(uint32(i.Rank))
	e.Str(i.Node)
	e.U64(uint64(i.Bytes))
	e.U64(uint64(i.Stored))
	e.U64(uint64(i.ShardBytes))
	e.Sum(i.Digest)
	e.Sum(i.Index)
	e.U32(uint32(i.Pack))
	e.U64(uint64(i.Base))
	e.epochs(i.Origins)
	e.U32(uint32(len(i.Holders)))
	for _, h := range i.Holders {
		e.Str(h)
	}
}

func (i *ShardInfo) decode(d *Decoder) {
	i.Rank = int(d.U32())
	i.Node = d.Str()
	i.Bytes, i.Stored, i.ShardBytes = d.I64(), d.I64(), d.I64()
	i.Digest, i.Index = d.Sum(), d.Sum()
	i.Pack = int(int32(d.U32()))
	i.Base = d.I64()
	i.Origins = d.epochs()
	i.Holders = nil
	for range d.Count(2) {
		i.Holders = append(i.Holders, d.Str())
	}
	if i.Pack < NoPack || i.Base+i.ShardBytes < 0 || i.Base+i.ShardBytes > 1<<62 {
		d.Bad = true
	}
}

// MarshalBinary encodes i to be sent to other ranks.
func (i *ShardInfo) MarshalBinary() ([]byte, error) {
	var e Encoder
	i.encode(&e)
	if i.Layout == nil {
		return e.B, nil
	}
	b, err := i.Layout.Encode()
	return append(e.B, b...), err
}

// UnmarshalBinary decodes what MarshalBinary made.
func (i *ShardInfo) UnmarshalBinary(b []byte) error {
	d := &Decoder{B: b}
	i.decode(d)
	if i.Layout = nil; !d.Bad && len(d.B) > 0 {
		l, err := DecodeLayout("shard info", i.Rank, d.B)
		if err != nil {
			return err
		}
		i.Layout, d.B = l, nil
	}
	if !d.Done() {
		return fmt.Errorf("shard info of %d bytes: %w", len(b), ErrCorrupt)
	}
	return nil
}

// EncodePackIndex returns the sealed record that lists the shards of a pack.
func EncodePackIndex(infos []ShardInfo) []byte {
	var e Encoder
	e.U32(uint32(len(infos)))
	for i := range infos {
		infos[i].encode(&e)
	}
	return SealRecord(kindPackIndex, e.B)
}

// DecodePackIndex opens what EncodePackIndex made.
func DecodePackIndex(file string, b []byte) ([]ShardInfo, error) {
	payload, _, err := openRecord(file, b, kindPackIndex)
	if err != nil {
		return nil, err
	}
	d := &Decoder{B: payload}
	infos := make([]ShardInfo, d.Count(shardInfoMin))
	for i := range infos {
		infos[i].decode(d)
	}
	if !d.Done() {
		return nil, &CorruptError{File: file, Len: int64(len(b)), Reason: "pack index: fields do not fit the length"}
	}
	return infos, nil
}

// FileName is the file that holds the shard.
func (i *ShardInfo) FileName() string {
	if i.Pack != NoPack {
		return PackName(i.Pack)
	}
	return ShardName(i.Rank)
}
