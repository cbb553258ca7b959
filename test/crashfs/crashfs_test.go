package crashfs

import (
	"bytes"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

var _ vfs.FS = (*FS)(nil)

func write(t *testing.T, f *FS, name string, b []byte, sync bool) {
	t.Helper()
	w, err := f.Create(name, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if sync {
		if err := w.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}

func read(f *FS, name string) (string, error) {
	r, err := f.Open(name)
	if err != nil {
		return "", err
	}
	n, err := r.Size()
	if err != nil {
		return "", err
	}
	b := make([]byte, n)
	_, err = r.ReadAt(b, 0)
	return string(b), err
}

func TestUnsyncedNamesAndBytesVanish(t *testing.T) {
	f := New()
	if err := f.Mkdir("/d"); err != nil {
		t.Fatal(err)
	}
	write(t, f, "/d/both", []byte("x"), true)
	write(t, f, "/d/name", []byte("x"), false)
	if err := f.SyncDir("/d"); err != nil {
		t.Fatal(err)
	}
	write(t, f, "/d/bytes", []byte("x"), true)
	if got := f.Crash(LoseAll, 0).String(); got != "" {
		t.Errorf("got %q, want nothing: /d itself was not synced", got)
	}
	if err := f.SyncDir("/"); !errors.Is(err, ErrCrashed) {
		t.Errorf("got %v, want ErrCrashed", err)
	}
}

func TestSyncedStateStays(t *testing.T) {
	f := New()
	f.MkdirAll("/d")
	write(t, f, "/d/a", []byte("old"), true)
	write(t, f, "/d/empty", []byte("lost"), false)
	if err := f.SyncDir("/d"); err != nil {
		t.Fatal(err)
	}
	write(t, f, "/d/b", []byte("new"), true)
	if err := f.Rename("/d/b", "/d/a"); err != nil {
		t.Fatal(err)
	}
	if got, _ := read(f, "/d/a"); got != "new" {
		t.Errorf("got %q before the crash, want new", got)
	}
	g := f.Crash(LoseAll, 0)
	if got, err := read(g, "/d/a"); got != "old" {
		t.Errorf("got %q, %v, want old", got, err)
	}
	if got := g.String(); got != "/d/a 3\n/d/empty 0\n" {
		t.Errorf("got %q", got)
	}
}

func TestKeepAllIsWhatAKilledProcessLeaves(t *testing.T) {
	f := New()
	write(t, f, "/a", []byte("x"), false)
	if got := f.Crash(KeepAll, 0).String(); got != "/a 1\n" {
		t.Errorf("got %q", got)
	}
}

func TestTornWritesAreTornAtSectors(t *testing.T) {
	data := bytes.Repeat([]byte{7}, 64*sector)
	torn := false
	for seed := range uint64(20) {
		f := New()
		write(t, f, "/a", data, false)
		f.SyncDir("/")
		got, _ := read(f.Crash(Torn, seed), "/a")
		for i := 0; i+sector <= len(got); i += sector {
			s := got[i : i+sector]
			if strings.Count(s, s[:1]) != sector {
				t.Fatalf("seed %d: sector at %d is torn itself", seed, i)
			}
		}
		torn = torn || strings.Contains(got, "\x00") && strings.Contains(got, "\x07")
	}
	if !torn {
		t.Error("no write was torn under 20 seeds")
	}
}

func TestRules(t *testing.T) {
	f := New()
	f.SetRule(func(op Op) error {
		if op.Kind == "write" {
			return syscall.EIO
		}
		return nil
	})
	w, err := f.Create("/a", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v, want EIO", err)
	}
	f.SetRule(func(op Op) error { return ErrCrashed })
	if _, err := f.Stat("/a"); !errors.Is(err, ErrCrashed) {
		t.Errorf("got %v, want ErrCrashed", err)
	}
}

func TestFullDisk(t *testing.T) {
	f := New()
	f.SetSpace(10)
	w, err := f.Create("/a", false)
	if err != nil {
		t.Fatal(err)
	}
	n, err := w.WriteAt(make([]byte, 12), 0)
	if n != 10 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %d, %v, want 10 bytes and ENOSPC", n, err)
	}
	if err := f.Remove("/a"); err != nil {
		t.Fatal(err)
	}
	if free, _ := f.Free("/"); free != 10 {
		t.Errorf("got %d free, want 10", free)
	}
}

func TestDirectWritesMustBeAligned(t *testing.T) {
	f := New()
	f.SetDirect(true)
	w, err := f.Create("/a", true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteAt(make([]byte, 100), 0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("got %v, want EINVAL", err)
	}
}

func TestNameErrors(t *testing.T) {
	f := New()
	f.MkdirAll("/d")
	write(t, f, "/d/a", nil, true)
	if err := f.Mkdir("/d"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("mkdir: got %v", err)
	}
	if err := f.Remove("/d"); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("remove: got %v", err)
	}
	if _, err := f.Open("/d/b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open: got %v", err)
	}
	write(t, f, "/d/b", nil, true)
	if err := f.Link("/d/a", "/d/b"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("link: got %v", err)
	}
	f.SetLinks(false)
	if err := f.Link("/d/a", "/d/c"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("link: got %v", err)
	}
}

// TestNamesSurviveInAnySubset tries every outcome of three changes, of which a
// later one may be there without an earlier one.
func TestNamesSurviveInAnySubset(t *testing.T) {
	f := New()
	f.MkdirAll("/d")
	write(t, f, "/d/a", []byte("a"), true)
	write(t, f, "/d/b", []byte("b"), true)
	if err := f.Rename("/d/a", "/d/c"); err != nil {
		t.Fatal(err)
	}
	if n := f.Unsynced(); n != 3 {
		t.Fatalf("got %d unsynced changes, want 3", n)
	}
	want := []string{"", "/d/a 1\n", "/d/b 1\n", "/d/a 1\n/d/b 1\n", "/d/c 1\n", "/d/c 1\n", "/d/b 1\n/d/c 1\n",
		"/d/b 1\n/d/c 1\n"}
	seen := map[string]bool{}
	for names := range uint64(8) {
		if got := f.CrashNames(names, 0).String(); got != want[names] {
			t.Errorf("changes %03b: got %q, want %q", names, got, want[names])
		}
	}
	for seed := range uint64(64) {
		seen[f.Crash(Torn, seed).String()] = true
	}
	if len(seen) != 6 {
		t.Errorf("64 seeds gave %d outcomes, want all 6", len(seen))
	}
}

// TestLinkedSpace: a file of two names takes its space once, until both are gone.
func TestLinkedSpace(t *testing.T) {
	f := New()
	f.SetSpace(10)
	write(t, f, "a", make([]byte, 8), true)
	if err := f.Link("a", "b"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		remove string
		want   int64
	}{{"a", 2}, {"b", 10}} {
		if err := f.Remove(step.remove); err != nil {
			t.Fatal(err)
		}
		for which, g := range map[string]*FS{"before": f, "after": f.Crash(KeepAll, 1)} {
			g.down = false // as it would have gone on
			if got, err := g.Free("."); err != nil || got != step.want {
				t.Errorf("without %s, %s a crash: got %d bytes free, %v, want %d", step.remove, which, got, err,
					step.want)
			}
		}
	}
}

// TestSum: file systems that hold the same have one sum; another kind, byte, name or link changes it.
func TestSum(t *testing.T) {
	made := func(names string) *FS {
		f := New()
		for _, n := range strings.Fields(names) {
			if to, from, link := strings.Cut(n, "="); link {
				if err := f.Link(from, to); err != nil {
					t.Fatal(err)
				}
			} else if name, dir := strings.CutSuffix(n, "/"); dir {
				if err := f.Mkdir(name); err != nil {
					t.Fatal(err)
				}
			} else {
				write(t, f, n, []byte("x"), true)
			}
		}
		for _, n := range f.root.names {
			n.time = 1
		}
		return f
	}
	seen := map[[32]byte]string{}
	for _, names := range []string{"", "a", "a b", "a b=a", "a c", "a b/", "b/", "c/"} {
		sum := made(names).Sum()
		if other, ok := seen[sum]; ok {
			t.Errorf("%q has the sum of %q", names, other)
		}
		seen[sum] = names
		if made(names).Sum() != sum {
			t.Errorf("%q has two sums", names)
		}
	}
	f := made("a")
	if err := f.Flip("a", 0, 1); err != nil || f.Sum() == made("a").Sum() {
		t.Errorf("another byte changes nothing, %v", err)
	}
}
