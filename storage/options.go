package storage

import (
	"cmp"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/internal/redundancy"
)

// Names of the levels, nearest first.
const (
	LevelLocal   = format.LevelLocal   // a directory of the node: survives the program
	LevelPartner = format.LevelPartner // copies on other nodes: survives Copies nodes at once
	LevelParity  = format.LevelParity  // Reed-Solomon over groups of nodes: survives Parity nodes of a group
	LevelGlobal  = format.LevelGlobal  // a directory of the parallel file system: survives the nodes
)

// LevelNames returns the level names of all levels, nearest first.
func LevelNames() []string { return []string{LevelLocal, LevelPartner, LevelParity, LevelGlobal} }

// Traits set levels apart: operations depend on them, not on the level's name.
//
//	Shared          bool // all ranks see one place, which has the shards of all
//	Single          bool // a file has one writer
//	WrittenByOthers bool // its files are written by other ranks than its owner
//	Rows            bool // its files are parity rows; its manifests describe the shards that these were computed from
//	Data            bool // its shards are what parity rows are computed from
//	Copies          bool // a shard lies there as often as its entry in the manifest has holders
//
//	func SurvivesNode() bool
type Traits = level.Traits

// TraitsOf returns the traits of the level with a name; none of an unknown one.
func TraitsOf(name string) Traits { return level.TraitsOf(name) }

// Options name the owner and the place of the checkpoints that a Store keeps.
type Options struct {
	Job  string // name of the job; restarts use the same. Required
	Rank int    // this rank
	Size int    // number of ranks. Required
	Node string // name of the node this rank runs on; may be empty

	// Run names this run of the job, the same on all ranks and in no other run. A
	// directory then serves one run at a time. Empty: it is not guarded.
	Run string

	// Identity is the identity of the run which this start begins or continues; see FindOwners and Decide. Epochs of
	// other runs do not exist for the Store. Zero: the Store does not ask whose they are.
	Identity Identity
	// StartOver takes over the directories of any run for this one.
	StartOver bool

	// Levels, nearest first. At least one.
	Levels []LevelConfig

	// Degrade opens the store even if some levels cannot be written to: they are
	// full, read-only, missing or damaged. Unwritable names them. The ranks then agree on
	// the levels that they use.
	Degrade bool

	// Collective: the ranks open their stores together, rank 0 first, and vote on each epoch. Rank 0 then
	// looks after the directories of the level global, which all ranks share: it removes leftovers of dead ranks,
	// prunes, and reports the contents (see Overview). The others get that as Overview, write their shards and do not
	// look. So the requests of an epoch or a restart to the file system do not grow with the square of the number of
	// ranks. A rank that gets nothing of a level looks for itself.
	Collective bool
	Overview   *Overview

	// Elastic also opens directories whose epochs were written by another number of ranks; Candidates has the number of
	// each. The first epoch that is committed at a level makes its directory one of this number.
	Elastic bool

	// Nodes names the node of every rank, and Transport connects their stores.
	// Levels partner and parity need both.
	Nodes     []string
	Transport Transport

	// Memory is this rank's shard of an epoch that an earlier start has left in memory; Fetch reads it first. nil:
	// there is none.
	Memory *MemoryShard

	// Mapped and Unmapped, if set, are called with the memory that sources are read into:
	// Mapped once, when it has been mapped, Unmapped once, before it goes. It is
	// page-aligned and reused, so page-locking it for a device may pay.
	Mapped   func(b []byte)
	Unmapped func(b []byte) error

	Logger *slog.Logger // nil: silent. It should say the rank: Store does not

	fs vfs.FS // by vfs.With, or the operating system's
}

// LevelConfig says where a level is and how it is used.
type LevelConfig struct {
	Name string // LevelLocal, LevelPartner, LevelParity or LevelGlobal
	// Dir is the directory of the level's files; at partner and parity this rank keeps them for others. It must exist,
	// unless Create is set. Ranks may share it or have one each; a job has it for itself. At global it may be the URL
	// of an object store, s3://bucket/prefix; the program imports package storage/s3 for it.
	Dir    string
	Create bool // make Dir if only its last element is missing
	Unused bool // epochs of this run do not go there; it is read and pruned

	// Keep is the number of newest committed epochs that Prune leaves; at least 1. 0 means 2.
	Keep int
	// KeepEvery makes Prune leave every epoch whose number it divides; 0: none.
	KeepEvery int

	// Full writes every chunk again instead of referring to the same bytes in
	// the last committed epoch. It costs the bytes of all sections in each epoch.
	Full bool
	// FullEvery does so in the epochs whose number it divides; 0: in none. It bounds how long a chunk is referred to;
	// without it the bound is that a shard refers to 8 earlier epochs at most. The answers of a Comparer are then
	// checked.
	FullEvery int
	// Compress stores chunks by LZ4, byte-shuffled if that is smaller, while it saves time by samples and the measured
	// rate of the target: often on a slow shared file system, rarely on a local disk. CompressAlways does so to save
	// space.
	Compress, CompressAlways bool
	// BytesPerSec limits the rate of Flush to this level, for this rank; the ranks
	// of a NodePack keep it together. 0: no limit.
	BytesPerSec int64

	// PackBytes is the length in bytes of sections at which a pack at global is full. Shards of further ranks go to a
	// new one; one shard is never divided. 0 means 8 GiB.
	PackBytes int64

	// Copies is the number of other nodes that keep each shard at partner. 0 means 1.
	Copies int
	// Data and Parity shape the groups of the level parity: at least Data+Parity nodes in a group, of which any Parity
	// may be lost. A job of fewer nodes is one group, and needs Parity+1 nodes. The level needs the level local, whose
	// shards are the data, and a program that imports package storage/parity. 0 and 0 mean 4 and 2.
	Data, Parity int
}

