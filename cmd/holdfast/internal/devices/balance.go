package devices

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/spf13/cobra"
)

func newBalance() *cobra.Command {
	var every time.Duration
	p := &gpud.Window{}
	cmd := newVerb("balance SERVER...", "move programs from busy devices to idle ones", cobra.MinimumNArgs(1),
		func(cmd *cobra.Command, args []string) error {
			key, err := keyFile(cmd)
			if err != nil {
				return err
			}
			if every == 0 {
				p.Confirm = 1
			}
			b := &gpud.Balancer{Servers: args, KeyFile: gpud.MoveKeyFile(key), Policy: p}
			say := saying{cmd.OutOrStdout(), cmd.ErrOrStderr(), cli.AsJSON(cmd)}.row
			return balance(cmd.Context(), b, every, say, cmd.ErrOrStderr())
		})
	f := cmd.Flags()
	verb.KeyFlag(cmd, "key", "gpud.key")
	cli.JSON(f, "write one JSON object per move", moveRow{})
	f.DurationVar(&every, "every", 0, "repeat, with this much time between rounds (default: once)")
	return cmd
}

// moveRow is one line of balance: a program that moved to another device, or did not.
type moveRow struct {
	Program uint64 `json:"program"`         // number of the program at its server
	From    string `json:"from"`            // address of the server that it left
	To      string `json:"to"`              // address of the server that it moved to
	Device  int    `json:"device"`          // index of the device there
	Why     string `json:"why"`             // reason for the move, for people
	Error   string `json:"error,omitempty"` // why it did not move
}

func (s saying) row(m moveRow) (err error) {
	switch {
	case s.asJSON:
		return cli.JSONLines(s.out, []moveRow{m})
	case m.Error != "":
		_, err = fmt.Fprintf(s.errs, "program %d of %s stays: %s\n", m.Program, m.From, m.Error)
	default:
		_, err = fmt.Fprintf(s.out, "program %d of %s moved to %s device %d: %s\n", m.Program, m.From, m.To, m.Device,
			m.Why)
	}
	return err
}

// balance looks and moves until ctx ends, or once when every is 0.
func balance(ctx context.Context, b *gpud.Balancer, every time.Duration, say func(moveRow) error,
	stderr io.Writer) error {
	failed := false
	for {
		orders, results, err := b.Once(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			fmt.Fprintln(stderr, "holdfast: balance:", err)
		}
		for i, o := range orders {
			m := moveRow{Program: uint64(o.Client), From: o.From, To: o.To, Device: o.Device, Why: o.Why}
			if results[i] != nil {
				failed, m.Error = true, results[i].Error()
			}
			if err := say(m); err != nil {
				return err
			}
		}
		if every == 0 {
			if err != nil && orders == nil {
				return errors.New("no server answered, or none can be balanced: see above")
			}
			break
		}
		if sleep.For(ctx, every) != nil {
			break
		}
	}
	if failed {
		return cli.ErrBad
	}
	return nil
}
