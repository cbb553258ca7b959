package events

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// RankLog has one rank's log of one run, as far as it could be read.
type RankLog struct {
	Header    Header
	Rank      int
	Events    []Event // in the order in which they were logged; the header's line is the first
	Bad       int     // lines that could not be used
	Torn      bool    // the last line is not whole: the process died while it wrote it
	Lost      uint64  // lines that the writer had no room for
	Truncated bool    // older parts were deleted: the log was longer than a log may be
	Paths     []string
}

// ErrNoHeader marks a file that does not begin as an event log does.
var ErrNoHeader = errors.New("not an event log of this version")

// maxEvents bounds the lines of one file: a part has far fewer.
const maxEvents = 1 << 22

// decode reads one file, which is of one rank or, in order of their headers, of several. An
// error is r's own, or matches ErrNoHeader.
func decode(r io.Reader) (logs []*RankLog, err error) {
	in := bufio.NewReaderSize(r, maxLine)
	of := map[int]*RankLog{}
	for n := 0; n < maxEvents; n++ {
		line, whole, err := readLine(in)
		if err != nil && err != io.EOF {
			return logs, err
		}
		if err == io.EOF && len(line) == 0 && whole {
			break
		}
		if err == io.EOF {
			if len(logs) > 0 {
				logs[0].Torn = true // without a line feed it is incomplete
			}
			break
		}
		e, ok := Event{}, false
		if whole {
			e, ok = parse(line)
		}
		if ok && e.Header != nil && e.Name == Open && e.Header.Version == Version && of[e.Rank] == nil {
			of[e.Rank] = &RankLog{Header: *e.Header, Rank: e.Rank}
			logs = append(logs, of[e.Rank])
		} else if len(logs) == 0 {
			return nil, ErrNoHeader
		} else if e.Header != nil {
			ok = false
		}
		switch out := of[e.Rank]; {
		case !ok || out == nil:
			logs[0].Bad++
		case known[e.Name]: // a later writer may know more
			out.Lost += e.Lost
			out.Events = append(out.Events, e)
		}
	}
	if len(logs) == 0 {
		return nil, fmt.Errorf("%w: it has no complete line; the node may have died early", ErrNoHeader)
	}
	return logs, nil
}

// readLine returns the next line without its line feed. For a line that is too long it returns nothing and false; at
// the end of the file err is io.EOF and line has the bytes behind the last line feed.
func readLine(in *bufio.Reader) (line []byte, whole bool, err error) {
	line, err = in.ReadSlice('\n')
	if err == nil {
		return bytes.TrimSuffix(line, []byte("\n")), true, nil
	}
	if err != bufio.ErrBufferFull {
		return line, true, err
	}
	for err == bufio.ErrBufferFull {
		_, err = in.ReadSlice('\n')
	}
	return nil, false, err
}

