// Command holdfast looks after the checkpoints of a job: it lists, verifies and
// prunes them, asks a running job for one, and measures what they cost.
//
// Results go to standard output, everything else to standard error. Reading
// verbs never write.
package main

import (
	"github.com/holdfast-hpc/holdfast/internal/cli"
	_ "github.com/holdfast-hpc/holdfast/storage/s3" // checkpoints in object stores
)

func main() { cli.Main(Run) }
