package coordinated_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// Particles move from rank to rank, and a mesh is refined while the program runs: each epoch has other lengths and
// dimensions, and any number of ranks restores it.
func ExampleCheckpointer_ProtectChanging() {
	world, err := mpiwrap.Init(mpiwrap.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ck, err := coordinated.Open(context.Background(), world, coordinated.Options{Elastic: true})
	if err != nil {
		log.Fatal(err)
	}
	defer ck.CloseOrAbort(&err)

	type particle struct {
		ID int64
		X  [3]float64
	}
	var particles []particle
	nx, ny := 0, 0 // of the mesh, as long as there is none
	var u []float64
	rows := func(nx, ny int) coordinated.Array { // with a row of ghosts before and behind
		return coordinated.Block([]int{nx, ny}, []int{world.Size(), 1}, world.Rank()).Ghosts(1, 0)
	}

	err = errors.Join(
		ck.ProtectList("particles", &particles),
		ck.ProtectChanging("u", coordinated.Changing{
			Now: func() coordinated.Array { return rows(nx, ny) },
			Restored: func(was coordinated.SavedArray) (coordinated.Array, error) {
				return rows(was.Dims[0], was.Dims[1]), nil
			},
		}, &u),
		ck.ProtectReplicated("nx", &nx),
		ck.ProtectReplicated("ny", &ny))
	if err != nil {
		log.Fatal(err)
	}
	restored, err := ck.Restore(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	if !restored {
		nx, ny = 64, 64
		u = make([]float64, rows(nx, ny).Len())
		particles = make([]particle, 100*(world.Rank()+1))
	}
	// u and particles have the lengths of the epoch. If that is of another number of ranks, each has its share of the
	// particles in their order: send them on to where they belong.
	for err == nil {
		nx++ // the mesh grows, and particles come and go
		u = make([]float64, rows(nx, ny).Len())
		err = ck.Point(context.Background())
	}
}

// A program counts its steps and continues where the newest checkpoint is. Under mpirun the world comes from
// mpiwrap.Init; here it is one rank, which runs twice.
func Example() {
	dir, err := os.MkdirTemp("", "checkpoints")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for range 2 {
		if err := count(dir); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// restored false, begins with step 0
	// restored true, begins with step 2
}

// count does two steps and takes a checkpoint in front of the next.
func count(dir string) (err error) {
	ctx := context.Background()
	ck, err := coordinated.Open(ctx, mpiwrap.Single(), coordinated.Options{Job: "count", Global: dir,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer ck.CloseOrAbort(&err) // an error of this rank ends the others, too

	step, u := 0, make([]float64, 1000)
	if err := errors.Join(ck.Protect("step", &step), ck.Protect("u", &u)); err != nil {
		return err
	}
	restored, err := ck.Restore(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("restored %v, begins with step %d\n", restored, step)
	for last := step + 2; ; step++ {
		if step == last {
			if err := ck.Request(ctx); err != nil { // a signal or an interval asks elsewhere
				return err
			}
		}
		if err := ck.Point(ctx); err != nil {
			return err
		}
		if step == last {
			return ck.Wait(ctx, "global")
		}
		u[step]++ // the program's work
	}
}

// A matrix is divided into blocks of rows; another number of ranks restores it.
func ExampleCheckpointer_ProtectGlobal() {
	world, err := mpiwrap.Init(mpiwrap.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ck, err := coordinated.Open(context.Background(), world, coordinated.Options{Elastic: true})
	if err != nil {
		log.Fatal(err)
	}
	defer ck.CloseOrAbort(&err)

	a := coordinated.Block([]int{1000, 1000}, []int{world.Size(), 1}, world.Rank()).Ghosts(1, 0)
	u := make([]float64, a.Len()) // with a row of ghosts before and behind
	if err = ck.ProtectGlobal("u", a, &u); err != nil {
		log.Fatal(err)
	}
	if _, err = ck.Restore(context.Background()); err != nil {
		log.Fatal(err)
	}
}
