package events

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// nodeOptions returns the node options of a rank on a node with ranks 0 to n-1.
func nodeOptions(t *testing.T, dir string, rank, n int) Options {
	t.Helper()
	return Options{Dir: dir, Rank: rank, Begun: time.Now(), Logger: slog.New(slog.DiscardHandler),
		Header: Header{Job: "sun", Run: 1, Size: n, Node: "n1", PID: 77, AliveNS: 5e9, Levels: []string{"global"}},
		Node:   &Node{First: 0, Ranks: n, Secret: fmt.Sprintf("%x", sha256.Sum256([]byte(dir)))[:16]}}
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	list, err := os.ReadDir(runDir(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		out = append(out, f.Name())
	}
	return out
}

// read reads a run that has no problems.
func read(t *testing.T, dir string) []RankLog {
	t.Helper()
	logs, problems, err := ReadDir(t.Context(), dir, 0)
	if err != nil || len(problems) > 0 {
		t.Fatalf("got problems %v, %v", problems, err)
	}
	return logs
}

// epochs lists those of the events of a name.
func epochs(l RankLog, name string) (out []uint64) {
	for _, e := range l.Events {
		if e.Name == name {
			out = append(out, e.Epoch)
		}
	}
	return out
}

// TestNodeLog: the ranks of a node write one file, whichever comes first, and each rank's
// events are read back in order, even if the log has had many parts.
func TestNodeLog(t *testing.T) {
	const ranks, lines = 5, 400
	for _, most := range []int64{0, 16 << 10} {
		t.Run(fmt.Sprint("most ", most), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), DirName)
			var all, open, full sync.WaitGroup
			open.Add(ranks)
			full.Add(ranks)
			for r := range ranks {
				all.Go(func() {
					opt := nodeOptions(t, dir, r, ranks)
					opt.MaxBytes = most
					l, err := Create(t.Context(), opt)
					if err != nil {
						t.Error(err)
						open.Done()
						full.Done()
						return
					}
					l.Emit(Event{Name: Sync})
					l.Flush(t.Context())
					open.Done()
					open.Wait() // as in Open: no rank closes before all are there
					for i := range lines {
						l.Emit(Event{Name: Arm, Epoch: uint64(i + 1)})
						if i%100 == 0 {
							l.Emit(Event{Name: Alive, Points: uint64(i)})
							l.Flush(t.Context())
						}
					}
					l.Flush(t.Context())
					full.Done()
					full.Wait() // the last parts are of what was logged last, by whichever rank
					l.Emit(Event{Name: Close})
					if err := l.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if got := names(t, dir); slices.ContainsFunc(got, func(n string) bool { return n[:5] != "node-" }) ||
				most == 0 && len(got) != 1 || most > 0 && len(got) != 2 {
				t.Errorf("got files %v, want those of the node", got)
			}
			logs := read(t, dir)
			if len(logs) != ranks {
				t.Fatalf("got %d logs, want %d", len(logs), ranks)
			}
			for r, l := range logs {
				arms := epochs(l, Arm)
				if l.Rank != r || l.Header.Size != ranks || l.Bad != 0 || l.Torn || !slices.IsSorted(arms) ||
					most == 0 && len(arms) != lines || l.Lost != 0 || l.Events[len(l.Events)-1].Name != Close {
					t.Errorf("rank %d: got header %+v, %d bad, torn %v, %d lost, %d arms", l.Rank, l.Header, l.Bad,
						l.Torn, l.Lost, len(arms))
				}
				if e := l.Events[0]; e.Name != Open || e.Header == nil || e.Begin == l.Truncated {
					t.Errorf("rank %d begins with %+v, truncated %v", l.Rank, e, l.Truncated)
				}
			}
		})
	}
}

// TestNodeAlive: signs of life of the ranks take the place of those before, and stay where
// something else follows.
func TestNodeAlive(t *testing.T) {
	dir := filepath.Join(t.TempDir(), DirName)
	var logs []*Log
	for r := range 3 {
		l, err := Create(t.Context(), nodeOptions(t, dir, r, 3))
		if err != nil {
			t.Fatal(err)
		}
		l.Emit(Event{Name: Sync})
		l.Flush(t.Context())
		logs = append(logs, l)
	}
	for i := range uint64(30) {
		for _, l := range logs {
			l.Emit(Event{Name: Alive, Points: i})
			l.Flush(t.Context())
		}
		if i == 14 {
			logs[1].Emit(Event{Name: Arm, Epoch: 1})
			logs[1].Flush(t.Context())
		}
	}
	for _, l := range slices.Backward(logs) {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, l := range read(t, dir) {
		var got []string
		for _, e := range l.Events {
			got = append(got, fmt.Sprint(e.Name, e.Points))
		}
		want := "[open0 sync0 alive14 alive29]"
		if l.Rank == 1 {
			want = "[open0 sync0 alive14 arm0 alive29]"
		}
		if fmt.Sprint(got) != want {
			t.Errorf("rank %d: got %v, want %s", l.Rank, got, want)
		}
	}
}

// TestFirstOfNodeDies: the other ranks go on in files of their own, and each of their lines is there
// once.
func TestFirstOfNodeDies(t *testing.T) {
	dir := filepath.Join(t.TempDir(), DirName)
	first, err := Create(t.Context(), nodeOptions(t, dir, 0, 2))
	if err != nil {
		t.Fatal(err)
	}
	other, err := Create(t.Context(), nodeOptions(t, dir, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	first.Emit(Event{Name: Arm, Epoch: 1})
	first.Flush(t.Context())
	for i := range uint64(20) {
		other.Emit(Event{Name: Arm, Epoch: i + 1})
		other.Flush(t.Context())
		if i == 9 { // as if its process were gone: no listener, and the connection breaks
			c := first.out.(*collector)
			_ = c.listen.Close()
			c.cancel()
			c.conns.Wait()
		}
	}
	if err := errors.Join(other.Close(), first.Close()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(names(t, dir)); got != "[node-000000.0.jsonl rank-000001.0.jsonl]" {
		t.Errorf("got files %v", got)
	}
	logs := read(t, dir)
	if len(logs) != 2 || len(epochs(logs[0], Arm)) != 1 || len(logs[1].Paths) != 2 || len(epochs(logs[1], Open)) != 1 {
		t.Fatalf("got %+v", logs)
	}
	for i, e := range epochs(logs[1], Arm) {
		if e != uint64(i+1) {
			t.Fatalf("got %v, want 1 to 20", epochs(logs[1], Arm))
		}
	}
	if n := len(epochs(logs[1], Arm)); n != 20 {
		t.Errorf("got %d events, want 20", n)
	}
}

// childVar names the directory for the child of TestFirstOfNodeKilled.
const childVar = "HOLDFAST_TEST_EVENTS_DIR"

// TestFirstOfNodeKilled is TestFirstOfNodeDies with a process that is killed.
func TestFirstOfNodeKilled(t *testing.T) {
	if dir := os.Getenv(childVar); dir != "" { // the first rank
		if _, err := Create(t.Context(), nodeOptions(t, dir, 0, 2)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // until it is killed
		return
	}
	dir := filepath.Join(t.TempDir(), DirName)
	child := exec.Command(os.Args[0], "-test.run=^TestFirstOfNodeKilled$")
	child.Env = append(os.Environ(), childVar+"="+dir)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Wait() }() // it was killed
	l, err := Create(t.Context(), nodeOptions(t, dir, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(4) {
		l.Emit(Event{Name: Arm, Epoch: i + 1})
		l.Flush(t.Context())
		if i == 1 {
			if err := child.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(names(t, dir)); got != "[node-000000.0.jsonl rank-000001.0.jsonl]" {
		t.Errorf("got files %v", got)
	}
	if logs := read(t, dir); len(logs) != 2 || fmt.Sprint(epochs(logs[1], Arm)) != "[1 2 3 4]" {
		t.Errorf("got %+v", logs)
	}
}

// TestNodeOfStrangers: who does not begin with a header of the run, or speaks for another
// rank, is not listened to, and changes nothing.
func TestNodeOfStrangers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), DirName)
	first, err := Create(t.Context(), nodeOptions(t, dir, 0, 4))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*member){
		"another run": func(m *member) { m.opt.Header.Run = 7 },
		"the first":   func(m *member) { m.opt.Rank = 0 },
		"no header":   func(m *member) { m.joined = true },
	} {
		m := &member{opt: nodeOptions(t, dir, 1, 4)}
		m.opt.Header.Version, m.opt.fs = Version, vfs.OS{}
		change(m)
		if _, _, gone := m.send([]Event{{Name: Arm, Rank: m.opt.Rank}}); gone == nil {
			t.Errorf("%s: it was listened to", name)
		}
		m.leave()
	}
	m := &member{opt: nodeOptions(t, dir, 1, 4)}
	m.opt.Header.Version, m.opt.fs = Version, vfs.OS{}
	if n, err, gone := m.send([]Event{{Name: Arm, Rank: 1}}); n != 1 || err != nil || gone != nil {
		t.Errorf("a rank: got %d, %v, %v", n, err, gone)
	}
	if _, _, gone := m.send([]Event{{Name: Arm, Rank: 2}}); gone == nil {
		t.Error("a rank speaks for another")
	}
	m.leave()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if logs := read(t, dir); len(logs) != 2 || len(logs[0].Events) != 1 || len(logs[1].Events) != 2 {
		t.Errorf("got %+v", logs)
	}
}

// TestNodeFullDisk: ranks learn that their lines were not written, count them, and go on when
// there is room.
func TestNodeFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), DirName)
	full := errors.New("no space left")
	var log testbuf.Buffer
	room := &roomFS{FS: vfs.OS{}}
	opt := nodeOptions(t, dir, 0, 2)
	opt.fs = room
	first, err := Create(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	opt = nodeOptions(t, dir, 1, 2)
	opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
	other, err := Create(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(9) {
		switch i {
		case 3:
			room.set(full)
		case 6:
			room.set(nil)
		}
		other.Emit(Event{Name: Arm, Epoch: i + 1})
		other.Flush(t.Context())
	}
	if err := errors.Join(other.Close(), first.Close()); err != nil {
		t.Fatal(err)
	}
	l := read(t, dir)[1]
	if got := fmt.Sprint(epochs(l, Arm)); got != "[1 2 3 7 8 9]" || l.Lost != 3 {
		t.Errorf("got %v and %d lost, want 4 to 6 lost", got, l.Lost)
	}
	if !strings.Contains(log.String(), "no space left") {
		t.Errorf("the rank does not say why: %s", log.String())
	}
}

// roomFS is a disk that is full while there is an error.
type roomFS struct {
	vfs.FS
	mu  sync.Mutex
	err error
}

func (f *roomFS) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *roomFS) Create(name string, direct bool) (vfs.File, error) {
	file, err := f.FS.Create(name, direct)
	return roomFile{file, f}, err
}

type roomFile struct {
	vfs.File
	fs *roomFS
}

func (f roomFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	err := f.fs.err
	f.fs.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}
