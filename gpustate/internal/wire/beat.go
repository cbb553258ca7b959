package wire

import (
	"io"
	"sync/atomic"
	"time"
)

// Beat is a sign of life of its sender. Each side of a device's connection sends one
// every BeatEvery; the server only while it gets those of the client, so that nothing
// piles up for one that is stopped.
type Beat struct{}

func (*Beat) fields(*Fields) {}

const (
	// BeatEvery lies between two beats.
	BeatEvery = time.Second
	// Silence is how long the other side may be silent if no time was
	// chosen.
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
				_ = out.Now(&Beat{}) // the reader of the other side sees errors
				sending.Store(false)
			}()
		}
	}
}

// ActivityReader is a reader that counts incoming bytes.
type ActivityReader struct {
	io.Reader
	activity atomic.Uint64
	waiting  atomic.Bool
}

// Read notes incoming bytes.
func (e *ActivityReader) Read(b []byte) (int, error) {
	e.waiting.Store(true)
	n, err := e.Reader.Read(b)
	e.waiting.Store(false)
	e.NoteActivity()
	return n, err
}

// NoteActivity notes that something came another way.
func (e *ActivityReader) NoteActivity() { e.activity.Add(1) }

// Waiting notes that a goroutine waits in Read.
func (e *ActivityReader) Waiting() bool { return e.waiting.Load() }

// SilenceTimer counts for how many looks, a beat apart, an ActivityReader has read nothing. Time
// in which this process does not run does not count.
type SilenceTimer struct {
	seen  uint64
	beats int
}

// Look is called every BeatEvery and gives for how long nothing was heard.
func (q *SilenceTimer) Look(e *ActivityReader) time.Duration {
	if n := e.activity.Load(); n != q.seen {
		q.seen, q.beats = n, 0
	} else {
		q.beats++
	}
	return time.Duration(q.beats) * BeatEvery
}
