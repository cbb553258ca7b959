package checkpoints_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
)

var repairs = flag.Int("repairs", 40, "damages to checkpoint directories that TestRepairDamages repairs")

// siteLevels are those of the sites that are damaged.
var siteLevels = [][]string{{"partner", "global"}, {"parity", "global"}, {"partner"}, {"parity"}, {"global"}, {}}

// held says which epochs every rank can have, with the right bytes.
func (s *site) held(ctx context.Context) (each []bool, err error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for e := storage.Epoch(1); e <= siteEpochs; e++ {
		_, ferr := s.fetch(ctx, e)
		if errors.Is(ferr, errWrongBytes) {
			return nil, ferr
		}
		each = append(each, ferr == nil)
	}
	return each, nil
}

func describe(list []checkpoints.Repaired) string {
	var b strings.Builder
	for _, r := range list {
		fmt.Fprintf(&b, "\n\tepoch %d %s rank %d %s %s (%v, good at %v): done %v, %v", r.Epoch, r.Dir.Dir, r.Rank,
			r.Part, r.Kind, r.Finding.Err, r.GoodAt, r.Done, r.Err)
	}
	return b.String()
}

// TestRepairEachLevel damages one file of each kind at each level, in each way that files are damaged, and wants it as
// it was: nothing is left for verify, and the bytes that are not of an index or a header of their own are the same.
func TestRepairEachLevel(t *testing.T) {
	base := fastDir(t)
	partner := buildSite(t, filepath.Join(base, "partner"), storage.LevelPartner, storage.LevelGlobal)
	parity := buildSite(t, filepath.Join(base, "parity"), storage.LevelParity, storage.LevelGlobal)
	alone := buildSite(t, filepath.Join(base, "alone"), storage.LevelPartner)
	coded := buildSite(t, filepath.Join(base, "coded"), storage.LevelParity)
	plain := buildSite(t, filepath.Join(base, "plain"), storage.LevelGlobal)
	harms := map[string]func(file string) error{
		"flipped": func(file string) error {
			b, err := os.ReadFile(file)
			if err == nil {
				b[len(b)/2] ^= 16
				err = os.WriteFile(file, b, 0o600)
			}
			return err
		},
		"truncated": func(file string) error { return os.Truncate(file, 5000) },
		"missing":   os.Remove,
		"emptied":   func(file string) error { return os.Truncate(file, 0) },
	}
	n := 0
	for _, c := range []struct {
		of   *site
		file string
	}{
		{partner, "n1/epoch-0000000004/rank-000002.shard"},          // from the partner's, or global
		{plain, "n1/epoch-0000000004/rank-000002.shard"},            // from global alone
		{alone, "n1/epoch-0000000004/rank-000002.shard"},            // from partner alone
		{coded, "n1/epoch-0000000004/rank-000002.shard"},            // from parity alone
		{coded, "n1/epoch-0000000003/rank-000003.shard"},            // others refer to it
		{partner, "n2/partner/epoch-0000000004/rank-000003.shard"},  // from local
		{alone, "n2/partner/epoch-0000000003/rank-000002.shard"},    // which others refer to
		{parity, "n0/parity/epoch-0000000004/rank-000000.parity-0"}, // from local
		{coded, "n1/parity/epoch-0000000003/rank-000002.parity-0"},  //
		{partner, "global/epoch-0000000004/pack-000002.shards"},     // of two ranks, from local
		{parity, "global/epoch-0000000003/rank-000004.shard"},       // of an epoch without packs
		{plain, "global/epoch-0000000003/rank-000001.shard"},        //
		{plain, "global/epoch-0000000004/pack-000000.shards"},       //
		{partner, "n0/epoch-0000000004/manifest"},                   // from another node
		{parity, "n0/parity/epoch-0000000004/manifest"},             //
		{partner, "n2/partner/epoch-0000000004/manifest"},           //
		{partner, "global/epoch-0000000004/manifest"},               // the only one, from packs
		{plain, "global/epoch-0000000003/manifest"},                 // from shards
		{plain, "n1/holdfast.job"},                                  // from the manifests
		{plain, "global/holdfast.job"},                              //
		{plain, "global/holdfast.begun"},                            //
	} {
		for how, harm := range harms {
			if n++; testing.Short() && n%12 != 0 {
				continue
			}
			s, err := c.of.copyTo(filepath.Join(base, fmt.Sprint("copy", n)))
			if err == nil {
				err = harm(filepath.Join(s.base, c.file))
			}
			if err != nil {
				t.Fatal(err)
			}
			name := c.file + " " + how
			before, err := s.verify(t.Context(), true, s.dirs()...)
			if err != nil || storagetest.Worst(before) == "" && !strings.Contains(c.file, "holdfast.begun") {
				t.Errorf("%s: the damage does none: %v, %v", name, before, err)
			}
			rules := checkpoints.RepairRules{Complete: true}
			rules.DryRun = true
			dry, err := checkpoints.Repair(t.Context(), s.dirs(), rules)
			if again, _ := s.verify(t.Context(), true, s.dirs()...); err != nil || len(again) != len(before) {
				t.Errorf("%s: a dry run changes what verify finds: %v, %v, was %v", name, err, again, before)
			}
			rules.DryRun = false
			list, err := checkpoints.Repair(t.Context(), s.dirs(), rules)
			after, verr := s.verify(t.Context(), true, s.dirs()...)
			if err != nil || verr != nil || storagetest.Worst(after) != "" {
				t.Errorf("%s: got %v, %v, %v:%s", name, err, verr, after, describe(list))
			}
			if slices.ContainsFunc(list, func(r checkpoints.Repaired) bool { return !r.Done || r.Err != nil }) ||
				slices.ContainsFunc(dry, func(r checkpoints.Repaired) bool { return r.Done || r.Err != nil }) {
				t.Errorf("%s: a dry run says%s\nand then%s", name, describe(dry), describe(list))
			}
			each, err := s.held(t.Context())
			if err != nil || !each[2] || !each[3] {
				t.Errorf("%s: restored %v, %v", name, each, err)
			}
			if err := s.onlyFrom(t.Context(), c.file); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := os.RemoveAll(s.base); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// onlyFrom removes all directories but those of the level that a file lies at, and what its level needs, and restores
// from what is left.
func (s *site) onlyFrom(ctx context.Context, file string) error {
	level := storage.LevelLocal
	for _, l := range []string{storage.LevelGlobal, storage.LevelPartner, storage.LevelParity} {
		if strings.Contains(file, l+"/") {
			level = l
		}
	}
	if level == storage.LevelParity {
		return nil // TestRepairedRedundancyCarries does it
	}
	dirs := []string{}
	for _, d := range s.dirs() {
		at := storage.LevelLocal
		for _, l := range []string{storage.LevelGlobal, storage.LevelPartner, storage.LevelParity} {
			if strings.HasSuffix(d, l) {
				at = l
			}
		}
		if at == level {
			dirs = append(dirs, d)
		}
	}
	v, err := checkpoints.Open(ctx, dirs...)
	if err != nil {
		return err
	}
	for e := storage.Epoch(siteEpochs - 1); e <= siteEpochs; e++ {
		for r := range s.nodes {
			sh, err := v.Fetch(ctx, e, r)
			if err != nil {
				return fmt.Errorf("from level %s alone: %w", level, err)
			}
			if err := sameAs(ctx, sh, small(r, e)); err != nil {
				return err
			}
		}
	}
	return nil
}

func sameAs(ctx context.Context, sh *storage.Shard, want []storage.Section) (err error) {
	defer func() { err = errors.Join(err, sh.Close()) }()
	for _, sec := range want {
		got := make([]byte, sec.Size)
		if err := sh.ReadAt(ctx, sec.Name, got, 0); err != nil {
			return err
		}
		if string(got) != string(sec.Source.(storage.Bytes)) {
			return fmt.Errorf("%w: section %s", errWrongBytes, sec.Name)
		}
	}
	return nil
}

// TestRepairedRedundancyCarries repairs rows of parity, and then loses a node that only they can replace.
func TestRepairedRedundancyCarries(t *testing.T) {
	s := buildSite(t, filepath.Join(fastDir(t), "site"), storage.LevelParity)
	for _, file := range []string{"n0/parity/epoch-0000000004/rank-000000.parity-0",
		"n2/parity/epoch-0000000004/rank-000004.parity-0", "n2/parity/epoch-0000000004/rank-000005.parity-0"} {
		if err := os.Truncate(filepath.Join(s.base, file), 9000); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := checkpoints.Repair(t.Context(), s.dirs(), checkpoints.RepairRules{}); err != nil || len(list) != 3 {
		t.Fatalf("got %v, %v", describe(list), err)
	}
	for _, f := range []string{"n1/epoch-0000000003", "n1/epoch-0000000004"} {
		if err := os.RemoveAll(filepath.Join(s.base, f)); err != nil {
			t.Fatal(err)
		}
	}
	if each, err := s.held(t.Context()); err != nil || !each[2] || !each[3] {
		t.Errorf("restored %v, %v", each, err)
	}
}

// TestRepairDamages does to directories of real jobs what disks, people and other users do, and repairs them. What
// could be restored before can be restored after it, with the right bytes; what repair says it has done, verify finds
// good; and what verify finds wrong after it, repair has named.
func TestRepairDamages(t *testing.T) {
	base, sites, seed := damagedSites(t, repairs, 15)
	whole, named, failed := 0, 0, 0
	for n := range *repairs {
		rnd := rand.New(rand.NewPCG(seed, uint64(n)))
		s, err := sites[rnd.IntN(len(sites))].copyTo(filepath.Join(base, "copy"))
		if err != nil {
			t.Fatal(err)
		}
		v := &storagetest.Damager{Rnd: rnd, Base: s.base, Levels: s.dirs(), Newest: siteEpochs}
		v.Damage()
		for rnd.IntN(3) == 0 {
			v.Damage()
		}
		why, clean := s.repaired(t.Context())
		switch {
		case why != "":
			failed++
			t.Errorf("damage %d, levels local %v: %s\nafter:\n\t%s", n, s.levels, why, strings.Join(v.Done, "\n\t"))
		case clean:
			whole++
		default:
			named++
		}
		if err := os.RemoveAll(s.base); err != nil {
			t.Fatal(err)
		}
		if failed > 3 {
			t.Fatal("enough")
		}
	}
	t.Logf("%d are whole again, of %d repair names what it cannot repair", whole, named)
	if whole < *repairs/2 {
		t.Errorf("only %d of %d are whole again", whole, *repairs)
	}
}

// repaired repairs a site and says what is wrong with that; "" if nothing is. clean says that verify finds nothing any
// more.
func (s *site) repaired(ctx context.Context) (why string, clean bool) {
	scratch, err := s.asIs()
	if err != nil {
		return err.Error(), false
	}
	defer os.RemoveAll(scratch.base)
	could, cerr := scratch.held(ctx) // a start clears away and writes; it gets a copy
	if errors.Is(cerr, errWrongBytes) {
		return cerr.Error(), false
	}
	list, err := checkpoints.Repair(ctx, s.dirs(), checkpoints.RepairRules{Complete: true})
	if err != nil {
		return "", false // it could not look, and said so
	}
	found, err := s.verify(ctx, true, s.dirs()...)
	if err != nil {
		return "repair leaves what verify cannot look at: " + err.Error(), false
	}
	undone := slices.ContainsFunc(list, func(r checkpoints.Repaired) bool { return !r.Done })
	if slices.ContainsFunc(list, func(r checkpoints.Repaired) bool { return r.Done == (r.Err != nil) }) {
		return "neither done nor with a reason:" + describe(list), false
	}
	if worst := storagetest.Worst(found); worst != "" && !undone {
		return fmt.Sprintf("repair says that all is done, and verify finds %v:%s", found, describe(list)), false
	}
	can, err := s.held(ctx)
	if errors.Is(err, errWrongBytes) || err != nil && cerr == nil {
		return err.Error() + describe(list), false
	}
	for i := range could {
		if could[i] && !can[i] {
			return fmt.Sprintf("epoch %d could be restored before the repair:%s", i+1, describe(list)), false
		}
	}
	return "", len(found) == 0 || storagetest.Worst(found) == ""
}

// asIs copies the site with links, owners and all.
func (s *site) asIs() (*site, error) {
	out := *s
	out.base = s.base + "-before"
	return &out, runCommand("cp", "-a", s.base, out.base)
}

func runCommand(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// TestRepairDoesNotEncodeDamage: a row of parity is not computed from a shard that is damaged and cannot be repaired.
// It would look right.
func TestRepairDoesNotEncodeDamage(t *testing.T) {
	s := buildSite(t, filepath.Join(fastDir(t), "site"), storage.LevelParity)
	row := filepath.Join(s.base, "n0/parity/epoch-0000000004/rank-000000.parity-0")
	shard := filepath.Join(s.base, "n1/epoch-0000000004/rank-000002.shard")
	b, err := os.ReadFile(shard)
	if err != nil {
		t.Fatal(err)
	}
	for at := 4100; at < 4100+9000; at += 500 {
		b[at] ^= 1
	}
	if err := errors.Join(os.WriteFile(shard, b, 0o600), os.Truncate(row, 4096)); err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		list, err := checkpoints.Repair(t.Context(), s.dirs(), checkpoints.RepairRules{Epoch: siteEpochs, DryRun: dry})
		if err != nil || len(list) != 2 || list[0].Err == nil || list[1].Err == nil {
			t.Errorf("dry run %v: got %v:%s", dry, err, describe(list))
		}
	}
	after, err := os.ReadFile(shard)
	if info, serr := os.Stat(row); err != nil || string(after) != string(b) || serr != nil || info.Size() != 4096 {
		t.Errorf("what cannot be repaired was written: %v, %v", err, serr)
	}
}
