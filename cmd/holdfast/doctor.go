package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/doctor"
	"github.com/spf13/cobra"
)

func newDoctor() *cobra.Command {
	var quiet, allNodes bool
	cmd := newVerb("doctor", "check that this machine has what a job needs", cobra.NoArgs,
		func(cmd *cobra.Command, _ []string) error {
			findings, err := examineHere(cmd, allNodes)
			if err := cmp.Or(err, cmd.Context().Err()); err != nil {
				return err
			}
			if cli.AsJSON(cmd) {
				err = cli.JSONLines(cmd.OutOrStdout(), findings)
			} else {
				_, err = io.WriteString(cmd.OutOrStdout(), doctorText(findings, quiet))
			}
			if err != nil {
				return err
			}
			switch {
			case doctor.Worst(findings) == doctor.Failed:
				return cli.ErrFailed
			case doctor.Worst(findings) == doctor.Warning:
				return cli.ErrBad
			}
			return nil
		})
	cli.JSON(cmd.Flags(), "write one JSON object per check", doctor.Finding{})
	cmd.Flags().BoolVar(&allNodes, "nodes", false, "check only the checkpoint directories, on all nodes of this "+
		"Slurm job")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "write only warnings and what failed")
	return cmd
}

// examineHere looks at this machine, or at the nodes of the job.
func examineHere(cmd *cobra.Command, allNodes bool) ([]doctor.Finding, error) {
	part := map[bool]string{false: "doctor-rank", true: "doctor-node"}[allNodes]
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	nodes, nerr := doctor.JobNodes() // outside of a job there are none
	c := coordinated.ReadConfig("")
	o := c.Options()
	d := doctor.Options{Self: []string{own, part},
		Local: o.Local, Global: o.Global, Interface: o.Interface, Config: c.Check(),
		Off:   o.Off(),
		Stray: c.Stray(os.Environ()), Timing: o.Timing(), Loss: o.NodeLoss(), Device: verb.Value(c, "device"),
		Nodes: len(nodes)}
	if allNodes && nerr != nil {
		return nil, nerr
	} else if allNodes {
		return doctor.Nodes(cmd.Context(), d, nodes), nil
	}
	d.Note = func(what string) { // some checks take seconds
		fmt.Fprintln(cmd.ErrOrStderr(), "holdfast: looking at", what)
	}
	return doctor.Run(cmd.Context(), d), nil
}

func doctorText(findings []doctor.Finding, quiet bool) string {
	const indent, width = "         ", 100
	var b strings.Builder
	for _, f := range findings {
		if quiet && f.State != doctor.Warning && f.State != doctor.Failed {
			continue
		}
		text := config.Wrap(fmt.Sprintf("%s, %s: %s", f.Area, f.Check, f.Detail), indent, width)
		fmt.Fprintf(&b, "%-8s %s", f.State, text[len(indent):])
		if f.Remedy != "" && f.State != doctor.OK {
			b.WriteString(config.Wrap("-> "+f.Remedy, indent, width))
		}
	}
	return b.String()
}

// doctorParts returns a rank that doctor starts, and the command that it starts on each node of a job.
func doctorParts() (rank, node *cobra.Command) {
	return verb.Hidden("doctor-rank", "one rank of doctor", cobra.NoArgs,
			func(cmd *cobra.Command, _ []string) error { return doctor.Rank(cmd.OutOrStdout()) }),
		verb.Hidden("doctor-node PART DIR TOKEN NODES", "one node of doctor", cobra.ExactArgs(4),
			func(cmd *cobra.Command, a []string) error {
				return doctor.NodePart(cmd.OutOrStdout(), os.Getenv("SLURMD_NODENAME"), a[0], a[1], a[2], a[3])
			})
}
