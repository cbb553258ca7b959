package storagetest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-hpc/holdfast/storage"
)

// Sort of a damage: the expected answer of verify.
type Sort int

// Sorts of damage.
const (
	AnySort  Sort = iota // it may do no harm; if it does, verify must see it
	Spoils               // there, with other bytes: damaged
	Takes                // gone: missing, or not redundant
	Mixes                // either, or both
	Harmless             // verify has nothing to say
)

// Damager damages directories of checkpoints as disks, people and other users do. It
// is for tests, runs as root, and does the same for the same random numbers.
type Damager struct {
	Rnd    *rand.Rand
	Base   string        // all directories of the job lie below it
	Levels []string      // the directories of levels
	Newest storage.Epoch // newest epoch; retention keeps it and the one before
	Done   []string      // the damage, in words
}

func (v *Damager) junk(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(v.Rnd.Uint32())
	}
	return b
}

func (v *Damager) page(b []byte) []byte {
	at := v.Rnd.IntN(len(b)) &^ 4095
	return b[at:min(len(b), at+4096)]
}

// mostCopied is the size of files that are read and written again. One that was made large before
// is a hole, which a copy would fill.
const mostCopied = 64 << 20

// read reads a file, unless it was made large before.
func read(p string) ([]byte, error) {
	if info, err := os.Lstat(p); err != nil || !info.Mode().IsRegular() || info.Size() > mostCopied {
		return nil, errSame
	}
	return os.ReadFile(p)
}

// large reports whether a directory has a file that was made large before.
func large(dir string) (found bool) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		info, err := d.Info()
		found = found || err == nil && info.Mode().IsRegular() && info.Size() > mostCopied
		return nil
	})
	return found
}

// edit rewrites a file, which must change it.
func (v *Damager) edit(p string, change func(b []byte) []byte) error {
	b, err := read(p)
	if err != nil {
		return err
	}
	if len(b) == 0 {
		return errSame
	}
	out := change(bytes.Clone(b))
	if bytes.Equal(out, b) {
		return errSame
	}
	return os.WriteFile(p, out, 0o600)
}

// another chooses a file or directory of the same sort in another place.
func (v *Damager) another(p string, dir bool) (string, error) {
	var list []string
	for _, q := range v.all() {
		info, err := os.Lstat(q)
		if err == nil && q != p && info.IsDir() == dir && part(q) == part(p) {
			list = append(list, q)
		}
	}
	if len(list) == 0 {
		return "", errSame
	}
	return list[v.Rnd.IntN(len(list))], nil
}

// copies reports whether two files hold the same shard: then either may stand for the
// other.
func copies(p, q string) bool {
	epoch := func(p string) string { return filepath.Base(filepath.Dir(p)) }
	return part(p) == "shard" && filepath.Base(p) == filepath.Base(q) && epoch(p) == epoch(q)
}

// part returns the kind of a file or directory: "manifest", "shard", "epoch", ...
func part(p string) string {
	name := filepath.Base(p)
	switch {
	case strings.HasPrefix(name, "epoch-"):
		return "epoch"
	case strings.HasPrefix(name, "epochs-"):
		return "ledger"
	case strings.HasPrefix(name, "trials-"):
		return "trials"
	case strings.HasSuffix(name, ".shard"):
		return "shard"
	case strings.HasPrefix(name, "pack-"):
		return "pack"
	case strings.Contains(name, ".parity-"):
		return "row"
	}
	return name
}

// kept reports whether retention keeps a file's epoch for itself, not for later ones that refer to it.
func (v *Damager) kept(p string) bool {
	return strings.Contains(p, fmt.Sprintf("epoch-%010d", v.Newest)) ||
		strings.Contains(p, fmt.Sprintf("epoch-%010d", v.Newest-1))
}

// all lists the files and the directories of epochs.
func (v *Damager) all() (out []string) {
	filepath.WalkDir(v.Base, func(p string, d fs.DirEntry, err error) error {
		if err == nil && (!d.IsDir() || part(p) == "epoch") {
			out = append(out, p)
		}
		return nil
	})
	return out
}

// Damage does one damage and returns its sort.
func (v *Damager) Damage() Sort {
	for {
		list, acts := v.all(), fileActs
		level := v.Rnd.IntN(20) == 0
		if level {
			list = v.Levels
		}
		p := list[v.Rnd.IntN(len(list))]
		info, err := os.Lstat(p)
		if err != nil || !info.IsDir() && !info.Mode().IsRegular() {
			continue
		}
		switch {
		case level && info.IsDir():
			acts = levelActs
		case info.IsDir():
			acts = dirActs
		}
		a := acts[v.Rnd.IntN(len(acts))]
		if err := a.do(v, p); errors.Is(err, errSame) || errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			panic(fmt.Sprintf("%s of %s: %v", a.name, p, err)) // the test's own fault
		}
		v.Done = append(v.Done, a.name+": "+strings.TrimPrefix(p, v.Base))
		if part(p) == "epoch" && !info.IsDir() {
			return AnySort // a file in its place from the damage before: with a directory there it is only gone
		}
		switch part(p) {
		case "epoch", "manifest", "shard", "pack", "row":
			if (a.sort == Takes || a.sort == Mixes) && !v.kept(p) {
				return AnySort // its needed parts are checked with the epochs that need them
			}
		case "ledger", "trials", "holdfast.begun":
			if a.sort != Harmless {
				return AnySort // nothing is restored from it
			}
		case "holdfast.job":
			if a.sort == Takes {
				return Mixes
			}
		}
		return a.sort
	}
}
