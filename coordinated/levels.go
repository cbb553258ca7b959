package coordinated

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// redundant is what Options.Redundancy asks for.
type redundant struct {
	level        string // "" = none
	copies       int
	data, parity int
}

var redundancyForm = regexp.MustCompile(`^(?:partner(?::(\d+))?|parity:(\d+)\+(\d+))$`)

// redundancy reads Options.Redundancy.
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
	if o.Local != "" {
		out = append(out, storage.LevelConfig{Name: storage.LevelLocal, Dir: o.Local, Keep: o.Keep})
	}
	if red.level != "" {
		out = append(out, storage.LevelConfig{Name: red.level, Dir: filepath.Join(o.Local, red.level), Create: true,
			Keep:   o.Keep,
			Copies: red.copies, Data: red.data, Parity: red.parity})
	}
	if o.Global != "" {
		out = append(out, storage.LevelConfig{Name: storage.LevelGlobal, Dir: o.Global, Keep: o.Keep,
			KeepEvery: o.KeepEvery,
			Compress:  o.Compress, BytesPerSec: o.FlushRate})
	}
	return out, nil
}

// openStore opens the levels. Redundancy travels over the control plane's
// authenticated streams.
func (c *Checkpointer) openStore(ctx context.Context, key control.Key) error {
	levels, err := c.opt.levelConfigs()
	if err != nil {
		return err
	}
	placed := placeLevels(levels, c.topo.nodes, c.opt.files)
	levels, c.levels = placed.open, placed.use
	if placed.say != "" && c.world.Rank() == 0 {
		c.log.Warn("holdfast: "+placed.say, "error", placed.why)
	}
	opt := storage.Options{Job: c.opt.Job, Rank: c.world.Rank(), Size: c.world.Size(),
		Node:  c.topo.nodes[c.world.Rank()],
		Nodes: c.topo.nodes, Levels: levels, Logger: c.log,
		Degrade: true, Mapped: c.state.Pin, Unmapped: c.state.Unpin}
	if p, ok := c.plane.(*control.Plane); ok {
		opt.Transport = streams{p}
		opt.Run = runName(key)
	}
	c.store, err = storage.Open(vfs.With(ctx, c.opt.files), opt)
	return err
}

// runName is a name for this run that does not give the key away.
func runName(key control.Key) string {
	sum := sha256.Sum256(key[:])
	return hex.EncodeToString(sum[:8])
}

// streams lets the stores of the ranks reach each other.
type streams struct{ p *control.Plane }

func (s streams) Dial(ctx context.Context, rank int) (net.Conn, error) { return s.p.Dial(ctx, rank) }

func (s streams) Accept(ctx context.Context) (net.Conn, int, error) {
	st, err := s.p.Accept(ctx)
	if err != nil {
		return nil, 0, err
	}
	return st.Conn, st.From, nil
}
