package format

import "fmt"

// NoPack marks a shard that is a file of its own.
const NoPack = -1

// ShardInfo is the manifest's entry of one rank's shard at one level.
type ShardInfo struct {
	Rank       int
	Node       string   // node whose rank wrote it
	Bytes      int64    // sum of the section sizes
	Stored     int64    // bytes of chunks in this shard: less when compressed or referenced
	ShardBytes int64    // length of the shard, header to footer
	Digest     [16]byte // xxh3-128 of its contents; the same at every level
	Holders    []string // nodes that keep a copy, at levels with copies

	Index   [16]byte // xxh3-128 of the index record
	Origins []Epoch  // earlier epochs that hold some of its chunks
	Pack    int      // number of the pack file, or NoPack
	Base    int64    // its offset in the pack file

	Layout *Layout // of global arrays, or nil. Pack indices do not repeat it
}

const shardInfoMin = 4 + 2 + 8*3 + 16*2 + 4 + 8 + 4 + 4

func (i *ShardInfo) fields(f Fields) {
	f.Int(&i.Rank)
	f.Str(&i.Node)
	f.I64(&i.Bytes)
	f.I64(&i.Stored)
	f.I64(&i.ShardBytes)
	f.Sum(&i.Digest)
	f.Sum(&i.Index)
	pass(f, &i.Pack, func(e *Encoder, v int) { e.U32(uint32(v)) }, func(d *Decoder) int { return int(int32(d.U32())) })
	f.I64(&i.Base)
	List(f, &i.Origins, 8, f.Epoch)
	List(f, &i.Holders, 2, f.Str)
	f.Refuse(i.Pack < NoPack || i.Base+i.ShardBytes < 0 || i.Base+i.ShardBytes > 1<<62)
}

// MarshalBinary encodes i to be sent to other ranks.
func (i *ShardInfo) MarshalBinary() ([]byte, error) {
	var e Encoder
	i.fields(Appending(&e))
	if i.Layout == nil {
		return e.B, nil
	}
	b, err := i.Layout.Encode()
	return append(e.B, b...), err
}

// UnmarshalBinary decodes the bytes of MarshalBinary.
func (i *ShardInfo) UnmarshalBinary(b []byte) error {
	d := &Decoder{B: b}
	i.fields(Taking(d))
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
	return seal(kindPackIndex, packIndex(&infos), nil)
}

// DecodePackIndex opens a record of EncodePackIndex.
func DecodePackIndex(file string, b []byte) (infos []ShardInfo, err error) {
	err = unseal(file, b, kindPackIndex, packIndex(&infos), nil)
	return infos, err
}

func packIndex(infos *[]ShardInfo) func(f Fields) {
	return func(f Fields) { List(f, infos, shardInfoMin, func(i *ShardInfo) { i.fields(f) }) }
}

// FileName returns the file that holds the shard.
func (i *ShardInfo) FileName() string {
	if i.Pack != NoPack {
		return PackName(i.Pack)
	}
	return ShardName(i.Rank)
}
