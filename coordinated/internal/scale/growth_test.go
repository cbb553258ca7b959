package scale

import (
	"flag"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/vote"
	"github.com/holdfast-hpc/holdfast/storage"
)

// TestCounts: what a job of 24 ranks asks for is much the same whether all of them are real or
// the ranks of two nodes are.
func TestCounts(t *testing.T) {
	run := func(all bool) Result {
		res, err := Run(t.Context(), Options{Dir: t.TempDir(), Ranks: 24, PerNode: 4, all: all})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	some, all := run(false), run(true)
	if some.Manifest != all.Manifest || some.Manifest == 0 {
		t.Errorf("got manifests of %d bytes and of %d where all ranks are real", some.Manifest, all.Manifest)
	}
	for what, pair := range map[string][2]Count{
		"epoch": {some.Epoch, all.Epoch}, "restart": {some.Restart, all.Restart},
	} {
		got, want := pair[0], pair[1]
		for _, kind := range []string{Create, Open, Stat, Rename, Sync, SyncDir} {
			if math.Abs(got.Ops[kind]-want.Ops[kind]) > 0.1*want.Ops[kind]+2 {
				t.Errorf("%s: got %g of %s, and %g where all ranks are real", what, got.Ops[kind], kind, want.Ops[kind])
			}
		}
		if math.Abs(got.BytesWritten-want.BytesWritten) > 0.1*want.BytesWritten+1000 {
			t.Errorf("%s: got %g bytes written, and %g where all ranks are real", what, got.BytesWritten,
				want.BytesWritten)
		}
	}
	if n := some.Epoch.Ops[Remove]; n < 6 {
		t.Errorf("got %g files removed in an epoch, want at least one pack of each of 6 nodes", n)
	}
	if n := all.Epoch.Ops[Open] + all.Epoch.Ops[Create]; n > 6+8 { // 24 ranks would open 24
		t.Errorf("got %g files made and opened in an epoch, want one for each of 6 nodes, and manifests and "+
			"records by rank 0", n)
	}
	for _, res := range []Result{some, all} {
		if v := res.LocalVotes; v.Other > 200 || v.First < 24*50 {
			t.Errorf("got %+v bytes of votes at local, want all shards for the first rank of a node, and for others "+
				"what was voted", v)
		}
	}
	if n := all.Epoch.BytesWritten; n < 24*64<<10 {
		t.Errorf("got %g bytes written of 24 ranks' 64 KiB", n)
	}
}

// TestSmall: a job of one rank has no second node.
func TestSmall(t *testing.T) {
	for _, n := range []int{1, 9} {
		res, err := Run(t.Context(), Options{Dir: t.TempDir(), Ranks: n})
		if err != nil {
			t.Fatal(err)
		}
		if res.Epoch.Metadata() == 0 || res.Restart.Metadata() == 0 || res.Largest < 64<<10 {
			t.Errorf("got %+v", res)
		}
		if got := res.Epoch.Metadata(); n == 1 && got > 26 { // four of each of 13 nodes of 100 ranks are 52
			t.Errorf("got %g metadata operations in an epoch of one rank, want 25", got)
		}
	}
	if _, err := Run(t.Context(), Options{Dir: t.TempDir()}); err == nil {
		t.Error("a job without ranks was accepted")
	}
}

// TestShift: a simulated rank votes on its own shards, and on none of ranks that do not exist.
func TestShift(t *testing.T) {
	h := newHall(22, 4, 8) // the last node has ranks 20 and 21
	data := vote.EncodePut([]storage.ShardInfo{{Rank: 4, Pack: 4}, {Rank: 5, Pack: 4}, {Rank: 6, Pack: 4}}, nil)
	b, err := h.shift(data, 16)
	if err != nil {
		t.Fatal(err)
	}
	for r, want := range map[int]int{8: 4, 13: 5, 21: 5} {
		if got := h.like(r); got != want {
			t.Errorf("rank %d votes as %d, want %d", r, got, want)
		}
	}
	infos, err := decodePut(b)
	if err != nil || len(infos) != 2 || infos[1].Rank != 21 || infos[1].Pack != 20 || infos[1].Node != "node00005" {
		t.Errorf("got %+v, %v, want shards of ranks 20 and 21 in pack 20", infos, err)
	}
}

var sizes = flag.String("ranks", "1,100,200", "numbers of ranks for TestGrowth, of which those above 100 are compared "+
	"with the first of 100 or more")

// The bounds of what the global directory is asked for.
const (
	growthBound  = 1.1  // of a rank's share, beside that of base ranks
	perNodeBound = 4    // metadata operations of an epoch, from base ranks on
	copiesBound  = 1    // how often a node reads each manifest at a restart
	votesBound   = 1024 // bytes that a rank gets
	base         = 100
)

// TestGrowth: the share of a rank does not grow with their number. With -v it prints all that was counted.
func TestGrowth(t *testing.T) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	var first *Result
	for word := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		res, err := Run(t.Context(), Options{Dir: t.TempDir(), Ranks: n})
		if err != nil {
			t.Fatalf("%d ranks: %v", n, err)
		}
		if first == nil && n >= base {
			first = &res
		}
		for _, f := range res.figures(first) {
			bound := ""
			if !math.IsInf(f.most, 1) {
				bound = fmt.Sprintf("%.4g at most", f.most)
			}
			fmt.Fprintf(w, "%d ranks\t%s\t%.4g\t%s\n", n, f.what, f.v, bound)
			if !(f.v <= f.most) {
				t.Errorf("%d ranks: %s: got %g, want %g at most", n, f.what, f.v, f.most)
			}
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + text.String())
}

