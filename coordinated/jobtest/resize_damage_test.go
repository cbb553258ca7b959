package jobtest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
)

// placing gives a program's ranks their options.
type placing func(run func(coordinated.Options) func(*mpiwrap.Comm) error) func(*mpiwrap.Comm) error

// small runs a program with an array of some rows and a few items. It restores, checks every value, and takes a
// final checkpoint at a step, or none at step 0. place has the options of each rank. got is the step that all ranks
// restored; 0: none.
func small(place placing, ranks, rows, step int) (got int, err error) {
	var mu sync.Mutex
	err = mpitest.NewWorld(ranks,
		mpitest.Options{Seed: 2}).Run(place(func(opt coordinated.Options) func(*mpiwrap.Comm) error {
		return func(world *mpiwrap.Comm) error {
			now, err := smallRank(opt, world, rows, step)
			mu.Lock()
			defer mu.Unlock()
			got = max(got, now)
			return err
		}
	}))
	return got, err
}

// alone has all ranks use the same options.
func alone(opt coordinated.Options) placing {
	return func(run func(coordinated.Options) func(*mpiwrap.Comm) error) func(*mpiwrap.Comm) error {
		return run(opt)
	}
}

// smallRank returns one rank of it.
func smallRank(opt coordinated.Options, world *mpiwrap.Comm, rows, step int) (got int, err error) {
	opt.Elastic, opt.OnLost, opt.Logger = true, func(*coordinated.LostError) {}, slog.New(slog.DiscardHandler)
	ctx, ranks := context.Background(), world.Size()
	ck, err := coordinated.Open(ctx, world, opt)
	if err != nil {
		return 0, err
	}
	a := coordinated.Block([]int{rows, 9}, []int{1, ranks}, world.Rank())
	u, items, now := make([]int32, a.Len()), map[string]int64{}, 0
	restored := false
	if err = errors.Join(ck.ProtectGlobal("u", a, &u), ck.ProtectReplicated("step", &now),
		coordinated.ProtectItems(ck, "items", &items, coordinated.HashOwner)); err == nil {
		restored, err = ck.Restore(ctx)
	}
	set := func(check bool) {
		for i := range u {
			row, column := i/a.Boxes[0].Count[1], a.Boxes[0].Start[1]+i%a.Boxes[0].Count[1]
			if v := int32(now*100_000 + row*9 + column); check && u[i] != v {
				err = errors.Join(err, fmt.Errorf("WRONG: u[%d %d] is %d at step %d", row, column, u[i], now))
			} else {
				u[i] = v
			}
		}
		n := 0
		for i := range 7 {
			k := fmt.Sprint(i)
			if coordinated.HashOwner(k, ranks) == world.Rank() {
				if n++; check && items[k] != int64(now+i) {
					err = errors.Join(err, fmt.Errorf("WRONG: item %s is %d at step %d", k, items[k], now))
				}
				items[k] = int64(now + i)
			}
		}
		if check && len(items) != n {
			err = errors.Join(err, fmt.Errorf("WRONG: %d items, want %d", len(items), n))
		}
	}
	if err == nil && restored {
		set(true)
	}
	if err == nil {
		got = now
	}
	if err == nil && step > 0 {
		now = step
		set(false)
		if err = ck.RequestStop(ctx); err == nil {
			for err == nil {
				err = ck.Point(ctx)
			}
		}
		if errors.Is(err, coordinated.ErrStop) {
			err = nil
		}
	}
	if err != nil {
		ck.Abort(err)
		return got, err
	}
	return got, ck.Close()
}

