package devices

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/opencl"
	"github.com/holdfast-hpc/holdfast/internal/pause"
	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/spf13/cobra"
)

// pauseFlags are those of the verbs on CUDA programs.
type pauseFlags struct {
	wait time.Duration
}

func (o *pauseFlags) add(cmd *cobra.Command, waits bool, writes ...any) {
	f := cmd.Flags()
	cli.JSON(f, "write one JSON object for each process", append(writes, pause.Result{})...)
	if waits {
		f.DurationVar(&o.wait, "wait", time.Minute, "how long to wait for the programs' kernels and copies to end")
	}
}

func newPause() *cobra.Command {
	var o pauseFlags
	cmd := newVerb("pause DIR | pause PID...", "make a running CUDA or OpenCL program give up its GPU",
		cobra.MinimumNArgs(1), func(cmd *cobra.Command, args []string) error {
			if dir := runOf(args); dir != "" {
				return o.run(cmd, dir, pause.Ask{Do: "pause", Wait: o.wait.Seconds()})
			}
			return o.anyOf(cmd, args, opencl.Ask{Do: "pause", Wait: o.wait.Seconds()}, func(g *pause.Group) error {
				return g.Pause(cmd.Context(), o.wait)
			})
		})
	o.add(cmd, true)
	return cmd
}

func newResume() *cobra.Command {
	var o pauseFlags
	var devices string
	cmd := newVerb("resume DIR | resume PID...", "make a paused CUDA or OpenCL program take its GPU again",
		cobra.MinimumNArgs(1), func(cmd *cobra.Command, args []string) error {
			if _, err := gpustate.ParseSelect(devices); err != nil {
				return err
			}
			if dir := runOf(args); dir != "" && devices == "" {
				return o.run(cmd, dir, pause.Ask{Do: "resume"})
			}
			return o.anyOf(cmd, args, opencl.Ask{Do: "resume", Devices: devices}, func(g *pause.Group) error {
				if devices != "" {
					return errors.New("--device is for OpenCL programs; for CUDA programs use holdfast migrate")
				}
				return g.Resume(nil)
			})
		})
	o.add(cmd, false)
	cmd.Flags().StringVar(&devices, "device", "",
		"`DEVICE` to resume an OpenCL program on, as HOLDFAST_DEVICE names it (default: as it was started)")
	return cmd
}

// migrate moves a CUDA program to another GPU, or resumes a paused one there.
func (o *pauseFlags) migrate(cmd *cobra.Command, pid, to string) error {
	if dir := runOf([]string{pid}); dir != "" {
		return o.run(cmd, dir, pause.Ask{Do: "migrate", Wait: o.wait.Seconds(), To: to})
	}
	pids, err := processes([]string{pid})
	if err != nil {
		return err
	}
	if err := pause.Exists(pids[0]); err != nil {
		return err
	}
	moves, err := pause.ParseMoves(cmd.Context(), to)
	if err != nil {
		return err
	}
	return o.with(cmd, []string{pid}, func(g *pause.Group) error { return g.Move(cmd.Context(), o.wait, moves) })
}

// processes returns the numbers of args, which runOf has found to be no directory.
func processes(args []string) ([]int, error) {
	pids, err := verb.Processes(args)
	if err != nil && len(args) == 1 {
		return nil, fmt.Errorf("%q is neither a process ID nor a directory", args[0])
	}
	return pids, err
}

// runOf returns the directory of a holdfast run, "" for anything else: processes are numbers.
func runOf(args []string) string {
	if info, err := os.Stat(args[0]); len(args) > 1 || err != nil || !info.IsDir() {
		return ""
	} else if _, err := strconv.Atoi(args[0]); err == nil {
		return ""
	}
	return args[0]
}

// run has a holdfast run do something with all its ranks.
func (o *pauseFlags) run(cmd *cobra.Command, dir string, a pause.Ask) error {
	answer, err := pause.AskRun(cmd.Context(), dir, a)
	if err != nil {
		return err
	}
	if answer.Error != "" {
		err = errors.New(answer.Error)
	}
	return o.report(cmd, answer.Results, err)
}

