package storage

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/holdfast-hpc/holdfast/coordinated/scale"
	"github.com/holdfast-hpc/holdfast/internal/bench"
)

// Goals of what the global directory is asked for.
const (
	goalGrowth    = bench.AtMost(1.1)  // of a rank's share, beside that of scaleBase ranks
	goalPerNode   = bench.AtMost(4)    // metadata operations of an epoch, from scaleBase ranks on
	goalManifests = bench.AtMost(1)    // how often each manifest is read at a restart
	goalVotes     = bench.AtMost(1024) // bytes that a rank is told
	scaleBase     = 100
)

// Scale counts what epochs and restarts of so many simulated ranks ask of the global directory.
func Scale(ctx context.Context, r *bench.Runner, dir string, ranks []int) error {
	r.Start("storage", len(ranks))
	var base *scale.Result
	for _, n := range ranks {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.Step("%d simulated ranks", n)
		res, err := scaleOne(ctx, dir, n)
		if err != nil {
			return fmt.Errorf("%d simulated ranks: %w", n, err)
		}
		if n >= scaleBase && base == nil {
			base = &res
		}
		r.Add(scaleRows(&res, base)...)
	}
	return nil
}

func scaleOne(ctx context.Context, dir string, ranks int) (_ scale.Result, err error) {
	tmp, err := os.MkdirTemp(dir, "holdfast-bench-")
	if err != nil {
		return scale.Result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	return scale.Run(ctx, scale.Options{Dir: tmp, Ranks: ranks})
}

// scaleRows are the rows of one number of ranks. base is the result that the share of a rank must
// not grow beyond, nil for the first.
func scaleRows(res, base *scale.Result) (rows []bench.Row) {
	row := func(metric, unit string) bench.Row {
		return bench.Row{Case: fmt.Sprintf("%d ranks", res.Ranks), Metric: metric, Unit: unit}
	}
	one := func(v float64) bench.Samples { return bench.Samples{v} }
	// growth compares a rank's share with that at scaleBase.
	growth := func(metric, unit string, of func(c *scale.Result) float64) {
		x := row(metric, unit)
		switch share := one(of(res) / float64(res.Ranks)); {
		case base == nil || base == res:
			rows = append(rows, x.Of(share, nil, nil))
		default:
			rows = append(rows, x.Of(share, one(of(base)/float64(base.Ranks)), goalGrowth))
		}
	}
	nodes := float64(res.Nodes)
	if base != nil && base != res {
		more := (res.Epoch.Metadata() - base.Epoch.Metadata()) / (nodes - float64(base.Nodes))
		rows = append(rows, row("epoch: metadata operations of a node", "ops").Of(one(more), nil, nil),
			row("epoch: metadata operations of rank 0 for the job", "ops").Of(one(res.Epoch.Metadata()-more*nodes), nil,
				nil))
	}
	all := row("epoch: all metadata operations / nodes", "ops")
	if base == nil { // with few ranks those of rank 0 are all that there is
		rows = append(rows, all.Of(one(res.Epoch.Metadata()/nodes), nil, nil))
	} else {
		rows = append(rows, all.Of(one(res.Epoch.Metadata()/nodes), nil, goalPerNode))
	}
	growth("epoch: all metadata operations / ranks, may fall", "ops", func(x *scale.Result) float64 {
		return x.Epoch.Metadata()
	})
	for _, kind := range scale.Kinds {
		if n := res.Epoch.Ops[kind]; n > 0 {
			rows = append(rows, row("epoch: "+kind+" / node", "ops").Of(one(n/nodes), nil, nil))
		}
	}
	growth("epoch: bytes written / rank", "B", func(x *scale.Result) float64 { return x.Epoch.BytesWritten })
	growth("epoch: bytes read / rank", "B", func(x *scale.Result) float64 { return x.Epoch.BytesRead })
	rows = append(rows,
		row("epoch: votes told / rank, global", "B").Of(one(max(res.GlobalVotes.First, res.GlobalVotes.Other)), nil,
			goalVotes),
		row("epoch: votes told / rank, local", "B").Of(one(res.LocalVotes.Other), nil, goalVotes),
		row("epoch: votes told / first rank of a node, local", "B").Of(one(res.LocalVotes.First), nil, nil),
		row("largest file", "B").Of(one(float64(res.Largest)), nil, nil))
	growth("restart: metadata operations / rank", "ops", func(x *scale.Result) float64 { return x.Restart.Metadata() })
	for _, kind := range scale.Kinds {
		if n := res.Restart.Ops[kind]; n > 0 {
			rows = append(rows, row("restart: "+kind+" / node", "ops").Of(one(n/nodes), nil, nil))
		}
	}
	copies := res.Restart.ManifestRead / float64(res.Manifests) / nodes
	growth("restart: bytes read / rank", "B", func(x *scale.Result) float64 { return x.Restart.BytesRead })
	return append(rows, row("restart: manifests read / node", "copies").Of(one(copies), nil, goalManifests))
}
