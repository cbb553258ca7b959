package events

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/units"
)

// Version is the version of the lines; docs/FORMAT.md has the rules for changing it.
const Version = 1

// The names of the events in the log. Instants have a time, spans also a duration.
const (
	Open       = "open"       // span: coordinated.Open; first line of every file
	Sync       = "sync"       // span: all ranks wait for each other; starts before it ends anywhere
	Restore    = "restore"    // span: Restore; epoch 0: there was nothing to restore
	Request    = "request"    // a checkpoint was requested at this rank; What names the source
	Arm        = "arm"        // this rank learnt of the request
	Park       = "park"       // span: the main thread waited at a Point for the cut
	Release    = "release"    // span: as Park, but it was let go to its next Point
	Drain      = "drain"      // span: messages in flight were received
	Capture    = "capture"    // span: the protected state was copied
	Resume     = "resume"     // the program continues; dur is how long it was blocked in all
	Write      = "write"      // span: the captured state went to the first level
	Redundancy = "redundancy" // span: copied or encoded to level partner or parity
	Flush      = "flush"      // span: copied to level global, by one rank for its node
	Vote       = "vote"       // span: from this rank's vote to the outcome; What is put or commit
	Commit     = "commit"     // the epoch exists at a level; dur since the cut
	Skip       = "skip"       // the epoch does not go to a level; What: not due, or for which newer one
	GiveUp     = "giveup"     // no cut came about
	PutOff     = "putoff"     // the cut is not used, since messages are in flight; another one follows
	Failure    = "error"      // What failed; Text is the error
	Source     = "source"     // device program What was built from source; Text has its kernels and why
	Stop       = "stop"       // the program has to end, after a final checkpoint
	Finish     = "finish"     // the program called Close
	Close      = "close"      // the log's last line
	Alive      = "alive"      // nothing but this happened since the line before
)

// known has the names above.
var known = map[string]bool{Open: true, Sync: true, Restore: true, Request: true, Arm: true, Park: true, Release: true,
	Drain: true, Capture: true, Resume: true, Write: true, Redundancy: true, Flush: true, Vote: true, Commit: true,
	GiveUp: true, Skip: true, PutOff: true,
	Failure: true, Source: true, Stop: true, Finish: true, Close: true, Alive: true}

// Event is one line. Fields that mean nothing for a kind of event are zero and
// not written.
type Event struct {
	Name  string `json:"ev"`
	Wall  int64  `json:"t"` // nanoseconds since 1970 UTC; of a span, when it ended
	Mono  int64  `json:"m"` // the same moment in nanoseconds since Open began, by a clock that is never set
	Rank  int    `json:"rank"`
	Epoch uint64 `json:"epoch,omitempty"`
	Begin bool   `json:"begin,omitempty"` // a span that begins here
	Dur   int64  `json:"dur,omitempty"`   // nanoseconds

	Level    string `json:"level,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"`  // of the protected state, or of the messages drained
	Stored   int64  `json:"stored,omitempty"` // size at the level
	Messages int    `json:"msgs,omitempty"`
	Points   uint64 `json:"points,omitempty"` // Points reached so far
	Rounds   int    `json:"rounds,omitempty"`
	Releases int    `json:"releases,omitempty"`
	Stop     bool   `json:"stop,omitempty"`
	What     string `json:"what,omitempty"`
	Text     string `json:"text,omitempty"`
	Peer     *int   `json:"peer,omitempty"` // another rank that it is about

	Header *Header `json:"open,omitempty"` // of open
	Lost   uint64  `json:"lost,omitempty"` // lines dropped before this one, for want of room
}

// Header names the owner of a log.
type Header struct {
	Version int      `json:"v"`
	Job     string   `json:"job"`
	Run     int      `json:"run"` // from 1 on
	Size    int      `json:"size"`
	Node    string   `json:"node"`
	PID     int      `json:"pid"`
	Part    int      `json:"part"`     // from 0 on; older parts may be gone
	AliveNS int64    `json:"alive_ns"` // how often there is a sign of life
	Levels  []string `json:"levels"`   // nearest first
	Program string   `json:"program,omitempty"`
}

// Limits of a line, for writer and reader.
const (
	maxText = 1200
	maxName = 256
	maxLine = 16 << 10
	maxRank = 1 << 24
	// maxTime bounds wall times and durations: the year 2200, which can be added without overflow.
	maxTime = int64(230*365*24) * int64(time.Hour)
)

// line encodes an event, cut to the length of a line.
func (e *Event) line() ([]byte, error) {
	e.Text, e.What, e.Level = units.Cut(e.Text, maxText), units.Cut(e.What, maxName), units.Cut(e.Level, maxName)
	if e.Header != nil {
		h := *e.Header
		h.Job, h.Node, h.Program = units.Cut(h.Job, maxName), units.Cut(h.Node, maxName), units.Cut(h.Program, maxName)
		e.Header = &h
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", e.Name, err)
	}
	if len(b) >= maxLine {
		return nil, fmt.Errorf("event %s: a line of %d bytes", e.Name, len(b))
	}
	return append(b, '\n'), nil
}

// parse decodes one line and reports whether it can be used.
func parse(line []byte) (Event, bool) {
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		return e, false
	}
	ok := e.Wall >= 0 && e.Wall < maxTime && e.Mono >= 0 && e.Mono < maxTime && e.Dur >= 0 && e.Dur < maxTime &&
		e.Rank >= 0 && e.Rank < maxRank && e.Bytes >= 0 && e.Stored >= 0 && e.Messages >= 0 && e.Rounds >= 0 &&
		e.Releases >= 0
	if e.Peer != nil {
		ok = ok && *e.Peer >= 0 && *e.Peer < maxRank
	}
	if h := e.Header; h != nil {
		ok = ok && h.Size > e.Rank && h.Size <= maxRank && h.Run > 0 && h.Part >= 0 && h.AliveNS >= 0 &&
			h.AliveNS < maxTime
	}
	return e, ok
}
