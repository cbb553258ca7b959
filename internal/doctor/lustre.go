package doctor

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/holdfast-hpc/holdfast/storage"
)

// layout is how Lustre spreads new files of a directory. Of a layout in parts it is the last part, where the bytes of
// large files are.
type layout struct {
	count int   // storage targets of a file; -1: all
	size  int64 // bytes on one target before the next
}

const (
	leastStripe = 1 << 20 // bytes; shorter ones divide each request of a shard among many targets
	fewStripes  = 4       // of a file, if nothing is known of the job
	lfsMissing  = "load the module with Lustre's tools"
)

// lustre describes the striping of a level's files on Lustre, and the striping that would suit the job.
func (r *report) lustre(ctx context.Context, level, dir string) {
	check := level + ": Lustre"
	if _, err := exec.LookPath("lfs"); err != nil {
		r.add("directories", check, Warning, "lfs is not on PATH: how "+dir+" is striped is not known", lfsMissing)
		return
	}
	text, err := lfs(ctx, "getstripe", "-d", dir)
	have, ok := parseLayout(text)
	if err != nil || !ok {
		r.add("directories", check, Warning, fmt.Sprintf("lfs getstripe -d %s tells no layout: %v %s", dir, err,
			strings.TrimSpace(text)), "ask the administrators how the directory is striped")
		return
	}
	targets := r.targets(ctx, dir)
	on := "all storage targets"
	if have.count >= 0 {
		on = units.Count(have.count, "storage target")
	}
	detail := fmt.Sprintf("large files are on %s, %s on one before the next", on, units.Bytes(have.size))
	if targets > 0 {
		detail += fmt.Sprintf("; the file system has %d", targets)
	}
	if !storage.TraitsOf(level).Shared {
		r.add("directories", check, OK, detail, "")
		return
	}
	r.judgeLayout(check, dir, detail, have, targets)
}

// judgeLayout compares the layout of global with the layout that would suit the job.
func (r *report) judgeLayout(check, dir, detail string, have layout, targets int) {
	want, why := r.stripesFor(targets), ""
	switch {
	case have.count >= 0 && have.count < want:
		why = "so that the nodes' files use all targets"
	case have.count > 2*want && targets > 0:
		why = "so that a node's file does not wait for all targets"
	case have.size < leastStripe:
		why = "so that a shard's requests are not divided among many targets"
	default:
		r.add("directories", check, OK, detail+"; that suits the job", "")
		return
	}
	r.add("directories", check, Warning, detail, fmt.Sprintf("lfs setstripe -E 64M -c 1 -E -1 -S 4M -c %d %s, %s; it "+
		"holds for new files", want, dir, why))
}

// stripesFor returns over how many targets a node's file should be spread, so that the files of all nodes use all
// targets.
func (r *report) stripesFor(targets int) int {
	switch {
	case targets <= 0:
		return 1 // nothing to go by
	case r.Nodes <= 0:
		return min(fewStripes, targets)
	}
	return (targets + r.Nodes - 1) / r.Nodes
}

// targets returns how many storage targets the file system has; 0: lfs does not say.
func (r *report) targets(ctx context.Context, dir string) (n int) {
	text, err := lfs(ctx, "osts", dir)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(text) {
		if number, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && strings.Contains(line, "ACTIVE") &&
			!strings.Contains(line, "INACTIVE") {
			if _, err := strconv.Atoi(number); err == nil {
				n++
			}
		}
	}
	return n
}

func lfs(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "lfs", args...).CombinedOutput()
	return string(out), err
}

// parseLayout reads the output of lfs getstripe -d: names with a colon, each before its number.
func parseLayout(text string) (l layout, ok bool) {
	words := strings.Fields(text)
	counted, sized := false, false
	for i := range max(len(words)-1, 0) {
		n, err := strconv.ParseInt(words[i+1], 10, 64)
		if err != nil {
			continue
		}
		switch {
		case strings.HasSuffix(words[i], "stripe_count:"):
			l.count, counted = int(n), true
		case strings.HasSuffix(words[i], "stripe_size:"):
			l.size, sized = n, true
		}
	}
	if l.count == 0 { // that of the file system, which is one by default
		l.count = 1
	}
	return l, counted && sized && l.count >= -1 && l.size > 0
}
