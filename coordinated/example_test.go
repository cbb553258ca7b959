package coordinated_test

import (
	"context"
	"errors"
	"log"

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
