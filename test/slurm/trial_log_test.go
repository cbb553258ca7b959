package slurm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
)

// tail follows the event log of a rank while it is written, in the first run after
// another. A start that does not come to Open makes no run.
type tail struct {
	dir   string // of the runs
	rank  int
	after int // the number of the run before
	run   int // 0: it has not begun
	off   int64
	all   []events.Event
}

// newest returns the number of the newest run of which the rank has a log, 0 without any.
func (l *tail) newest() (run int) {
	for _, f := range l.files("run-*") {
		n, _ := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(f)), "run-")) // digits by the pattern
		run = max(run, n)
	}
	return run
}

// files lists the first parts of the logs in runs that have the rank: of its own, or of its node.
func (l *tail) files(runs string) []string {
	own, _ := filepath.Glob(fmt.Sprintf("%s/%s/rank-%06d.0.jsonl", l.dir, runs, l.rank)) // the pattern is right
	nodes, _ := filepath.Glob(fmt.Sprintf("%s/%s/node-*.0.jsonl", l.dir, runs))
	return append(own, slices.DeleteFunc(nodes, func(f string) bool {
		b, _ := os.ReadFile(f) // what cannot be read has nothing yet
		return !bytes.Contains(b, fmt.Appendf(nil, `"rank":%d,"begin":true`, l.rank))
	})...)
}

// more returns the events that have come since the last time.
func (l *tail) more() []events.Event {
	if l.run == 0 {
		if l.run = l.newest(); l.run <= l.after {
			l.run = 0
			return nil
		}
	}
	files := l.files(fmt.Sprintf("run-%06d", l.run))
	if len(files) == 0 {
		return nil // not yet
	}
	f, err := os.Open(files[len(files)-1])
	if err != nil {
		return nil // not yet
	}
	defer f.Close()
	var b bytes.Buffer
	if _, err := f.Seek(l.off, 0); err == nil {
		_, _ = b.ReadFrom(f) // what was read counts
	}
	whole := b.Bytes()[:bytes.LastIndexByte(b.Bytes(), '\n')+1]
	l.off += int64(len(whole))
	from := len(l.all)
	for line := range bytes.Lines(whole) {
		var e events.Event
		if json.Unmarshal(line, &e) == nil && e.Rank == l.rank {
			l.all = append(l.all, e)
		}
	}
	return l.all[from:]
}

// doing returns the rank's activity at a time: the one that had begun last and not
// ended.
func (l *tail) doing(at time.Time) string {
	l.more()
	open := []string{"compute"}
	end := func(names ...string) {
		open = slices.DeleteFunc(open, func(s string) bool { return slices.Contains(names, s) })
	}
	for _, e := range l.all {
		if e.Wall > at.UnixNano() {
			break
		}
		switch {
		case e.Name == events.Arm:
			open = append(open, "agree")
		case e.Name == events.Drain && e.Begin, e.Name == events.GiveUp:
			end("agree")
		case e.Name == events.Vote && e.Begin:
			end("manifest")
			open = append(open, "vote")
		case e.Name == events.Vote:
			end("vote")
			if e.What == "put" {
				open = append(open, "manifest")
			}
		case e.Begin && aims[e.Name] != nil:
			open = append(open, e.Name)
		case aims[e.Name] != nil:
			end(e.Name)
		}
	}
	return strings.Join(open[min(1, len(open)-1):], "+")
}

// logOf follows the events of a rank in the run after the one that was struck last.
func (j *job) logOf(tr *trial, rank int, nodes []string) *tail {
	dir := j.here + "/ckpt"
	if tr.Local {
		dir = filepath.Join(j.NodeLocal(nodes[rank]), filepath.Base(j.here))
	}
	return &tail{dir: filepath.Join(dir, events.DirName), rank: rank, after: j.struck}
}
