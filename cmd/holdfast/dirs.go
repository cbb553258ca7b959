package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
	"github.com/spf13/cobra"
)

// osFS is the operating system's file system as the tool uses it: with what the
// user trusts.
func osFS() vfs.OS {
	allow, _ := strconv.ParseBool(value(coordinated.ReadConfig(""), "allow_foreign"))
	return vfs.OS{AllowForeign: allow}
}

// dirsOfJob lists the directories that the configuration in force gives a job, that of all nodes first. Who looks at
// checkpoints where the job was started need not name them. That of a node is left out where no job has used it.
func dirsOfJob() (dirs []string) {
	o := coordinated.FromEnv()
	if o.Global != "" {
		dirs = append(dirs, o.Global)
	}
	if o.Local == "" {
		return dirs
	}
	if _, err := os.Stat(filepath.Join(o.Local, "holdfast.job")); err == nil || len(dirs) == 0 {
		dirs = append(dirs, o.Local)
	}
	return dirs
}

// orDirsOfJob is the directories that a command is given, otherwise those of the job.
func orDirsOfJob(cmd *cobra.Command, dirs []string) ([]string, error) {
	if len(dirs) == 0 {
		dirs = dirsOfJob()
	}
	if len(dirs) > 0 {
		return dirs, nil
	}
	if o := coordinated.FromEnv(); o.Off() != "" {
		return nil, fmt.Errorf("%s: there are no checkpoints to look at, since programs run without them here: %s; "+
			"give DIR for those of another run", cmd.CommandPath(), o.Off())
	}
	return nil, fmt.Errorf("%s needs a directory: give DIR, or set HOLDFAST_GLOBAL or HOLDFAST_LOCAL; usage: %s",
		cmd.CommandPath(), cmd.UseLine())
}

// orDirOfJob is orDirsOfJob for a command that takes one.
func orDirOfJob(cmd *cobra.Command, dirs []string) (string, error) {
	dirs, err := orDirsOfJob(cmd, dirs)
	if err != nil {
		return "", err
	}
	return dirs[0], nil
}

// openView opens checkpoint directories and warns of those whose job is known
// from their manifests alone.
func openView(cmd *cobra.Command, ctx context.Context, dirs []string) (*checkpoints.View, error) {
	v, err := checkpoints.Open(ctx, dirs...)
	return v, warnOfMarkers(cmd, v, err)
}

// inspect is openView for directories of any state, and lists their epochs.
func inspect(cmd *cobra.Command, dirs []string) ([]checkpoints.EpochInfo, error) {
	_, list, err := inspectView(cmd, dirs)
	return list, err
}

func inspectView(cmd *cobra.Command, dirs []string) (*checkpoints.View, []checkpoints.EpochInfo, error) {
	v, err := checkpoints.Inspect(vfs.With(cmd.Context(), osFS()), dirs...)
	if err := warnOfMarkers(cmd, v, err); err != nil {
		return nil, nil, err
	}
	list, err := v.Epochs(cmd.Context())
	return v, list, err
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

// ioCounts counts what goes through a file system.
type ioCounts struct{ read, written, removed atomic.Int64 }

// countingFS is the operating system's file system, counted.
type countingFS struct {
	vfs.FS
	t *ioCounts
}

// over is the context of a tool whose files are counted.
func (t *ioCounts) over(ctx context.Context) context.Context {
	return vfs.With(ctx, countingFS{osFS(), t})
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

// Moved counts what went to and from an object store.
func (c countingFS) Moved(read, written int64) {
	c.t.read.Add(read)
	c.t.written.Add(written)
}

func (c countingFS) Remove(name string) error {
	err := c.FS.Remove(name)
	if err == nil {
		c.t.removed.Add(1)
	}
	return err
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
