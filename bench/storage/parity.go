package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/storage"
	_ "github.com/holdfast-hpc/holdfast/storage/parity"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
)

const (
	parityData  = 4
	parityRows  = 2
	parityNodes = parityData + parityRows
)

// parity measures a job of six ranks on six emulated nodes in this process, whose
// stores reach each other through memory: no network is measured.
func parity(ctx context.Context, r *bench.Runner, dir string, mib int) (err error) {
	defer os.RemoveAll(dir)
	c, err := nodes(ctx, dir, int64(mib)<<20)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	took, err := bench.Repeat(ctx, r.Runs, c.parity)
	if err != nil {
		return err
	}
	r.Add(bench.Row{Case: fmt.Sprintf("%d x %d MiB, one process", parityNodes, mib),
		Metric: "durable local+parity 4+2 / raw", Unit: "s"}.
		Of(took[local], took[rawWrite], goalParity))
	return nil
}

// node is a worker in this process.
type node struct {
	ctx context.Context
	*worker
}

func (n node) Do(c, rep any) error { return n.worker.do(n.ctx, c.(command), rep.(*reply)) }

func (n node) Close() error { return n.worker.close() }

// nodes opens the workers, one on each emulated node.
func nodes(ctx context.Context, dir string, bytes int64) (*workers, error) {
	c, net := &workers{}, storagetest.NewLoopback(parityNodes)
	var names []string
	for r := range parityNodes {
		names = append(names, fmt.Sprintf("n%d", r))
	}
	for r, name := range names {
		k := &worker{Setup: Setup{Dir: filepath.Join(dir, name), Rank: r, Size: parityNodes, Bytes: bytes},
			alone: true}
		var levels []storage.LevelConfig
		for _, name := range []string{storage.LevelLocal, storage.LevelParity} {
			l := storage.LevelConfig{Name: name, Dir: filepath.Join(k.Dir, name), Data: parityData, Parity: parityRows}
			if err := os.MkdirAll(l.Dir, 0o755); err != nil {
				return nil, err
			}
			levels = append(levels, l)
		}
		var err error
		if k.pool, err = memory(bytes); err != nil {
			return nil, err
		}
		rand.NewChaCha8([32]byte{byte(r)}).Read(k.pool)
		k.data = k.pool
		k.store, err = storage.Open(ctx, storage.Options{Job: "bench", Rank: r, Size: parityNodes, Node: name,
			Nodes: names, Transport: net.Rank(r), Levels: levels})
		if err != nil {
			return nil, err
		}
		c.members = append(c.members, node{ctx, k})
	}
	return c, nil
}

// parity is one run: a raw write, then a checkpoint at local and with parity.
func (c *workers) parity(took bench.Set) error {
	c.epoch++
	c.steps("touch")
	raw := c.do(command{Op: "raw-write"})
	c.steps("raw-clean")
	put := c.store("put", storage.LevelLocal)
	lend := c.do(command{Op: "lend", Level: storage.LevelLocal})
	flush := c.store("flush", storage.LevelParity)
	took.Add(rawWrite, raw.wall)
	took.Add(local, put.wall+lend.wall+flush.wall)
	c.steps("release", "prune")
	return c.err
}
