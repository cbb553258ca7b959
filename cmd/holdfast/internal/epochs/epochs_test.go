package epochs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/test/schema"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// Run is holdfast with no other verbs than these.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{Use: "holdfast"}
	root.AddCommand(Commands()...)
	return cli.Run(ctx, root, args, stdout, stderr)
}

// run runs a verb of this package.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Run(t.Context(), args, &out, &errs)
	schema.Output(t, args, out.String())
	return code, out.String(), errs.String()
}

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

// TestOtherDirectories: an error names directories that do not belong together, without advice for a job.
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

// TestJSONErrors: with --json the last line is the error of a verb that failed.
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

// TestToolsWithDamagedMarker turns a bit in holdfast.job, and removes it: the tools
// go by the manifests and warn.
func TestToolsWithDamagedMarker(t *testing.T) {
	for _, how := range []string{"damaged", "missing"} {
		t.Run(how, func(t *testing.T) {
			local, global := jobDirs(t)
			for _, d := range []string{local, global} {
				file := filepath.Join(d, "holdfast.job")
				b, err := os.ReadFile(file)
				if err == nil && how == "damaged" {
					b[20] ^= 1
					err = os.WriteFile(file, b, 0o644)
				} else if err == nil {
					err = os.Remove(file)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, args := range [][]string{{"ls", local, global}, {"show", local}, {"prune", local, global},
				{"flush", local, "--to", global}} {
				code, _, errs := run(t, args...)
				if code != cli.Good || !strings.Contains(errs, "holdfast.job") {
					t.Errorf("%v: got exit code %d, %q", args, code, errs)
				}
			}
		})
	}
}

// TestSecondSignalEndsATool: a tool that is stuck in the system, here in a write
// to a pipe without a reader, ends at the second TERM.
func TestSecondSignalEndsATool(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "holdfast")
	if out, err := exec.Command("go", "build", "-o", bin, "../..").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	local, _ := jobDirs(t)
	for e := range 2000 {
		if err := os.Mkdir(filepath.Join(local, fmt.Sprintf("epoch-%010d", e+10)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command(bin, "ls", "--json", local)
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	full := func() bool {
		n, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
		return err == nil && n >= 60<<10
	}
	for end := time.Now().Add(time.Minute); !full(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the pipe does not fill up")
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for end := time.After(time.Minute); ; {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Log(err) // it has ended
		}
		select {
		case <-ended:
			return
		case <-time.After(100 * time.Millisecond):
		case <-end:
			cmd.Process.Kill()
			t.Fatal("TERM does not end it")
		}
	}
}

// TestIOCounts counts what a file system did.
func TestIOCounts(t *testing.T) {
	var c ioCounts
	files := vfs.From(c.over(t.Context()))
	name := filepath.Join(t.TempDir(), "f")
	f, err := files.Create(name, false)
	if err != nil {
		t.Fatal(err)
	}
	_, werr := f.WriteAt([]byte("hello"), 0)
	_, rerr := f.ReadAt(make([]byte, 3), 0)
	if err := f.Close(); werr != nil || rerr != nil || err != nil {
		t.Fatal(werr, rerr, err)
	}
	if r, w := c.read.Load(), c.written.Load(); r != 3 || w != 5 {
		t.Errorf("got %d read, %d written, want 3 and 5", r, w)
	}
}
