package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/node/fake"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
	"golang.org/x/sys/unix"
)

// player is a client that has memory: one array.
type player struct {
	fakeClient
	rank   int
	u      []byte
	arenas map[uint32]int // descriptors
}

// answer is what ends a request.
type answer struct {
	code  int32
	value uint64
	text  string // of an error
}

func (p *player) drop(arena uint32) {
	if fd, ok := p.arenas[arena]; ok {
		_ = unix.Close(fd) // it was only read and written
		delete(p.arenas, arena)
	}
}

// request says m and does what the daemon asks for until it answers.
func (p *player) request(m wire.Message) answer {
	p.say(fake.Bytes(&m))
	b, oob := make([]byte, wire.MaxBytes), make([]byte, 256)
	le := binary.LittleEndian
	for {
		n, oobn, _, _, err := p.ReadMsgUnix(b, oob)
		if err != nil {
			return answer{code: wire.CodeLost, text: err.Error()}
		}
		var fds []int
		if list, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(list) == 1 {
			fds, _ = unix.ParseUnixRights(&list[0]) // those that there are
		}
		body := b[wire.HeaderBytes:n]
		switch wire.Type(le.Uint16(b[6:])) {
		case wire.TypeArena:
			p.arenas[le.Uint32(body)] = fds[0]
			fds = nil
		case wire.TypeDrop:
			p.drop(le.Uint32(body))
		case wire.TypeCopy:
			p.copy(le.Uint32(body) == 1, body[8:])
			p.say(fake.Bytes(&wire.Message{Type: wire.TypeCopied}))
		case wire.TypeDone:
			return answer{code: int32(le.Uint32(body)), value: le.Uint64(body[8:])}
		case wire.TypeError:
			return answer{code: int32(le.Uint32(body)), text: string(body[8:])}
		}
		for _, fd := range fds {
			_ = unix.Close(fd) // pages that it does not use
		}
	}
}

func (p *player) copy(load bool, items []byte) {
	for at := 0; at < len(items); at += 24 {
		le := binary.LittleEndian
		arena, off, n := le.Uint32(items[at+4:]), le.Uint64(items[at+8:]), le.Uint64(items[at+16:])
		if arena == wire.NoArena {
			continue
		}
		do := unix.Pwrite
		if load {
			do = unix.Pread
		}
		if got, err := do(p.arenas[arena], p.u[:n], int64(off)); err != nil || got != int(n) {
			p.t.Errorf("rank %d copies %d bytes: %d, %v", p.rank, n, got, err)
		}
	}
}

// troupe are the ranks of a program whose checkpoints have names, on one node.
type troupe struct {
	t             *testing.T
	key           string
	local, global string
	said          *testbuf.Buffer
	ranks         []*player
}

func newTroupe(t *testing.T, size int) *troupe {
	t.Helper()
	return newTroupeWaiting(t, size, time.Minute)
}

// newTroupeWaiting is newTroupe with a WaitTimeout, of which ranks are waited for ten times as long.
func newTroupeWaiting(t *testing.T, size int, wait time.Duration) *troupe {
	t.Helper()
	dir := inMemory(t)
	tr := &troupe{t: t, key: fmt.Sprintf("test-%d-%s", os.Getpid(), t.Name()), local: filepath.Join(dir, "local"),
		global: filepath.Join(dir, "global"), said: &testbuf.Buffer{}, ranks: make([]*player, size)}
	tr.makeDirs()
	log := slog.New(slog.NewTextHandler(tr.said, nil))
	ready, done, until := make(chan struct{}), make(chan error, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		done <- Run(ctx, Options{Key: tr.key, Logger: log, Ready: func() { close(ready) }, Until: until,
			Checkpoints: coordinated.Options{Job: "test", Local: tr.local, Global: tr.global, Logger: log,
				WaitTimeout: wait, MaxPool: 16 << 20, CopyWorkers: 1}})
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
	})
	tr.begin()
	return tr
}

func (tr *troupe) makeDirs() {
	tr.t.Helper()
	for _, d := range []string{tr.local, tr.global} {
		if err := os.Mkdir(d, 0o700); err != nil {
			tr.t.Fatal(err)
		}
	}
}

