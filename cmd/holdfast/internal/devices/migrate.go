package devices

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/spf13/cobra"
)

const moveTime = 10 * time.Minute

func newMigrate() *cobra.Command {
	var o pauseFlags
	cmd := newVerb("migrate DIR|PID GPU | migrate SERVER PROGRAM TO",
		"move a running program to another GPU or another server", cobra.RangeArgs(2, 3),
		func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return o.migrate(cmd, args[0], args[1])
			}
			key, err := keyFile(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), moveTime)
			defer cancel()
			return migrate(ctx, saying{cmd.OutOrStdout(), cmd.ErrOrStderr(), cli.AsJSON(cmd)}, args,
				gpud.MoveKeyFile(key))
		})
	verb.KeyFlag(cmd, "key", "gpud.key")
	o.add(cmd, true, gpud.Moved{})
	return cmd
}

func migrate(ctx context.Context, to saying, args []string, moveKey string) error {
	st, err := statusOf(ctx, gpud.DialAdmin, args[0], moveKey)
	if err != nil {
		return err
	}
	clients := st.Clients
	if args[1] != "all" {
		c, err := findProgram(clients, args[1])
		if err != nil {
			return err
		}
		clients = []gpud.ClientStatus{c}
	}
	list := make([]gpud.Moved, len(clients))
	var moves sync.WaitGroup
	for i, c := range clients {
		moves.Go(func() { list[i] = move(ctx, args[0], moveKey, c, destination(args[2])) })
	}
	moves.Wait()
	return to.moves(list...)
}

// move moves one program, through a connection of its own: a server carries out the orders of a connection in turn.
func move(ctx context.Context, server, moveKey string, c gpud.ClientStatus, to string) gpud.Moved {
	a, err := gpud.DialAdmin(ctx, server, moveKey)
	if err == nil {
		defer a.Close()
		var m gpud.Moved
		if m, err = a.Move(ctx, c.ID, to); err == nil {
			return m
		}
	}
	return gpud.Moved{Client: c.ID, Program: c.Program, PID: c.PID, To: to, Err: err.Error()}
}

func destination(text string) string {
	if text == "local" {
		return ""
	}
	if v, ok := strings.CutPrefix(text, "local,"); ok {
		return v
	}
	return "remote=" + strings.TrimPrefix(text, "remote=")
}

// findProgram finds the one program that text is number, process ID, label or
// name of.
func findProgram(list []gpud.ClientStatus, text string) (gpud.ClientStatus, error) {
	for _, fits := range []func(c gpud.ClientStatus) bool{
		func(c gpud.ClientStatus) bool { return strconv.FormatUint(c.ID, 10) == text },
		func(c gpud.ClientStatus) bool { return strconv.Itoa(c.PID) == text },
		func(c gpud.ClientStatus) bool { return c.Label == text },
		func(c gpud.ClientStatus) bool { return c.Program == text },
	} {
		var found []gpud.ClientStatus
		for _, c := range list {
			if fits(c) {
				found = append(found, c)
			}
		}
		if len(found) > 1 {
			return gpud.ClientStatus{},
				fmt.Errorf("%d programs match %q: give the number of one, see holdfast gpud --status", len(found), text)
		}
		if len(found) == 1 {
			return found[0], nil
		}
	}
	return gpud.ClientStatus{}, fmt.Errorf("there is no program %q: see holdfast gpud --status", text)
}

// saying is where a verb tells how moves went.
type saying struct {
	out, errs io.Writer
	asJSON    bool // JSON, all of it to out
}

// moves tells how moves went; cli.ErrBad when one failed.
func (s saying) moves(list ...gpud.Moved) error {
	var err error
	for _, m := range list {
		if m.Err != "" {
			err = cli.ErrBad
		}
	}
	if s.asJSON {
		return errors.Join(cli.JSONLines(s.out, list), err)
	}
	for _, m := range list {
		if m.Err != "" {
			fmt.Fprintf(s.errs, "program %d (%s, pid %d) stays: %s\n", m.Client, m.Program, m.PID, m.Err)
			continue
		}
		fmt.Fprintf(s.out, "program %d (%s, pid %d) moved to %s%s\n", m.Client, m.Program, m.PID,
			cmp.Or(m.To, "its own machine"), stepsText(m.Steps))
	}
	return err
}

func stepsText(steps json.RawMessage) string {
	var m gpustate.Migration
	if json.Unmarshal(steps, &m) != nil {
		return ""
	}
	us := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	text := fmt.Sprintf(": %s in %v (choose %v, drain %v, create %v, stream %v, build %v, remap %v, release %v)",
		units.Bytes(m.Bytes), us(m.Total), us(m.Choose), us(m.Drain), us(m.Create), us(m.Stream), us(m.Build),
		us(m.Remap), us(m.Release))
	for _, s := range m.FromSource {
		text += fmt.Sprintf("\n  program %q was built from source there, its binary form did not load: %s", s.Program,
			s.Why)
	}
	return text
}
