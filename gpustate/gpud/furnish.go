package gpud

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lookUpUser finds the user that workers run as.
func (s *Server) lookUpUser() error {
	if s.opt.User == "" {
		return nil
	}
	if s.opt.InProcess || os.Geteuid() != 0 {
		return errors.New("gpud: Options.User takes workers, and a server that root has started")
	}
	u, err := user.Lookup(s.opt.User)
	if err != nil {
		return fmt.Errorf("gpud: %w", err)
	}
	groups, err := u.GroupIds()
	if err != nil {
		return fmt.Errorf("gpud: groups of user %s: %w", u.Username, err)
	}
	ids := []string{u.Uid, u.Gid}
	var numbers []uint32
	for _, id := range append(ids, groups...) {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return fmt.Errorf("gpud: user %s: %w", u.Username, err)
		}
		numbers = append(numbers, uint32(n))
	}
	s.drop = &syscall.Credential{Uid: numbers[0], Gid: numbers[1], Groups: numbers[2:]}
	s.home = u.HomeDir
	return nil
}

// furnish gives a worker its environment, and a directory of its own for temporary
// files.
func (s *Server) furnish(w *worker) error {
	if s.opt.Unconfined {
		return nil
	}
	tmp, lock, err := makeTempDir()
	if err != nil {
		return err
	}
	w.tmp, w.lock = tmp, lock
	env := workerEnv(os.Environ())
	if s.drop != nil {
		if err := os.Chown(tmp, int(s.drop.Uid), int(s.drop.Gid)); err != nil {
			w.tidy()
			return fmt.Errorf("make a worker's directory: %w", err)
		}
		env = append(env, "HOME="+s.home, "USER="+s.opt.User, "LOGNAME="+s.opt.User, "XDG_CACHE_HOME="+
			filepath.Join(s.home, ".cache"))
	}
	w.cmd.Env = append(env, "TMPDIR="+tmp, confineEnv+"="+strings.Join(s.opt.WorkerDirs,
		string(filepath.ListSeparator)))
	if filepath.IsAbs(w.cmd.Path) {
		w.cmd.Dir = "/" // what is named from here on is named wholly
	}
	return nil
}

// tidy removes the directory.
func (w *worker) tidy() {
	if w.tmp != "" {
		_ = os.RemoveAll(w.tmp) // what a worker leaves there is of no use to anybody
		_ = w.lock.Close()
	}
}
