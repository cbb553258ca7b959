package observe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outside"
	"github.com/holdfast-hpc/holdfast/internal/handshake"
	"github.com/holdfast-hpc/holdfast/internal/job"
)

// Answers are the replies to commands that ask for a directory.
type Answers struct {
	Job     string
	Request func(ctx context.Context, stop, wait bool) error // ctx ends with the service
	Status  func() *job.Status
	Ranks   func() []job.RankStatus
}

// Serve answers holdfast status of a directory until stop is called or ctx ends, at an interface or address as in
// control.Options. It returns an error for a directory whose job answers already. stop waits for the service to end.
func (j *Job) Serve(ctx context.Context, dir, iface string, log *slog.Logger) (stop func(), err error) {
	return Serve(ctx, dir, iface, log, Answers{Job: "watched", Status: j.Status, Ranks: j.Ranks,
		Request: func(context.Context, bool, bool) error {
			return errors.New("the program takes no checkpoints: holdfast run --watch looks at it, and no more")
		}})
}

// Serve answers commands that ask for a directory, as Job.Serve does, with the functions of a.
func Serve(ctx context.Context, dir, iface string, log *slog.Logger, a Answers) (stop func(), err error) {
	if err := outside.Answering(ctx, dir); err != nil {
		return nil, err
	}
	key := handshake.NewKey()
	p, err := control.Listen(control.Options{Size: 1, Key: key, Interface: iface})
	if err != nil {
		return nil, fmt.Errorf("listen for holdfast status: %w", err)
	}
	node, err := os.Hostname()
	if err != nil {
		node = "unknown"
	}
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	s, err := outside.Serve(ctx, outside.ServerOptions{Plane: p, Dir: dir, Job: a.Job, Node: node, Key: key,
		Log: log, Go: serving.Go,
		Request: func(stop, wait bool) error { return a.Request(ctx, stop, wait) },
		Status:  func() (*job.Status, error) { return a.Status(), nil },
		Ranks:   func() ([]job.RankStatus, error) { return a.Ranks(), nil }})
	if err != nil {
		cancel()
		return nil, errors.Join(err, p.Close())
	}
	return func() {
		s.Close()
		cancel()
		if err := p.Close(); err != nil {
			log.Warn("holdfast run: end the service of holdfast status", "error", err)
		}
		serving.Wait()
	}, nil
}
