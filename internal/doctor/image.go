package doctor

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/image"
)

// imageRights are the capabilities that holdfast image and CRIU use, by their numbers.
var imageRights = []struct {
	number uint
	name   string
}{{19, "CAP_SYS_PTRACE"}, {21, "CAP_SYS_ADMIN"}, {24, "CAP_SYS_RESOURCE"}, {40, "CAP_CHECKPOINT_RESTORE"}}

// lookImages checks the needs of images of OpenCL and CUDA programs. status is /proc/self/status, try image.CRIU.Check.
func (r *report) lookImages(ctx context.Context, status string, try func(image.CRIU, context.Context) error) {
	c, err := image.FindCRIU(ctx, "")
	if err != nil {
		r.add("devices", "image", Note, fmt.Sprintf("holdfast image cannot be used: %v", err),
			"run scripts/criu.sh DIR, and put DIR/sbin into PATH")
		return
	}
	has := fmt.Sprintf("criu %s (%s)", c.Version, c.Path)
	lacks := missingRights(status)
	if len(lacks) > 1 || len(lacks) == 1 && lacks[0] != "CAP_SYS_RESOURCE" {
		r.add("devices", "image", Note, fmt.Sprintf("%s; holdfast image lacks rights: %s", has,
			strings.Join(lacks, ", ")), "have the administrator run holdfast image as root, or let you do so by sudo")
		return
	}
	if err := try(c, ctx); err != nil {
		r.add("devices", "image", Note, fmt.Sprintf("%s: %v", has, err), "ask the administrator for a kernel with "+
			"CONFIG_CHECKPOINT_RESTORE, CONFIG_UNIX_DIAG and what the message names")
		return
	}
	has += "; this kernel and these rights suffice"
	if len(lacks) > 0 {
		has += " for programs of this user; those of others need CAP_SYS_RESOURCE"
	}
	r.add("devices", "image", OK, has, "")
}

var effective = regexp.MustCompile(`(?m)^CapEff:\s*([0-9a-f]+)$`)

func missingRights(status string) (names []string) {
	var have uint64
	if m := effective.FindStringSubmatch(status); m != nil {
		have, _ = strconv.ParseUint(m[1], 16, 64) // the expression has digits alone
	}
	for _, c := range imageRights {
		if have>>c.number&1 == 0 {
			names = append(names, c.name)
		}
	}
	return names
}