// all has every rank make a request at the same time.
func (tr *troupe) all(request func(rank int) wire.Message) []answer {
	out, done := make([]answer, len(tr.ranks)), make(chan struct{})
	for r, p := range tr.ranks {
		go func() {
			out[r] = p.request(request(r))
			done <- struct{}{}
		}()
	}
	for range tr.ranks {
		<-done
	}
	return out
}

// must returns all of a request that succeeds with a code.
func (tr *troupe) must(code int32, m wire.Message) uint64 {
	tr.t.Helper()
	got := tr.all(func(int) wire.Message { return m })
	for r, a := range got {
		if a.code != code || a.value != got[0].value {
			tr.t.Fatalf("rank %d: message %d, version %d: got %+v, want code %d and value %d\n%s", r, m.Type,
				m.Version, a, code, got[0].value, tr.said)
		}
	}
	return got[0].value
}

// begin is a start of the program.
func (tr *troupe) begin() {
	tr.t.Helper()
	for r := range tr.ranks {
		tr.ranks[r] = &player{fakeClient: dial(tr.t, tr.key), rank: r, u: make([]byte, 80000+1000*r),
			arenas: map[uint32]int{}}
	}
	size := int32(len(tr.ranks))
	for r, a := range tr.all(func(r int) wire.Message {
		return wire.Message{Type: wire.TypeHello, Rank: int32(r), Size: size, Text: "fake"}
	}) {
		if a.code < 0 {
			tr.t.Fatalf("rank %d does not connect: %+v\n%s", r, a, tr.said)
		}
	}
	tr.all(func(r int) wire.Message {
		return wire.Message{Type: wire.TypeProtect, Elem: 1, Count: uint64(len(tr.ranks[r].u)), Text: "u"}
	})
}

func (tr *troupe) end() {
	tr.t.Helper()
	tr.must(0, wire.Message{Type: wire.TypeFinalize})
	for _, p := range tr.ranks {
		for id := range p.arenas {
			p.drop(id)
		}
		_ = p.Close() // the daemon sees it
	}
}

func save(name string, version int64) wire.Message {
	return wire.Message{Type: wire.TypeSave, All: true, Text: name, Version: version, Keep: 100}
}

func find(name string, most int64) wire.Message {
	return wire.Message{Type: wire.TypeFind, All: true, Text: name, Version: most, Keep: 100}
}

// contents returns the contents of a rank in a checkpoint.
func contents(seed uint64, rank, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, uint64(rank)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// save takes a checkpoint and waits until it is at all levels.
func (tr *troupe) save(name string, version int64, seed uint64) {
	tr.t.Helper()
	for r, p := range tr.ranks {
		copy(p.u, contents(seed, r, len(p.u)))
	}
	tr.must(0, save(name, version))
	tr.must(0, wire.Message{Type: wire.TypeWait})
}

// mustHave restores a version and compares it.
func (tr *troupe) mustHave(name string, version int64, seed uint64) {
	tr.t.Helper()
	for _, p := range tr.ranks {
		clear(p.u)
	}
	tr.must(0, wire.Message{Type: wire.TypeBegin, All: true, Text: name, Version: version, Keep: 100})
	tr.must(0, wire.Message{Type: wire.TypeRecover, All: true})
	tr.must(0, wire.Message{Type: wire.TypeEnd})
	for r, p := range tr.ranks {
		if !bytes.Equal(p.u, contents(seed, r, len(p.u))) {
			tr.t.Fatalf("rank %d has other bytes than version %d had", r, version)
		}
	}
}

// damage flips a bit of what a rank has in a checkpoint, at a level.
func (tr *troupe) damage(level string, seed uint64, rank int) {
	tr.t.Helper()
	want := contents(seed, rank, 200)
	found := false
	err := filepath.WalkDir(level, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if at := bytes.Index(b, want); err == nil && at >= 0 {
			found = true
			b[at+100] ^= 4
			err = os.WriteFile(path, b, 0o600)
		}
		return err
	})
	if err != nil || !found {
		tr.t.Fatalf("no checkpoint to damage in %s (%v)", level, err)
	}
}

