package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/random"
	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// foreign is the text of makeLocal for a name that another user has taken.
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
// --local-in. Other users may make a directory or a link in /tmp before the job does, so the name
// is random; it is kept next to the checkpoints for the time after a requeue.
// A job that gets none runs without that level, as Open says.
func (s *setup) nodeLocal(ctx context.Context) error {
	if s.opt.LocalIn == "" || os.Getenv("HOLDFAST_LOCAL") == "off" {
		return nil
	}
	if s.cfg.Job == nil {
		return fmt.Errorf("--local-in: this is not a Slurm job; set HOLDFAST_LOCAL to a directory on each machine's " +
			"own disk")
	}
	given, prefix := s.prog.Local, filepath.Join(s.opt.LocalIn, "holdfast-"+s.cfg.Job.ID+"-")
	for try := 1; ; try++ {
		name := given
		if name == "" && try == 1 {
			name = s.formerLocal(prefix)
		}
		if name == "" {
			name = prefix + random.Text()
		}
		s.prog.Local, s.cfg.Memory.Local = name, name
		if err := os.Setenv("HOLDFAST_LOCAL", name); err != nil {
			return err
		}
		patient := slurm.Client{Timeout: time.Minute}
		err := patient.RunOnAll(ctx, s.cfg.Job.Nodes, "/bin/sh", "-c", makeLocal, "-", name,
			strconv.FormatBool(s.prog.AllowForeign))
		if err == nil {
			break
		}
		s.log.say("warning: %v", err)
		if given != "" || try == localNames || !strings.Contains(err.Error(), foreign) {
			break
		}
		s.log.say("taking another name; what this job left in %s on other nodes is not used", name)
	}
	s.save(s.cfg.Memory)
	return nil
}

// formerLocal returns the directory that an earlier run of the job had, "" if none is known. Without
// a global directory to keep the name in, it is looked for on this node.
func (s *setup) formerLocal(prefix string) string {
	if strings.HasPrefix(s.cfg.Memory.Local, prefix) {
		return s.cfg.Memory.Local
	}
	list, _ := filepath.Glob(prefix + "*") // a part that it does not read is not there
	for _, dir := range list {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() &&
			int(info.Sys().(*syscall.Stat_t).Uid) == os.Geteuid() {
			return dir
		}
	}
	return ""
}

// salvage has all remaining nodes copy their shards to global; the node that brings the last shard commits the epoch.
// It returns the newest epoch that is committed there by that.
func (s *setup) salvage(ctx context.Context, a decide.Salvage) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Within)
	defer cancel()
	patient := slurm.Client{Timeout: a.Within}
	serr := patient.RunOnAll(ctx, a.Nodes, s.opt.Self, "flush", "--salvage", "salvage-"+s.cfg.Job.ID,
		"--to", s.prog.Global, s.prog.Local, filepath.Join(s.prog.Local, storage.LevelPartner)) // some may be enough
	newest, err := newestAt(ctx, s.prog.Global)
	if newest > a.Have {
		return newest, nil
	}
	if err = errors.Join(serr, err); err == nil {
		err = fmt.Errorf("the remaining nodes do not have the shards of all ranks in %s", s.prog.Local)
	}
	return 0, err
}

func newestAt(ctx context.Context, dir string) (newest uint64, err error) {
	v, err := checkpoints.Open(context.Background(), dir)
	if err != nil {
		return 0, err
	}
	list, err := v.Epochs(ctx)
	for _, e := range list {
		if e.Committed {
			newest = max(newest, uint64(e.Epoch))
		}
	}
	return newest, err
}
