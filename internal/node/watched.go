package node

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/observe"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/node/messages"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
)

// watching is what the daemon tells holdfast run --watch of ranks that take no checkpoints.
type watching struct {
	mu    sync.Mutex // guards what follows
	eyes  map[*session]*observe.Eye
	last  []observe.Rank // of ranks that have gone, and have not been told of
	tells bool           // a goroutine tells
}

// Ranks are looked at so often, and the more seldom the more counts that is: one for each of the job's ranks.
const (
	lookEvery  = 250 * time.Millisecond
	manyCounts = 1 << 20
)

// watched gives a client the page that it counts in, and looks at it until the client has gone. The client does not
// hear of anything that goes wrong here.
func (s *session) watched(m wire.Message) {
	s.d.mu.Lock()
	s.d.served = true
	s.d.mu.Unlock()
	size := int(m.Size)
	page, err := newCounts(messages.WatchedBytes(size))
	if err == nil {
		defer page.close()
		err = s.conn.write(wire.Messages(uint64(len(page.b))), int(page.file.Fd()))
	}
	if err != nil {
		s.log.Warn("holdfast node: a rank is not watched", "rank", m.Rank, "error", err)
		return
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	eye := observe.NewEye(messages.NewWatched(page.b, size), int(m.Rank), size, m.Text, host, os.Getpid())
	s.d.watching.begin(s, eye, m.Supervisor, host)
	<-s.disconnected
	s.d.watching.end(s, eye)
}

// begin adds a rank. The first one starts the goroutine that tells of all.
func (w *watching) begin(s *session, eye *observe.Eye, supervisor, host string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.eyes == nil {
		w.eyes = map[*session]*observe.Eye{}
	}
	w.eyes[s] = eye
	if !w.tells {
		w.tells = true
		s.d.sessions.Go(func() {
			if err := w.tell(supervisor, host); err != nil {
				s.d.log.Warn("holdfast node: the ranks of this node are not watched any more", "error", err)
			}
		})
	}
}

// end looks at a rank for the last time.
func (w *watching) end(s *session, eye *observe.Eye) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.eyes, s)
	w.last = append(w.last, eye.Look(time.Now(), true))
}

// dialTime bounds the way to holdfast run.
const dialTime = 10 * time.Second

// tell tells holdfast run of the ranks, until there are none.
func (w *watching) tell(supervisor, host string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dialTime)
	to, err := job.Watch(ctx, supervisor, host)
	cancel()
	for over := false; !over; {
		var ranks []observe.Rank
		ranks, over = w.look()
		if err == nil {
			if err = to.Say(ranks); err != nil {
				err = fmt.Errorf("tell holdfast run: %w", err)
			}
		}
		if !over {
			counts := 0
			for i := range ranks {
				counts += ranks[i].Size
			}
			time.Sleep(lookEvery * time.Duration(1+counts/manyCounts))
		}
	}
	if to != nil {
		_ = to.Close() // all is said
	}
	return err
}

// look looks at all ranks. When it is over none is left, and the next that comes is told of anew.
func (w *watching) look() (ranks []observe.Rank, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	ranks, w.last = w.last, nil
	for _, eye := range w.eyes {
		ranks = append(ranks, eye.Look(now, false))
	}
	if len(w.eyes) == 0 {
		w.tells = false
	}
	return ranks, len(w.eyes) == 0
}
