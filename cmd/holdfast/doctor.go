package main

import (
	"cmp"
	"fmt"
	"os"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/doctor"
	"github.com/spf13/cobra"
)

func newDoctor() *cobra.Command {
	var asJSON, quiet, allNodes bool
	var size doctor.Options
	var bytes string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "check that this machine has what a job needs",
		Long: `doctor checks on this machine what a job needs:

  - the configuration;
  - every MPI that is installed: it starts two ranks, checks that launcher and
    library belong together, and that USR1 reaches a program that has loaded MPI
    and a device library;
  - the devices: it writes and reads a buffer;
  - the checkpoint directories: bandwidth, files made, looked at and removed a second,
    O_DIRECT, free space. With the number of ranks (--ranks, or the Slurm job's) it
    warns of what will take long, with --bytes also of the writing;
  - the network, limits of memory and files, Slurm.

Run it on a compute node in the way the job is started, with the same holdfast.yaml
and HOLDFAST_ variables.

With --nodes, inside salloc or sbatch, doctor checks the checkpoint directories of
all nodes instead. Each node writes a small file to its global and its local
directory, looks for the files of the others, and removes its own. doctor names the
nodes that cannot write, that do not see the others' global directory, or that share
a local one.

Exit codes: 0 all is well; 1 there is a warning: a job runs, but slower or less
safely; 2 a check failed: a job would not run.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if size.Ranks < 0 || size.Nodes < 0 {
				return fmt.Errorf("--ranks %d, --job-nodes %d: want numbers of 1 or more", size.Ranks, size.Nodes)
			}
			if bytes != "" {
				var err error
				if size.Bytes, err = parseSize(bytes); err != nil {
					return fmt.Errorf("--bytes: %v", err)
				}
			}
			findings, err := examineHere(cmd, allNodes, size)
			if err := cmp.Or(err, cmd.Context().Err()); err != nil {
				return err
			}
			cells := func(list []doctor.Finding) [][]string { return doctorTable(list, quiet) }
			if err := write(cmd, asJSON, findings, cells); err != nil {
				return err
			}
			switch {
			case doctor.Worst(findings) == doctor.Failed:
				return errFailed
			case doctor.Worst(findings) == doctor.Warning:
				return errBad
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON object per check")
	cmd.Flags().BoolVar(&allNodes, "nodes", false, "check only the checkpoint directories, on all nodes of this "+
		"Slurm job")
	cmd.Flags().IntVar(&size.Ranks, "ranks", 0, "number of ranks of the job that is to run (default: the Slurm "+
		"job's, else nothing is estimated)")
	cmd.Flags().IntVar(&size.Nodes, "job-nodes", 0, "number of its nodes (default: the Slurm job's, else 1)")
	cmd.Flags().StringVar(&bytes, "bytes", "", "what each rank protects, such as 8GiB (default: times of writing are "+
		"not estimated)")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "write only what is not ok")
	return cmd
}

// examineHere looks at this machine, or at the nodes of the job.
func examineHere(cmd *cobra.Command, allNodes bool, size doctor.Options) ([]doctor.Finding, error) {
	verb := map[bool]string{false: "doctor-rank", true: "doctor-node"}[allNodes]
	own, err := self(verb)
	if err != nil {
		return nil, err
	}
	c := coordinated.ReadConfig("")
	o := c.Options()
	d := doctor.Options{Self: own, Local: o.Local, Global: o.Global, Interface: o.Interface, Config: c.Check(),
		Stray: c.Stray(os.Environ()), Loss: o.NodeLoss(), Ranks: size.Ranks, Nodes: size.Nodes, Bytes: size.Bytes,
		PackSize: o.PackSize, Stripes: o.Stripes}
	d.OfJob()
	if allNodes {
		nodes, err := doctor.JobNodes()
		if err != nil {
			return nil, err
		}
		return doctor.Nodes(cmd.Context(), d, nodes), nil
	}
	begin, stop := steps(cmd, "looking at")
	defer stop()
	d.Note = func(what string) { begin(what, 0) }
	return doctor.Run(cmd.Context(), d), nil
}

func doctorTable(findings []doctor.Finding, quiet bool) [][]string {
	out := [][]string{{"STATE", "AREA", "CHECK", "DETAIL"}}
	for _, f := range findings {
		if quiet && (f.State == doctor.OK || f.State == doctor.Skipped) {
			continue
		}
		out = append(out, []string{string(f.State), f.Area, f.Check, f.Detail})
		if f.Remedy != "" && f.State != doctor.OK {
			out = append(out, []string{"", "", "", "-> " + f.Remedy})
		}
	}
	return out
}

// newDoctorRank is a rank that doctor starts.
func newDoctorRank() *cobra.Command {
	return &cobra.Command{
		Use: "doctor-rank", Short: "one rank of doctor", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return doctor.Rank(cmd.OutOrStdout()) },
	}
}

// newDoctorNode is what doctor starts on each node of a job.
func newDoctorNode() *cobra.Command {
	return &cobra.Command{
		Use: "doctor-node PART DIR TOKEN NODES", Short: "one node of doctor", Hidden: true, Args: cobra.ExactArgs(4),
		RunE: func(cmd *cobra.Command, args []string) error {
			return doctor.NodePart(cmd.OutOrStdout(), os.Getenv("SLURMD_NODENAME"), args[0], args[1], args[2], args[3])
		},
	}
}