// TestResizeFlipped flips bytes of the newest epoch's files and restarts on another number of ranks: the job continues
// from that epoch, where another level has it, or from the one before, or refuses; it never computes with what is
// wrong. With -resize-all every byte is flipped in turn.
func TestResizeFlipped(t *testing.T) {
	for name, levels := range map[string]int{"global alone": 1, "local and global": 2} {
		t.Run(name, func(t *testing.T) {
			opt := jobtest.Options(t)
			if levels == 1 {
				opt.Local = ""
			}
			for step, ranks := range []int{2, 3} {
				if got, err := small(alone(opt), ranks, 5, 10*step+10); err != nil || got != 10*step {
					t.Fatalf("start %d: step %d, %v", step, got, err)
				}
			}
			base := filepath.Dir(opt.Global)
			files := newestFiles(t, opt.Global)
			if levels == 2 { // what is read first
				files = newestFiles(t, opt.Local)
			}
			rng := rand.New(rand.NewPCG(uint64(levels), 9))
			outcome := map[string]int{}
			for _, f := range files {
				b, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				for at := range b {
					some, few := rng.IntN(64) == 0, rng.IntN(400) == 0 // the same in each run, whatever the bytes are
					if b[at] == 0 && !some || !*resizeAll && !few {
						continue // padding, of which some is enough
					}
					dir := t.TempDir()
					if err := os.CopyFS(dir, os.DirFS(base)); err != nil {
						t.Fatal(err)
					}
					bad := append([]byte(nil), b...)
					bad[at] ^= 1 << rng.IntN(8)
					rel, _ := filepath.Rel(base, f)
					if err := os.WriteFile(filepath.Join(dir, rel), bad, 0o644); err != nil {
						t.Fatal(err)
					}
					o := opt
					if o.Global = filepath.Join(dir, "global"); o.Local != "" {
						o.Local = filepath.Join(dir, "local")
					}
					got, err := small(alone(o), 2+rng.IntN(4), 5, 0)
					what := fmt.Sprint("step ", got)
					if err != nil {
						what = "refused"
					}
					outcome[what]++
					switch {
					case err != nil && strings.Contains(err.Error(), "WRONG"):
						t.Errorf("byte %d of %s: %v", at, rel, err)
					case levels == 2 && got != 20, err == nil && got != 10 && got != 20:
						t.Errorf("byte %d of %s: continued from step %d, %v", at, rel, got, err)
					}
					if err := os.RemoveAll(dir); err != nil {
						t.Fatal(err)
					}
				}
			}
			t.Logf("%d files: %v", len(files), outcome)
			if levels == 1 && outcome["step 10"] == 0 {
				t.Error("no damage made the job fall back: the test damages nothing that is read")
			}
		})
	}
}

var (
	resizeDamages = flag.Int("resize-damages", 16, "damaged directories that TestResizeDamaged continues from")
	resizeSeed    = flag.Uint64("resize-seed", 1, "seed of TestResizeDamaged")
)

// damagedRows make most of what is damaged data.
const damagedRows = 2000