// figure is something that was counted and its bound, which may be infinite.
type figure struct {
	what    string
	v, most float64
}

// figures returns the figures of one number of ranks. first is the result that the share of a rank must not grow
// beyond, nil with fewer than base ranks, where those of rank 0 are all that there is.
func (res *Result) figures(first *Result) (out []figure) {
	none, nodes := math.Inf(1), float64(res.Nodes)
	show := func(what string, v, most float64) { out = append(out, figure{what, v, most}) }
	share := func(what string, of func(*Result) float64) {
		most := none
		if first != nil {
			most = growthBound * of(first) / float64(first.Ranks)
		}
		show(what+" / rank", of(res)/float64(res.Ranks), most)
	}
	kinds := func(when string, c Count) {
		for _, kind := range Kinds {
			if n := c.Ops[kind]; n > 0 {
				show(when+": "+kind+" / node", n/nodes, none)
			}
		}
	}
	perNode := none
	if first != nil {
		perNode = perNodeBound
	}
	if first != nil && first != res && res.Nodes > first.Nodes {
		more := (res.Epoch.Metadata() - first.Epoch.Metadata()) / (nodes - float64(first.Nodes))
		show("epoch: metadata operations of a node", more, none)
		show("epoch: metadata operations of rank 0 for the job", res.Epoch.Metadata()-more*nodes, none)
	}
	show("epoch: all metadata operations / node", res.Epoch.Metadata()/nodes, perNode)
	share("epoch: all metadata operations", func(r *Result) float64 { return r.Epoch.Metadata() })
	kinds("epoch", res.Epoch)
	share("epoch: bytes written", func(r *Result) float64 { return r.Epoch.BytesWritten })
	share("epoch: bytes read", func(r *Result) float64 { return r.Epoch.BytesRead })
	show("epoch: bytes of votes told / rank, global", max(res.GlobalVotes.First, res.GlobalVotes.Other), votesBound)
	show("epoch: bytes of votes told / rank, local", res.LocalVotes.Other, votesBound)
	show("epoch: bytes of votes told / first rank of a node, local", res.LocalVotes.First, none)
	show("largest file, bytes", float64(res.Largest), none)
	share("restart: metadata operations", func(r *Result) float64 { return r.Restart.Metadata() })
	kinds("restart", res.Restart)
	share("restart: bytes read", func(r *Result) float64 { return r.Restart.BytesRead })
	show("restart: manifests read / node", res.Restart.ManifestRead/float64(res.Manifests)/nodes, copiesBound)
	return out
}
