package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/internal/layout"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// cluster has nodes with a directory each, n0, n1 and so on below base, and one that they share.
type cluster struct {
	base       string
	redundancy string
	global     bool // the job uses the shared directory
	nodes      int  // of everywhere
}

func newCluster(t *testing.T, redundancy string) *cluster {
	t.Helper()
	c := &cluster{base: t.TempDir(), redundancy: redundancy, global: redundancy == ""}
	if err := os.Mkdir(c.shared(), 0o700); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) shared() string      { return filepath.Join(c.base, "global") }
func (c *cluster) dir(node int) string { return filepath.Join(c.base, fmt.Sprint("n", node)) }

// on places the ranks of a program on nodes, about as many on each.
func (c *cluster) on(nodes []int, run func(coordinated.Options) func(*mpiwrap.Comm) error) func(*mpiwrap.Comm) error {
	return func(world *mpiwrap.Comm) error {
		node := nodes[world.Rank()*len(nodes)/world.Size()]
		opt := coordinated.Options{Job: "test", CheckpointSignals: []os.Signal{}, StopSignals: []os.Signal{}, Keep: 2,
			Local: c.dir(node), Redundancy: c.redundancy, Interface: "127.0.0.1",
			Logger: slog.New(slog.DiscardHandler), OnLost: func(*coordinated.LostError) {}}
		if c.global {
			opt.Global = c.shared()
		}
		if err := os.MkdirAll(opt.Local, 0o700); err != nil {
			return err
		}
		return run(opt)(world)
	}
}

// onNode returns the context of a rank, whose directory is that of a node unless there is only one.
func onNode(ctx context.Context, opt coordinated.Options, cuts layout.Cuts) context.Context {
	node := filepath.Base(opt.Local)
	if node == "local" {
		node = ""
	}
	return connect.WithSeam(ctx, connect.Seam{Host: node, Cuts: &cuts})
}

// everywhere places the ranks on all nodes.
func (c *cluster) everywhere(run func(coordinated.Options) func(*mpiwrap.Comm) error) func(*mpiwrap.Comm) error {
	var all []int
	for n := range c.nodes {
		all = append(all, n)
	}
	return c.on(all, run)
}

// dirs returns the dirs of all levels, on all nodes.
func (c *cluster) dirs() (out []string) {
	level, _, _ := strings.Cut(c.redundancy, ":")
	for n := range c.nodes {
		if out = append(out, c.dir(n)); level != "" {
			out = append(out, filepath.Join(c.dir(n), level))
		}
	}
	if c.global {
		out = append(out, c.shared())
	}
	return out
}

// worst returns what holdfast verify --complete finds.
func (c *cluster) worst(ctx context.Context) (checkpoints.Kind, error) {
	return worstOf(ctx, c.dirs())
}

// run runs the program on a number of ranks.
func (c *cluster) run(ranks int, nodes []int, p *elastic) error {
	err := mpitest.NewWorld(ranks, mpitest.Options{Seed: uint64(ranks)}).Run(c.on(nodes, p.run))
	if errors.Is(err, coordinated.ErrStop) {
		err = nil
	}
	return err
}

// lose takes all that nodes have.
func (c *cluster) lose(t *testing.T, nodes ...int) {
	t.Helper()
	for _, n := range nodes {
		if err := os.RemoveAll(c.dir(n)); err != nil {
			t.Fatal(err)
		}
	}
}