const (
	defaultKeep      = 2
	defaultPackBytes = 8 << 30

	// flushCores is how many goroutines read, check and encode while shards are copied between levels; the program has
	// the other cores.
	flushCores = 2
)

func badOption(field, format string, args ...any) error {
	return &OptionError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// validate fills in defaults and names the first bad field.
func (o *Options) validate() error {
	switch {
	case o.Job == "":
		return badOption("Job", "is empty: name the job; a restart finds its checkpoints by that name")
	case len(o.Job) > 255 || len(o.Node) > 255 || len(o.Run) > 255:
		return badOption("Job, Node, Run", "a name is longer than 255 bytes")
	case o.Size < 1:
		return badOption("Size", "is %d, want at least 1", o.Size)
	case o.Rank < 0 || o.Rank >= o.Size:
		return badOption("Rank", "is %d, want 0 to %d", o.Rank, o.Size-1)
	case len(o.Levels) == 0:
		return badOption("Levels", "is empty: give at least one level a directory")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Levels = append([]LevelConfig(nil), o.Levels...)
	dirs := map[string]string{}
	for i := range o.Levels {
		if err := o.Levels[i].validate(fmt.Sprintf("Levels[%d]", i), dirs); err != nil {
			return err
		}
	}
	if o.Node != "" && len(o.Nodes) == o.Size && o.Nodes[o.Rank] != o.Node {
		return badOption("Nodes", "has node %q for this rank, Node is %q", o.Nodes[o.Rank], o.Node)
	}
	var local, parity *LevelConfig
	for i := range o.Levels {
		l := &o.Levels[i]
		t := TraitsOf(l.Name)
		if t.Data {
			local = l
		}
		if t.Rows {
			parity = l
		}
		switch {
		case !t.WrittenByOthers:
		case o.Transport == nil:
			return badOption("Transport", "is nil, level %s needs it", l.Name)
		case len(o.Nodes) != o.Size:
			return badOption("Nodes", "has %d entries for %d ranks, level %s needs them", len(o.Nodes), o.Size, l.Name)
		}
	}
	if parity == nil {
		return nil
	}
	if err := CheckParity(); err != nil {
		return fmt.Errorf("level %s: %w", parity.Name, err)
	}
	if local == nil {
		return badOption("Levels", "parity needs level local, whose shards it protects")
	}
	// The rows are of use only together with the shards.
	local.Keep = max(local.Keep, parity.Keep)
	parity.Keep, parity.KeepEvery = local.Keep, local.KeepEvery
	return nil
}

// validate checks one level; dirs maps the directories so far to their levels.
func (l *LevelConfig) validate(field string, dirs map[string]string) error {
	bad := func(sub, format string, args ...any) error {
		return badOption(field+"."+sub, format, args...)
	}
	if !slices.Contains(LevelNames(), l.Name) {
		return bad("Name", "%q is not a level", l.Name)
	}
	if l.Dir == "" {
		return bad("Dir", "is empty")
	}
	if err := level.CheckPath(l.Dir); err != nil {
		return bad("Dir", "%v", err)
	}
	if !level.IsStore(l.Dir) {
		l.Dir = filepath.Clean(l.Dir)
	} else if l.Name != LevelGlobal {
		return bad("Dir", "is an object store, %s; only the level %s can be in one", l.Dir, LevelGlobal)
	}
	for dir, name := range dirs {
		if name == l.Name {
			return bad("Name", "%q is listed twice", l.Name)
		}
		if dir == l.Dir {
			return bad("Dir", "%s is also the directory of level %s", dir, name)
		}
	}
	dirs[l.Dir] = l.Name
	for _, v := range []struct {
		name string
		n    int64
	}{{"Keep", int64(l.Keep)}, {"FullEvery", int64(l.FullEvery)}, {"KeepEvery", int64(l.KeepEvery)},
		{"BytesPerSec", l.BytesPerSec}, {"PackBytes", l.PackBytes}, {"Copies", int64(l.Copies)}} {
		if v.n < 0 {
			return bad(v.name, "is %d", v.n)
		}
	}
	if l.Data < 0 || l.Parity < 0 || (l.Data == 0) != (l.Parity == 0) || l.Data+l.Parity > format.MaxGroup {
		return bad("Data, Parity", "are %d and %d: both at least 1, together at most 256", l.Data, l.Parity)
	}
	l.Keep = cmp.Or(l.Keep, defaultKeep)
	l.PackBytes = cmp.Or(l.PackBytes, defaultPackBytes)
	l.Copies = cmp.Or(l.Copies, 1)
	if l.Data == 0 {
		l.Data, l.Parity = 4, 2
	}
	return nil
}

// CheckParity returns ErrNoParity in a program that cannot compute the parity of LevelParity, nor a shard from it. It
// is local.
func CheckParity() error { return redundancy.Ready() }

// Fits returns an error if the ranks on the given nodes, by rank, cannot carry the level's redundancy: no epoch would
// ever be committed there. It is local, and reads no file.
func (c *LevelConfig) Fits(nodes []string) error {
	switch c.Name {
	case LevelPartner:
		_, err := redundancy.Partners(nodes, 0, c.Copies)
		return err
	case LevelParity:
		_, err := redundancy.ParityGroups(nodes, c.Data, c.Parity)
		return err
	}
	return nil
}
