package supervise

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/internal/image"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/storage"
)

// account has the data of holdfast status and report about a run that takes images.
type account struct {
	dir, name, host string
	timing          string // when images are taken by the clock
	began           time.Time
	log             *events.Log // of the newest start; its methods take nil

	mu      sync.Mutex // guards the fields below
	state   string     // of the program, as job.RankStatus has it
	since   time.Time  // of that
	due     time.Time  // of the next image by the clock; zero: there is none
	by      string
	epochs  []job.EpochStatus
	newest  uint64 // committed image
	cut     time.Time
	failing string
}

// aliveEvery is how often the event log gets a sign of life.
const aliveEvery = 5 * time.Second

// open begins the event log of a start. Without one the run goes on.
func (a *account) open(ctx context.Context) error {
	a.turn("starting")
	a.log = nil // that of the start before is closed
	dir := filepath.Join(a.dir, events.DirName)
	runs, err := events.Runs(ctx, dir)
	if err != nil {
		return err
	}
	number := 1
	if len(runs) > 0 {
		number = runs[len(runs)-1] + 1
	}
	began := time.Now()
	a.log, err = events.Create(ctx, events.Options{Dir: dir, Begun: began,
		Header: events.Header{Job: image.JobOf(a.name), Run: number, Size: 1, Node: a.host, PID: os.Getpid(),
			AliveNS: int64(aliveEvery), Levels: []string{storage.LevelGlobal}, Program: a.name}})
	if err != nil {
		return err
	}
	a.log.Emit(events.Event{Name: events.Open})
	return events.Prune(ctx, dir, number, 0)
}

// close ends the event log of a start. The program has ended by itself, or with its last image; else it has died.
func (a *account) close(orderly bool) error {
	if orderly {
		a.log.Emit(events.Event{Name: events.Finish})
		a.log.Emit(events.Event{Name: events.Close})
	} else {
		a.log.Emit(events.Event{Name: events.Alive}) // until now
	}
	return a.log.Close()
}

func (a *account) turn(state string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state, a.since = state, time.Now()
}

// next notes when the next image is due by the clock; 0: never.
func (a *account) next(d time.Duration, by string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.due = (time.Time{}); d > 0 {
		a.due, a.by = time.Now().Add(d), by
	}
}

func (a *account) restored(e storage.Epoch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.newest, a.cut = uint64(e), time.Now()
}

func (a *account) taken(t image.Taken, began time.Time, final bool, err error) {
	e, now, stopped := uint64(t.Epoch), time.Now(), began.Add(t.Stopped)
	s := job.EpochStatus{Epoch: e, Bytes: t.Bytes, BlockedSeconds: t.Stopped.Seconds()}
	if err != nil {
		a.log.Emit(events.Event{Name: events.Failure, What: "image", Text: err.Error()})
		s.Error = err.Error()
	} else {
		s.DurableSeconds = map[string]float64{storage.LevelGlobal: now.Sub(began).Seconds()}
		a.log.EmitAt(began, events.Event{Name: events.Arm, Epoch: e})
		a.log.EmitAt(began, events.Event{Name: events.Park, Epoch: e, Stop: final})
		a.log.EmitAt(stopped, events.Event{Name: events.Capture, Epoch: e, Dur: int64(t.Stopped), Bytes: t.Bytes})
		a.log.EmitAt(stopped, events.Event{Name: events.Resume, Epoch: e, Dur: int64(t.Stopped), Stop: final})
		a.log.Emit(events.Event{Name: events.Write, Epoch: e, Level: storage.LevelGlobal, Bytes: t.Bytes,
			Stored: t.Stored, Dur: int64(now.Sub(stopped))})
		a.log.Emit(events.Event{Name: events.Commit, Epoch: e, Level: storage.LevelGlobal, Dur: int64(now.Sub(began))})
		if final {
			a.log.Emit(events.Event{Name: events.Stop, Epoch: e})
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state, a.since = "running", now; err == nil {
		a.newest, a.cut, a.failing = e, began, ""
	} else {
		a.failing = err.Error()
	}
	if e > 0 {
		const most = 100
		a.epochs = append(a.epochs[max(0, len(a.epochs)-most):], s)
	}
}

func (a *account) status() *job.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &job.Status{Job: image.JobOf(a.name), Ranks: 1, Nodes: []string{a.host}, Points: uint64(len(a.epochs)),
		Epochs: slices.Clone(a.epochs), Levels: []string{storage.LevelGlobal}, Seconds: time.Since(a.began).Seconds(),
		Timing: a.timing, Failing: a.failing}
	if !a.due.IsZero() {
		s.Next = &job.NextStatus{By: a.by, Seconds: max(0, time.Until(a.due).Seconds())}
	}
	s.Loss = &job.LossStatus{Epoch: a.newest, Seconds: time.Since(a.began).Seconds()}
	if a.newest > 0 {
		s.Loss.Level, s.Loss.Seconds = storage.LevelGlobal, time.Since(a.cut).Seconds()
	}
	return s
}

// ranks returns the program's activity, as that of one rank.
func (a *account) ranks() []job.RankStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := job.RankStatus{Node: a.host, State: a.state, Seconds: time.Since(a.since).Seconds(), Last: a.newest}
	if a.newest > 0 {
		r.Level = storage.LevelGlobal
	}
	if n := len(a.epochs); n > 0 {
		r.Cost, r.Points = a.epochs[n-1].BlockedSeconds, uint64(n)
	}
	return []job.RankStatus{r}
}

func (m *images) request(ctx context.Context, stop, wait bool) error {
	if stop {
		return errors.New("a program under holdfast run --image ends with its last image when that gets SIGTERM")
	}
	answer := make(chan error, 1)
	ended := errors.New("the run has ended")
	select {
	case m.wanted <- answer:
	case <-ctx.Done():
		return ended
	}
	if !wait {
		return nil
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ended
	}
}
