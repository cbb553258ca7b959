package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/units"
)

// dial is gpud.DialStatus or gpud.DialAdmin.
type dial func(ctx context.Context, addr, keyFile string) (*gpud.Admin, error)

// withServer asks the server at addr for its state and calls do with both.
func withServer(ctx context.Context, dial dial, addr, keyFile string, do func(*gpud.Admin, gpud.Status) error) error {
	a, err := dial(ctx, addr, keyFile)
	if err != nil {
		return err
	}
	defer a.Close()
	st, err := a.Status(ctx)
	if err != nil {
		return err
	}
	return do(a, st)
}

func (o *gpudFlags) showStatus(ctx context.Context, w io.Writer) error {
	return withServer(ctx, gpud.DialStatus, o.status, o.opt.KeyFile, func(_ *gpud.Admin, st gpud.Status) error {
		return o.writeStatus(w, st)
	})
}

func (o *gpudFlags) writeStatus(w io.Writer, st gpud.Status) error {
	if o.asJSON {
		return cli.JSONLines(w, []gpud.Status{st})
	}
	drains := ""
	if st.Draining {
		drains = ", takes no new programs"
	}
	fmt.Fprintf(w, "server %s at %s%s\n\n", st.Server, strings.Join(st.Addrs, " "), drains)
	rows := [][]string{{"DEVICE", "NAME", "MEMORY", "USED", "UNFINISHED", "PROGRAMS"}}
	for _, d := range st.Devices {
		rows = append(rows, []string{strconv.Itoa(d.Index), d.Name, units.Bytes(d.TotalBytes), units.Bytes(d.UsedBytes),
			strconv.FormatInt(d.Unfinished, 10), strconv.FormatInt(d.Clients, 10)})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return table(w, clientRows(st.Clients))
}

func clientRows(list []gpud.ClientStatus) [][]string {
	rows := [][]string{{"PROGRAM", "NAME", "HOST", "PID", "DEVICE", "USED", "UNFINISHED", "COMMANDS", "LABEL"}}
	for _, c := range list {
		rows = append(rows, []string{strconv.FormatUint(c.ID, 10), c.Program, c.Host, strconv.Itoa(c.PID),
			strconv.Itoa(c.Device),
			units.Bytes(c.UsedBytes), strconv.FormatInt(c.Unfinished, 10), strconv.FormatInt(c.Commands, 10), c.Label})
	}
	return rows
}

func (o *gpudFlags) orderEvacuation(ctx context.Context, say saying) error {
	var to []string
	for _, t := range o.to {
		to = append(to, destination(t))
	}
	key := gpud.MoveKeyFile(o.opt.KeyFile)
	return withServer(ctx, gpud.DialAdmin, o.evacuate, key, func(a *gpud.Admin, _ gpud.Status) error {
		list, err := a.Evacuate(ctx, to)
		if err != nil {
			return err
		}
		return say.moves(list...)
	})
}
