package coordinated

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/capture"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/persist"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// redundant is the redundancy that Options.Redundancy asks for.
type redundant struct {
	level        string // empty = none
	copies       int
	data, parity int
}

var redundancyForm = regexp.MustCompile(`^(?:partner(?::(\d+))?|parity:(\d+)\+(\d+))$`)

func (o *Options) redundancy() (redundant, error) {
	if o.Redundancy == "" {
		return redundant{}, nil
	}
	m := redundancyForm.FindStringSubmatch(o.Redundancy)
	bad := func(why string) (redundant, error) {
		return redundant{},
			&OptionError{Name: "Redundancy",
				Why: fmt.Sprintf("%q %s; use partner:K or parity:D+P, such as partner:1 or parity:4+2", o.Redundancy,
					why)}
	}
	if m == nil {
		return bad("is not understood")
	}
	if o.Local == "" {
		return bad("needs a local directory: set HOLDFAST_LOCAL")
	}
	if m[2] == "" {
		copies := 1
		if m[1] != "" {
			copies, _ = strconv.Atoi(m[1]) // digits by the pattern; 0 when there are too many
		}
		if copies < 1 {
			return bad("keeps no copy")
		}
		return redundant{level: storage.LevelPartner, copies: copies}, nil
	}
	data, _ := strconv.Atoi(m[2]) // as above
	parity, _ := strconv.Atoi(m[3])
	if data < 1 || parity < 1 {
		return bad("needs at least one data and one parity node")
	}
	return redundant{level: storage.LevelParity, data: data, parity: parity}, nil
}

// levelConfigs lists the levels that the options ask for, nearest first.
func (o *Options) levelConfigs() ([]storage.LevelConfig, error) {
	red, err := o.redundancy()
	if err != nil {
		return nil, err
	}
	var out []storage.LevelConfig
	keep, whole := cmp.Or(o.KeepLocal, o.Keep), o.KeepLocal > 0
	if o.Local != "" {
		out = append(out, storage.LevelConfig{Name: storage.LevelLocal, Dir: o.Local, Create: o.makeDirs, Keep: keep,
			Full: whole})
	}
	if red.level != "" {
		out = append(out, storage.LevelConfig{Name: red.level, Dir: filepath.Join(o.Local, red.level), Create: true,
			Keep: keep, Full: whole,
			Copies: red.copies, Data: red.data, Parity: red.parity})
	}
	if o.Global != "" {
		out = append(out, storage.LevelConfig{Name: storage.LevelGlobal, Dir: o.Global, Create: o.makeDirs,
			Keep: o.Keep, KeepEvery: o.KeepEvery,
			Compress: o.Compress, BytesPerSec: o.FlushRate})
	}
	for i := range out {
		out[i].FullEvery = fullEvery
	}
	return out, nil
}

// levels are where epochs go.
type levels struct {
	store *storage.Store
	use   []string            // nearest first
	asked []string            // those of the settings, if levels are fewer
	dirs  map[string]string   // by level
	ops   *persist.Operations // that may hang
}

func (o *Options) contactDir() string {
	if o.Global != "" && !storage.IsObjectStore(o.Global) {
		return o.Global
	}
	return o.Local
}

// openStore opens the levels, at rank 0 first, which sends the others its findings in shared directories. Redundancy
// travels over the control plane's authenticated streams. Collective: it succeeds or fails on all ranks alike.
func (c *Checkpointer) openStore(ctx context.Context, all connect.Ranks, key control.Key) error {
	levels, err := c.opt.levelConfigs() // nil with an error
	placed := placeLevels(levels, c.topo.Nodes, c.files)
	levels, c.levels.use = placed.open, placed.use
	c.levels.dirs = map[string]string{}
	for i := range levels {
		c.levels.dirs[levels[i].Name] = levels[i].Dir
		levels[i].Unused = !slices.Contains(placed.use, levels[i].Name)
	}
	if placed.say != "" && c.topo.Rank == 0 {
		c.log.Warn("holdfast: "+placed.say, "error", placed.why)
	}
	left := c.previousMemory()
	if left != nil {
		c.state.Reserve(capture.LeastChunk) // the restore needs it for small values, and should not wait for it
	}
	opt := storage.Options{Job: c.opt.Job, Rank: c.topo.Rank, Size: c.topo.Size(),
		Node:  c.topo.Nodes[c.topo.Rank],
		Nodes: c.topo.Nodes, Levels: levels, Logger: c.log,
		Degrade: true, Elastic: c.opt.Elastic, Collective: true, Memory: left,
		Mapped: c.state.Pin, Unmapped: c.state.Unpin}
	if p, ok := c.plane.(*control.Plane); ok {
		opt.Transport = streams{p}
		opt.Run = digest("", key)
	}
	ctx = vfs.With(ctx, c.files)
	if err := c.identify(ctx, all, &opt, err); err != nil {
		return err
	}
	err = c.openByOverview(ctx, opt)
	if size, ok := errors.AsType[*storage.SizeError](err); ok {
		size.Elastic = c.language().elastic()
	}
	return connect.Agree(all, "open checkpoint directories", err)
}

// digest makes a text of the key for one use; it does not reveal the key.
func digest(use string, key control.Key) string {
	sum := sha256.Sum256(append([]byte(use), key[:]...))
	return hex.EncodeToString(sum[:8])
}

// streams connects the stores of the ranks.
type streams struct{ p *control.Plane }

func (s streams) Dial(ctx context.Context, rank int) (net.Conn, error) { return s.p.Dial(ctx, rank) }

