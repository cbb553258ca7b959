package devices

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/pause"
	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/spf13/cobra"
)

// pauseFlags are those of the verbs on CUDA programs.
type pauseFlags struct {
	wait   time.Duration
	asJSON bool
}

func (o *pauseFlags) add(cmd *cobra.Command, waits bool) {
	f := cmd.Flags()
	f.BoolVar(&o.asJSON, "json", false, "write one JSON object for each process")
	if waits {
		f.DurationVar(&o.wait, "wait", time.Minute, "how long to wait for the programs' kernels and copies to end")
	}
}

func newPause() *cobra.Command {
	var o pauseFlags
	cmd := &cobra.Command{
		Use:   "pause PID...",
		Short: "have a running CUDA program give up its GPU",
		Long:  help("pause"),
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.with(cmd, args, func(g *pause.Group) error { return g.Pause(cmd.Context(), o.wait) })
		},
	}
	o.add(cmd, true)
	return cmd
}

func newResume() *cobra.Command {
	var o pauseFlags
	cmd := &cobra.Command{
		Use:   "resume PID...",
		Short: "have a paused CUDA program take its GPU again",
		Long:  help("resume"),
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.with(cmd, args, func(g *pause.Group) error { return g.Resume(nil) })
		},
	}
	o.add(cmd, false)
	return cmd
}

// migrate moves a CUDA program to another GPU, or resumes a paused one there.
func (o *pauseFlags) migrate(cmd *cobra.Command, pid, to string) error {
	moves, err := pause.ParseMoves(cmd.Context(), to)
	if err != nil {
		return err
	}
	return o.with(cmd, []string{pid}, func(g *pause.Group) error { return g.Move(cmd.Context(), o.wait, moves) })
}

// with does something to the processes below the given ones, and says how it went.
func (o *pauseFlags) with(cmd *cobra.Command, args []string, do func(*pause.Group) error) error {
	pids := make([]int, len(args))
	for i, a := range args {
		var err error
		if pids[i], err = strconv.Atoi(a); err != nil || pids[i] <= 0 {
			return fmt.Errorf("%q is no process ID", a)
		}
	}
	pids, err := pause.Find(pids)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
	defer cancel()
	g, err := pause.Open(ctx, pids)
	if err != nil {
		return err
	}
	defer g.Close()
	stop := cli.ShowBar(cmd, cmd.Name(), 0, func() int64 { moved, _ := g.Moved(); return moved })
	err = do(g)
	stop()
	var werr error
	if o.asJSON {
		werr = cli.JSONLines(cmd.OutOrStdout(), g.Results())
	} else {
		say(cmd.OutOrStdout(), g.Results(), err == nil)
	}
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "holdfast:", err)
		return errors.Join(cli.ErrBad, werr)
	}
	return werr
}

func say(w io.Writer, results []pause.Result, done bool) {
	for _, r := range results {
		text := ""
		for _, s := range r.Steps() {
			text += fmt.Sprintf("%s %.3f s, ", s, r.Seconds[s])
		}
		if !done {
			fmt.Fprintf(w, "process %d (%s) is %s\n", r.PID, r.Program, r.State)
			continue
		}
		fmt.Fprintf(w, "process %d (%s) is %s: %s of device memory, %stogether %.3f s\n", r.PID, r.Program, r.State,
			units.Bytes(r.Bytes), text, r.Total())
	}
}
