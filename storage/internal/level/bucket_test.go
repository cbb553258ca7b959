package level_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/fakes3"
)

// TestStoreLock: a live owner is left alone, a dead one is replaced, and one that was replaced gets an error.
func TestStoreLock(t *testing.T) {
	jobtest.QuickStore(t)
	const beat = 20 * time.Millisecond
	server := &fakes3.Server{}
	var live atomic.Bool
	var beats func() error // that of the owner, while it lives
	url := fakes3.Start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.ServeHTTP(w, r)
		if live.Load() && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, format.LockName) {
			if err := beats(); err != nil { // before the answer is complete: between any two looks
				t.Errorf("beat: %v", err)
			}
		}
	}))
	at := func() level.Level { return level.At(nil, storage.LevelGlobal, url, 0, nil) }
	lock := func(run string) *format.Lock {
		return &format.Lock{Run: run, Owner: format.Process{Node: "far away", PID: 7}}
	}
	a, b := at(), at()
	mine := lock("a")
	if owned, err := a.Lock(t.Context(), mine, beat); !owned || err != nil {
		t.Fatalf("the first: got %v, %v", owned, err)
	}
	if owned, err := at().Lock(t.Context(), lock("a"), beat); owned || err != nil {
		t.Errorf("another rank of the run: got %v, %v, want not owned", owned, err)
	}
	beats = func() error { return a.Beat(mine) }
	live.Store(true)
	var busy *storage.BusyError
	if _, err := b.Lock(t.Context(), lock("b"), beat); !errors.As(err, &busy) || busy.Node != "far away" {
		t.Errorf("a live owner: got %v, want a *BusyError", err)
	}
	if err := b.Unused(t.Context(), "b", beat); !errors.As(err, &busy) {
		t.Errorf("a look at a live owner: got %v, want a *BusyError", err)
	}
	live.Store(false)
	theirs := lock("b")
	if owned, err := b.Lock(t.Context(), theirs, beat); !owned || err != nil {
		t.Errorf("a dead owner: got %v, %v, want owned", owned, err)
	}
	if err := a.Beat(mine); !errors.As(err, &busy) {
		t.Errorf("the owner that was replaced: got %v, want a *BusyError", err)
	}
	if err := errors.Join(a.Unlock(mine), b.Beat(theirs), b.Unlock(theirs)); err != nil {
		t.Error(err)
	}
	if err := at().Unused(t.Context(), "c", beat); err != nil {
		t.Errorf("no lock: %v", err)
	}
}

// TestStorePacks copies the shards of several ranks into one object, by one rank, and restores them.
func TestStorePacks(t *testing.T) {
	jobtest.QuickStore(t)
	server := &fakes3.Server{MinPart: 64 << 10}
	url, local := fakes3.Start(t, server), t.TempDir()
	var stores []*storage.Store
	var infos []storage.ShardInfo
	for r := range 3 {
		s, err := storage.Open(t.Context(), storage.Options{Job: "packs", Rank: r, Size: 3,
			Levels: []storage.LevelConfig{{Name: storage.LevelLocal, Dir: local},
				{Name: storage.LevelGlobal, Dir: url}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		stores = append(stores, s)
		p := make(storage.Bytes, 150_000+r)
		for i := range p {
			p[i] = byte(i*r + i>>8)
		}
		info, err := s.Put(t.Context(), 1, storage.LevelLocal,
			[]storage.Section{{Name: "p", Size: int64(len(p)), Source: p}})
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	if err := stores[0].Commit(t.Context(), 1, storage.LevelLocal, infos); err != nil {
		t.Fatal(err)
	}
	packed, err := stores[0].FlushNode(t.Context(), 1, storage.LevelLocal, storage.LevelGlobal, []int{0, 1, 2})
	if err == nil {
		err = stores[0].Commit(t.Context(), 1, storage.LevelGlobal, packed)
	}
	if err != nil {
		t.Fatal(err)
	}
	if keys := strings.Join(server.Keys(), " "); !strings.Contains(keys, "epoch-0000000001/pack-000000.shards") ||
		strings.Contains(keys, ".shard ") {
		t.Errorf("got %s, want one pack", keys)
	}
	v, err := checkpoints.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := v.Verify(t.Context(), 1); err != nil || len(found) > 0 {
		t.Errorf("verify: %v, %+v", err, found)
	}
}

// TestStoreHangs: a store that does not answer holds up a put no longer than its context.
func TestStoreHangs(t *testing.T) {
	jobtest.QuickStore(t)
	server, hang := &fakes3.Server{MinPart: 64 << 10}, make(chan struct{})
	url := fakes3.Start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".shard") && r.Method == http.MethodPut {
			<-hang
		}
		server.ServeHTTP(w, r)
	}))
	s, err := storage.Open(t.Context(), storage.Options{Job: "hang", Size: 1,
		Levels: []storage.LevelConfig{{Name: storage.LevelGlobal, Dir: url}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer close(hang)
	for _, n := range []int{1000, 500_000} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		p := make(storage.Bytes, n)
		for i := range p {
			p[i] = byte(i>>3 + i)
		}
		_, err := s.Put(ctx, 1, storage.LevelGlobal, []storage.Section{{Name: "p", Size: int64(n), Source: p}})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d bytes: got %v, want DeadlineExceeded", n, err)
		}
	}
}

// TestStoreRefused: what a store cannot do, or does not let one do, is said at the start, with the remedy.
func TestStoreRefused(t *testing.T) {
	jobtest.QuickStore(t)
	for text, store := range map[string]*fakes3.Server{
		"If-None-Match is ignored": {IgnoreConditions: true},
		"If-None-Match is refused": {RefuseConditions: true},
		"the policy of the bucket": {Deny: true},
	} {
		url := fakes3.Start(t, store)
		_, err := storage.Open(t.Context(), storage.Options{Job: "j", Size: 1,
			Levels: []storage.LevelConfig{{Name: storage.LevelGlobal, Dir: url}}})
		var dir *storage.DirError
		if !errors.As(err, &dir) || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), url) {
			t.Errorf("got %v, want a *DirError with %q and %s", err, text, url)
		}
	}
	for _, c := range []storage.LevelConfig{{Name: storage.LevelLocal, Dir: "s3://b/x"},
		{Name: storage.LevelGlobal, Dir: "s3:///x"}} {
		_, err := storage.Open(t.Context(), storage.Options{Job: "j", Size: 1, Levels: []storage.LevelConfig{c}})
		var opt *storage.OptionError
		if !errors.As(err, &opt) {
			t.Errorf("%s at %s: got %v, want an *OptionError", c.Name, c.Dir, err)
		}
	}
}
