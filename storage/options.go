package storage

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
)

// Names of the levels, nearest first.
const (
	LevelLocal  = "local"  // a directory of the node: survives the program
	LevelGlobal = "global" // a directory of the parallel file system: survives the nodes
)

// Options says whose checkpoints a Store keeps and where.
type Options struct {
	Job  string // name of the job; restarts use the same. Required
	Rank int    // this rank
	Size int    // number of ranks. Required
	Node string // name of the node this rank runs on; may be empty

	// Levels, nearest first. At least one.
	Levels []LevelConfig

	Logger *slog.Logger // nil: silent
	FS     vfs.FS       // nil: the operating system's

	pool *buffers // tests share one: mapping memory is slow
}

// LevelConfig says where a level is and how it is used.
type LevelConfig struct {
	Name string // LevelLocal or LevelGlobal
	// Dir must exist, unless Create is set. Ranks may share it or have one
	// each; a job has it for itself.
	Dir    string
	Create bool // make Dir if only its last element is missing

	// Keep is how many of the newest committed epochs Prune leaves; at least 1.
	// 0 means 2.
	Keep int
	// KeepEvery makes Prune leave every epoch whose number it divides; 0: none.
	KeepEvery int

	// Full writes every chunk anew instead of referring to the same bytes in
	// the last committed epoch.
	Full bool
	// Compress stores chunks by LZ4, byte-shuffled if that is smaller.
	Compress bool
	// BytesPerSec limits the rate of Flush to this level, for this rank. 0: no
	// limit.
	BytesPerSec int64
}

const defaultKeep = 2

// validate fills in defaults and names the first bad field.
func (o *Options) validate() error {
	bad := func(field, format string, args ...any) error {
		return &OptionError{Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case o.Job == "":
		return bad("Job", "is empty: name the job, restarts find its checkpoints by it")
	case len(o.Job) > 255 || len(o.Node) > 255:
		return bad("Job, Node", "a name is longer than 255 bytes")
	case o.Size < 1:
		return bad("Size", "is %d, there is at least one rank", o.Size)
	case o.Rank < 0 || o.Rank >= o.Size:
		return bad("Rank", "is %d, ranks go from 0 to %d", o.Rank, o.Size-1)
	case len(o.Levels) == 0:
		return bad("Levels", "is empty: give at least one level a directory")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	o.Levels = append([]LevelConfig(nil), o.Levels...)
	dirs := map[string]string{}
	for i := range o.Levels {
		if err := o.Levels[i].validate(fmt.Sprintf("Levels[%d]", i), dirs); err != nil {
			return err
		}
	}
	return nil
}

// validate checks one level; dirs maps the directories so far to their levels.
func (l *LevelConfig) validate(field string, dirs map[string]string) error {
	bad := func(sub, format string, args ...any) error {
		return &OptionError{Field: field + "." + sub, Reason: fmt.Sprintf(format, args...)}
	}
	switch l.Name {
	case LevelLocal, LevelGlobal:
	default:
		return bad("Name", "%q is not a level", l.Name)
	}
	if l.Dir == "" {
		return bad("Dir", "is empty")
	}
	l.Dir = filepath.Clean(l.Dir)
	for dir, name := range dirs {
		if name == l.Name {
			return bad("Name", "%q is there twice", l.Name)
		}
		if dir == l.Dir {
			return bad("Dir", "%s is also the directory of level %s", dir, name)
		}
	}
	dirs[l.Dir] = l.Name
	switch {
	case l.Keep < 0:
		return bad("Keep", "is %d", l.Keep)
	case l.KeepEvery < 0:
		return bad("KeepEvery", "is %d", l.KeepEvery)
	case l.BytesPerSec < 0:
		return bad("BytesPerSec", "is %d", l.BytesPerSec)
	case l.Keep == 0:
		l.Keep = defaultKeep
	}
	return nil
}
