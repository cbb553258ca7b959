package launch

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
)

// An Output keeps what a job prints, in memory and, if there is one, in a file.
// Its zero value is ready to use.
type Output struct {
	mu   sync.Mutex
	all  bytes.Buffer // guarded by mu
	file *os.File
}

// Write takes what the job prints.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	o.all.Write(p)
	o.mu.Unlock()
	if o.file == nil {
		return len(p), nil
	}
	return o.file.Write(p)
}

// String returns all that was printed so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// Tail returns the last n lines.
func (o *Output) Tail(n int) string {
	lines := strings.Split(strings.TrimSpace(o.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// LastNumber returns the number after the last occurrence of a text, -1 if there
// is none.
func (o *Output) LastNumber(text string) int {
	all := o.String()
	i := strings.LastIndex(all, text)
	if i < 0 {
		return -1
	}
	n := -1
	_, _ = fmt.Sscanf(all[i+len(text):], "%d", &n) // an incomplete line has none yet
	return n
}
