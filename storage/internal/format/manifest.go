package format

import (
	"fmt"
	"maps"
	"slices"
)

// Manifest is the record whose presence commits an epoch at a level.
type Manifest struct {
	Epoch  Epoch
	Size   int
	Job    string
	Level  string
	Data   int         // at parity: shape of the groups; 0 elsewhere
	Parity int         //
	Shards []ShardInfo // by rank
	Run    Identity    // that it belongs to; zero in records of older releases
}

// Encode returns the sealed record. With layouts or an identity it is of a later version than without: readers of the
// first one refuse it.
func (m *Manifest) Encode() []byte {
	var e Encoder
	e.U64(uint64(m.Epoch))
	e.U32(uint32(m.Size))
	e.Str(m.Job)
	e.Str(m.Level)
	e.u16(uint16(m.Data))
	e.u16(uint16(m.Parity))
	for i := range m.Shards {
		m.Shards[i].fields(Appending(&e))
	}
	version := uint16(Version)
	if !m.Run.IsZero() {
		version = versionOwnedAll
		IdentityFields(Appending(&e), &m.Run)
	}
	if m.HasLayouts() {
		version = max(version, versionLayouts)
		m.encodeLayouts(&e)
	}
	return sealVersion(KindManifest, version, e.B)
}

// DecodeManifest opens a record of Manifest.Encode, and checks its fields.
func DecodeManifest(file string, b []byte) (*Manifest, error) {
	payload, version, n, err := openVersion(file, b, KindManifest)
	if err != nil {
		return nil, err
	}
	bad := func(reason string) (*Manifest, error) {
		return nil, &CorruptError{File: file, Len: int64(len(b)), Reason: "manifest: " + reason}
	}
	d := &Decoder{B: payload}
	m := &Manifest{Epoch: Epoch(d.U64())}
	size := d.U32()
	m.Job, m.Level = d.Str(), d.Str()
	m.Data, m.Parity = int(d.u16()), int(d.u16())
	if m.Epoch == 0 || size == 0 || int64(size)*shardInfoMin > int64(len(d.B)) {
		return bad("epoch or size out of range")
	}
	if !m.ShapeFits() {
		return bad(fmt.Sprintf("groups of %d data and %d parity at level %s", m.Data, m.Parity, m.Level))
	}
	m.Size = int(size)
	m.Shards = make([]ShardInfo, m.Size)
	for r := range m.Shards {
		m.Shards[r].fields(Taking(d))
		if m.Shards[r].Rank != r {
			return bad(fmt.Sprintf("shard %d is of rank %d", r, m.Shards[r].Rank))
		}
	}
	if version == versionOwnedAll {
		IdentityFields(Taking(d), &m.Run)
		d.Bad = d.Bad || m.Run.IsZero()
	}
	if version == versionLayouts || version == versionOwnedAll && len(d.B) > 0 {
		if err := m.decodeLayouts(d); err != nil {
			return bad(err.Error())
		}
		if !m.HasLayouts() {
			d.Bad = true
		}
	}
	if !d.Done() || n != len(b) {
		return bad("fields do not fit the length")
	}
	return m, nil
}

// MaxGroup bounds data and parity of a group together: Reed-Solomon code over
// GF(2^8) has no more.
const MaxGroup = 256

// ShapeFits reports whether groups can have the shape that the manifest gives.
func (m *Manifest) ShapeFits() bool {
	if m.Level != LevelParity {
		return m.Data == 0 && m.Parity == 0
	}
	return m.Data > 0 && m.Parity > 0 && m.Data+m.Parity <= MaxGroup
}

// Shard returns the entry of a rank.
func (m *Manifest) Shard(rank int) (ShardInfo, error) {
	if rank < 0 || rank >= m.Size {
		return ShardInfo{}, fmt.Errorf("epoch %d has %d ranks, so there is no rank %d", m.Epoch, m.Size, rank)
	}
	return m.Shards[rank], nil
}

// ID identifies the committed contents, at any level.
func (m *Manifest) ID() [16]byte {
	var e Encoder
	e.U64(uint64(m.Epoch))
	e.Str(m.Job)
	for i := range m.Shards {
		e.Sum(m.Shards[i].Digest)
	}
	return Hash(e.B)
}

// Origins lists the earlier epochs that any shard refers to, ascending.
func (m *Manifest) Origins() []Epoch {
	seen := map[Epoch]bool{}
	for i := range m.Shards {
		for _, o := range m.Shards[i].Origins {
			seen[o] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// Readable makes sure that a manifest can be read back: it decodes it.
func (m *Manifest) Readable() ([]byte, error) {
	for i := range m.Shards {
		for _, name := range append([]string{m.Shards[i].Node}, m.Shards[i].Holders...) {
			if len(name) > MaxNameLen {
				return nil, TooLarge(fmt.Sprintf("length of the name of rank %d's node", i), int64(len(name)),
					MaxNameLen, "give it a shorter name")
			}
		}
	}
	b := m.Encode()
	if len(b) > MaxRecordLen {
		return nil, TooLarge(fmt.Sprintf("bytes of the manifest of %d ranks", m.Size), int64(len(b)), MaxRecordLen,
			"use fewer ranks")
	}
	if _, err := DecodeManifest(ManifestName, b); err != nil {
		return nil, fmt.Errorf("the manifest could not be read back: %w", err)
	}
	return b, nil
}

// OfData makes the manifest of a level with rows that of the level from whose shards these were computed.
func (m *Manifest) OfData(level string) *Manifest {
	m.Level, m.Data, m.Parity = level, 0, 0
	for i := range m.Shards {
		m.Shards[i].Holders = nil
	}
	return m
}

// Group lists the shards from which a parity row was computed: it lies in the section "group" of the row's file.
type Group struct {
	K, M, I int   // parts of data and of parity, and the member that computed the rows
	Segment int64 // length of the row and of each part
	Members []GroupMember
}

// GroupMember is a shard of the group.
type GroupMember struct {
	Rank  int
	Bytes int64    // length of the shard
	Index [16]byte // as in the manifest
}

// Encode returns the sealed record.
func (g *Group) Encode() []byte {
	return seal(kindParityGroup, func(f Fields) {
		f.Int(&g.K)
		f.Int(&g.M)
		f.Int(&g.I)
		f.I64(&g.Segment)
		List(f, &g.Members, 28, func(m *GroupMember) {
			f.Int(&m.Rank)
			f.I64(&m.Bytes)
			f.Sum(&m.Index)
		})
	}, nil)
}
