package events

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// keepRuns is how many runs a directory remembers.
const keepRuns = 100

func runDir(dir string, run int) string { return filepath.Join(dir, fmt.Sprintf("run-%06d", run)) }

// partName returns a file of one rank, nodeName one of the ranks of a node, by its first rank.
func partName(rank, part int) string  { return fmt.Sprintf("rank-%06d.%d.jsonl", rank, part) }
func nodeName(first, part int) string { return fmt.Sprintf("node-%06d.%d.jsonl", first, part) }

var (
	runForm  = regexp.MustCompile(`^run-(\d{6,9})$`)
	partForm = regexp.MustCompile(`^(rank|node)-(\d{6,8})\.(\d{1,6})\.jsonl$`)
)

// Runs lists the runs whose logs a directory has, ascending; none if the directory is missing. It reads names only.
func Runs(ctx context.Context, dir string) ([]int, error) {
	list, err := vfs.OrOS(vfs.From(ctx)).ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("event log: %w", err)
	}
	var runs []int
	for _, e := range list {
		if m := runForm.FindStringSubmatch(e.Name); m != nil && e.Dir {
			n, _ := strconv.Atoi(m[1]) // digits by the pattern
			runs = append(runs, n)
		}
	}
	slices.Sort(runs)
	return runs, nil
}

// Prune removes logs of runs that are at least 100 older than run: logs of the given ranks, and of nodes with such a
// first rank. The last log takes its directory with it. dir is the directory of the runs.
func Prune(ctx context.Context, dir string, run int, ranks ...int) error {
	fsys := vfs.OrOS(vfs.From(ctx))
	runs, err := Runs(ctx, dir)
	if err != nil {
		return err
	}
	for _, old := range runs {
		if old > run-keepRuns {
			break
		}
		d := runDir(dir, old)
		list, err := fsys.ReadDir(d)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("event log: %w", err)
		}
		for _, f := range list {
			if _, r, _, ok := parsePart(f.Name); ok && slices.Contains(ranks, r) {
				if err := fsys.Remove(filepath.Join(d, f.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("event log: %w", err)
				}
			}
		}
		_ = fsys.Remove(d) // not empty while other ranks have logs there
	}
	return nil
}

// parsePart reads the name of a file: of a node or not, the rank, the part.
func parsePart(name string) (node bool, rank, part int, ok bool) {
	m := partForm.FindStringSubmatch(name)
	if m == nil {
		return false, 0, 0, false
	}
	rank, _ = strconv.Atoi(m[2]) // digits by the pattern
	part, _ = strconv.Atoi(m[3])
	return m[1] == "node", rank, part, true
}
