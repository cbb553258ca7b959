package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/shard"
)

// TestManifestOfAnotherLevel: a manifest that lies in a directory of another
// level is damage there, also where its groups cannot be divided by.
func TestManifestOfAnotherLevel(t *testing.T) {
	w := flipWorld(t)
	b, err := readFile(w.fs, "/global/"+format.EpochName(1)+"/manifest", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	file := "/local0/" + format.EpochName(1) + "/manifest"
	if err := errors.Join(w.fs.Remove(file), writeFile(w.fs, file, b)); err != nil {
		t.Fatal(err)
	}
	_, err = w.stores[0].levels[0].readManifest(1)
	if !errors.Is(err, ErrCorrupt) ||
		!strings.Contains(err.Error(), "manifest of level global in a directory of level local") {
		t.Errorf("got %v, want that it is of another level", err)
	}
	if err := w.check(1); err != nil {
		t.Errorf("the other level does not serve: %v", err)
	}
	if n := findings(t, w.fs, "/local0", "/local1", "/global"); n == 0 {
		t.Error("verify does not see it")
	}
}

// TestImpossibleShapes: a manifest with groups that cannot be is damage.
func TestImpossibleShapes(t *testing.T) {
	for _, c := range []struct {
		level        string
		data, parity int
		good         bool
	}{
		{LevelParity, 4, 2, true}, {LevelParity, 254, 2, true}, {LevelLocal, 0, 0, true},
		{LevelParity, 0, 0, false}, {LevelParity, 0, 2, false}, {LevelParity, 4, 0, false},
		{LevelParity, 255, 2, false}, {LevelParity, 65535, 65535, false},
		{LevelLocal, 4, 2, false}, {LevelGlobal, 0, 1, false},
	} {
		m := format.Manifest{Epoch: 1, Size: 1, Job: "j", Level: c.level, Data: c.data, Parity: c.parity,
			Shards: []ShardInfo{{Pack: format.NoPack}}}
		if _, err := format.DecodeManifest("f", m.Encode()); (err == nil) != c.good {
			t.Errorf("%+v: got %v", c, err)
		}
	}
	m := format.Manifest{Epoch: 1, Size: 1, Job: "j", Level: LevelGlobal,
		Shards: []ShardInfo{{Base: 1 << 62, ShardBytes: 1 << 62}}}
	if _, err := format.DecodeManifest("f", m.Encode()); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a shard beyond any file: got %v, want ErrCorrupt", err)
	}
}

// TestSealedNonsense changes the fields of good records at random, seals them
// again and uses whatever is accepted as readers do.
func TestSealedNonsense(t *testing.T) {
	const rounds = 20_000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	m := &format.Manifest{Epoch: 7, Size: 6, Job: "job", Level: LevelParity, Data: 2, Parity: 1}
	for r := range m.Size {
		m.Shards = append(m.Shards, ShardInfo{Rank: r, Node: fmt.Sprint("n", r), ShardBytes: 3 << 20,
			Origins: []Epoch{5}, Holders: []string{"n1"}, Pack: format.NoPack})
	}
	x := &format.Index{Epoch: 7, Rank: 1, Size: 6, ChunkBytes: format.MinChunkBytes,
		Sections: []format.Section{{Name: "a", Size: 9000}, {Name: "b", Size: 5}},
		Chunks: []format.Chunk{{Origin: 7, Off: 4096, Stored: 4096, Length: 4096}, {Origin: 5, Off: 8192, Stored: 4096,
			Length: 4096},
			{Origin: 7, Off: 12288, Stored: 808, Length: 808}, {Origin: 7, Off: 16384, Stored: 5, Length: 5}}}
	used := 0
	for range rounds {
		if m, err := format.DecodeManifest("f", nonsense(rnd, format.KindManifest, m.Encode())); err == nil {
			used++
			useManifest(m, rnd)
		}
		if x, err := format.DecodeIndex("f", nonsense(rnd, format.KindShardIndex, x.Encode()), 20480); err == nil {
			used++
			x.Bytes()
			x.Owned()
			x.Origins()
			file := bytes.NewReader(make([]byte, 20480))
			c := &shard.Copy{Index: x, At: &shard.Extent{ReaderAt: file, N: 20480},
				Other: map[Epoch]*shard.Extent{5: {ReaderAt: file, N: 20480}}}
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

func useManifest(m *format.Manifest, rnd *rand.Rand) {
	m.ID()
	m.Origins()
	rank := rnd.IntN(m.Size)
	m.Shard(rank)
	if m.Level != LevelParity {
		return
	}
	group, place, err := groupIn(m, rank)
	if err != nil {
		return
	}
	k := len(group) - m.Parity
	for d := range k {
		_ = newParityGroup(m, stripeOf(group, m.Parity, place, d)).record
	}
	newStripeEncoder(&parityGroup{stripe: stripe{group: group, k: k, m: m.Parity}}, 1)
}
