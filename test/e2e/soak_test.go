package e2e

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/test/yield"
)

var (
	soakMoments = flag.Int("soak", 80, "moments of TestRestartsInProcess, over all MPIs")
	soakSeed    = flag.Uint64("soak-seed", 1, "seed of TestRestartsInProcess")
	soakRound   = flag.Int("soak-round", 0, "round that each job begins with")
	soakBatch   = flag.Int("soak-batch", 400, "moments of one job at most")
)

// soakRanks are the ranks of the jobs in turn. They busy-wait: more than a small machine
// has cores take far longer.
var soakRanks = []int{2, 3, 2, 2, 3, 4}

// TestRestartsInProcess runs programs of all shapes with checkpoints at random moments and
// restarts them from each, many in one process; see testprog's soak.
func TestRestartsInProcess(t *testing.T) {
	if testing.Short() {
		*soakMoments = 20
	}
	var mpis []mpirun.Launcher
	for _, l := range launchers {
		if err := l.Available(); err != nil {
			t.Log(err)
			continue
		}
		mpis = append(mpis, l)
	}
	if len(mpis) == 0 {
		t.Skip("no MPI is installed")
	}
	base, err := os.MkdirTemp("", "holdfast-soak")
	if err != nil {
		t.Fatal(err)
	}
	size := min(*soakBatch, (*soakMoments+2*len(mpis)-1)/(2*len(mpis)))
	begun, total := time.Now(), map[string]int{}
	for i := 0; total["moments"] < *soakMoments; i++ {
		b := batch{mpi: mpis[i%len(mpis)], ranks: soakRanks[i/len(mpis)%len(soakRanks)], seed: *soakSeed + uint64(i),
			moments: min(size, *soakMoments-total["moments"]), dir: fmt.Sprintf("%s/%d", base, i)}
		b.run(t, total)
		took := time.Since(begun).Seconds()
		t.Logf("%d of %d moments, %.1f a second: %v", total["moments"], *soakMoments, float64(total["moments"])/took,
			lines(total))
	}
	if err := os.RemoveAll(base); err != nil {
		t.Error(err)
	}
}

// batch is one job of the soak.
type batch struct {
	mpi            mpirun.Launcher
	ranks, moments int
	seed           uint64
	dir            string
}

var counted = regexp.MustCompile(`([\w-]+)=(\d+)\b`)

var moved = regexp.MustCompile(`(?m)^soak: (\d+) moments in .*$`)

// run adds to total what the job has done.
func (b *batch) run(t *testing.T, total map[string]int) {
	t.Helper()
	if err := os.Mkdir(b.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"-soak", strconv.Itoa(b.moments), "-seed", strconv.FormatUint(b.seed, 10), "-round",
		strconv.Itoa(*soakRound), "-dir", b.dir}
	j := b.mpi.Job(b.ranks, time.Hour, append([]string{testprog}, args...)...)
	j.Env = yield.Env()
	out, err := j.CombinedOutput(t.Context())
	line := moved.FindStringSubmatch(out)
	if err != nil || line == nil {
		t.Fatalf("%s, %d ranks, %v: %v; the directories are kept\n%s", b.mpi.Title, b.ranks, args, err, out)
	}
	t.Logf("%s, %d ranks, seed %d\n%s", b.mpi.Title, b.ranks, b.seed, out)
	n, _ := strconv.Atoi(line[1]) // digits by the pattern
	total["moments"] += n
	for _, m := range counted.FindAllStringSubmatch(line[0], -1) {
		n, _ := strconv.Atoi(m[2]) // as above
		total[m[1]] += n
	}
}

func lines(total map[string]int) (out []string) {
	for _, k := range slices.Sorted(maps.Keys(total)) {
		if k != "moments" {
			out = append(out, fmt.Sprint(k, " ", total[k]))
		}
	}
	return out
}
