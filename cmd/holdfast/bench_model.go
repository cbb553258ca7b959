package main

import (
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/bench/model"
	"github.com/spf13/cobra"
)

func newBenchModel() *cobra.Command {
	s := &benchSuite{}
	var years, state, disk, shared, link float64
	o := model.Options{Nodes: []int{1, 10, 100, 1000, 10000}}
	cmd := s.command(&cobra.Command{
		Use:   "model",
		Short: "compute the share of its time that a job works, by number of nodes",
		Long: `model computes, after Daly, which share of a job's time is its own work when nodes
fail at random and checkpoints are taken at the best interval. It compares Holdfast,
a program that waits for its node's disk and a partner's, and a program that waits
for the parallel file system, which is the baseline. It measures nothing: enter what
the other suites measured on your machine.

It assumes that nodes fail independently and that each failure ends the job; that
the job restarts on spare nodes after --start; that failures are noticed at once;
that work in the background does not slow the program down; and that with Holdfast
a failure also loses the time until the newest checkpoint was durable.

Exit codes: 0 computed; 2 bad arguments.`,
	}, func(cmd *cobra.Command) error {
		if len(o.Nodes) == 0 || o.Nodes[0] < 1 {
			return fmt.Errorf("--nodes %v: want numbers of 1 or more", o.Nodes)
		}
		o.NodeMTBF = time.Duration(years * 365.25 * 24 * float64(time.Hour))
		o.State, o.Disk, o.Shared, o.Link = state*1e9, disk*1e9, shared*1e9, link*1e9
		model.Run(&s.Runner, &o)
		if s.plot == "" {
			return nil
		}
		return plotted(cmd)(o.Draw(s.plot))
	})
	f := cmd.Flags()
	f.Float64Var(&years, "node-mtbf-years", 5, "mean time between failures of one node, in years")
	f.Float64Var(&state, "state-gb", 64, "GB of state on each node")
	f.Float64Var(&disk, "disk", 2.4, "GB/s of each node's disk")
	f.Float64Var(&shared, "shared", 1000, "GB/s of the parallel file system for all nodes")
	f.Float64Var(&link, "link", 5, "GB/s between one node and the parallel file system")
	f.DurationVar(&o.Blocked, "blocked", 100*time.Millisecond, "time that the program waits for a "+
		"checkpoint of Holdfast")
	f.DurationVar(&o.Start, "start", time.Minute, "time until the ranks of a restarted job run")
	f.IntSliceVar(&o.Nodes, "nodes", o.Nodes, "numbers of nodes, ascending")
	return cmd
}
