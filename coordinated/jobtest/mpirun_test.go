package jobtest_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/test/pocl"
	"github.com/holdfast-hpc/holdfast/test/yield"
)

// elasticEnv tells the test binary that it is a rank of the elastic program, started by mpirun: where it begins and
// ends, the kind of its device, and its directories.
const elasticEnv = "HOLDFAST_ELASTIC_RANK"

// changing begins its value where the program is the one whose arrays change.
const changing = "changing "

func TestMain(m *testing.M) {
	pocl.Alone()
	if what := os.Getenv(elasticEnv); what != "" {
		os.Exit(elasticRank(what))
	}
	os.Exit(m.Run())
}

func elasticRank(what string) int {
	if what, is := strings.CutPrefix(what, quietly); is {
		return quietRank(what)
	}
	p := &elastic{}
	what, changes := strings.CutPrefix(what, changing)
	var local, global string
	if _, err := fmt.Sscanf(what, "%d %d %q %q %q", &p.start, &p.until, &p.device, &local, &global); err != nil {
		fmt.Println(elasticEnv, err)
		return 1
	}
	w, err := mpiwrap.Init(mpiwrap.Options{})
	if err != nil {
		fmt.Println("init:", err)
		return 1
	}
	run := p.run
	if changes {
		run = (&adaptive{start: p.start, until: p.until, device: p.device != ""}).run
	}
	err = run(coordinated.Options{Job: "test", Local: local, Global: global, Keep: 3})(w)
	if err != nil && !errors.Is(err, coordinated.ErrStop) {
		fmt.Printf("FAILED on rank %d: %v\n", w.Rank(), err)
		w.Abort(3)
	}
	if err := mpiwrap.Finalize(); err != nil {
		fmt.Println("finalize:", err)
		return 1
	}
	if w.Rank() == 0 {
		fmt.Println("PASSED under", w.Library())
	}
	return 0
}

// TestResizeUnderMPI stops the program on P ranks of an MPI, continues it on Q, and on P under the other MPI, with
// arrays in memory and on devices. With -resize-all P and Q are all of 1 to 4, and devices are OpenCL ones, too.
func TestResizeUnderMPI(t *testing.T) {
	all := mpirun.Launchers()
	pairs := [][2]int{{1, 3}, {4, 2}}
	if *resizeAll {
		pairs = nil
		for i := range 16 {
			pairs = append(pairs, [2]int{1 + i/4, 1 + i%4})
		}
	}
	for i, l := range all {
		for k, pq := range pairs {
			if !*resizeAll && k != i {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d to %d", l.Name, pq[0], pq[1]), func(t *testing.T) {
				other := all[(i+1)%len(all)]
				if err := errors.Join(l.Available(), other.Available()); err != nil {
					t.Skip(err)
				}
				opt := jobtest.Options(t)
				for n, on := range []struct {
					l     mpirun.Launcher
					ranks int
				}{{l, pq[0]}, {l, pq[1]}, {other, pq[0]}} {
					device := []string{"", "fake"}[(n+k)%2]
					if *resizeAll && (n+k)%4 == 3 {
						device = "opencl"
					}
					startElastic(t, on.l, on.ranks, fmt.Sprintf("%d %d %q %q %q", 2*n, 2*n+2, device, opt.Local,
						opt.Global))
				}
			})
		}
	}
}

// startElastic runs the test binary as a number of ranks, and returns their output.
func startElastic(t *testing.T, l mpirun.Launcher, ranks int, what string) string {
	t.Helper()
	j := l.Job(ranks, 2*time.Minute, os.Args[0])
	j.Env = append(yield.Env(), elasticEnv+"="+what)
	out, err := j.CombinedOutput(t.Context())
	if err != nil || !strings.Contains(out, "PASSED") {
		t.Fatalf("%q on %d ranks of %s: %v\n%s", what, ranks, l.Name, err, out)
	}
	return out
}

