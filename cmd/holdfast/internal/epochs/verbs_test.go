package epochs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/storage"
)

// jobDirs writes one epoch of two ranks at both levels and returns the directories.
func jobDirs(t *testing.T) (local, global string) {
	t.Helper()
	local, global = t.TempDir(), t.TempDir()
	var stores []*storage.Store
	for r := range 2 {
		s, err := storage.Open(t.Context(), storage.Options{Job: "sun", Rank: r, Size: 2, Node: "n1",
			Levels: []storage.LevelConfig{
				{Name: storage.LevelLocal, Dir: local}, {Name: storage.LevelGlobal, Dir: global}}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stores = append(stores, s)
	}
	put := func(level string, one func(s *storage.Store, r int) (storage.ShardInfo, error)) {
		var infos []storage.ShardInfo
		for r, s := range stores {
			info, err := one(s, r)
			if err != nil {
				t.Fatal(err)
			}
			infos = append(infos, info)
		}
		for _, s := range stores {
			if err := s.Commit(t.Context(), 3, level, infos); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(storage.LevelLocal, func(s *storage.Store, r int) (storage.ShardInfo, error) {
		data := bytes.Repeat([]byte{byte(r + 1), 7}, 100_000)
		return s.Put(t.Context(), 3, storage.LevelLocal,
			[]storage.Section{{Name: "x", Size: int64(len(data)), Source: storage.Bytes(data)}})
	})
	put(storage.LevelGlobal, func(s *storage.Store, r int) (storage.ShardInfo, error) {
		return s.Flush(t.Context(), 3, storage.LevelLocal, storage.LevelGlobal, nil)
	})
	return local, global
}

func flip(t *testing.T, file string, at int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 0x10
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestVerbsOnGoodDirectories(t *testing.T) {
	local, global := jobDirs(t)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"ls", local, global}, []string{"EPOCH", "committed", "0-1 of 2", "391 KiB", local, global}},
		{[]string{"show", local}, []string{"REFERS TO", "n1", "195 KiB", "here"}},
		{[]string{"show", "-e", "3", global}, []string{"global"}},
		{[]string{"ls", "-e", "newest", global}, []string{"3      global"}},
		{[]string{"verify", local, global}, []string{"3      all    all"}},
		{[]string{"verify", "--json", local}, []string{`{"epoch":3,"good":true}`}},
	} {
		code, out, errs := run(t, c.args...)
		if code != cli.Good {
			t.Errorf("%v: got exit code %d, want %d: %s", c.args, code, cli.Good, errs)
		}
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%v: got\n%swant %q in it", c.args, out, w)
			}
		}
	}
}

