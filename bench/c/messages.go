package c

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

//go:embed driver/messages.c
var messagesSource []byte

// What libholdfast-mpi may add to messages and collectives, in ns; a receive that is pending has no goal.
var added = []struct {
	figure, calls string
	goal          bench.Goal
}{
	{"isend", "Isend + Recv + Wait", bench.AtMost(10)},
	{"irecv", "Irecv + Send + Wait", nil},
	{"allreduce", "Allreduce", bench.AtMost(3)},
}

// messages measures what libholdfast-mpi, which lies beside libholdfast, adds to calls of MPI: a rank to itself, with
// the library and without in turn, under each MPI that is installed.
func messages(ctx context.Context, r *bench.Runner, lib, dir string) error {
	lib, err := bench.Library(lib, "libholdfast-mpi.so")
	for _, l := range mpirun.Launchers() {
		name := "MPI calls, " + l.Title
		r.Step("%s", name)
		fail := err
		if fail == nil {
			fail = l.Available()
		}
		if fail != nil {
			r.Skip(name, "added by libholdfast-mpi", fail)
			continue
		}
		own := filepath.Join(dir, l.Name)
		if err := os.Mkdir(own, 0o700); err != nil {
			return err
		}
		program, err := bench.CompileC(ctx, own, messagesSource, []string{l.Compiler()}, "-ldl")
		if err != nil {
			r.Skip(name, "added by libholdfast-mpi", err)
			continue
		}
		j := l.Job(1, startLimit, "env", "LD_PRELOAD="+filepath.Join(lib, "libholdfast-mpi.so"), program,
			fmt.Sprint(r.Runs))
		out, err := j.Output(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, a := range added {
			f, err := bench.ReadFigures(out, a.figure, a.figure+" with the library")
			if err != nil {
				return err
			}
			without, with := f.Set[a.figure].Times(1e9), f.Set[a.figure+" with the library"].Times(1e9)
			more := make(bench.Samples, len(with))
			for i := range with {
				more[i] = with[i] - without[i]
			}
			row := func(metric string) bench.Row { return bench.Row{Case: name, Metric: metric, Unit: "ns"} }
			r.Add(row("added by libholdfast-mpi to "+a.calls).Of(more, nil, a.goal),
				row(a.calls+" with libholdfast-mpi / without").Of(with, without, nil))
		}
	}
	return nil
}
