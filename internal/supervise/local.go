package supervise

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/slurm"
)

// foreign is what makeLocal writes where a name is taken by somebody else.
const foreign = "is not a directory of this user"

// makeLocal makes the directory $1 unless it is there. $2 is true where directories of other
// users are allowed.
const makeLocal = `umask 077
mkdir -p "$1"
[ "$2" = true ] && exit
case $(stat -c %u "$1") in 0|$(id -u)) [ -d "$1" ] && [ -O "$1" ] && exit;; esac
echo "$(hostname): $1 ` + foreign + `" >&2
exit 1`

// localNames is how many names are tried: one that is taken was seen on another node before.
const localNames = 3

// nodeLocal gives the job a directory for its checkpoints on the disk of each node, below
// --local-in. Anybody may make a directory or a link in /tmp before the job does, so the name
// is one that nobody can guess; it is kept beside the checkpoints for when the job is requeued.
// A job that gets none runs without that level, as Open says.
func (r *runner) nodeLocal(ctx context.Context) error {
	if r.flags.LocalIn == "" {
		return nil
	}
	if r.job == nil {
		return fmt.Errorf("--local-in: this is no Slurm job; set HOLDFAST_LOCAL to a directory on each machine's " +
			"own disk")
	}
	given := r.opt.Local
	for try := 1; ; try++ {
		name := given
		if name == "" && try == 1 {
			name = r.keptLocal()
		}
		if name == "" {
			name = r.localPrefix() + random()
		}
		r.opt.Local, r.mem.Local = name, name
		if err := os.Setenv("HOLDFAST_LOCAL", name); err != nil {
			return err
		}
		err := r.makeLocal(ctx, name)
		if err == nil {
			break
		}
		r.say("warning: %v", err)
		if given != "" || try == localNames || !strings.Contains(err.Error(), foreign) {
			break
		}
		r.say("another name is taken; what this job left in %s on other nodes is not used", name)
	}
	r.remember()
	return nil
}

// localPrefix is how the names begin.
func (r *runner) localPrefix() string {
	return filepath.Join(r.flags.LocalIn, "holdfast-"+r.job.ID+"-")
}

func random() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// keptLocal is the directory that an earlier run of the job had, "" if none is known. Without
// a global directory to keep the name in, it is looked for on this node.
func (r *runner) keptLocal() string {
	if strings.HasPrefix(r.mem.Local, r.localPrefix()) {
		return r.mem.Local
	}
	list, _ := filepath.Glob(r.localPrefix() + "*") // what it does not read is not there
	for _, dir := range list {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() &&
			int(info.Sys().(*syscall.Stat_t).Uid) == os.Geteuid() {
			return dir
		}
	}
	return ""
}

// makeLocal makes a directory on every node of the job.
func (r *runner) makeLocal(ctx context.Context, name string) error {
	patient := slurm.Client{Timeout: time.Minute}
	return patient.RunOnAll(ctx, r.job.Nodes, "/bin/sh", "-c", makeLocal, "-", name,
		os.Getenv("HOLDFAST_ALLOW_FOREIGN"))
}
