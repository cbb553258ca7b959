package format_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

// codecsDir is a global directory of one rank with chunks of every codec and
// filter, own and of an earlier epoch.
const codecsDir = "testdata/v1-codecs"

func codecSections(_ int, e storage.Epoch) []storage.Section {
	noise := make(storage.Bytes, 5000)
	rand.NewChaCha8([32]byte{byte(e), 1}).Read(noise)
	smooth := make(storage.Bytes, 24_003) // counters in steps that only a shuffle compresses, and three bytes more
	steps := rand.New(rand.NewPCG(7, 0))
	at := uint64(1 << 40)
	for i := 0; i+8 <= len(smooth); i += 8 {
		at += steps.Uint64N(1 << 17)
		for b := range 8 {
			smooth[i+b] = byte(at >> (8 * b))
		}
	}
	text := storage.Bytes(bytes.Repeat(fmt.Appendf(nil, "epoch %d of the text ", e), 300))
	secs := []storage.Section{
		{Name: "noise", Source: noise}, {Name: "smooth", Source: smooth}, {Name: "text", Source: text},
		{Name: "zero", Source: make(storage.Bytes, 7000)}, {Name: "empty", Source: storage.Bytes{}},
	}
	for i := range secs {
		secs[i].Size = int64(len(secs[i].Source.(storage.Bytes)))
	}
	return secs
}

