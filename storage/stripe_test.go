package storage_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/testbuf"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/jobtest"
)

// lustreFS says that one directory lies on Lustre.
type lustreFS struct {
	vfs.OS
	dir string
}

func (f *lustreFS) Lustre(dir string) bool { return dir == f.dir }

// fakeLFS puts a script in the place of Lustre's lfs on PATH, which notes how it is called.
func fakeLFS(t *testing.T, script string) (calls func() string) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "fake-lfs")
	noted := filepath.Join(bin, "calls")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	text := "#!/bin/sh\necho \"$@\" >> " + noted + "\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(bin, "lfs"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	return func() string {
		b, err := os.ReadFile(noted)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(b)
	}
}

// TestStripes: a directory on Lustre gets its stripes once, by rank 0, if they are asked for, and a job runs without
// them when it cannot have them.
func TestStripes(t *testing.T) {
	for name, c := range map[string]struct {
		stripes        int
		lustre, noTool bool
		script         string
		want, warns    string
	}{
		"asked for":     {stripes: 8, lustre: true, want: "setstripe -E 64M -c 1 -E -1 -c 8 DIR\n"},
		"over all":      {stripes: -1, lustre: true, want: "setstripe -E 64M -c 1 -E -1 -c -1 DIR\n"},
		"not asked for": {lustre: true},
		"no Lustre":     {stripes: 8},
		"refused": {stripes: 8, lustre: true, script: "echo no quota; exit 5", want: "setstripe",
			warns: "no quota"},
		"without the tool": {stripes: 8, lustre: true, noTool: true, warns: "lfs of Lustre is not on PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			global := filepath.Join(dir, "g")
			if err := os.Mkdir(global, 0o700); err != nil {
				t.Fatal(err)
			}
			calls := fakeLFS(t, c.script)
			if c.noTool {
				t.Setenv("PATH", dir)
			}
			f := &lustreFS{}
			if c.lustre {
				f.dir = global
			}
			var log testbuf.Buffer
			var told *storage.Told
			for r := range 2 {
				s, err := storage.Open(vfs.With(context.Background(), f),
					jobtest.Tuned(storage.Options{Job: "j", Rank: r, Size: 2, Together: true, Told: told,
						Nodes:  []string{"a", "b"},
						Logger: slog.New(slog.NewTextHandler(&log, nil)),
						Levels: []storage.LevelConfig{{Name: storage.LevelGlobal, Dir: global, Stripes: c.stripes}}}))
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if r == 0 {
					common, own, err := s.Overview(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					told = &storage.Told{Common: common, Own: own(1)}
				}
			}
			got := strings.ReplaceAll(calls(), global, "DIR")
			if got != c.want && !(c.script != "" && strings.HasPrefix(got, c.want)) {
				t.Errorf("lfs was called as %q, want %q", got, c.want)
			}
			said := log.String()
			if strings.Contains(said, "striped") != (c.warns != "") || !strings.Contains(said, c.warns) {
				t.Errorf("the log has %q, want %q", said, c.warns)
			}
		})
	}
}

// TestPackBytes: a set length divides the ranks of a node among packs, whoever writes them, and what is restored does
// not depend on it.
func TestPackBytes(t *testing.T) {
	for _, together := range []bool{true, false} {
		f := jobtest.NewPackFS()
		var stores []*storage.Store
		for r := range packRanks {
			s, err := storage.Open(vfs.With(t.Context(), f),
				jobtest.Tuned(storage.Options{Job: "pack", Rank: r, Size: 3, Node: "n",
					Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "/l"},
						{Name: storage.LevelGlobal, Dir: "/g", PackBytes: 2_000_000}}}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			stores = append(stores, s)
		}
		secs := func(r int) []storage.Section { return mixedSections(r, 1) }
		jobtest.Take(t, stores, 1, storage.LevelLocal, secs)
		var infos []storage.ShardInfo
		var err error
		if together {
			infos, _, err = packTogether(t.Context(), stores, 1, secs)
		} else {
			infos, err = stores[0].FlushNode(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, packRanks)
		}
		if err != nil {
			t.Fatal(err)
		}
		settle(t, stores, 1, infos)
		var packs []int
		for _, i := range infos {
			packs = append(packs, i.Pack)
		}
		if len(packs) != 3 || packs[0] != 0 || packs[1] != 1 || packs[2] != 2 {
			t.Errorf("together %v: the shards are in packs %v, want one for each rank", together, packs)
		}
		f.RemoveAll("/l/epoch-0000000001")
		for r, s := range stores {
			jobtest.WantShard(t, s, 1, secs(r))
		}
		if n := jobtest.Findings(t, f, "/g"); n != 0 {
			t.Errorf("verify has %d findings", n)
		}
	}
	var bad *storage.OptionError
	for _, l := range []storage.LevelConfig{{PackBytes: -1}, {Stripes: -2}, {Stripes: 1 << 20}} {
		l.Name, l.Dir = storage.LevelGlobal, t.TempDir()
		if _, err := storage.Open(t.Context(), storage.Options{Job: "j", Size: 1,
			Levels: []storage.LevelConfig{l}}); !errors.As(err, &bad) {
			t.Errorf("%+v: got %v, want an *OptionError", l, err)
		}
	}
}