// spoil changes bytes of the newest epoch's shard of a rank at a level, wherever the level has it.
func (c *cluster) spoil(t *testing.T, in string, rank int) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(c.base, in, "epoch-*", fmt.Sprintf("rank-%06d.shard", rank)))
	if err != nil || len(list) == 0 {
		t.Fatalf("no shard of rank %d in %s: %v", rank, in, err)
	}
	for _, file := range list {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at := range len(b) / 64 {
			b[64*at] ^= 4
		}
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// files lists what there is, for the message of a test that fails.
func (c *cluster) files() (out []string) {
	_ = filepath.WalkDir(c.base, func(p string, d fs.DirEntry, err error) error { // it is for people
		if err == nil && !d.IsDir() {
			out = append(out, strings.TrimPrefix(p, c.base))
		}
		return nil
	})
	return out
}

// TestResizeAfterLoss: eight ranks on four nodes stop; nodes are lost with their disks, and other shards are damaged.
// Fewer and more ranks continue on what is left and on new nodes, from copies, from parity or from the shared
// directory, with every element as the program of one rank has it. With -resize-all, fewer and more of them do in each
// case, and eight ranks continue from theirs.
func TestResizeAfterLoss(t *testing.T) {
	for i, c := range []struct {
		redundancy string
		lost       []int
		few        []int // nodes of the smaller job
		many       []int // of the larger one, new ones among them
		damaged    string
		rank       int
	}{
		{"partner:1", []int{1}, []int{0, 2, 3}, []int{0, 2, 3, 4}, "", 0},
		{"partner:1", nil, []int{0, 1, 2, 3}, []int{3, 2, 1, 0, 4}, "n0", 1},
		{"partner:1", []int{2}, []int{3, 1, 0}, []int{0, 1, 3}, "n3", 7}, // its copy is at n0
		{"partner:2", []int{1, 2}, []int{0, 3}, []int{5, 0, 3, 4}, "", 0},
		{"partner:2", []int{3}, []int{0, 1, 2}, []int{0, 1, 2}, "*/partner", 3},
		{"parity:3+1", []int{2}, []int{0, 1, 3}, []int{0, 1, 4, 3}, "", 0},
		{"parity:3+1", nil, []int{0, 1, 2, 3}, []int{3, 2, 1, 0}, "n1", 2},
		{"parity:2+2", []int{0, 3}, []int{1, 2}, []int{2, 4, 1}, "", 0},
		{"parity:2+2", []int{1}, []int{0, 2, 3}, []int{0, 2, 3}, "n2", 5},
		{"", []int{0, 1, 2, 3}, []int{0, 1}, []int{6, 5, 4}, "", 0},
	} {
		for q, nodes := range map[int][]int{3: c.few, 12: c.many} {
			if !*resizeAll && ((q == 12) != (i%4 > 0) || i%2 > 0) || testing.Short() && i%4 > 0 {
				continue
			}
			name := fmt.Sprintf("%s, lost %v, damaged %s, 8 to %d", c.redundancy, c.lost, c.damaged, q)
			t.Run(name, func(t *testing.T) {
				s := newCluster(t, c.redundancy)
				for n, start := range []struct {
					ranks int
					nodes []int
				}{{8, []int{0, 1, 2, 3}}, {max(q, len(nodes)), nodes}, {8, nodes}} {
					p := &elastic{until: 2*n + 2, start: 2 * n}
					if (n+i)%2 > 0 {
						p.device = "fake"
					}
					if err := s.run(start.ranks, start.nodes, p); err != nil {
						t.Fatalf("start %d on %d ranks: %v\n%s", n, start.ranks, err, strings.Join(s.files(), "\n"))
					}
					if n > 0 {
						if !*resizeAll {
							break
						}
						continue
					}
					s.lose(t, c.lost...)
					if c.damaged != "" {
						s.spoil(t, c.damaged, c.rank)
					}
				}
			})
		}
	}
}

// TestResizeRefusedAfterLoss: where more is lost than can be, the restart is refused and says which nodes have had what
// is missing, or which shard is damaged.
func TestResizeRefusedAfterLoss(t *testing.T) {
	for _, c := range []struct {
		redundancy string
		lost       []int
		nodes      []int
		damaged    []string
		want       []string
	}{
		{"partner:1", []int{1, 2}, []int{0, 3}, nil, []string{"rank(s)", "find none", "node(s) n[1-2]"}},
		{"parity:3+1", []int{0, 2}, []int{1, 3}, nil, []string{"find none", "node(s) n[0,2]"}},
		{"partner:1", nil, []int{0, 1, 2, 3}, []string{"n1", "n2/partner"}, []string{"rank=2", "epoch=1", "corrupt"}},
		{"parity:3+1", []int{0}, []int{1, 2, 3}, []string{"n1"}, []string{"epoch=1 rank=0 level=parity",
			"2 of the 3 parts needed; missing or damaged: the shard of rank 2 on node n1; start the job"}},
		{"partner:1", []int{0, 1, 2, 3}, []int{4, 5}, nil, nil}, // nothing says that there was a job
	} {
		t.Run(fmt.Sprintf("%s, lost %v, damaged %v", c.redundancy, c.lost, c.damaged), func(t *testing.T) {
			s := newCluster(t, c.redundancy)
			if err := s.run(8, []int{0, 1, 2, 3}, &elastic{until: 2}); err != nil {
				t.Fatal(err)
			}
			s.lose(t, c.lost...)
			for _, in := range c.damaged {
				s.spoil(t, in, 2)
			}
			p := &elastic{until: 4, start: 2}
			if c.want == nil {
				p.start = 0
			}
			err := s.run(5, c.nodes, p)
			if c.want == nil && err != nil || c.want != nil && (err == nil || p.restored.Load() > 0) {
				t.Fatalf("got %v, and %d ranks restored", err, p.restored.Load())
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got %v, want %q in it", err, part)
				}
			}
			var want []string
			for _, n := range c.lost {
				want = append(want, fmt.Sprint("n", n))
			}
			if got := coordinated.MissingNodes(err); c.want != nil && len(c.damaged) == 0 && !slices.Equal(got, want) {
				t.Errorf("the missing nodes are %v, want %v", got, want)
			}
		})
	}
}