func (s streams) Accept(ctx context.Context) (net.Conn, int, error) {
	st, err := s.p.Accept(ctx)
	if err != nil {
		return nil, 0, err
	}
	return st.Conn, st.From, nil
}

// placement is the result of placing the levels on the ranks' nodes.
type placement struct {
	open []storage.LevelConfig // all whose directories may hold an epoch to restore
	use  []string              // those that new epochs go to, nearest first
	say  string                // deviations from the request; empty: none
	why  error
}

// placeLevels finds the levels that the nodes of the ranks can carry. Parity
// wants as many nodes as a group has members and about as many ranks on each;
// copies take any placement on two nodes or more, so they stand in for parity. A
// level that cannot be had is left out of new epochs, and still read: an
// earlier start may have had it. Ranks find the same levels to use.
func placeLevels(levels []storage.LevelConfig, nodes []string, files vfs.FS) placement {
	files = vfs.OrOS(files)
	var p placement
	for _, l := range levels {
		p.open = append(p.open, l)
		err := l.Fits(nodes)
		if err == nil {
			p.use = append(p.use, l.Name)
		}
		if storage.TraitsOf(l.Name).Rows {
			copies := copiesInstead(l, nodes)
			_, found := files.Stat(copies.Dir)
			stands := err != nil && copies.Copies > 0
			if stands || found == nil {
				p.open = append(p.open, copies)
			}
			if stands {
				p.use = append(p.use, copies.Name)
				p.say = fmt.Sprintf("parity is impossible with this placement of ranks; %d copies on other nodes "+
					"(partner) replace it", copies.Copies)
				p.why = err
				continue
			}
		}
		if err != nil {
			p.say = "no epoch will be at " + l.Name + ", so the job's epochs do not survive the loss of a node"
			p.why = err
		}
	}
	return p
}

// copiesInstead returns the level partner that survives as many nodes as the parity
// would, or as many as there are; Copies is 0 on a single node.
func copiesInstead(parity storage.LevelConfig, nodes []string) storage.LevelConfig {
	return storage.LevelConfig{Name: storage.LevelPartner, Create: true, Keep: parity.Keep,
		Dir:    filepath.Join(filepath.Dir(parity.Dir), storage.LevelPartner),
		Copies: min(parity.Parity, len(connect.Distinct(nodes))-1)}
}

// misplaced reports whether the error looks like a mistake in the settings and not like a fault of the file system: the
// directory does not exist, or may not be used.
func misplaced(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR)
}

// useLevels agrees on the levels for checkpoints: those that every rank can write to. The others are read at a restart
// as far as possible. had reports that the job has been here before: only then may a directory be missing, or not be
// this user's; on a first start that is a mistake, which is refused. Collective.
func (c *Checkpointer) useLevels(priv connect.Ranks, had bool) error {
	out := c.levels.store.Unwritable()
	var use []string
	var why error
	refuse := false
	for _, level := range c.levels.use {
		err := connect.Agree(priv, "open level "+level, out[level])
		if err == nil {
			use = append(use, level)
			continue
		}
		if !errors.As(err, new(*outcome.RanksError)) {
			return err
		}
		why = errors.Join(why, err)
		var wrong error
		if misplaced(out[level]) {
			wrong = out[level]
		}
		refuse = refuse || !had && connect.Agree(priv, "find the directory of level "+level, wrong) != nil
	}
	if why == nil {
		return nil
	}
	data := func(l string) bool { return storage.TraitsOf(l).Data }
	if !slices.ContainsFunc(use, data) { // the level that partners and parity are made from
		use = slices.DeleteFunc(use, func(l string) bool {
			t := storage.TraitsOf(l)
			return t.Copies || t.Rows
		})
	}
	if refuse || len(use) == 0 {
		return fmt.Errorf("checkpoint directories: %w", why)
	}
	if c.topo.Rank == 0 {
		c.log.Error("holdfast: some checkpoint levels are unusable; checkpoints go to the others only", "levels", use,
			"error", why)
	}
	c.levels.asked, c.levels.use = c.levels.use, use
	c.levels.store.Use(use)
	return nil
}

// checkShared makes sure that every node sees the same global directory. Epochs in directories of several nodes would
// be in pieces that no later start could find together. Collective.
func (c *Checkpointer) checkShared(ctx context.Context, dirs *connect.Directories) error {
	isShared := func(l string) bool { return storage.TraitsOf(l).Shared }
	if !slices.ContainsFunc(c.levels.use, isShared) || storage.IsObjectStore(c.opt.Global) ||
		len(connect.Distinct(c.topo.Nodes)) == 1 {
		return nil
	}
	blind, err := dirs.Blind(ctx, c.opt.Global, cmp.Or(c.seam.ShareWait, connect.ShareWait))
	if err != nil || len(blind) == 0 {
		return err
	}
	return fmt.Errorf("the global directory %s is not shared: node(s) %s do not see what node %s writes there; name a "+
		"directory of a file system that all nodes mount, or set none and use local with partner or parity",
		c.opt.Global, names(blind), c.topo.Nodes[0])
}

// inUse returns the level that stands for a requested one: itself, or the next one further out that is in use; empty
// without one.
func (c *Checkpointer) inUse(level string) string {
	i := slices.Index(c.levels.asked, level)
	if slices.Contains(c.levels.use, level) || i < 0 {
		return level
	}
	for _, l := range c.levels.asked[i:] {
		if slices.Contains(c.levels.use, l) {
			return l
		}
	}
	return ""
}
