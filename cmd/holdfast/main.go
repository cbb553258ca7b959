// Command holdfast looks after the checkpoints of a job: it lists, verifies and
// prunes them, asks a running job for one, and measures what they cost.
//
// Results go to standard output, everything else to standard error. Reading
// verbs never write.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/holdfast-hpc/holdfast/storage/s3" // checkpoints in object stores
)

// sameSignal is how long a signal may come twice and mean one: timeout(1) and scancel send it to the process and to its
// group.
const sameSignal = 100 * time.Millisecond

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		time.Sleep(sameSignal)
		stop() // a second signal ends what the first could not
	})
	code := Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
