package events

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// RankLog is what one rank logged in one run, as far as it could be read.
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

// maxEvents bounds the events of one file: a part has far fewer.
const maxEvents = 1 << 18

// decode reads one file. An error is r's own, or matches ErrNoHeader.
func decode(r io.Reader) (RankLog, error) {
	in := bufio.NewReaderSize(r, maxLine)
	var out RankLog
	for first := true; len(out.Events) < maxEvents; first = false {
		line, whole, err := readLine(in)
		if err != nil && err != io.EOF {
			return out, err
		}
		if err == io.EOF && len(line) == 0 && whole {
			break
		}
		if err == io.EOF {
			out.Torn = true // without a line feed it is not whole, whatever it says
			break
		}
		e, ok := Event{}, false
		if whole {
			e, ok = parse(line)
		}
		if first {
			if !ok || e.Header == nil || e.Name != Open || e.Header.Version != Version {
				return out, ErrNoHeader
			}
			out.Header, out.Rank = *e.Header, e.Rank
		}
		switch {
		case !ok || e.Rank != out.Rank || (!first && e.Header != nil):
			out.Bad++
		case known[e.Name]: // a later writer may know more
			out.Lost += e.Lost
			out.Events = append(out.Events, e)
		}
	}
	if len(out.Events) == 0 {
		return out, fmt.Errorf("%w: it has no complete line; the node may have died early", ErrNoHeader)
	}
	return out, nil
}

// readLine returns the next line without its line feed. Of one that is too long
// it returns nothing and false; at the end of the file err is io.EOF and line is
// what stands behind the last line feed.
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

// ReadDir reads all logs of a directory of runs, or of a checkpoint directory
// that has one, in order of run and rank. Files that are no logs are returned
// as problems. Only the newest most runs are read; 0 means all.
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
		parts := map[int][]int{} // by rank
		for _, f := range list {
			if rank, part, ok := parsePart(f.Name); ok {
				parts[rank] = append(parts[rank], part)
			}
		}
		ranks := make([]int, 0, len(parts))
		for r := range parts {
			ranks = append(ranks, r)
		}
		slices.Sort(ranks)
		for _, r := range ranks {
			l, errs := readParts(fsys, d, r, parts[r])
			problems = append(problems, errs...)
			if len(l.Events) > 0 {
				logs = append(logs, l)
			}
		}
	}
	return logs, problems, nil
}

// NoLogError says that a directory has no event logs.
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

// readParts joins the parts of one log.
func readParts(fsys vfs.FS, dir string, rank int, parts []int) (out RankLog, problems []error) {
	slices.Sort(parts)
	out.Truncated = parts[0] > 0
	for _, p := range parts {
		name := filepath.Join(dir, partName(rank, p))
		l, err := readFile(fsys, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a running job has removed it meanwhile
		}
		if err == nil && (l.Rank != rank || l.Header.Part != p) {
			err = fmt.Errorf("its header says part %d of rank %d", l.Header.Part, l.Rank)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("event log %s: %w", name, err))
			continue
		}
		if len(out.Events) == 0 {
			out.Header, out.Rank = l.Header, l.Rank
		}
		out.Events = append(out.Events, l.Events...)
		out.Bad += l.Bad
		out.Lost += l.Lost
		out.Torn = l.Torn
		out.Paths = append(out.Paths, name)
	}
	return out, problems
}

func readFile(fsys vfs.FS, name string) (RankLog, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return RankLog{}, err
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return RankLog{}, err
	}
	return decode(io.NewSectionReader(f, 0, n))
}