// resizeSites are jobs that ran on three ranks and then on five, and took an epoch each time: on three nodes with
// copies or parity on other nodes, with a shared directory, and on one node.
func resizeSites(t *testing.T) (sites []*cluster) {
	t.Helper()
	for _, c := range []*cluster{{redundancy: "partner:1", nodes: 3}, {redundancy: "parity:2+1", nodes: 3},
		{redundancy: "partner:1", nodes: 3, global: true}, {nodes: 1, global: true}} {
		c.base = filepath.Join(t.TempDir(), "site")
		for _, d := range c.dirs() {
			if err := os.MkdirAll(d, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for i, ranks := range []int{3, 5} {
			if got, err := small(c.everywhere, ranks, damagedRows, 10*i+10); err != nil || got != 10*i {
				t.Fatalf("start %d: step %d, %v", i, got, err)
			}
		}
		sites = append(sites, c)
	}
	return sites
}

// TestResizeDamaged damages the directories of jobs as disks and people do: bits, pages, lengths, files and directories
// that are gone, or are those of another rank or epoch, or what is no file. It continues on another number of ranks.
// The job never computes with what is wrong, and never starts over. If no damage is found it continues from the
// newest epoch. If it is refused, verify has found damage.
func TestResizeDamaged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away; make test runs as root")
	}
	sites, outcome := resizeSites(t), map[string]int{}
	base := filepath.Join(t.TempDir(), "copy")
	if testing.Short() {
		*resizeDamages = min(*resizeDamages, 6)
	}
	for n := range *resizeDamages {
		rnd := rand.New(rand.NewPCG(*resizeSeed, uint64(n)))
		site := sites[n%len(sites)]
		c := *site
		c.base = base
		if err := os.CopyFS(base, os.DirFS(site.base)); err != nil {
			t.Fatal(err)
		}
		tighten(t, base)
		v := &storagetest.Damager{Rnd: rnd, Base: base, Levels: c.dirs(), Newest: 2}
		if rnd.IntN(2) == 0 {
			v.Done = append(v.Done, flipData(t, rnd, base)...)
		} else {
			v.Damage()
		}
		for rnd.IntN(4) > 0 {
			v.Damage()
		}
		what := fmt.Sprintf("damage %d of seed %d:\n\t%s", n, *resizeSeed, strings.Join(v.Done, "\n\t"))
		worst, err := c.worst(t.Context())
		if err != nil {
			t.Errorf("%s\nverify: %v", what, err)
		}
		ranks := 1 + rnd.IntN(6)
		if ranks == 5 { // that is TestDamagedRestarts'
			ranks = 7
		}
		ranks = max(ranks, c.nodes)
		got, err := small(c.everywhere, ranks, damagedRows, 0)
		end := fmt.Sprint("step ", got)
		if err != nil {
			end = "refused"
		}
		outcome[end]++
		switch {
		case err != nil && strings.Contains(err.Error(), "WRONG"), err == nil && got%10 != 0:
			t.Errorf("%s\n%d ranks computed with something wrong: step %d, %v", what, ranks, got, err)
		case err == nil && got == 0:
			t.Errorf("%s\n%d ranks started over; verify says %q", what, ranks, worst)
		case err == nil && got != 20 && worst == "":
			t.Errorf("%s\n%d ranks continued from step %d, and verify finds nothing", what, ranks, got)
		case err != nil && (worst == "" || worst == checkpoints.NotRedundant):
			t.Errorf("%s\n%d ranks were refused, and verify says %q: %v", what, ranks, worst, err)
		}
		if t.Failed() {
			t.FailNow()
		}
		if err := os.RemoveAll(base); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d damages of seed %d: %v", *resizeDamages, *resizeSeed, outcome)
	if *resizeDamages >= 24 && (outcome["refused"] == 0 || outcome["step 10"] == 0 || outcome["step 20"] == 0) {
		t.Error("some outcome is missing: the test damages nothing that matters, or too much")
	}
}

// flipData changes a bit of each of up to four files that have data of the newest epoch.
func flipData(t *testing.T, rnd *rand.Rand, base string) (done []string) {
	t.Helper()
	var files []string
	err := filepath.WalkDir(base, func(p string, d fs.DirEntry, err error) error {
		if strings.Contains(p, "epoch-0000000002/") && d.Name() != "manifest" {
			files = append(files, p)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("files %v, %v", files, err)
	}
	for range 1 + rnd.IntN(4) {
		file := files[rnd.IntN(len(files))]
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		at := rnd.IntN(len(b))
		b[at] ^= 1 << rnd.IntN(8)
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		done = append(done, fmt.Sprintf("flip a bit of byte %d: %s", at, strings.TrimPrefix(file, base)))
	}
	return done
}

// newestFiles lists the files of the newest epoch of a directory.
func newestFiles(t *testing.T, dir string) (files []string) {
	t.Helper()
	epochs, err := filepath.Glob(filepath.Join(dir, "epoch-*"))
	if err != nil || len(epochs) < 2 {
		t.Fatalf("epochs %v, %v", epochs, err)
	}
	err = filepath.WalkDir(epochs[len(epochs)-1], func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