func openCodecs(t *testing.T, dir string) *storage.Store {
	t.Helper()
	s, err := storage.Open(t.Context(), storage.Options{Job: "codecs", Size: 1,
		Levels: []storage.LevelConfig{{Name: storage.LevelGlobal, Dir: dir, CompressAlways: true}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func writeCodecs(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := openCodecs(t, dir)
	for e := storage.Epoch(1); e <= 2; e++ {
		info, err := s.Put(t.Context(), e, storage.LevelGlobal, codecSections(0, e))
		if err == nil {
			err = s.Commit(t.Context(), e, storage.LevelGlobal, []storage.ShardInfo{info})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestGoldenCodecs reads every kind of chunk, as the first release wrote it and
// as this build writes it, by this build and by a reader made from FORMAT.md.
func TestGoldenCodecs(t *testing.T) {
	if *golden {
		if err := os.RemoveAll(codecsDir); err != nil {
			t.Fatal(err)
		}
		writeCodecs(t, codecsDir)
	}
	now := t.TempDir()
	writeCodecs(t, now)
	for _, from := range []string{codecsDir, now} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		c := &jobtest.Cluster{T: t, Nodes: []string{"n0"}, Stores: []*storage.Store{openCodecs(t, dir)}}
		s := &independentReader{t: t, kinds: map[string]int{}}
		for e := storage.Epoch(1); e <= 2; e++ {
			if _, err := c.Stores.Restore(e, codecSections); err != nil {
				t.Errorf("epoch %d: %v", e, err)
			}
			got := s.sections(s.shard(dir, int(e), 0), func(o int) []byte { return s.shard(dir, o, 0) })
			for _, want := range codecSections(0, e) {
				if !bytes.Equal(got[want.Name], want.Source.(storage.Bytes)) {
					t.Errorf("%s, epoch %d: section %s differs for the independent reader", from, e, want.Name)
				}
			}
		}
		for _, kind := range []string{"codec 0 filter 0 earlier false", "codec 1 filter 0 earlier false",
			"codec 2 filter 0 earlier false",
			"codec 2 filter 1 earlier false", "codec 2 filter 1 earlier true"} {
			if s.kinds[kind] == 0 {
				t.Errorf("%s has no chunk of %s, but %v", from, kind, s.kinds)
			}
		}
	}
}

// gfMul multiplies in GF(2^8) by the polynomial 0x11D.
func gfMul(a, b byte) (p byte) {
	for ; b > 0; b >>= 1 {
		if b&1 == 1 {
			p ^= a
		}
		carry := a & 0x80
		a <<= 1
		if carry != 0 {
			a ^= 0x1D
		}
	}
	return p
}

func gfInverse(a byte) byte {
	for x := 1; x < 256; x++ {
		if gfMul(a, byte(x)) == 1 {
			return byte(x)
		}
	}
	return 0
}

// parityRows returns the matrix of FORMAT.md: the last m rows of V times the inverse of
// the first k rows of V, V[r][c] being r to the power c.
func parityRows(k, m int) [][]byte {
	v := make([][]byte, k+m)
	for r := range v {
		v[r] = make([]byte, k)
		for c, x := 0, byte(1); c < k; c, x = c+1, gfMul(x, byte(r)) {
			v[r][c] = x
		}
	}
	// Column operations turn the first k rows into the identity.
	for c := range k {
		for pivot := c; v[c][c] == 0; pivot++ {
			for r := range v {
				v[r][c] ^= v[r][pivot]
			}
		}
		inv := gfInverse(v[c][c])
		for r := range v {
			v[r][c] = gfMul(v[r][c], inv)
		}
		for other := range k {
			if f := v[c][other]; other != c && f != 0 {
				for r := range v {
					v[r][other] ^= gfMul(f, v[r][c])
				}
			}
		}
	}
	return v[k:]
}

// TestParityByTheDocument computes the rows of the golden directories, and of a
// larger group written now, from the description in FORMAT.md.
func TestParityByTheDocument(t *testing.T) {
	wantRows(t, goldenDir, goldenNodes, 1, 1)
	for _, shape := range [][2]int{{2, 2}, {3, 2}, {2, 3}} {
		k, m := shape[0], shape[1]
		c := jobtest.NewCluster(t, jobtest.NodeNames(k+m)...)
		c.Start(jobtest.SmallLocal, storage.LevelConfig{Name: storage.LevelParity, Data: k, Parity: m})
		c.Take(1, storage.LevelLocal, storage.LevelParity)
		c.Stop()
		dir := t.TempDir()
		dumpFiles(t, c, dir)
		wantRows(t, dir, c.Nodes, 1, m)
	}
}

// dumpFiles copies the local and parity files of epoch 1 of a cluster to the disk.
func dumpFiles(t *testing.T, c *jobtest.Cluster, dir string) {
	t.Helper()
	for _, n := range c.Nodes {
		for _, l := range []string{"local", "parity"} {
			rel := filepath.Join(n, l, "epoch-0000000001")
			list, err := c.FS.ReadDir("/" + rel)
			if err == nil {
				err = os.MkdirAll(filepath.Join(dir, rel), 0o755)
			}
			for _, x := range list {
				f, ferr := c.FS.Open("/" + rel + "/" + x.Name)
				if ferr != nil {
					t.Fatal(ferr)
				}
				n, ferr := f.Size()
				if ferr != nil {
					t.Fatal(ferr)
				}
				b := make([]byte, n)
				if _, err := f.ReadAt(b, 0); err != nil {
					t.Fatal(err)
				}
				f.Close()
				err = os.WriteFile(filepath.Join(dir, rel, x.Name), b, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// wantRows compares the parity rows of an epoch of one group, rank i on node i.
func wantRows(t *testing.T, dir string, nodes []string, epoch, m int) {
	t.Helper()
	s := &independentReader{t: t, kinds: map[string]int{}}
	n := len(nodes)
	k := n - m
	name := fmt.Sprintf("epoch-%010d", epoch)
	var shards [][]byte
	longest := 0
	for r, node := range nodes {
		shards = append(shards, s.file(dir, node, "local", name, fmt.Sprintf("rank-%06d.shard", r)))
		longest = max(longest, len(shards[r]))
	}
	segment := (longest + k*4096 - 1) / (k * 4096) * 4096
	for r := range shards {
		shards[r] = append(shards[r], make([]byte, k*segment-len(shards[r]))...)
	}
	rows := parityRows(k, m)
	for i := range n {
		for j := range m {
			file := s.file(dir, nodes[(i+j)%n], "parity", name, fmt.Sprintf("rank-%06d.parity-%d", i, j))
			got := s.sections(file, nil)["row"]
			want := make([]byte, segment)
			for d := range k {
				data := shards[(i+m+d)%n][d*segment : (d+1)*segment]
				for x, b := range data {
					if b != 0 {
						want[x] ^= gfMul(rows[j][d], b)
					}
				}
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%d+%d: row %d of stripe %d differs from what the document says", k, m, j, i)
			}
		}
	}
}
