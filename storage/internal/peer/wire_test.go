package peer_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/peer"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/crashfs"
)

// pipes is a Transport of two ranks in one process. It counts the bytes that go
// through and can flip one.
type pipes struct {
	mu   sync.Mutex
	sent int // guarded by mu
	flip int // guarded by mu: which byte; negative: none
	in   [2]chan net.Conn
}

type pipeEnd struct {
	p    *pipes
	rank int
}

func newPipes() *pipes {
	return &pipes{flip: -1, in: [2]chan net.Conn{make(chan net.Conn), make(chan net.Conn)}}
}

func (e pipeEnd) Dial(ctx context.Context, rank int) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case e.p.in[rank] <- flipper{there, e.p}:
		return flipper{here, e.p}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (e pipeEnd) Accept(ctx context.Context) (net.Conn, int, error) {
	select {
	case c := <-e.p.in[e.rank]:
		return c, 1 - e.rank, nil
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
}

type flipper struct {
	net.Conn
	p *pipes
}

func (f flipper) Write(b []byte) (int, error) {
	f.p.mu.Lock()
	at := f.p.flip - f.p.sent
	f.p.sent += len(b)
	f.p.mu.Unlock()
	if at >= 0 && at < len(b) {
		b = append([]byte(nil), b...)
		b[at] ^= 0x20
	}
	return f.Conn.Write(b)
}

// pairOn opens the two stores with partner copies.
func pairOn(t *testing.T, f *crashfs.FS, p *pipes) []*storage.Store {
	t.Helper()
	var out []*storage.Store
	for r, n := range []string{"a", "b"} {
		for _, l := range []string{storage.LevelLocal, storage.LevelPartner} {
			f.MkdirAll("/" + n + "/" + l)
		}
		s, err := storage.Open(vfs.With(t.Context(), f), storage.Options{Job: "wire", Rank: r, Size: 2,
			Nodes:     []string{"a", "b"},
			Transport: pipeEnd{p, r},
			Levels: []storage.LevelConfig{
				{Name: storage.LevelLocal, Dir: "/" + n + "/local"}, {Name: storage.LevelPartner,
					Dir: "/" + n + "/partner"}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		out = append(out, s)
	}
	return out
}

// TestBytesFlippedOnTheWire flips bytes between two stores while one copies to
// the other. The copy fails, or it is right.
func TestBytesFlippedOnTheWire(t *testing.T) {
	probe := newPipes()
	flushPair(t, probe)
	failed := 0
	for at := 0; at < probe.sent; at += 97 {
		p := newPipes()
		p.flip = at
		if !flushPair(t, p) {
			failed++
		}
	}
	if failed == 0 {
		t.Error("no flipped byte was noticed")
	}
	t.Logf("%d bytes, %d of %d flips refused", probe.sent, failed, probe.sent/97+1)
}

// flushPair copies a shard of rank 0 to rank 1 and reports whether that was
// reported to have worked; then the copy must be right.
func flushPair(t *testing.T, p *pipes) bool {
	t.Helper()
	f := crashfs.New()
	stores := pairOn(t, f, p)
	defer stores[1].Close()
	defer stores[0].Close()
	infos := jobtest.Take(t, stores, 1, storage.LevelLocal,
		func(r int) []storage.Section { return jobtest.SmallSections(r, 1) })
	info, err := stores[0].Flush(t.Context(), 1, storage.LevelLocal, storage.LevelPartner, nil)
	if err != nil {
		return false
	}
	b, err := level.ReadFile(f, "/b/partner/"+format.EpochName(1)+"/"+format.ShardName(0), 1<<20)
	if err != nil {
		t.Fatalf("byte %d: flush reported success: %v", p.flip, err)
	}
	want, err := level.ReadFile(f, "/a/local/"+format.EpochName(1)+"/"+format.ShardName(0), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if info.Digest != infos[0].Digest || string(b[format.HeaderLen:]) != string(want[format.HeaderLen:]) {
		t.Fatalf("byte %d: flush reported success and the copy is wrong", p.flip)
	}
	return true
}

// TestPeersStayInside checks what another rank's store may not do here.
func TestPeersStayInside(t *testing.T) {
	f := crashfs.New()
	p := newPipes()
	pairOn(t, f, p)
	for _, c := range []struct {
		level, name string
		want        error
	}{
		{storage.LevelLocal, "epoch-0000000001", fs.ErrPermission},
		{storage.LevelGlobal, "epoch-0000000001", nil}, // no such level there
		{storage.LevelPartner, "../local/x", nil},
		{storage.LevelPartner, "a/../../x", nil},
		{storage.LevelPartner, "/etc", nil},
		{storage.LevelPartner, "a//b", nil},
	} {
		far := peer.NewFS(t.Context(), pipeEnd{p, 0}, 1, c.level)
		err := far.Mkdir(c.name)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("mkdir %s at %s: got %v, want it refused", c.name, c.level, err)
		}
		far.Close()
	}
	far := peer.NewFS(t.Context(), pipeEnd{p, 0}, 1, storage.LevelPartner)
	defer far.Close()
	if err := far.Mkdir("epoch-0000000001"); err != nil {
		t.Errorf("an epoch's directory at partner: %v", err)
	}
	if _, err := far.Open("absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent file: got %v, want ErrNotExist", err)
	}
}

// TestLeftoversAreCleared starts a rank again after a crash in the middle of
// everything: its temporary files go, another rank's stay.
func TestLeftoversAreCleared(t *testing.T) {
	f := jobtest.NewWorldFS()
	w, err := jobtest.OpenWorld(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.TakeEpoch(1, func(storage.Epoch) {}); err != nil {
		t.Fatal(err)
	}
	w.Stop()
	mine := []string{"/global/" + level.TempName(format.MarkerName, 0),
		"/global/epoch-0000000001/" + level.TempName(format.ShardName(0), 0)}
	other := "/global/epoch-0000000001/" + level.TempName(format.ManifestName, 7)
	for _, name := range append(mine, other) {
		if err := level.WriteFile(f, name, []byte("half")); err != nil {
			t.Fatal(err)
		}
	}
	if w, err = jobtest.OpenWorld(f); err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for _, name := range mine {
		if _, err := f.Stat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
	if _, err := f.Stat(other); err != nil {
		t.Errorf("another rank's file is gone: %v", err)
	}
}
