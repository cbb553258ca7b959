package coordinated

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/storage"
)

// quietly begins the value of elasticEnv where the program is one with something under way at its Points.
const quietly = "quietly "

// quietRank is a rank of it, under an MPI.
func quietRank(what string) int {
	p := &halves{askAt: 3, final: true}
	opt := Options{Job: "test", Elastic: true, Quiet: time.Hour, CutTimeout: 24 * time.Hour}
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
				opt := testOptions(t)
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
func epochsThere(t *testing.T, opt *Options) (epochs []storage.Epoch) {
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
