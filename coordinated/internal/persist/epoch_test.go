package persist

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// TestWay: what an epoch goes through on a rank that is alone, in this order, and what
// becomes of it when a level fails.
func TestWay(t *testing.T) {
	vote := func(level string) string { return "put " + level + ", voted, commit " + level }
	for _, c := range []struct {
		name, sick string
		err        error // of the capture
		want       string
	}{
		{"all levels", "", nil, "write local, put, " + vote("local") + ", committed, freed, at local, " +
			"copy global, part, " + vote("global") + ", copied, at global"},
		{"the first fails", "/local/", nil, "write local: failed, put, put local, voted, " +
			"write global, put, " + vote("global") + ", committed, freed, at global, failed"},
		{"an outer one fails", "/global/", nil, "write local, put, " + vote("local") +
			", committed, freed, at local, copy global: failed, part, copy global: failed, put global, voted, failed"},
		{"nothing captured", "", errors.New("no memory"), "put, put local, voted, committed, freed in vain, failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, heard := alone(t, c.sick)
			data := make([]byte, 1<<20)
			var s *capture.Snapshot
			if err := p.State.Add("data", &data); err != nil {
				t.Fatal(err)
			}
			if c.err == nil {
				var err error
				if s, err = captured(p); err != nil {
					t.Fatal(err)
				}
			}
			all := make(chan error, 1)
			all <- nil
			x := p.Persist(Captured{Epoch: 1, Snapshot: s, Err: c.err, All: all})
			<-x.Over
			if got := heard(); got != c.want {
				t.Errorf("got  %s\nwant %s\n%v", got, c.want, x.Err)
			}
			if at := strings.Join(x.Levels, " "); (x.Err == nil) != (at == "local global") {
				t.Errorf("at %q: %v", at, x.Err)
			}
			if _, open := <-x.Put; open {
				t.Error("the captured bytes are still needed")
			}
			<-p.Over()
		})
	}
}

// TestNotedAtTheEnd: a job that ends as its first epoch is committed has had one.
func TestNotedAtTheEnd(t *testing.T) {
	p, _ := alone(t, "")
	data := make([]byte, 1<<20)
	if err := p.State.Add("data", &data); err != nil {
		t.Fatal(err)
	}
	s, err := captured(p)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(p.ctx)
	committed := p.Committed
	p.ctx, p.Committed = ctx, func(e storage.Epoch, level string, took, waited time.Duration) {
		committed(e, level, took, waited)
		end()
	}
	all := make(chan error, 1)
	all <- nil
	<-p.Persist(Captured{Epoch: 1, Snapshot: s, All: all}).Over
	if b, err := p.Store.History(t.Context()); err != nil || b.Epoch != 1 {
		t.Errorf("got %+v, %v, want epoch 1", b, err)
	}
}

// TestIdle: while what follows a commit, or a repair, is under way the Persister is not idle, and then it is.
func TestIdle(t *testing.T) {
	p, _ := alone(t, "")
	data := make([]byte, 1000)
	if err := p.State.Add("data", &data); err != nil {
		t.Fatal(err)
	}
	s, err := captured(p)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	busy := func() {
		if asked++; p.Idle() {
			t.Error("idle while an epoch or a repair is under way")
		}
	}
	p.Committed = func(storage.Epoch, string, time.Duration, time.Duration) { busy() } // the pruning is to come
	p.Begin = func(Step) func(int64, int64, error) { busy(); return func(_, _ int64, _ error) { busy() } }
	all := make(chan error, 1)
	all <- nil
	p.Persist(Captured{Epoch: 1, Snapshot: s, All: all})
	<-p.Over()
	if !p.Idle() {
		t.Error("not idle behind an epoch")
	}
	before := asked
	p.Repair(1)
	<-p.Over()
	if !p.Idle() || before == 0 || asked == before {
		t.Errorf("asked %d and %d times, idle %t", before, asked-before, p.Idle())
	}
}

// captured returns what the program has protected in memory.
func captured(p *Persister) (*capture.Snapshot, error) {
	s := p.State.Begin()
	return s, p.State.CaptureMemory(s)
}

// alone makes a Persister of one rank that has levels local and global on a disk in memory.
// Below sick all writing fails. heard lists what was heard of the epochs.
func alone(t *testing.T, sick string) (p *Persister, heard func() string) {
	files := crashfs.New()
	for _, l := range []string{"/local", "/global"} {
		files.MkdirAll(l)
	}
	store, err := storage.Open(vfs.With(t.Context(), files), storage.Options{Job: "alone", Size: 1,
		Nodes: []string{"n"}, Node: "n", Logger: slog.New(slog.DiscardHandler), Levels: []storage.LevelConfig{
			{Name: storage.LevelLocal, Dir: "/local", Keep: 2}, {Name: storage.LevelGlobal, Dir: "/global", Keep: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	files.SetRule(func(op crashfs.Op) error {
		if sick != "" && strings.HasPrefix(op.Name, sick) && (op.Kind == "create" || op.Kind == "write") {
			return &fs.PathError{Op: op.Kind, Path: op.Name, Err: syscall.ENOSPC}
		}
		return nil
	})
	var mu sync.Mutex
	var list []string
	hear := func(what ...any) {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, fmt.Sprint(what...))
	}
	log := slog.New(slog.DiscardHandler)
	var work sync.WaitGroup
	p = New(t.Context(), Options{Store: store, Levels: []string{storage.LevelLocal, storage.LevelGlobal},
		Node: []int{0}, State: capture.New(0, 1, nil, log), Log: log,
		Operations: NewOperations(time.Minute, store.CopiedTo), End: &End{},
		Meet:     func(m cut.Meeting) ([]cut.Blob, error) { return []cut.Blob{{Data: m.Data}}, nil },
		Go:       work.Go,
		CopyTime: func(storage.Epoch, string, string) time.Duration { return 0 },
		KillTime: func(context.Context, time.Duration) time.Time { return time.Time{} },
		Begin: func(s Step) func(int64, int64, error) {
			return func(_, _ int64, err error) {
				if err != nil {
					hear(s.Name, " ", s.Level, ": failed")
					return
				}
				hear(s.Name, " ", s.Level)
			}
		},
		Freed: func(_ storage.Epoch, err error) {
			if err != nil {
				hear("freed in vain")
				return
			}
			hear("freed")
		},
		Committed: func(_ storage.Epoch, level string, _, _ time.Duration) { hear("at ", level) },
		Skipped:   func(_ storage.Epoch, level string, newer storage.Epoch) { hear("not at ", level, " for ", newer) },
		Failed:    func(storage.Epoch, error) { hear("failed") },
		Phase:     func(name string) { hear(name) }})
	t.Cleanup(func() {
		work.Wait()
		if err := errors.Join(store.Close(), p.State.Close()); err != nil {
			t.Error(err)
		}
	})
	return p, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(list, ", ")
	}
}

// TestEndedOnOneRank: of a program in another process one rank may be at its last point when another one has ended.
func TestEndedOnOneRank(t *testing.T) {
	took := func(texts ...string) error { return fmt.Errorf("epoch 3: %w", outcome.Failed("take", texts, nil)) }
	ended := ErrEnded.Error()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{took("", ended), true},
		{took(ended, ended), true},
		{took(ended, "disk full"), false},
		{took("", "disk full"), false},
		{ErrPutOff, false},
		{nil, false},
	} {
		if got := Ended(c.err); got != c.want {
			t.Errorf("%v: got %t", c.err, got)
		}
	}
}