// TestInPart: ls and verify say of an epoch that is there only for what later ones refer to that it is not all there.
func TestInPart(t *testing.T) {
	dir := t.TempDir()
	s, err := storage.Open(t.Context(), storage.Options{Job: "sun", Size: 1, Node: "n1",
		Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: dir, Keep: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// what wrote the arrays of each epoch: that of epoch 3 stays for x, and y is of epoch 2, which goes
	for i, by := range [][2]uint64{{1, 1}, {1, 2}, {3, 2}, {3, 4}, {3, 4}} {
		var secs []storage.Section
		for k, name := range []string{"x", "y"} {
			data := make([]byte, 8<<20)
			_, _ = rand.NewChaCha8([32]byte{byte(k), byte(by[k])}).Read(data) // it does not fail
			secs = append(secs, storage.Section{Name: name, Size: int64(len(data)), Source: storage.Bytes(data)})
		}
		e := storage.Epoch(i + 1)
		info, err := s.Put(t.Context(), e, storage.LevelLocal, secs)
		if err == nil {
			err = s.Commit(t.Context(), e, storage.LevelLocal, []storage.ShardInfo{info})
		}
		if err == nil {
			_, err = s.Prune(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		"ls":     `(?m)^5 .* committed .*\n4 .* committed .*\n3 .* in part `,
		"verify": `(?m)^5 +all +all +good .*\n4 +all +all +good .*\n3 +all +what is kept +good `,
	} {
		if code, out, errs := run(t, args, dir); code != cli.Good || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: exit code %d\n%s%swant\n%s", args, code, out, errs, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"prune", "-n", "--keep", "1", dir}, {"prune", "--keep", "1", dir}} {
		code, out, errs := run(t, args...)
		if want := "epoch 4 stays in " + dir + ": epoch 5 refers to it\nholdfast: epoch 3 stays in " + dir +
			": epoch 5 refers to it\n"; code != cli.Good || errs != "holdfast: "+want {
			t.Errorf("%v: exit code %d, %q, %q, want %q", args, code, out, errs, want)
		}
	}
}

// TestNoEpoch: of a job that has never taken a checkpoint nothing is missing.
func TestNoEpoch(t *testing.T) {
	dir := t.TempDir()
	s, err := storage.Open(t.Context(), storage.Options{Job: "sun", Size: 1, Node: "n1",
		Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: dir}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	code, out, errs := run(t, "verify", dir)
	if code != int(exitMissing) || !strings.Contains(out, "no checkpoint has been committed here so far") ||
		strings.Contains(out, "missing") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}

// TestOtherDirectories: directories that do not belong together are told apart, without advice for a job.
func TestOtherDirectories(t *testing.T) {
	var dirs []string
	for _, o := range []storage.Options{{Job: "sun", Size: 2}, {Job: "sun", Size: 1}, {Job: "moon", Size: 1}} {
		o.Node, o.Levels = "n1", []storage.LevelConfig{{Name: storage.LevelLocal, Dir: t.TempDir()}}
		s, err := storage.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		dirs = append(dirs, o.Levels[0].Dir)
	}
	for _, tc := range []struct {
		a, b int
		want string
	}{
		{0, 1, "%s holds checkpoints of 1 rank, directory %s of 2 ranks: give the directories of one job\n"},
		{1, 2, "%s holds checkpoints of job \"moon\", directory %s of job \"sun\": give the directories of one job\n"},
	} {
		want := fmt.Sprintf("holdfast: level local directory "+tc.want, dirs[tc.b], dirs[tc.a])
		if code, _, errs := run(t, "verify", dirs[tc.a], dirs[tc.b]); code != cli.NoLook || errs != want {
			t.Errorf("exit code %d, %q, want %q", code, errs, want)
		}
	}
}

func TestVerifyNamesFaultAndGoodCopy(t *testing.T) {
	local, global := jobDirs(t)
	flip(t, filepath.Join(local, "epoch-0000000003", "rank-000001.shard"), 5000)
	code, out, _ := run(t, "verify", "--json", local, global)
	if code != cli.Bad {
		t.Errorf("got exit code %d, want %d", code, cli.Bad)
	}
	var row verifyRow
	if err := json.Unmarshal([]byte(out), &row); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if row.Rank == nil || *row.Rank != 1 || row.Level != "local" || len(row.GoodAt) != 1 || row.GoodAt[0] != global {
		t.Errorf("got %+v, want rank 1 at local, good at %s", row, global)
	}
	if code, out, _ := run(t, "verify", local); code != cli.Bad || !strings.Contains(out, "none") {
		t.Errorf("got exit code %d and\n%swant %d and no good copy", code, out, cli.Bad)
	}
}

func TestMissingShardIsBad(t *testing.T) {
	_, global := jobDirs(t)
	if err := os.Remove(filepath.Join(global, "epoch-0000000003", "rank-000000.shard")); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := run(t, "verify", global); code != int(exitMissing) || !strings.Contains(out, "missing") {
		t.Errorf("got exit code %d and\n%swant %d and a missing shard", code, out, exitMissing)
	}
}

func TestCouldNotLook(t *testing.T) {
	local, _ := jobDirs(t)
	for _, args := range [][]string{
		{"ls"}, {"ls", t.TempDir()}, {"verify", filepath.Join(local, "absent")}, {"show", "-e", "9", local},
		{"show", "-e", "x", local}, {"nosuchverb"},
	} {
		code, out, errs := run(t, args...)
		if code != cli.NoLook || errs == "" || out != "" {
			t.Errorf("%v: got exit code %d, %q, %q, want %d and a reason on stderr", args, code, out, errs, cli.NoLook)
		}
	}
}

func TestReadingVerbsDoNotWrite(t *testing.T) {
	local, global := jobDirs(t)
	before := tree(t, local) + tree(t, global)
	for _, verb := range []string{"ls", "show", "verify"} {
		run(t, verb, local, global)
	}
	if after := tree(t, local) + tree(t, global); after != before {
		t.Errorf("got\n%swant\n%s", after, before)
	}
}

func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			b.WriteString(path + " " + info.ModTime().String() + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestShardElsewhere: of directories that no rank has a list in, as older versions
// left them, a shard that is not there may be on another node.
func TestShardElsewhere(t *testing.T) {
	local, _ := jobDirs(t)
	for _, name := range []string{"epoch-0000000003/rank-000000.shard", "epochs-000000", "epochs-000001"} {
		if err := os.Remove(filepath.Join(local, name)); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, _ := run(t, "verify", local); code != cli.Good || !strings.Contains(out, "elsewhere") {
		t.Errorf("got exit code %d and\n%swant %d: it may be on another node", code, out, cli.Good)
	}
	if code, _, _ := run(t, "verify", "--complete", local); code != int(exitMissing) {
		t.Errorf("got exit code %d, want %d: there is no other directory", code, exitMissing)
	}
}

// TestJSONErrors: with --json the last line says why a verb failed.
func TestJSONErrors(t *testing.T) {
	for _, args := range [][]string{{"verify", "--json", "/absent"}, {"ls", "--json", "/absent"},
		{"show", "--json", t.TempDir()}} {
		code, out, errs := run(t, args...)
		var got cli.Failure
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != cli.NoLook || got.Error == "" || errs == "" {
			t.Errorf("%v: got %d, %q, %q, want an object with an error", args, code, out, errs)
		}
	}
	local, _ := jobDirs(t)
	flip(t, filepath.Join(local, "epoch-0000000003", "manifest"), 20)
	code, out, _ := run(t, "show", "--json", local)
	if code != cli.Bad || !strings.Contains(out, `"error":"corrupt`) {
		t.Errorf("got %d, %s, want the damage in it", code, out)
	}
}

// TestStoredIsOfTheDirectory: each directory's line says what is there.
func TestStoredIsOfTheDirectory(t *testing.T) {
	local, global := jobDirs(t)
	if err := os.Remove(filepath.Join(local, "epoch-0000000003", "rank-000001.shard")); err != nil {
		t.Fatal(err)
	}
	_, out, _ := run(t, "ls", "--json", local, global)
	var stored []int64
	for line := range strings.Lines(out) {
		var r lsRow
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		stored = append(stored, r.Stored)
	}
	if len(stored) != 2 || stored[0] < 190<<10 || stored[0] > 220<<10 || stored[1] < 390<<10 {
		t.Errorf("got %v bytes stored, want one shard's and two's", stored)
	}
}
