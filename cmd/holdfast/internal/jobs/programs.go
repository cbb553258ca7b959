package jobs

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/opencl"
	"github.com/holdfast-hpc/holdfast/internal/pause"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/internal/units"
)

// programsRow is a line of status about programs that can be paused.
type programsRow struct {
	Programs []pause.Program `json:"programs"` // one for each process
}

type lister func(context.Context) ([]pause.Program, error)

// ofPrograms says how programs are that holdfast pause can pause, once or until all have ended; found: there are any.
func (o *statusOptions) ofPrograms(ctx context.Context, w io.Writer, all lister) (found bool, err error) {
	for {
		list, err := all(ctx)
		if err != nil || len(list) == 0 {
			if found {
				err = nil // they have ended
			}
			return found, err
		}
		if err := o.printPrograms(w, list, found); err != nil || !o.watch {
			return true, err
		}
		found = true
		if sleep.For(ctx, o.every) != nil {
			return true, nil // the user has seen enough
		}
	}
}

func (o *statusOptions) printPrograms(w io.Writer, list []pause.Program, again bool) error {
	if o.asJSON {
		return cli.JSONLines(w, []programsRow{{list}})
	}
	var b strings.Builder
	o.follows(&b, again)
	if err := tellPrograms(&b, list); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func tellPrograms(b *strings.Builder, list []pause.Program) error {
	if err := cli.Table(b, programTable(list)); err != nil {
		return err
	}
	for _, p := range list {
		if p.Error != "" {
			b.WriteString("process " + strconv.Itoa(p.PID) + ": " + p.Error + "\n")
		}
	}
	return nil
}

func programTable(list []pause.Program) [][]string {
	out := [][]string{{"PID", "PROGRAM", "LIBRARY", "STATE", "FOR", "HOLDS", "DEVICES"}}
	ranks := slices.ContainsFunc(list, func(p pause.Program) bool { return p.Node != "" })
	if ranks {
		out[0] = append([]string{"RANK", "NODE"}, out[0]...)
	}
	for _, p := range list {
		age, holds := "-", "-"
		switch {
		case p.State == "paused":
			age, holds = cli.AgeText(p.Seconds), units.Bytes(p.Bytes)+" in host memory"
		case p.Bytes > 0:
			holds = units.Bytes(p.Bytes) + " of device memory"
		}
		line := []string{strconv.Itoa(p.PID), p.Program, p.Library, p.State, age, holds,
			cli.Dash(strings.Join(p.Devices, ", "))}
		if ranks {
			rank := "-"
			if p.Rank != nil {
				rank = strconv.Itoa(*p.Rank)
			}
			line = append([]string{rank, p.Node}, line...)
		}
		out = append(out, line)
	}
	return out
}

// ofRun lists the ranks that a holdfast run --cuda of a directory can pause.
func ofRun(dir string) lister {
	return func(ctx context.Context) ([]pause.Program, error) {
		a, err := pause.AskRun(ctx, dir, pause.Ask{Do: "state"})
		if err == nil && a.Error != "" {
			err = errors.New(a.Error)
		}
		return a.Programs, err
	}
}

// programs returns those among the given processes and all that these have started; without any, those of this node.
func programs(ctx context.Context, pids []int) (list []pause.Program, err error) {
	if len(pids) == 0 {
		served, err := pause.Mine(opencl.DoorPrefix)
		if err != nil {
			return nil, err
		}
		list, err = pause.Look(ctx, nil)
		return append(list, openclPrograms(ctx, served)...), err
	}
	for _, pid := range pids {
		cuda, err := pause.Look(ctx, []int{pid})
		served, none := pause.FindAt(opencl.DoorPrefix, errors.ErrUnsupported, []int{pid})
		if err != nil && none != nil {
			return nil, err
		}
		list = append(append(list, cuda...), openclPrograms(ctx, served)...)
	}
	return list, nil
}

func openclPrograms(ctx context.Context, pids []int) (list []pause.Program) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for _, pid := range pids {
		p := pause.Program{PID: pid, Program: pause.ProgramOf(pid), Library: "OpenCL"}
		a, err := opencl.Visit(ctx, pid, opencl.Ask{Do: "state"})
		p.State, p.Seconds, p.Bytes, p.Devices = a.State, a.Seconds, a.Bytes, a.Devices
		switch {
		case ctx.Err() != nil:
			p.State, p.Error = "busy", "another command is at work on it"
		case err != nil:
			p.State, p.Error = "unknown", err.Error()
		}
		list = append(list, p)
	}
	return list
}
