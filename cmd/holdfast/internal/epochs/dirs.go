package epochs

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// openView opens checkpoint directories and warns of those whose job is known
// from their manifests alone.
func openView(ctx context.Context, cmd *cobra.Command, dirs []string) (*checkpoints.View, error) {
	v, err := checkpoints.Open(ctx, dirs...)
	return v, warnOfMarkers(cmd, v, err)
}

// inspect is openView for directories of any state, and lists their epochs.
func inspect(cmd *cobra.Command, dirs []string) (*checkpoints.View, []checkpoints.EpochInfo, error) {
	v, err := checkpoints.Inspect(cmd.Context(), dirs...)
	if err := warnOfMarkers(cmd, v, err); err != nil {
		return nil, nil, err
	}
	list, err := v.Epochs(cmd.Context())
	return v, list, err
}

// inspected has the epochs of verify and repair.
type inspected struct {
	view     *checkpoints.View
	list     []checkpoints.EpochInfo
	expected []storage.Epoch // newest first, or the one that is meant
	bytes    int64           // of their shards in the directories
}

// inspectAll opens directories of any state, for one epoch or, where epoch is empty, for all.
func inspectAll(ctx context.Context, dirs []string, epoch string) (*inspected, error) {
	v, err := checkpoints.Inspect(ctx, dirs...)
	if err != nil {
		return nil, err
	}
	s := &inspected{view: v}
	if s.list, err = v.Epochs(ctx); err != nil {
		return nil, err
	}
	if s.expected, err = v.Expected(); err != nil {
		return nil, err
	}
	switch n, nerr := strconv.ParseUint(epoch, 10, 64); {
	case epoch == "":
	case epoch == "newest" && len(s.expected) > 0:
		s.expected = s.expected[:1]
	case nerr == nil && slices.Contains(s.expected, storage.Epoch(n)): // it may be gone
		s.expected = []storage.Epoch{storage.Epoch(n)}
	default:
		e, err := pickEpoch(epoch, s.list)
		if err != nil {
			return nil, err
		}
		s.expected = []storage.Epoch{e}
	}
	for _, info := range s.list {
		if slices.Contains(s.expected, info.Epoch) {
			for _, r := range info.Here {
				if r < len(info.Shards) {
					s.bytes += info.Shards[r].ShardBytes
				}
			}
		}
	}
	return s, nil
}

func warnOfMarkers(cmd *cobra.Command, v *checkpoints.View, err error) error {
	if err != nil {
		return err
	}
	for _, d := range v.Dirs() {
		if d.Fault != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "holdfast: warning:", d.Fault)
		}
	}
	return nil
}

// namedPrefix begins the directories of checkpoints with a name, below those of the job.
const namedPrefix = "name."

// ofNames calls do with the directories of each name that lies below some, in the order of the names. An object store
// is not searched.
func ofNames(dirs []string, do func(name string, dirs []string) error) error {
	at := map[string][]string{}
	for _, d := range dirs {
		found, err := filepath.Glob(filepath.Join(escaped.Replace(d), namedPrefix+"*", "holdfast.job"))
		if err != nil {
			return err
		}
		for _, f := range found {
			dir := filepath.Dir(f)
			name := strings.TrimPrefix(filepath.Base(dir), namedPrefix)
			at[name] = append(at[name], dir)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(at)) {
		if err := do(name, at[name]); err != nil {
			return err
		}
	}
	return nil
}

// escaped makes a path a pattern that matches it alone.
var escaped = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

// ioCounts counts the bytes through a file system.
type ioCounts struct{ read, written atomic.Int64 }

// countingFS is a file system, counted.
type countingFS struct {
	vfs.FS
	t *ioCounts
}

// over returns the context of a tool whose files are counted.
func (t *ioCounts) over(ctx context.Context) context.Context {
	return vfs.With(ctx, countingFS{vfs.OrOS(vfs.From(ctx)), t})
}

func (c countingFS) Open(name string) (vfs.File, error) { return c.file(c.FS.Open(name)) }

func (c countingFS) Create(name string, direct bool) (vfs.File, error) {
	return c.file(c.FS.Create(name, direct))
}

func (c countingFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return countingFile{f, c.t}, nil
}

// Moved counts the bytes to and from an object store.
func (c countingFS) Moved(read, written int64) {
	c.t.read.Add(read)
	c.t.written.Add(written)
}

type countingFile struct {
	vfs.File
	t *ioCounts
}

func (f countingFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.t.read.Add(int64(n))
	return n, err
}

func (f countingFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	f.t.written.Add(int64(n))
	return n, err
}

func idText(id [16]byte) string { return hex.EncodeToString(id[:]) }

// pickEpoch parses an epoch argument: a number, or "newest" for the newest
// committed one.
func pickEpoch(arg string, list []checkpoints.EpochInfo) (storage.Epoch, error) {
	if arg == "newest" {
		i := slices.IndexFunc(list, func(e checkpoints.EpochInfo) bool { return e.Committed })
		if i < 0 {
			return 0, fmt.Errorf("no epoch is committed")
		}
		return list[i].Epoch, nil
	}
	n, err := strconv.ParseUint(arg, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("epoch %q is neither a number nor \"newest\"", arg)
	}
	e := storage.Epoch(n)
	if !slices.ContainsFunc(list, func(i checkpoints.EpochInfo) bool { return i.Epoch == e }) {
		return 0, fmt.Errorf("there is no epoch %d in these directories", e)
	}
	return e, nil
}