// ReadDir reads all logs of a directory of runs, or of a checkpoint directory that has one, in order of run and rank.
// Files that are no logs are returned as problems. Only the newest most runs are read; 0 means all. Without logs the
// error is a *NoLogError. Cost: it holds all events of those runs in memory.
func ReadDir(ctx context.Context, dir string, most int) (logs []RankLog, problems []error, err error) {
	fsys := vfs.OrOS(vfs.From(ctx))
	root, runs, err := findRuns(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	if most > 0 {
		runs = runs[max(0, len(runs)-most):]
	}
	for _, run := range runs {
		d := runDir(root, run)
		list, err := fsys.ReadDir(d)
		if err != nil {
			return nil, nil, fmt.Errorf("event log: %w", err)
		}
		more, errs := readRun(fsys, d, list)
		logs, problems = append(logs, more...), append(problems, errs...)
	}
	return logs, problems, nil
}

// NoLogError reports that a directory has no event logs.
type NoLogError struct{ Dir string }

// Error names the directory, and the directories that have event logs.
func (e *NoLogError) Error() string {
	return fmt.Sprintf("%s has no event logs: give the directory of a job's checkpoints (its HOLDFAST_GLOBAL or, if "+
		"it has none, the HOLDFAST_LOCAL of every node), or the one that HOLDFAST_EVENTS named", e.Dir)
}

func findRuns(ctx context.Context, dir string) (root string, runs []int, err error) {
	for _, root := range []string{filepath.Join(dir, DirName), dir} {
		runs, err := Runs(ctx, root)
		if err != nil || len(runs) > 0 {
			return root, runs, err
		}
	}
	return dir, nil, &NoLogError{dir}
}

// DirName is the directory of the runs in a checkpoint directory.
const DirName = "events"

// source is whose files there are in a run: of the ranks of a node, or of one rank.
type source struct {
	node bool
	rank int
}

// readRun reads the logs of a run, in order of rank. Those of nodes come first: a rank goes on
// in files of its own when the first of its node is gone.
func readRun(fsys vfs.FS, dir string, list []vfs.Entry) (logs []RankLog, problems []error) {
	parts := map[source][]int{}
	for _, f := range list {
		if node, rank, part, ok := parsePart(f.Name); ok {
			parts[source{node, rank}] = append(parts[source{node, rank}], part)
		}
	}
	all := map[int]*RankLog{}
	for _, s := range slices.SortedFunc(maps.Keys(parts), func(a, b source) int {
		if a.node != b.node {
			return map[bool]int{true: -1, false: 1}[a.node]
		}
		return cmp.Compare(a.rank, b.rank)
	}) {
		more, errs := readParts(fsys, dir, s, parts[s])
		problems = append(problems, errs...)
		for _, l := range more {
			if all[l.Rank] == nil {
				all[l.Rank] = l
			} else {
				all[l.Rank].join(l)
			}
		}
	}
	for _, r := range slices.Sorted(maps.Keys(all)) {
		logs = append(logs, *all[r])
	}
	return logs, problems
}

// join adds a later log of a rank, whose first lines may be the last of l.
func (l *RankLog) join(later *RankLog) {
	type key struct {
		mono  int64
		name  string
		epoch uint64
		begin bool
	}
	of := func(e *Event) key { return key{e.Mono, e.Name, e.Epoch, e.Begin} }
	there := map[key]bool{}
	for i := range l.Events {
		there[of(&l.Events[i])] = true
	}
	for i := range later.Events {
		if !there[of(&later.Events[i])] {
			l.Events = append(l.Events, later.Events[i])
		}
	}
	l.Bad, l.Lost, l.Torn = l.Bad+later.Bad, l.Lost+later.Lost, later.Torn
	l.Truncated = l.Truncated || later.Truncated
	l.Paths = append(l.Paths, later.Paths...)
}

// readParts joins the parts of the logs that have the same files.
func readParts(fsys vfs.FS, dir string, s source, parts []int) (logs []*RankLog, problems []error) {
	slices.Sort(parts)
	name := partName
	if s.node {
		name = nodeName
	}
	for _, p := range parts {
		path := filepath.Join(dir, name(s.rank, p))
		more, err := readFile(fsys, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a running job has removed it meanwhile
		}
		if err == nil && (more[0].Rank != s.rank || more[0].Header.Part != p || len(more) > 1 && !s.node) {
			err = fmt.Errorf("its header says part %d of rank %d", more[0].Header.Part, more[0].Rank)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("event log %s: %w", path, err))
			continue
		}
		for _, l := range more {
			l.Paths = []string{path}
			k := slices.IndexFunc(logs, func(o *RankLog) bool { return o.Rank == l.Rank })
			if k < 0 {
				l.Truncated = parts[0] > 0 && !l.Events[0].Begin
				logs = append(logs, l)
				continue
			}
			logs[k].join(l)
		}
	}
	return logs, problems
}

func readFile(fsys vfs.FS, name string) ([]*RankLog, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	return decode(io.NewSectionReader(f, 0, n))
}
