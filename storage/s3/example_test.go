package s3_test

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/storage"
	_ "github.com/holdfast-hpc/holdfast/storage/s3"
)

// The import is all that a program adds for checkpoints in an object store.
func Example() {
	level := storage.LevelConfig{Name: storage.LevelGlobal, Dir: "s3://climate/run-7"}
	fmt.Println(storage.IsObjectStore(level.Dir), storage.CheckDir(level.Dir))
	// Output: true <nil>
}