// TestResizedDirectoriesVerify: the tools find nothing wrong with directories that hold epochs of several numbers of
// ranks.
func TestResizedDirectoriesVerify(t *testing.T) {
	opt := jobtest.Options(t)
	for i, ranks := range []int{4, 2, 3} {
		if err := runElastic(t, ranks, opt, &elastic{until: 2 * (i + 1), start: 2 * i}); err != nil {
			t.Fatalf("start %d on %d ranks: %v", i, ranks, err)
		}
	}
	v, err := checkpoints.Open(t.Context(), opt.Local, opt.Global)
	if err != nil {
		t.Fatal(err)
	}
	if found := v.VerifyDirs(); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	epochs, err := v.Expected()
	if err != nil || len(epochs) != 3 {
		t.Fatalf("got epochs %v, %v, want three", epochs, err)
	}
	for _, e := range epochs {
		found, err := v.Verify(t.Context(), e)
		if err != nil || len(found) > 0 {
			t.Errorf("epoch %d: got %v, %v", e, found, err)
		}
	}
	for e, size := range map[int]int{1: 4, 2: 2, 3: 3} {
		sh, err := v.Fetch(t.Context(), epochs[3-e], size-1)
		if err != nil {
			t.Errorf("the last rank of epoch %d: %v", e, err)
			continue
		}
		if err := sh.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestResizeNeedsQuiet: an epoch with a message in flight is refused by another number of ranks, and says to whom.
func TestResizeNeedsQuiet(t *testing.T) {
	opt := jobtest.Options(t)
	opt.Elastic, opt.OnLost = true, func(*coordinated.LostError) {}
	run := func(ranks int) error {
		return mpitest.NewWorld(ranks, mpitest.Options{Seed: 1}).Run(func(world *mpiwrap.Comm) error {
			ctx := context.Background()
			ck, err := coordinated.Open(ctx, world, opt)
			if err != nil {
				return err
			}
			step := 0
			err = ck.ProtectReplicated("step", &step)
			restored := false
			if err == nil {
				restored, err = ck.Restore(ctx)
			}
			if err == nil && !restored && world.Rank() == 0 {
				err = errors.Join(mpiwrap.Send(world, []float64{1}, 1, 7), ck.RequestStop(ctx))
			}
			for err == nil && !restored {
				err = ck.Point(ctx)
			}
			if errors.Is(err, coordinated.ErrStop) {
				return ck.Close()
			}
			if err != nil {
				ck.Abort(err)
				return err
			}
			if world.Rank() == 1 {
				in := []float64{0}
				_, err = mpiwrap.Recv(world, in, 0, 7)
			}
			return errors.Join(err, ck.Close())
		})
	}
	if err := run(2); err != nil {
		t.Fatal(err)
	}
	if err := run(3); err == nil || !strings.Contains(err.Error(), "rank(s) 1 had messages on their way") {
		t.Errorf("got %v, want the rank whose message was in flight", err)
	}
	if err := run(2); err != nil {
		t.Errorf("the same number of ranks: %v", err)
	}
}
