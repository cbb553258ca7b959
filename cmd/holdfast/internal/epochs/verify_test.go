package epochs

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/storage"
)

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

// TestNameWithoutEpoch: a program has asked for a checkpoint with a name (hf_restart_test) that was never taken; its
// others are good.
func TestNameWithoutEpoch(t *testing.T) {
	_, global := jobDirs(t)
	dir := filepath.Join(global, "name.heat")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	named, err := storage.Open(t.Context(), storage.Options{Job: "heat", Size: 1, Node: "n1",
		Levels: []storage.LevelConfig{{Name: storage.LevelGlobal, Dir: dir}}})
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	if code, out, errs := run(t, "verify", global); code != 0 || strings.Contains(out, "heat") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
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
