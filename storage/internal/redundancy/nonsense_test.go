package redundancy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// TestSealedNonsense changes the fields of good records at random, seals them
// again and uses whatever is accepted as readers do.
func TestSealedNonsense(t *testing.T) {
	const rounds = 20_000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	m := &format.Manifest{Epoch: 7, Size: 6, Job: "job", Level: format.LevelParity, Data: 2, Parity: 1}
	for r := range m.Size {
		m.Shards = append(m.Shards, format.ShardInfo{Rank: r, Node: fmt.Sprint("n", r), ShardBytes: 3 << 20,
			Origins: []format.Epoch{5}, Holders: []string{"n1"}, Pack: format.NoPack})
	}
	x := &format.Index{Epoch: 7, Rank: 1, Size: 6, ChunkBytes: format.MinChunkBytes,
		Sections: []format.Section{{Name: "a", Size: 9000}, {Name: "b", Size: 5}},
		Chunks: []format.Chunk{{Origin: 7, Off: 4096, Stored: 4096, Length: 4096}, {Origin: 5, Off: 8192, Stored: 4096,
			Length: 4096},
			{Origin: 7, Off: 12288, Stored: 808, Length: 808}, {Origin: 7, Off: 16384, Stored: 5, Length: 5}}}
	used, made := 0, map[[2]int]bool{}
	for range rounds {
		if m, err := format.DecodeManifest("f", nonsense(rnd, format.KindManifest, m.Encode())); err == nil {
			used++
			useManifest(m, rnd, made)
		}
		if x, err := format.DecodeIndex("f", nonsense(rnd, format.KindShardIndex, x.Encode()), 20480); err == nil {
			used++
			x.Bytes()
			x.Owned()
			x.Origins()
			file := bytes.NewReader(make([]byte, 20480))
			c := &shard.Copy{Index: x, At: &shard.Extent{ReaderAt: file, N: 20480},
				Other: map[format.Epoch]*shard.Extent{5: {ReaderAt: file, N: 20480}}}
			var mem shard.Scratch
			for i := range x.Chunks {
				if x.Chunks[i].Origin == x.Epoch {
					c.ReadChunk(t.Context(), i, mem.Whole(int(x.Chunks[i].Length)), &mem)
				}
			}
		}
	}
	if used < rounds/100 {
		t.Errorf("only %d of %d records were accepted: nothing is tried", used, 2*rounds)
	}
}

// nonsense changes a field or two of a record and seals it again.
func nonsense(rnd *rand.Rand, kind format.RecordKind, record []byte) []byte {
	p := bytes.Clone(record[format.RecordHead : len(record)-4])
	for range 1 + rnd.IntN(2) {
		at := rnd.IntN(len(p))
		switch rnd.IntN(4) {
		case 0:
			p[at] ^= 1 << rnd.IntN(8)
		case 1:
			p[at] = [...]byte{0, 1, 0x7f, 0x80, 0xff}[rnd.IntN(5)]
		case 2: // a whole field
			v := [...]byte{0, 0xff}[rnd.IntN(2)]
			for i := at; i < min(len(p), at+[...]int{2, 4, 8}[rnd.IntN(3)]); i++ {
				p[i] = v
			}
		case 3:
			p = p[:at+1]
		}
	}
	return format.SealRecord(kind, p)
}

func useManifest(m *format.Manifest, rnd *rand.Rand, made map[[2]int]bool) {
	m.ID()
	m.Origins()
	rank := rnd.IntN(m.Size)
	m.Shard(rank)
	if m.Level != format.LevelParity {
		return
	}
	st, err := StripeIn(m, rank)
	if err != nil {
		return
	}
	for d := range st.K {
		_ = NewGroup(m, st.Holding(d)).Record
	}
	if shape := [2]int{st.K, st.M}; !made[shape] { // its buffers are large
		made[shape] = true
		newStripeEncoder(&Group{Stripe: st}, 1)
	}
}
