package apps

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// Times is an application's output of -times: seconds, steps and bytes.
type Times struct {
	Device        string
	Build         float64
	Restore       float64
	Last          int
	Loop          float64
	RestoredEpoch uint64 `json:"restored_epoch"`
	RestoredBytes int64  `json:"restored_bytes"`
	Open          float64
	Restoring     []struct {
		Part string
		Took float64
	}
	Epochs []struct {
		Bytes   int64
		Blocked float64
		Durable map[string]float64
		Error   string
	}
}

// Launch is one start of an application. It uses no configuration and no checkpoint directories but those in
// Args and Env.
type Launch struct {
	App    string
	BinDir string
	Work   float64 // see Arguments
	Big    bool
	Dir    string // for its input and its times; starts at the same time need one each

	Launcher *mpirun.Launcher // nil: one rank without MPI
	Ranks    int              // 0: 1
	Device   string           // empty: the application's default
	Out      string           // its result file; empty: none
	Args     []string         // further ones; they override those that Work stands for
	Env      []string
	Limit    time.Duration // when a start that hangs is ended; 0: 5 minutes
}

// Run runs the application and returns its times and its output.
func (l *Launch) Run(ctx context.Context) (*Times, string, error) {
	args, err := Arguments(l.App, l.Work, l.Big, l.Dir)
	if err != nil {
		return nil, "", err
	}
	file := filepath.Join(l.Dir, l.App+"-times.json")
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, "", err
	}
	args = append(args, "-progress", "0", "-times", file)
	if l.Launcher == nil {
		args = append(args, "-ranks", "1")
	}
	if l.Device != "" {
		args = append(args, "-device", l.Device)
	}
	if l.Out != "" {
		args = append(args, "-out", l.Out)
	}
	command := append(append([]string{filepath.Join(l.BinDir, l.App)}, args...), l.Args...)
	env := append([]string{"HOLDFAST_INTERVAL=0s", "HOLDFAST_MTBF=0s", "HOLDFAST_LOCAL=", "HOLDFAST_GLOBAL=",
		"HOLDFAST_CONFIG="}, l.Env...)
	out, err := jobOf(l.Launcher, max(l.Ranks, 1), l.Dir, l.Limit, env, command).Output(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", l.App, err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, "", err
	}
	var t Times
	if err := json.Unmarshal(raw, &t); err != nil {
		return nil, "", fmt.Errorf("%s: %w", file, err)
	}
	return &t, out, nil
}

// jobOf returns a command on all ranks. They run in a directory without a holdfast.yaml and share the cores.
func jobOf(l *mpirun.Launcher, ranks int, dir string, limit time.Duration, env, command []string) mpirun.Job {
	if l != nil {
		command = l.Command(nil, mpirun.Part{Ranks: ranks, Command: command})
	}
	if limit == 0 {
		limit = 5 * time.Minute
	}
	return mpirun.Job{Line: command, Dir: dir, Limit: limit,
		Env: append(env, fmt.Sprintf("POCL_MAX_PTHREAD_COUNT=%d", max(1, runtime.NumCPU()/ranks)))}
}

// A start is a Launch in terms of the suite.
type start struct {
	work      float64
	device    string // empty: that of the options
	directory string // below the benchmark's, for checkpoints; empty: no library
	fresh     bool   // empties the directory first
	every     time.Duration
	out       string // result file, empty for none
	visible   string // CUDA_VISIBLE_DEVICES
	stopAfter int    // steps after which a final checkpoint ends the run; 0: none
}

// run runs an application and returns its times and its output.
func (s *suite) run(ctx context.Context, a app, st start) (*Times, string, error) {
	l := Launch{App: a.name, BinDir: s.o.BinDir, Work: st.work, Big: s.big, Dir: s.dir, Launcher: s.launcher,
		Ranks: s.o.Ranks, Device: cmp.Or(st.device, s.o.Device), Out: st.out}
	if st.stopAfter > 0 {
		l.Args = append(l.Args, "-stop-after", strconv.Itoa(st.stopAfter))
	}
	if st.directory != "" {
		more, err := s.directories(st)
		if err != nil {
			return nil, "", err
		}
		l.Args = append(append(l.Args, "-job", "bench-"+a.name), more...)
	}
	if st.every > 0 {
		l.Env = append(l.Env, "HOLDFAST_INTERVAL="+st.every.String())
	}
	if st.visible != "" {
		l.Env = append(l.Env, "CUDA_VISIBLE_DEVICES="+st.visible)
	}
	return l.Run(ctx)
}

// directories makes the directories for checkpoints and returns their flags.
func (s *suite) directories(st start) ([]string, error) {
	base := filepath.Join(s.dir, st.directory)
	if st.fresh {
		if err := os.RemoveAll(base); err != nil {
			return nil, err
		}
	}
	var args []string
	for _, level := range []string{"local", "global"} {
		dir := filepath.Join(base, level)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		args = append(args, "-"+level, dir)
	}
	return args, nil
}
