package format

// Group says what a parity row was computed from: it lies in the section "group" of the row's file.
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
	var e Encoder
	e.U32(uint32(g.K))
	e.U32(uint32(g.M))
	e.U32(uint32(g.I))
	e.U64(uint64(g.Segment))
	e.U32(uint32(len(g.Members)))
	for _, m := range g.Members {
		e.U32(uint32(m.Rank))
		e.U64(uint64(m.Bytes))
		e.Sum(m.Index)
	}
	return SealRecord(kindParityGroup, e.B)
}
