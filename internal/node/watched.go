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

// watching has the report of the daemon to holdfast run --watch about ranks that take no checkpoints.
type watching struct {
	mu    sync.Mutex // guards the fields below
	eyes  map[*session]*observe.Eye
	last  []observe.Rank // ranks that have gone and are not in a report yet
	tells bool           // a goroutine reports
}

// Ranks are looked at so often, and the more seldom the more counts that is: one for each of the job's ranks.
const (
	lookEvery  = 250 * time.Millisecond
	manyCounts = 1 << 20
)

// watched gives a client the page that it counts in, and looks at it until the client has gone. Errors here do not
// reach the client.
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

// begin adds a rank. The first one starts the goroutine that reports all of them.
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

const dialTime = 10 * time.Second

// tell reports the ranks to holdfast run, until there are none.
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
		_ = to.Close() // the report is complete
	}
	return err
}

// look looks at all ranks. over reports that none is left; the next rank starts a new report.
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
