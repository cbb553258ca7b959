package checkpoints_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
)

var (
	damages    = flag.Int("damages", 100, "damages to checkpoint directories that TestDamages tries")
	damageSeed = flag.Uint64("damage-seed", 1, "seed of TestDamages")
)

// outcome is what verify and a restart made of a damage.
type outcome struct {
	found  []checkpoints.Finding
	plain  checkpoints.Kind // the worst, without --complete
	could  error            // verify could not look
	epoch  storage.Epoch
	around bool
	err    error  // no restart
	each   []bool // whether epochs can be had by all ranks, of those that are kept
}

// judge says what is wrong with an outcome; "" if nothing is.
func judge(o *outcome, sorts []storagetest.Sort) string {
	only := func(s storagetest.Sort) bool {
		return !slices.ContainsFunc(sorts, func(x storagetest.Sort) bool { return x != s })
	}
	worst := storagetest.Worst(o.found)
	whole := o.err == nil && o.epoch == siteEpochs
	switch {
	case errors.Is(o.err, errWrongBytes):
		return "restored " + o.err.Error()
	case only(storagetest.Harmless) && (worst != "" || o.could != nil):
		return "verify complains of what does no harm"
	case o.could != nil:
		return "verify could not look: " + o.could.Error()
	case worst == "" && (!whole || o.around):
		return "unnoticed, and the restart is not what it was"
	case worst == "" && !only(storagetest.Harmless) && !slices.Contains(sorts, storagetest.AnySort):
		return "unnoticed"
	case only(storagetest.Takes) && o.plain == "":
		return "unnoticed without --complete"
	case worst == checkpoints.NotRedundant && !whole:
		return "not redundant, says verify, and the newest epoch cannot be had"
	case only(storagetest.Spoils) && worst != checkpoints.Damaged:
		return "spoilt, and verify does not say damaged"
	case only(storagetest.Takes) && worst == checkpoints.Damaged:
		return "gone, and verify says damaged"
	case only(storagetest.Takes) && worst == checkpoints.NotRedundant && slices.Contains(o.each, false):
		return "an epoch is lost, and verify says not redundant"
	case only(storagetest.Takes) && worst == checkpoints.Missing && !slices.Contains(o.each, false):
		return "every epoch can be had, and verify says missing"
	}
	return ""
}

func (s *site) outcome(ctx context.Context) *outcome {
	o := &outcome{}
	o.found, o.could = s.verify(ctx, true, s.dirs()...)
	if found, err := s.verify(ctx, false, s.dirs()...); err == nil {
		o.plain = storagetest.Worst(found)
	}
	o.epoch, o.around, o.err = s.restore(ctx)
	if s.open(ctx) == nil {
		for e := storage.Epoch(siteEpochs - 1); e <= siteEpochs; e++ {
			_, err := s.fetch(ctx, e)
			if errors.Is(err, errWrongBytes) {
				o.err = err
			}
			o.each = append(o.each, err == nil)
		}
		s.close()
	}
	return o
}

// damagedSites builds the sites that a campaign damages copies of, one for each of siteLevels. It
// plays count damages, or short of them with -short.
func damagedSites(t *testing.T, count *int, short int) (base string, sites []*site, seed uint64) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away; make test runs as root")
	}
	seed = *damageSeed
	if testing.Short() {
		*count = min(*count, short)
	}
	t.Logf("%d damages, seed %d", *count, seed)
	base = fastDir(t)
	for i, levels := range siteLevels {
		sites = append(sites, buildSite(t, filepath.Join(base, fmt.Sprint("site", i)), levels...))
	}
	return base, sites, seed
}

// TestDamages does to directories of real jobs what disks, people and other users
// do, and compares what verify says, what a restart gives, and what was written:
// every damage is noticed, with the right answer, or does no harm; wrong bytes are
// never restored; nothing crashes and nothing waits.
func TestDamages(t *testing.T) {
	base, sites, seed := damagedSites(t, damages, 30)
	count := map[checkpoints.Kind]int{}
	restored, failed := 0, 0
	for n := range *damages {
		rnd := rand.New(rand.NewPCG(seed, uint64(n)))
		s, err := sites[rnd.IntN(len(sites))].copyTo(filepath.Join(base, "copy"))
		if err != nil {
			t.Fatal(err)
		}
		v := &storagetest.Damager{Rnd: rnd, Base: s.base, Levels: s.dirs(), Newest: siteEpochs}
		sorts := []storagetest.Sort{v.Damage()}
		for rnd.IntN(4) == 0 {
			sorts = append(sorts, v.Damage())
		}
		done := make(chan *outcome, 1)
		go func() { done <- s.outcome(t.Context()) }()
		select {
		case o := <-done:
			count[storagetest.Worst(o.found)]++
			if o.err == nil {
				restored++
			}
			if why := judge(o, sorts); why != "" {
				failed++
				t.Errorf("damage %d, levels local %v: %s:\n\t%s\nrestored epoch %d, around damage %v, each %v, %v", n,
					s.levels, why,
					strings.Join(v.Done, "\n\t"), o.epoch, o.around, o.each, o.err)
				for _, f := range o.found {
					t.Logf("epoch %d %s rank %d %s: %s: %v, good at %v", f.Epoch, f.Dir.Dir, f.Rank, f.Part, f.Kind,
						f.Err, f.GoodAt)
				}
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("damage %d: something waits:\n\t%s", n, strings.Join(v.Done, "\n\t"))
		}
		if err := os.RemoveAll(s.base); err != nil {
			t.Fatal(err)
		}
		if failed > 5 {
			t.Fatal("enough")
		}
	}
	t.Logf("damaged %d, missing %d, not redundant %d, no harm %d; %d of %d restored",
		count[checkpoints.Damaged], count[checkpoints.Missing], count[checkpoints.NotRedundant], count[""], restored,
		*damages)
}
