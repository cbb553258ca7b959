package format_test

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
