package apps

import (
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

// times is what an application writes for -times.
type times struct {
	Device        string
	Build         float64
	Restore       float64
	First, Last   int
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

// A start is one start of an application.
type start struct {
	work      float64
	window    int    // 0: the default
	device    string // empty: that of the options
	directory string // below the benchmark's, for checkpoints; empty: no library
	fresh     bool   // empties the directory first
	every     time.Duration
	out       string // result file, empty for none
	visible   string // CUDA_VISIBLE_DEVICES
	// stopAfter takes a final checkpoint after so many steps; 0: none.
	stopAfter int
}

// jobLimit bounds a start: a rank that is lost makes the others hang.
const jobLimit = 5 * time.Minute

// run runs an application and returns where its time went, and what it printed.
func (s *suite) run(ctx context.Context, a app, st start) (*times, string, error) {
	args, err := a.args(st.work, s.big, s.dir)
	if err != nil {
		return nil, "", err
	}
	file := filepath.Join(s.dir, "times.json")
	args = append(args, "-progress", "off", "-times", file)
	if s.launcher == nil {
		args = append(args, "-ranks", "1")
	}
	env := []string{"HOLDFAST_INTERVAL=0s", "HOLDFAST_MTBF=0s", "HOLDFAST_LOCAL=", "HOLDFAST_GLOBAL=",
		"HOLDFAST_CONFIG="}
	if d := st.device; d != "" || s.o.Device != "" {
		if d == "" {
			d = s.o.Device
		}
		args = append(args, "-device", d)
	}
	if st.window != 0 {
		args = append(args, "-window", strconv.Itoa(st.window))
	}
	if st.out != "" {
		args = append(args, "-out", st.out)
	}
	if st.stopAfter > 0 {
		args = append(args, "-stop-after", strconv.Itoa(st.stopAfter))
	}
	if st.directory != "" {
		more, err := s.directories(st)
		if err != nil {
			return nil, "", err
		}
		args = append(append(args, "-job", "bench-"+a.name), more...)
	}
	if st.every > 0 {
		env = append(env, "HOLDFAST_INTERVAL="+st.every.String())
	}
	if st.visible != "" {
		env = append(env, "CUDA_VISIBLE_DEVICES="+st.visible)
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, "", err
	}
	out, err := s.job(env, append([]string{filepath.Join(s.o.BinDir, a.name)}, args...)).Output(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", a.name, err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, "", err
	}
	var t times
	if err := json.Unmarshal(raw, &t); err != nil {
		return nil, "", fmt.Errorf("%s: %w", file, err)
	}
	return &t, out, nil
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

// job is a command on all ranks.
func (s *suite) job(env, command []string) mpirun.Job {
	if s.launcher != nil {
		command = s.launcher.Command(nil, mpirun.Part{Ranks: s.o.Ranks, Command: command})
	}
	// no holdfast.yaml is in the directory
	return mpirun.Job{Line: command, Dir: s.dir, Limit: jobLimit,
		Env: append(env, fmt.Sprintf("POCL_MAX_PTHREAD_COUNT=%d", max(1, runtime.NumCPU()/s.o.Ranks)))}
}
