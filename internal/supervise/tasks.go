package supervise

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
)

// fallen passes on what srun writes to standard error and notes the first task
// that ended with an error: srun tells of it and goes on waiting for the others,
// which may wait for that one in MPI_Init.
type fallen struct {
	w io.Writer

	mu   sync.Mutex // guards the fields below
	part []byte     // of a line
	at   time.Time
	node string
	text string
}

var taskEnded = regexp.MustCompile(`^srun: error: (\S+): (tasks? [\d,-]+: .+)`)

// longestLine is of those that can be such a message.
const longestLine = 4096

// Write never fails: srun goes on when the disk of its log is full, and must not
// find its pipe closed because of that.
func (f *fallen) Write(b []byte) (int, error) {
	f.mu.Lock()
	for rest := b; f.at.IsZero() && len(rest) > 0; {
		line, more, whole := bytes.Cut(rest, []byte("\n"))
		if f.part = append(f.part, line[:min(len(line), longestLine)]...); whole {
			f.note(string(f.part))
		}
		if whole || len(f.part) > longestLine {
			f.part = f.part[:0]
		}
		rest = more
	}
	f.mu.Unlock()
	_, _ = f.w.Write(b)
	return len(b), nil
}

func (f *fallen) note(line string) {
	if m := taskEnded.FindStringSubmatch(line); m != nil {
		f.at, f.node, f.text = time.Now(), m[1], strings.TrimSpace(m[2])+" (node "+m[1]+")"
	}
}

// first returns the first task that ended with an error; the zero time if none has.
func (f *fallen) first() (at time.Time, node, text string) {
	if f == nil {
		return at, "", ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at, f.node, f.text
}
