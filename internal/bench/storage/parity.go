package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/bench"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/storagetest"
)

const (
	parityData  = 4
	parityRows  = 2
	parityNodes = parityData + parityRows
)

// parityCase is a job of six ranks on six emulated nodes in this process, whose
// stores reach each other through memory: no network is measured.
type parityCase struct {
	workers [parityNodes]*worker
	epoch   storage.Epoch
}

func parity(ctx context.Context, r *bench.Runner, dir string, mib int) (err error) {
	p := &parityCase{}
	defer os.RemoveAll(dir)
	if err := p.open(ctx, dir, int64(mib)<<20); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	took, err := bench.Repeat(ctx, r.Runs, func(took bench.Set) error { return p.once(ctx, took) })
	if err != nil {
		return err
	}
	r.Add(bench.Row{Case: fmt.Sprintf("%d x %d MiB, one process", parityNodes, mib),
		Metric: "durable local+parity 4+2 / raw", Unit: "s"}.
		Of(took[local], took[rawWrite], goalParity))
	return nil
}

func (p *parityCase) open(ctx context.Context, dir string, bytes int64) error {
	net := storagetest.NewLoopback(parityNodes)
	var nodes []string
	for r := range parityNodes {
		nodes = append(nodes, fmt.Sprintf("n%d", r))
	}
	for r := range p.workers {
		k := &worker{Setup: Setup{Dir: filepath.Join(dir, nodes[r]), Rank: r, Size: parityNodes, Bytes: bytes}}
		var levels []storage.LevelConfig
		for _, name := range []string{storage.LevelLocal, storage.LevelParity} {
			l := storage.LevelConfig{Name: name, Dir: filepath.Join(k.Dir, name), Data: parityData, Parity: parityRows}
			if err := os.MkdirAll(l.Dir, 0o755); err != nil {
				return err
			}
			levels = append(levels, l)
		}
		var err error
		if k.pool, err = memory(bytes); err != nil {
			return err
		}
		rand.NewChaCha8([32]byte{byte(r)}).Read(k.pool)
		k.data = k.pool
		k.store, err = storage.Open(ctx, storage.Options{Job: "bench", Rank: r, Size: parityNodes, Node: nodes[r],
			Nodes: nodes, Transport: net.Rank(r), Levels: levels})
		if err != nil {
			return err
		}
		p.workers[r] = k
	}
	return nil
}

func (p *parityCase) close() error {
	var err error
	for _, k := range p.workers {
		err = errors.Join(err, k.store.Close())
	}
	return err
}

// all has every worker do the same and says how long it took.
func (p *parityCase) all(do func(k *worker, rep *reply) error) (seconds float64, infos [][]byte, err error) {
	var errs [parityNodes]error
	var replies [parityNodes]reply
	start := time.Now()
	var wg sync.WaitGroup
	for r, k := range p.workers {
		wg.Go(func() { errs[r] = do(k, &replies[r]) })
	}
	wg.Wait()
	seconds = time.Since(start).Seconds()
	for _, r := range replies {
		infos = append(infos, r.Infos...)
	}
	return seconds, infos, errors.Join(errs[:]...)
}

func (p *parityCase) once(ctx context.Context, took bench.Set) error {
	p.epoch++
	var raw, durable float64
	step := func(c command) ([][]byte, error) {
		c.Epoch = uint64(p.epoch)
		s, infos, err := p.all(func(k *worker, rep *reply) error { return k.do(ctx, c, rep) })
		switch c.Op {
		case "raw-write":
			raw += s
		case "put", "lend", "flush", "commit":
			durable += s
		}
		return infos, err
	}
	for _, op := range []string{"touch", "raw-write", "raw-clean"} {
		if _, err := step(command{Op: op}); err != nil {
			return err
		}
	}
	for _, l := range []struct{ op, level string }{{"put", storage.LevelLocal}, {"flush", storage.LevelParity}} {
		if l.level == storage.LevelParity {
			if _, err := step(command{Op: "lend", Level: storage.LevelLocal}); err != nil {
				return err
			}
		}
		infos, err := step(command{Op: l.op, Level: l.level})
		if err != nil {
			return err
		}
		if _, err := step(command{Op: "commit", Level: l.level, Infos: infos}); err != nil {
			return err
		}
	}
	for _, k := range p.workers {
		k.release()
	}
	took.Add(rawWrite, raw)
	took.Add(local, durable)
	_, err := step(command{Op: "prune"})
	return err
}