// TestChangingUnderMPI is TestChangingDims under an MPI, and continued under the other: 2 ranks, 3, 1 and 3. With
// -resize-all the first two are all of 1 to 4.
func TestChangingUnderMPI(t *testing.T) {
	all := mpirun.Launchers()
	for i, l := range all {
		for pq := range 16 {
			p, q := 1+pq/4, 1+pq%4
			if !*resizeAll && (i > 0 || p != 2 || q != 3) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d to %d", l.Name, p, q), func(t *testing.T) {
				other := all[(i+1)%len(all)]
				if err := errors.Join(l.Available(), other.Available()); err != nil {
					t.Skip(err)
				}
				opt := jobtest.Options(t)
				for n, ranks := range []int{p, q, 1, q} {
					device := []string{"", "fake"}[(n+p)%2]
					what := fmt.Sprintf("%s%d %d %q %q %q", changing, n, n+1, device, opt.Local, opt.Global)
					startElastic(t, []mpirun.Launcher{l, l, other, l}[n], ranks, what)
				}
			})
		}
	}
}

// quietly begins the value of elasticEnv where the program is one with something under way at its Points.
const quietly = "quietly "

// quietRank returns a rank of it, under an MPI.
func quietRank(what string) int {
	p := &halves{askAt: 3, final: true}
	opt := coordinated.Options{Job: "test", Elastic: true, Quiet: time.Hour, CutTimeout: 24 * time.Hour}
	var under string
	if _, err := fmt.Sscanf(what, "%d %q %q %q", &p.busy, &under, &opt.Local, &opt.Global); err != nil {
		fmt.Println(elasticEnv, err)
		return 1
	}
	p.under = underways[under]
	w, err := mpiwrap.Init(mpiwrap.Options{})
	if err != nil {
		fmt.Println("init:", err)
		return 1
	}
	if err := p.run(w, opt); err != nil {
		fmt.Printf("FAILED on rank %d: %v\n", w.Rank(), err)
		w.Abort(3)
	}
	if err := mpiwrap.Finalize(); err != nil {
		fmt.Println("finalize:", err)
		return 1
	}
	if w.Rank() == 0 {
		off := 0
		for _, e := range p.epochs {
			off = max(off, e.PutOff)
		}
		fmt.Printf("PASSED restored=%d putoff=%d\n", p.restored, off)
	}
	return 0
}

// TestQuietUnderMPI: messages in flight and requests that are pending at many Points put a checkpoint off under an MPI;
// another number of ranks restores it, the same bytes, under the other MPI as well. With -resize-all it takes all that
// may be under way.
func TestQuietUnderMPI(t *testing.T) {
	all := mpirun.Launchers()
	quick := []string{"a receive not waited for", "a message"}
	for i, l := range all {
		for under := range underways {
			if !*resizeAll && under != quick[i%len(quick)] {
				continue
			}
			t.Run(l.Name+"/"+under, func(t *testing.T) {
				other := all[(i+1)%len(all)]
				if err := errors.Join(l.Available(), other.Available()); err != nil {
					t.Skip(err)
				}
				opt := jobtest.Options(t)
				const busy = 40
				what := func(under string) string {
					return fmt.Sprintf("%s%d %q %q %q", quietly, busy, under, opt.Local, opt.Global)
				}
				if _, off := passed(t, startElastic(t, l, 3, what(under))); off == 0 {
					t.Error("no cut was put off")
				}
				v := epochsThere(t, &opt)
				if len(v) != 1 {
					t.Fatalf("got epochs %v, want one", v)
				}
				if why := counts(t, &opt, v[0]); why != "" {
					t.Errorf("other numbers of ranks cannot restore it: %s", why)
				}
				for n, on := range []mpirun.Launcher{l, other} {
					if step, _ := passed(t, startElastic(t, on, 2+2*n, what(under))); step < busy {
						t.Errorf("%d ranks of %s continue from step %d, want %d or more", 2+2*n, on.Name, step, busy)
					}
				}
			})
		}
	}
}

// epochsThere lists the epochs that are there.
func epochsThere(t *testing.T, opt *coordinated.Options) (epochs []storage.Epoch) {
	t.Helper()
	for _, info := range committedEpochs(t, opt) {
		if !slices.Contains(epochs, info.Epoch) {
			epochs = append(epochs, info.Epoch)
		}
	}
	return epochs
}

// passed reads what rank 0 has printed.
func passed(t *testing.T, out string) (restored, putOff int) {
	t.Helper()
	m := regexp.MustCompile(`PASSED restored=(\d+) putoff=(\d+)`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("got %s", out)
	}
	restored, _ = strconv.Atoi(m[1])
	putOff, _ = strconv.Atoi(m[2])
	return restored, putOff
}