// mustFail is a request that fails on all ranks, which name all words.
func (tr *troupe) mustFail(request func(rank int) wire.Message, words ...string) {
	tr.t.Helper()
	for r, a := range tr.all(request) {
		for _, w := range words {
			if a.code != wire.CodeFailed || !strings.Contains(a.text, w) {
				tr.t.Fatalf("rank %d: got %+v, want an error that says %q", r, a, w)
			}
		}
	}
}

// TestNamedApart: if ranks do not ask for the same checkpoint, all get an error with each rank's request, and nothing
// is taken.
func TestNamedApart(t *testing.T) {
	tr := newTroupe(t, 3)
	tr.mustFail(func(r int) wire.Message { return save(fmt.Sprint("app", min(r, 1)), 3) }, "rank 0 ",
		`"app0", version 3`, "rank 1 ", `"app1", version 3`)
	tr.mustFail(func(r int) wire.Message { return save("app", 10+int64(r/2)) }, "rank 0 gives version 10", "rank 2",
		"version 11")
	tr.mustFail(func(r int) wire.Message { return save("app", -int64(r%2)) }, "rank 1 gives version -1")
	tr.mustFail(func(r int) wire.Message {
		if r == 2 {
			return find("app", -1)
		}
		return save("app", 4)
	}, `checkpoint "app", version 4`, "rank 2", "search")
	tr.must(0, find("app", -1))
	tr.save("app", 3, 1)
	tr.mustHave("app", int64(tr.must(1, find("app", -1))), 1)
	tr.end()
}

// TestNamedAlone: a rank that takes a checkpoint without another gets an error that names it, and the job ends.
func TestNamedAlone(t *testing.T) {
	tr := newTroupeWaiting(t, 2, 300*time.Millisecond)
	const words = `rank(s) 0 wait for rank(s) 1 in checkpoint "app", version 7`
	if a := tr.ranks[0].request(save("app", 7)); a.code != wire.CodeLost || !strings.Contains(a.text, words) {
		t.Errorf("got %+v, want %q", a, words)
	}
	if text := tr.said.String(); !strings.Contains(text, "rank(s) 0 wait for rank(s) 1 in checkpoint") ||
		!strings.Contains(text, "job ends in") {
		t.Errorf("nobody says so before:\n%s", tr.said)
	}
}

// TestNamedDamaged: a version whose bytes are damaged at all levels on one rank is passed over, at this start and the
// next; one that is damaged at one of them is not.
func TestNamedDamaged(t *testing.T) {
	tr := newTroupe(t, 2)
	for v := range int64(3) {
		tr.save("app", v, 10+uint64(v))
	}
	tr.damage(tr.local, 12, 1)
	for range 2 {
		if v := tr.must(1, find("app", -1)); v != 2 {
			t.Fatalf("found version %d, want the one that is whole at global", v)
		}
		tr.mustHave("app", 2, 12)
		tr.end()
		tr.begin()
	}
	tr.damage(tr.global, 12, 1)
	for range 2 {
		if v := tr.must(1, find("app", -1)); v != 1 {
			t.Fatalf("found version %d, want the newest that is whole", v)
		}
		tr.mustHave("app", 1, 11)
		tr.end()
		tr.begin()
	}
	tr.save("app", 1, 21)
	tr.damage(tr.local, 21, 0)
	tr.damage(tr.global, 21, 0)
	if v := tr.must(1, find("app", -1)); v != 1 {
		t.Fatalf("found version %d, want 1, which is whole as it was taken first", v)
	}
	tr.mustHave("app", 1, 11)
	if words := "a checkpoint is damaged at all levels"; !strings.Contains(tr.said.String(), words) {
		t.Errorf("nobody says %q:\n%s", words, tr.said)
	}
	tr.end()
}

// remove removes the directories file by file. One that comes or goes meanwhile is an error, as it is for programs.
func (tr *troupe) remove() {
	tr.t.Helper()
	for _, d := range []string{tr.local, tr.global} {
		var all []string
		err := filepath.WalkDir(d, func(path string, _ fs.DirEntry, err error) error {
			all = append(all, path)
			return err
		})
		for _, path := range slices.Backward(all) {
			err = errors.Join(err, os.Remove(path))
		}
		if err != nil {
			tr.t.Fatalf("%v\n%s", err, tr.said)
		}
	}
}

