package job

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// stopAt returns a body that counts from its restored state on and stops with a
// checkpoint at a number. It notes where it began.
func stopAt(run string, number int64, began *int64) Body {
	return func(ctx context.Context, j *Job) error {
		var at int64
		_, err := j.Restore(ctx, run, nil, State{"at", &at})
		if err != nil {
			return err
		}
		*began = at
		for ; at < 100; at++ {
			if at == number {
				if err := j.Checkpoints.ck.RequestStop(ctx); err != nil {
					return err
				}
			}
			if err := j.Checkpoints.Point(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestStopAndGoOn stops a run of one rank at a checkpoint, continues from it, and
// refuses to continue from it as another run.
func TestStopAndGoOn(t *testing.T) {
	o := &Options{Ranks: 1, Device: "fake", Job: "test", Global: t.TempDir()}
	start := func(run string, number int64) (int64, error) {
		var began int64
		err := o.On(context.Background(), "app", mpiwrap.Single(), stopAt(run, number, &began))
		return began, err
	}
	if began, err := start("run A", 40); !errors.Is(err, coordinated.ErrStop) || began != 0 {
		t.Fatalf("first start: began at %d and ended with %v, want 0 and ErrStop", began, err)
	}
	if _, err := start("run B", -1); err == nil || !strings.Contains(err.Error(), `it has "run A", this one "run B"`) {
		t.Errorf("as another run: got %v, want both runs named", err)
	}
	// The request takes effect at a Point at or soon after the number.
	if began, err := start("run A", -1); err != nil || began < 40 {
		t.Errorf("second start: began at %d and ended with %v, want 40 or later and success", began, err)
	}
}

// TestOtherSize: a checkpoint of a run whose objects on the device have other sizes
// is refused with both runs named, not only the object, and stays.
func TestOtherSize(t *testing.T) {
	o := &Options{Ranks: 1, Device: "fake", Job: "test", Global: t.TempDir()}
	start := func(run string, bytes int, number int64) error {
		var began int64
		return o.On(context.Background(), "app", mpiwrap.Single(), func(ctx context.Context, j *Job) error {
			if _, err := j.Device.Buffer("b", bytes); err != nil {
				return err
			}
			return stopAt(run, number, &began)(ctx, j)
		})
	}
	if err := start("size 100", 100, 3); !errors.Is(err, coordinated.ErrStop) {
		t.Fatalf("first start: %v", err)
	}
	for range 3 {
		if err := start("size 200", 200, -1); err == nil ||
			!strings.Contains(err.Error(), `it has "size 100", this one "size 200"`) {
			t.Errorf("got %v, want both runs named", err)
		}
	}
	if err := start("size 100", 100, -1); err != nil {
		t.Errorf("the right run: %v", err)
	}
}

// TestStopAfter stops a run after some steps, goes on, and finds both in the
// files of times.
func TestStopAfter(t *testing.T) {
	dir := t.TempDir()
	start := func(stopAfter int) (times Times, err error) {
		file := filepath.Join(dir, "times.json")
		o := &Options{Ranks: 1, Device: "fake", Job: "test", Global: dir, StopAfter: stopAfter, Times: file}
		var began int64
		err = o.On(context.Background(), "app", mpiwrap.Single(), stopAt("run", -1, &began))
		raw, rerr := os.ReadFile(file)
		if rerr != nil {
			t.Fatal(rerr)
		}
		if rerr := json.Unmarshal(raw, &times); rerr != nil {
			t.Fatal(rerr)
		}
		return times, err
	}
	times, err := start(30)
	if !errors.Is(err, coordinated.ErrStop) || len(times.Epochs) != 1 || times.Epochs[0].Durable["global"] <= 0 ||
		times.RestoredEpoch != 0 {
		t.Fatalf("first start: got %v and %+v, want ErrStop and one epoch", err, times)
	}
	times, err = start(0)
	if err != nil || times.RestoredEpoch != 1 || times.Restore <= 0 || times.RestoredBytes <= 0 {
		t.Errorf("second start: got %v and %+v, want epoch 1 restored", err, times)
	}
}

func TestWorldRefuses(t *testing.T) {
	o := &Options{Ranks: 3}
	if _, _, err := o.World(); err == nil || !strings.Contains(err.Error(), "mpirun -np 3") {
		t.Errorf("got %v, want the command that starts 3 ranks", err)
	}
	t.Setenv("PMI_SIZE", "4")
	o.Ranks = 1
	if _, _, err := o.World(); err == nil || !strings.Contains(err.Error(), "launcher of 4 ranks") {
		t.Errorf("alone under a launcher: got %v, want its ranks", err)
	}
}

// TestChecksFirst: what would be an error at the end is one before the body runs.
func TestChecksFirst(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none", "file")
	for name, o := range map[string]*Options{"-out": {Out: missing}, "-times": {Times: missing}} {
		o.Ranks, o.Device = 1, "fake"
		err := o.On(context.Background(), "app", mpiwrap.Single(), func(context.Context, *Job) error {
			t.Errorf("%s: the body ran", name)
			return nil
		})
		if err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestNodeRank(t *testing.T) {
	for _, name := range []string{"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"} {
		t.Setenv(name, "")
	}
	if got := nodeRank(5); got != 5 {
		t.Errorf("without a launcher: got %d, want 5", got)
	}
	t.Setenv("MPI_LOCALRANKID", "2")
	if got := nodeRank(5); got != 2 {
		t.Errorf("under MPICH: got %d, want 2", got)
	}
}

// TestFlagsWin: a flag wins over a variable, and one that asks for checkpoints needs a
// directory.
func TestFlagsWin(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"HOLDFAST_LOCAL", "HOLDFAST_GLOBAL", "HOLDFAST_CONFIG"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOLDFAST_JOB", "of the variable")
	start := func(args ...string) (*Options, error) {
		o := &Options{}
		fs := o.Flags("app", "", "`file`", io.Discard)
		if err := Parse(fs, append([]string{"-ranks", "1", "-device", "fake"}, args...)); err != nil {
			t.Fatal(err)
		}
		var began int64
		return o, o.On(context.Background(), "app", mpiwrap.Single(), stopAt("run", -1, &began))
	}
	o, err := start("-global", t.TempDir(), "-job", "of-the-flag", "-fresh")
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.readConfig()
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Options(); got.Job != "of-the-flag" || !got.Fresh {
		t.Errorf("got %+v", got)
	}
	for _, v := range c.Values() {
		if v.Key == "job" && v.Source != "-job" {
			t.Errorf("job comes from %s", v.Source)
		}
	}
	if _, err := start("-fresh"); err == nil || !strings.Contains(err.Error(), "without a directory") {
		t.Errorf("no directory: %v", err)
	}
	if _, err := start(); err != nil {
		t.Errorf("no checkpoints asked for: %v", err)
	}
}
