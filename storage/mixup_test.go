package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestManifestOfAnotherLevel: a manifest that lies in a directory of another
// level is damage there, also where its groups cannot be divided by.
func TestManifestOfAnotherLevel(t *testing.T) {
	w := flipWorld(t)
	b, err := readFile(w.fs, "/global/"+epochName(1)+"/manifest", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	file := "/local0/" + epochName(1) + "/manifest"
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
		m := manifest{epoch: 1, size: 1, job: "j", level: c.level, data: c.data, parity: c.parity,
			shards: []ShardInfo{{pack: noPack}}}
		if _, err := decodeManifest("f", m.encode()); (err == nil) != c.good {
			t.Errorf("%+v: got %v", c, err)
		}
	}
	m := manifest{epoch: 1, size: 1, job: "j", level: LevelGlobal,
		shards: []ShardInfo{{base: 1 << 62, ShardBytes: 1 << 62}}}
	if _, err := decodeManifest("f", m.encode()); !errors.Is(err, ErrCorrupt) {
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
	m := &manifest{epoch: 7, size: 6, job: "job", level: LevelParity, data: 2, parity: 1}
	for r := range m.size {
		m.shards = append(m.shards, ShardInfo{Rank: r, Node: fmt.Sprint("n", r), ShardBytes: 3 << 20,
			origins: []Epoch{5}, Holders: []string{"n1"}, pack: noPack})
	}
	x := &shardIndex{epoch: 7, rank: 1, size: 6, chunkBytes: minChunkBytes,
		sections: []sectionEntry{{name: "a", size: 9000}, {name: "b", size: 5}},
		chunks: []chunk{{origin: 7, off: 4096, stored: 4096, length: 4096}, {origin: 5, off: 8192, stored: 4096,
			length: 4096},
			{origin: 7, off: 12288, stored: 808, length: 808}, {origin: 7, off: 16384, stored: 5, length: 5}}}
	used := 0
	for range rounds {
		if m, err := decodeManifest("f", nonsense(rnd, kindManifest, m.encode())); err == nil {
			used++
			useManifest(m, rnd)
		}
		if x, err := decodeIndex("f", nonsense(rnd, kindShardIndex, x.encode()), 20480); err == nil {
			used++
			x.bytes()
			x.owned()
			x.origins()
			file := bytes.NewReader(make([]byte, 20480))
			c := &shardCopy{idx: x, at: &extent{ReaderAt: file, n: 20480},
				other: map[Epoch]*extent{5: {ReaderAt: file, n: 20480}}}
			var mem scratch
			for i := range x.chunks {
				if x.chunks[i].origin == x.epoch {
					c.readChunk(t.Context(), i, mem.whole(int(x.chunks[i].length)), &mem)
				}
			}
		}
	}
	if used < rounds/100 {
		t.Errorf("only %d of %d records were accepted: nothing is tried", used, 2*rounds)
	}
}

// nonsense changes a field or two of a record and seals it again.
func nonsense(rnd *rand.Rand, kind recordKind, record []byte) []byte {
	p := bytes.Clone(record[recordHead : len(record)-4])
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
	return sealRecord(kind, p)
}

func useManifest(m *manifest, rnd *rand.Rand) {
	m.id()
	m.origins()
	rank := rnd.IntN(m.size)
	m.shard(rank)
	if m.level != LevelParity {
		return
	}
	group, place, err := m.group(rank)
	if err != nil {
		return
	}
	k := len(group) - m.parity
	for d := range k {
		newParityGroup(m, stripeOf(group, m.parity, place, d)).encode()
	}
	newStripeEncoder(&parityGroup{stripe: stripe{group: group, k: k, m: m.parity}}, 1)
}
