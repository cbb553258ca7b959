package catalog_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
)

// TestNewerEpochIsNotPassedOver: a build that cannot read the newest epoch, because a later one has written it, does
// not go back to an older one behind the user's back, and keeps all epochs that it may refer to.
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

// TestStrayEpochNumber: a directory with a number at the end of all numbers does not make
// the epochs that follow disappear.
func TestStrayEpochNumber(t *testing.T) {
	f := jobtest.NewWorldFS()
	w, err := jobtest.OpenWorld(f)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := w.TakeEpoch(7, func(storage.Epoch) {}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []storage.Epoch{1 << 61, 1<<61 + 1, 1<<62 - 1, 1 << 62} {
		f.MkdirAll("/local0/" + format.EpochName(n))
		want := storage.Epoch(7)
		if n <= format.MaxCounted {
			want = n
		}
		if h, err := w.Stores[0].Highest(t.Context()); err != nil || h != want {
			t.Errorf("with epoch %d: got %d, %v, want %d", n, h, err, want)
		}
		if _, ok := format.ParseEpochName(format.EpochName(want + 1)); !ok {
			t.Errorf("the epoch after %d would not be found", want)
		}
		f.RemoveAll("/local0/" + format.EpochName(n))
	}
}
