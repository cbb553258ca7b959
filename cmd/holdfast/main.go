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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends what the first could not
	code := Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