// TestNamedRemoved: directories that are removed and made again while the program runs take further checkpoints. When
// wait has returned nothing comes or goes there, after a checkpoint as after a restart.
func TestNamedRemoved(t *testing.T) {
	tr := newTroupe(t, 2)
	const rounds = 10
	for v := range int64(rounds) {
		tr.save("app", v, uint64(v))
		if v%2 == 0 {
			tr.mustHave("app", v, uint64(v))
			tr.must(0, wire.Message{Type: wire.TypeWait})
		}
		tr.remove()
		tr.makeDirs()
	}
	if n := strings.Count(tr.said.String(), "are made again"); n != rounds-1 {
		t.Errorf("said %d times that directories are made again, want %d:\n%s", n, rounds-1, tr.said)
	}
	tr.end()
}

// TestNamedRepaired: wait is for the repair after a restart, too.
func TestNamedRepaired(t *testing.T) {
	tr := newTroupe(t, 2)
	tr.save("app", 1, 1)
	lost := filepath.Join(tr.local, "name.app", "epoch-0000000001", "rank-000001.shard")
	for range 5 {
		if err := os.Remove(lost); err != nil {
			t.Fatal(err)
		}
		tr.mustHave("app", 1, 1)
		tr.must(0, wire.Message{Type: wire.TypeWait})
		if _, err := os.Stat(lost); err != nil {
			t.Errorf("not brought back from global: %v\n%s", err, tr.said)
		}
	}
	tr.end()
}

var (
	namedSteps = flag.Int("named", 40, "how many steps TestNamedCampaign takes")
	namedSeed  = flag.Uint64("named-seed", 1, "its seed")
)

// taken is a checkpoint that was taken, as TestNamedCampaign knows it.
type taken struct {
	version int64
	seed    uint64
	bad     [2][3]bool // by level and rank
}

func (k *taken) whole() bool {
	for r := range k.bad[0] {
		if k.bad[0][r] && k.bad[1][r] {
			return false
		}
	}
	return true
}

// TestNamedCampaign takes checkpoints, also such that the ranks do not agree on, damages them, removes their
// directories, begins again, and asks after each step for the newest version, which must be what it was.
func TestNamedCampaign(t *testing.T) {
	t.Logf("seed %d", *namedSeed)
	rng := rand.New(rand.NewPCG(*namedSeed, 0))
	tr := newTroupe(t, 3)
	var all []*taken // oldest first
	for step := range *namedSteps {
		v, seed := int64(rng.IntN(8)), uint64(step)+1000
		switch k := rng.IntN(12); {
		case k < 4:
			tr.save("app", v, seed)
			all = append(all, &taken{version: v, seed: seed})
		case k < 5:
			tr.mustFail(func(r int) wire.Message { return save("app", v+int64(r%2)) }, "version", "rank 1")
		case k < 6:
			tr.mustFail(func(r int) wire.Message { return save(fmt.Sprint("app", r/2), v) }, `"app0"`, `"app1"`)
		case k < 10 && len(all) > 0:
			one, level, rank := all[rng.IntN(len(all))], rng.IntN(2), rng.IntN(3)
			if !one.bad[level][rank] {
				one.bad[level][rank] = true
				tr.damage([]string{tr.local, tr.global}[level], one.seed, rank)
			}
		case k < 11:
			tr.end()
			tr.begin()
		default:
			for _, d := range []string{tr.local, tr.global} {
				if err := os.RemoveAll(filepath.Join(d, "name.app")); err != nil {
					t.Fatal(err)
				}
			}
			all = nil
		}
		most, best := int64(rng.IntN(9))-1, (*taken)(nil)
		for _, k := range all {
			if k.whole() && (most < 0 || k.version <= most) && (best == nil || k.version >= best.version) {
				best = k
			}
		}
		if best == nil {
			tr.must(0, find("app", most))
			continue
		}
		if got := tr.must(1, find("app", most)); int64(got) != best.version {
			t.Fatalf("step %d: found version %d up to %d, want %d\n%s", step, got, most, best.version, tr.said)
		}
		if rng.IntN(2) == 0 {
			tr.mustHave("app", best.version, best.seed)
		}
	}
	tr.end()
}
