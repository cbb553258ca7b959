package level

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// MaxStripes is how many storage targets a file of Lustre can have.
const MaxStripes = 2000

// unstriped is the length up to which a file has one stripe: manifests and records stay on one storage target.
const unstriped = "64M"

// ErrNoLFS says that a directory on Lustre cannot be given stripes here.
var ErrNoLFS = errors.New("the tool lfs of Lustre is not on PATH")

// Stripe has Lustre spread the files that are made below from now on over so many storage targets; -1: over all.
// Elsewhere it does nothing.
func (d *Dir) Stripe(ctx context.Context, stripes int) error {
	l, ok := d.fs.(interface{ Lustre(dir string) bool })
	if !ok || !l.Lustre(d.path) {
		return nil
	}
	lfs, err := exec.LookPath("lfs")
	if err != nil {
		return ErrNoLFS
	}
	args := []string{"setstripe", "-E", unstriped, "-c", "1", "-E", "-1", "-c", strconv.Itoa(stripes), d.path}
	out, err := exec.CommandContext(ctx, lfs, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("lfs %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
