package wire

import (
	"io"
	"sync/atomic"
	"time"
)

// Beat says that the sender lives. Each side of a device's connection sends one
// every BeatEvery; the server only while it hears of the client, so that nothing
// piles up for one that is stopped.
type Beat struct{}

func (*Beat) fields(*Fields) {}

const (
	// BeatEvery lies between two beats.
	BeatEvery = time.Second
	// Silence is how long the other side may say nothing where nobody chose a
	// time.
	Silence = 15 * time.Second
	// MinSilence is the shortest time that can be chosen.
	MinSilence = 3 * BeatEvery
)

// SendBeats calls look every BeatEvery until stop is closed or look says that it is
// over, and sends a beat where look wants one. A beat that the other side does not
// read holds no look up, and no other is sent before it.
func SendBeats(out *Sender, stop <-chan struct{}, look func() (send, over bool)) {
	tick := time.NewTicker(BeatEvery)
	defer tick.Stop()
	var sending atomic.Bool
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		send, over := look()
		if over {
			return
		}
		if send && sending.CompareAndSwap(false, true) {
			go func() {
				_ = out.Now(&Beat{}) // who reads from the other side learns of errors
				sending.Store(false)
			}()
		}
	}
}

// Ear is a reader that knows whether it has heard something.
type Ear struct {
	io.Reader
	heard   atomic.Uint64
	waiting atomic.Bool
}

// Read notes what comes.
func (e *Ear) Read(b []byte) (int, error) {
	e.waiting.Store(true)
	n, err := e.Reader.Read(b)
	e.waiting.Store(false)
	e.Heard()
	return n, err
}

// Heard notes that something came another way.
func (e *Ear) Heard() { e.heard.Add(1) }

// Listening tells that somebody waits in Read.
func (e *Ear) Listening() bool { return e.waiting.Load() }

// Quiet counts for how many looks, a beat apart, an Ear has heard nothing. Time
// in which this process does not run does not count.
type Quiet struct {
	seen  uint64
	beats int
}

// Look is called every BeatEvery and gives for how long nothing was heard.
func (q *Quiet) Look(e *Ear) time.Duration {
	if n := e.heard.Load(); n != q.seen {
		q.seen, q.beats = n, 0
	} else {
		q.beats++
	}
	return time.Duration(q.beats) * BeatEvery
}
