package slurm

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	deaths = flag.Int("deaths", 0, "random deaths to try; 0 = none")
	seed   = flag.Uint64("seed", 1, "seed of the random deaths")
	from   = flag.Int("from", 0, "the first of them to try: a long test in pieces")
	budget = flag.Duration("budget", 0, "time after which no further one is begun; 0 = none")
	keep   = flag.String("keep", "", "file that the results are added to; the table is of all that it holds")
)

var again = regexp.MustCompile(`computing again .*`)

// TestRandomDeaths lets nodes die in random ways and phases of a checkpoint, and
// compares the result with the undisturbed run. No hand touches the job.
func TestRandomDeaths(t *testing.T) {
	n := *deaths
	if n == 0 {
		t.Skip("the long test of make soak-slurm; TestDeaths tries each kind once")
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &limit); err == nil {
		limit.Cur = limit.Max
		_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &limit) // then there are no core files
	}
	b := newBed(t, 9) // those that come back are left alone at first
	rng := rand.New(rand.NewPCG(*seed, 0))
	var list []trial
	begun, next := time.Now(), *from
	defer func() {
		t.Logf("seed %d, trials %d to %d\n%s", *seed, *from, next-1, table(kept(t, *keep, list)))
	}()
	for i := range n {
		tr := random(rng, i)
		tr.Closes = i%2 == 1
		if i < *from {
			continue
		}
		if *budget > 0 && time.Since(begun) > *budget {
			return
		}
		next = i + 1
		name := fmt.Sprintf("%d-%s", i, tr.name())
		t.Run(name, func(t *testing.T) {
			defer func() {
				if tr.Passed = !t.Failed(); !tr.Passed && tr.job != nil {
					said := b.slurmLog(t)
					tr.Machine = blame(tr.job.log(), said[min(tr.slurmSaid, len(said)):], tr.died)
					t.Logf("not Holdfast's fault: %q\n%s\n%s", tr.Machine, tr.job.log(), said)
				}
				list = append(list, *tr)
				if err := tr.record(*keep); err != nil {
					t.Error(err)
				}
			}()
			b.try(t, tr, fmt.Sprint("t", *seed, "-", i))
		})
		for _, core := range b.cores() {
			t.Errorf("trial %d left %s", i, core)
			if *keep != "" {
				_ = os.Rename(core, filepath.Join(filepath.Dir(*keep), fmt.Sprintf("core-%d-%d", *seed, i)))
			}
		}
	}
}

// kept returns the trials in a file, or list where there is none.
func kept(t *testing.T, file string, list []trial) []trial {
	if file == "" {
		return list
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return list
	}
	list = nil
	for line := range bytes.Lines(b) {
		var tr trial
		if err := json.Unmarshal(line, &tr); err != nil {
			t.Error(err)
		}
		list = append(list, tr)
	}
	return list
}

// TestTrials: however short a long test is, it has every phase that it must have, beside
// programs that take the cores, and its table tells how long it took to notice the deaths.
func TestTrials(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	var list []trial
	seen := map[string]bool{}
	for i := range len(aimed) {
		tr := random(rng, i)
		seen[tr.Aim] = true
		seen["first epoch"] = seen["first epoch"] || tr.Skip == 0 && !tr.second()
		if !tr.Hog || tr.second() && len(tr.Ranks) != 2 {
			t.Errorf("trial %d: %+v", i, tr)
		}
		list = append(list, *tr)
	}
	for _, aim := range []string{atStart, "first epoch", "flush", atRestart, atNext} {
		if !seen[aim] {
			t.Errorf("none is aimed at %s", aim)
		}
	}
	list[0].Kind, list[0].Notice, list[0].Batch = "crash", 4.5, false
	list[1].Kind, list[1].Notice, list[1].Batch = "power", 6.5, false
	for _, want := range []string{"where connections close: median 4.50 s, worst 4.50 s (crash",
		"where nothing closes: median 6.50 s, worst 6.50 s (power"} {
		if got := table(list); !strings.Contains(got, want) {
			t.Errorf("got no %q in\n%s", want, got)
		}
	}
}