// anyOf passes a request to OpenCL programs, or calls a function for CUDA programs.
func (o *pauseFlags) anyOf(cmd *cobra.Command, args []string, ask opencl.Ask, do func(*pause.Group) error) error {
	pids, err := processes(args)
	if err != nil {
		return err
	}
	served, err := pause.FindAt(opencl.DoorPrefix, errNoOpenCL, pids)
	if errors.Is(err, errNoOpenCL) {
		if _, err := pause.Find(pids); err != nil {
			return fmt.Errorf("%w; nor is it an OpenCL program that runs through libholdfast-opencl", err)
		}
		return o.with(cmd, args, do)
	}
	if err != nil {
		return err
	}
	if cuda, err := pause.Find(pids); err == nil {
		return fmt.Errorf("process %d uses CUDA and process %d OpenCL: they cannot be paused together", cuda[0],
			served[0])
	}
	return o.opencl(cmd, served, ask)
}

var errNoOpenCL = errors.New("it is no program of libholdfast-opencl")

// opencl has all programs carry out a request; a pause is carried out by all or by none.
func (o *pauseFlags) opencl(cmd *cobra.Command, pids []int, ask opencl.Ask) error {
	var results []pause.Result
	var errs []error
	for _, pid := range pids {
		began := time.Now()
		answer, err := opencl.Visit(cmd.Context(), pid, ask)
		r := pause.Result{PID: pid, Program: pause.ProgramOf(pid), State: answer.State, Bytes: answer.Bytes,
			Seconds: map[string]float64{"copy": time.Since(began).Seconds()}}
		if err != nil {
			r.Error = err.Error()
			errs = append(errs, fmt.Errorf("process %d (%s): %w", pid, r.Program, err))
		}
		results = append(results, r)
		if err != nil && ask.Do == "pause" {
			break
		}
	}
	if ask.Do == "pause" && len(errs) > 0 {
		for i, r := range results {
			if r.Error != "" {
				continue
			}
			answer, err := opencl.Visit(cmd.Context(), r.PID, opencl.Ask{Do: "resume"})
			results[i].State = answer.State
			if err != nil {
				errs = append(errs, fmt.Errorf("process %d (%s): resume: %w", r.PID, r.Program, err))
			}
		}
	}
	return o.report(cmd, results, errors.Join(errs...))
}

// with does something to the processes below the given ones, and says how it went.
func (o *pauseFlags) with(cmd *cobra.Command, args []string, do func(*pause.Group) error) error {
	pids, err := processes(args)
	if err != nil {
		return err
	}
	pids, err = pause.Find(pids)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 20*time.Second)
	defer cancel()
	g, err := pause.Open(ctx, pids)
	if err != nil {
		return err
	}
	defer g.Close()
	stop := cli.ShowBar(cmd, cmd.Name(), 0, func() int64 { moved, _ := g.Moved(); return moved })
	err = do(g)
	stop()
	return o.report(cmd, g.Results(), err)
}

func (o *pauseFlags) report(cmd *cobra.Command, results []pause.Result, err error) error {
	var werr error
	results = slices.DeleteFunc(results, func(r pause.Result) bool { return r.State == "" && r.Error == "" })
	if cli.AsJSON(cmd) && len(results) == 0 && err != nil {
		werr = cli.JSONLines(cmd.OutOrStdout(), []cli.Failure{{Error: cli.Said(err)}})
	} else if cli.AsJSON(cmd) {
		werr = cli.JSONLines(cmd.OutOrStdout(), results)
	} else {
		say(cmd.OutOrStdout(), results, err == nil)
	}
	if err == nil {
		return werr
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "holdfast:", cli.Said(err))
	return errors.Join(cli.ErrBad, werr)
}

func say(w io.Writer, results []pause.Result, done bool) {
	for _, r := range results {
		text := ""
		if r.Direct {
			text = "from GPU to GPU, "
		}
		for _, s := range r.Steps() {
			text += fmt.Sprintf("%s %.3f s, ", s, r.Seconds[s])
		}
		if !done {
			fmt.Fprintf(w, "%s is %s\n", &r, r.State)
			continue
		}
		fmt.Fprintf(w, "%s is %s: %s of device memory, %stogether %.3f s\n", &r, r.State, units.Bytes(r.Bytes), text,
			r.Total())
	}
}
