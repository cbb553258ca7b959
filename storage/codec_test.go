package storage_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/crashfs"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/fetch"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/jobtest"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
)

// smooth is a field of float64, which compresses by planes and not as it lies.
func smooth(n int) []byte {
	b := make([]byte, 0, 8*n)
	for i := range n {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(1+math.Sin(float64(i)/5000)))
	}
	return b
}

// TestCompressedShard puts and restores a field by planes, and finds every kind of
// damage to it.
func TestCompressedShard(t *testing.T) {
	f := crashfs.New()
	f.MkdirAll("/d")
	s, err := storage.Open(vfs.With(t.Context(), f), jobtest.Tuned(storage.Options{Job: "j", Size: 1,
		Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/d", CompressAlways: true}}}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data := storage.Bytes(smooth(100_000))
	secs := []storage.Section{{Name: "field", Size: int64(len(data)), Source: data}}
	infos := jobtest.Take(t, []*storage.Store{s}, 1, storage.LevelLocal, func(int) []storage.Section { return secs })
	if infos[0].Stored > infos[0].Bytes*9/10 {
		t.Errorf("stored %d of %d bytes", infos[0].Stored, infos[0].Bytes)
	}
	sh := jobtest.WantShard(t, s, 1, secs)
	if c := fetch.IndexOf(sh).Chunks[0]; c.Filter != format.FilterShuffle || c.Width != 8 {
		t.Errorf("chunk 0 is %+v, want it in planes of 8", c)
	}
	file := "/d/" + format.EpochName(1) + "/" + format.ShardName(0)
	for at := int64(format.HeaderLen); at < format.HeaderLen+infos[0].Stored; at += 7919 {
		f.Flip(file, at, 0x10)
		if _, err := jobtest.FetchAll(t.Context(), s, 1); !errors.Is(err, storage.ErrCorrupt) {
			t.Fatalf("byte %d: got %v, want ErrCorrupt", at, err)
		}
		f.Flip(file, at, 0x10)
	}
	back, err := s.Fetch(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	if err := back.Verify(t.Context()); err != nil || back.Epoch() != 1 {
		t.Errorf("epoch %d, %v", back.Epoch(), err)
	}
}

// TestNewerVersionsAreRefused raises the version of each kind of file. A reader
// says so with both numbers; it does not call it damage, and it does not guess.
func TestNewerVersionsAreRefused(t *testing.T) {
	raise := func(b []byte, at, to int) []byte {
		n := int(binary.LittleEndian.Uint32(b[at+12:])) + format.RecordExtra
		binary.LittleEndian.PutUint16(b[at+10:], uint16(to))
		binary.LittleEndian.PutUint32(b[at+n-4:], format.CRC(b[at:at+n-4]))
		return b
	}
	for name, known := range map[string]int{format.MarkerName: 2, format.EpochName(1) + "/" + format.ManifestName: 3} {
		w := jobtest.OneEpoch(t)
		file := "/local0/" + name
		b, err := level.ReadFile(w.FS, file, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.FS.Remove(file), level.WriteFile(w.FS, file, raise(b, 0, known+1))); err != nil {
			t.Fatal(err)
		}
		d := w.At(0, 0)
		if name == format.MarkerName {
			_, err = d.ReadMarker()
		} else {
			_, err = d.ReadManifest(1)
			if err := w.Check(1); err != nil {
				t.Errorf("the other level: %v", err)
			}
		}
		var bad *storage.VersionError
		if !errors.As(err, &bad) || bad.Have != known+1 || bad.Known != known || errors.Is(err, storage.ErrCorrupt) ||
			!strings.Contains(err.Error(), fmt.Sprintf("version %d, this build reads up to %d: use a newer holdfast",
				known+1, known)) {
			t.Errorf("%s: got %v, want a *VersionError", name, err)
		}
	}
}

// TestNewerEpochIsNotPassedOver: a build that cannot read the newest epoch, because a later one has written it, does
// not go back to an older one behind the user's back, and removes nothing that it may refer to.
func TestNewerEpochIsNotPassedOver(t *testing.T) {
	w := jobtest.FullWorld(t, 5)
	raise := func(e storage.Epoch, dir string) {
		t.Helper()
		file := dir + "/" + format.EpochName(e) + "/" + format.ManifestName
		b, err := level.ReadFile(w.FS, file, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		b[10] = 99
		binary.LittleEndian.PutUint32(b[len(b)-4:], format.CRC(b[:len(b)-4]))
		if err := errors.Join(w.FS.Remove(file), level.WriteFile(w.FS, file, b)); err != nil {
			t.Fatal(err)
		}
	}
	raise(5, "/local0")
	if list, _, err := w.Stores[0].Candidates(t.Context()); err != nil || list[0].Epoch != 5 {
		t.Errorf("it is at another level: got %v, %v", list, err)
	}
	raise(4, "/global")
	raise(4, "/local0")
	if _, _, err := w.Stores[0].Candidates(t.Context()); err != nil {
		t.Errorf("epoch 5 can be read: %v", err)
	}
	raise(5, "/global")
	list, _, err := w.Stores[0].Candidates(t.Context())
	var newer *storage.VersionError
	if !errors.As(err, &newer) || !strings.Contains(err.Error(), "the newest epoch is 5") || len(list) != 3 {
		t.Errorf("got %v, %v; want a *VersionError and three older ones", list, err)
	}
	w.Prune(t)
	if got := fmt.Sprint(w.EpochsAt(t, 0, 1)); got != "[5 4 3 2 1]" {
		t.Errorf("global: got %s", got)
	}
}

// TestPlainFiles writes where direct I/O is refused: the same bytes.
func TestPlainFiles(t *testing.T) {
	for _, direct := range []bool{true, false} {
		f := crashfs.New()
		f.SetDirect(direct)
		f.MkdirAll("/d")
		s, err := storage.Open(vfs.With(t.Context(), f), jobtest.Tuned(storage.Options{Job: "j", Size: 1,
			Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/d"}}}))
		if err != nil {
			t.Fatal(err)
		}
		secs := jobtest.SectionsOf(0, 1)
		odd := jobtest.Random(9, 5<<20+1)[1:] // memory that is not aligned
		secs = append(secs, storage.Section{Name: "odd memory", Size: int64(len(odd)), Source: storage.Bytes(odd)},
			storage.Section{Name: "read", Size: 3<<20 + 5,
				Source: onlyReader{bytes.NewReader(jobtest.Random(4, 3<<20+5))}})
		jobtest.Take(t, []*storage.Store{s}, 1, storage.LevelLocal, func(int) []storage.Section { return secs })
		secs[len(secs)-1].Source = storage.Bytes(jobtest.Random(4, 3<<20+5))
		jobtest.WantShard(t, s, 1, secs)
		if n := jobtest.Findings(t, f, "/d"); n != 0 {
			t.Errorf("direct %v: %d findings", direct, n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// onlyReader hides that the bytes lie in memory.
type onlyReader struct{ *bytes.Reader }

// TestShortSources: a source that does not yield what it said fails the put.
func TestShortSources(t *testing.T) {
	stores := jobtest.OpenStores(t, 1, jobtest.TwoLevels(t))
	for name, sec := range map[string]storage.Section{
		"ends early":   {Name: "x", Size: 100, Source: onlyReader{bytes.NewReader(make([]byte, 99))}},
		"two sections": {Name: "step", Size: 1, Source: storage.Bytes{1}},
		"long name":    {Name: strings.Repeat("n", 1<<16), Size: 1, Source: storage.Bytes{1}},
	} {
		secs := append(jobtest.SectionsOf(0, 1)[:1:1], sec)
		if _, err := stores[0].Put(t.Context(), 1, storage.LevelLocal, secs); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := stores[0].Put(t.Context(), 0, storage.LevelLocal, nil); err == nil {
		t.Error("epoch 0 was accepted")
	}
	left := fmt.Sprint(stores[0].Level(0).Epochs())
	if left != "[1] <nil>" && left != "[] <nil>" {
		t.Errorf("epochs %s", left)
	}
}
