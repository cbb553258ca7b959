package parity_test

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/storage"
	_ "github.com/holdfast-hpc/holdfast/storage/parity"
)

// The import is all that a program adds for the level parity. The six nodes here are a group, which survives the loss
// of any two.
func Example() {
	level := storage.LevelConfig{Name: storage.LevelParity, Dir: "/scratch/parity", Data: 4, Parity: 2}
	nodes := []string{"n1", "n2", "n3", "n4", "n5", "n6"} // of the ranks
	fmt.Println(storage.CheckParity(), level.Fits(nodes))
	// Output: <nil> <nil>
}
