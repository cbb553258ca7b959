package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/storage"
	"golang.org/x/sys/unix"
)

// command is an order to a worker; all workers get it at once.
type command struct {
	Op    string
	Level string   `json:",omitempty"`
	Lanes int      `json:",omitempty"` // direct requests at a time
	Epoch uint64   `json:",omitempty"`
	Infos [][]byte `json:",omitempty"`
	Sizes [][]byte `json:",omitempty"`
}

// reply is a worker's answer when it is done.
type reply struct {
	CPU    float64  // seconds of CPU that the command took
	Value  float64  // the command's own measurements
	Infos  [][]byte `json:",omitempty"`
	Stored int64    `json:",omitempty"`
	Size   []byte   `json:",omitempty"`
}

// Setup describes a worker.
type Setup struct {
	Dir        string
	Rank, Size int
	Bytes      int64
}

// worker is one rank of the benchmark, a process of its own.
type worker struct {
	Setup
	alone              bool // in its directory
	store              *storage.Store
	part               *storage.Part
	release            func() // ends serving from memory
	data, pool, target []byte
	ck                 *coordinated.Checkpointer
	blockData          []byte
}

// Work runs a worker: commands come in on r as JSON and replies go out on w.
func Work(ctx context.Context, setup Setup, r io.Reader, w io.Writer) error {
	k := &worker{Setup: setup}
	if err := k.open(ctx); err != nil {
		return err
	}
	err := bench.Answer(r, w, func(c command, rep *reply) error {
		before := cpuSeconds()
		err := k.do(ctx, c, rep)
		rep.CPU = cpuSeconds() - before
		return err
	})
	return errors.Join(k.close(), err)
}

func cpuSeconds() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func (k *worker) levels() []storage.LevelConfig {
	return []storage.LevelConfig{
		{Name: storage.LevelLocal, Dir: filepath.Join(k.Dir, "local")},
		{Name: storage.LevelGlobal, Dir: filepath.Join(k.Dir, "global")},
	}
}

func (k *worker) open(ctx context.Context) (err error) {
	for _, p := range []*[]byte{&k.data, &k.pool, &k.target} {
		if *p, err = memory(k.Bytes); err != nil {
			return err
		}
	}
	rand.NewChaCha8([32]byte{byte(k.Rank + 1)}).Read(k.data)
	k.store, err = storage.Open(ctx, storage.Options{Job: "bench", Rank: k.Rank, Size: k.Size, Levels: k.levels()})
	return err
}

// memory maps n bytes and touches them, in huge pages if there are any.
func memory(n int64) ([]byte, error) {
	p, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	_ = unix.Madvise(p, unix.MADV_HUGEPAGE)
	for i := 0; i < len(p); i += 4096 {
		p[i] = 0
	}
	return p, nil
}

func (k *worker) close() error {
	err := k.store.Close()
	if k.ck != nil {
		err = errors.Join(err, k.ck.Close(), mpiwrap.Finalize())
	}
	return err
}

func (k *worker) do(ctx context.Context, c command, rep *reply) error {
	e := storage.Epoch(c.Epoch)
	switch c.Op {
	case "touch": // every chunk becomes another
		for i := 0; i < len(k.data); i += 4096 {
			k.data[i]++
		}
	case "touch-tenth": // one MiB in ten, across the borders of chunks
		for i := 100_000; i < len(k.data); i += 10 << 20 {
			for j := i; j < min(i+1<<20, len(k.data)); j += 4096 {
				k.data[j]++
			}
		}
	case "memcpy":
		copy(k.pool, k.data)
	case "raw-write":
		return bench.WriteSync(k.rawFile(), k.pool)
	case "direct-write":
		return bench.WriteDirect(k.rawFile(), k.pool, c.Lanes)
	case "drop": // the cached part of this rank's shard
		name, _ := k.shardFile(c)
		return bench.DropCached(name)
	case "direct-read":
		name, from := k.shardFile(c)
		return bench.ReadDirect(k.target, name, from, c.Lanes)
	case "raw-clean":
		return os.Remove(k.rawFile())
	case "put":
		info, err := k.store.Put(ctx, e, c.Level, k.sections())
		return k.report(rep, err, info)
	case "flush":
		info, err := k.store.Flush(ctx, e, storage.LevelLocal, c.Level, nil)
		return k.report(rep, err, info)
	case "flush-node": // rank 0 is the flusher of the node
		if k.Rank > 0 {
			return nil
		}
		infos, err := k.store.FlushNode(ctx, e, storage.LevelLocal, c.Level, k.ranks())
		return k.report(rep, err, infos...)
	case "lend":
		var err error
		k.release, err = k.store.ServeFromMemory(ctx, e, c.Level, k.sections())
		return err
	case "release":
		k.release()
	case "sizes":
		var err error
		if k.part, err = k.store.NewPart(ctx, e, storage.LevelLocal, c.Level, k.sections()); err != nil {
			return err
		}
		if k.Rank == 0 {
			err = k.part.Lead()
		}
		rep.Size = k.part.Size()
		return err
	case "parts":
		_, err := k.part.Write(ctx, k.nodePack(c))
		return err
	case "seal":
		if k.Rank > 0 {
			return k.part.Close()
		}
		infos, err := k.part.Seal(ctx, k.nodePack(c))
		return k.report(rep, errors.Join(err, k.part.Close()), infos...)
	case "commit":
		return k.commit(ctx, e, c)
	case "prune":
		_, err := k.store.Prune(ctx)
		return err
	case "raw-read":
		name, from := k.shardFile(c)
		return bench.ReadInto(k.target, name, from)
	case "fetch":
		return k.fetch(ctx, e)
	case "forget-local": // so that the next fetch is from the global level
		return os.RemoveAll(filepath.Join(k.Dir, "local", epochDir(c.Epoch)))
	case "compare":
		if string(k.target) != string(k.pool) {
			return errors.New("restored bytes differ from those written")
		}
	case "block":
		return k.block(ctx, rep)
	case "block-end":
		return k.blockEnd(ctx)
	default:
		return fmt.Errorf("unknown command %q", c.Op)
	}
	return nil
}

func (k *worker) ranks() []int {
	ranks := make([]int, k.Size)
	for r := range ranks {
		ranks[r] = r
	}
	return ranks
}

// nodePack returns the node pack of all workers: they are ranks of one node.
func (k *worker) nodePack(c command) storage.NodePack {
	return storage.NodePack{Epoch: storage.Epoch(c.Epoch), From: storage.LevelLocal, To: c.Level, Ranks: k.ranks(),
		Sizes: c.Sizes}
}

func (k *worker) sections() []storage.Section {
	return []storage.Section{{Name: "data", Size: k.Bytes, Source: storage.Bytes(k.pool)}}
}

func (k *worker) report(rep *reply, err error, infos ...storage.ShardInfo) error {
	if err != nil {
		return err
	}
	for _, info := range infos {
		b, err := info.MarshalBinary()
		if err != nil {
			return err
		}
		rep.Stored += info.Stored
		rep.Infos = append(rep.Infos, b)
	}
	return nil
}

func (k *worker) commit(ctx context.Context, e storage.Epoch, c command) error {
	infos := make([]storage.ShardInfo, len(c.Infos))
	for i, b := range c.Infos {
		if err := infos[i].UnmarshalBinary(b); err != nil {
			return err
		}
	}
	switch {
	case k.alone:
		return k.store.Commit(ctx, e, c.Level, infos)
	case k.Rank > 0: // the ranks share the directory, and the first writes the manifest, as in a job
		return k.store.Committed(e, c.Level)
	}
	return k.store.Commit(ctx, e, c.Level, infos, k.ranks()[1:]...)
}

func epochDir(e uint64) string { return fmt.Sprintf("epoch-%010d", e) }

// shardFile returns the file with the shard of this rank, and the offset from which it has that many
// bytes.
func (k *worker) shardFile(c command) (name string, off int64) {
	const header = 4096
	dir := filepath.Join(k.Dir, c.Level, epochDir(c.Epoch))
	if storage.TraitsOf(c.Level).Shared {
		return filepath.Join(dir, "pack-000000.shards"), header + int64(k.Rank)*k.Bytes
	}
	return filepath.Join(dir, fmt.Sprintf("rank-%06d.shard", k.Rank)), header
}

func (k *worker) rawFile() string { return filepath.Join(k.Dir, fmt.Sprintf("raw-%d", k.Rank)) }

func (k *worker) fetch(ctx context.Context, e storage.Epoch) (err error) {
	sh, err := k.store.Fetch(ctx, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sh.Close()) }()
	return sh.ReadAt(ctx, "data", k.target, 0)
}

// block takes a real checkpoint of one rank and reports how long the program stood still.
func (k *worker) block(ctx context.Context, rep *reply) error {
	if k.ck == nil {
		if err := k.openCheckpointer(ctx); err != nil {
			return err
		}
	}
	before := len(k.ck.Stats().Epochs)
	if err := k.ck.Request(ctx); err != nil {
		return err
	}
	for len(k.ck.Stats().Epochs) == before {
		if err := k.ck.Point(ctx); err != nil {
			return err
		}
	}
	epochs := k.ck.Stats().Epochs
	last := epochs[len(epochs)-1]
	rep.Value = last.Capture.Seconds()
	return last.Err
}

// blockEnd waits until that checkpoint is on the disk, so that it does not disturb the next
// measurement.
func (k *worker) blockEnd(ctx context.Context) error {
	const poll = time.Millisecond
	for {
		epochs := k.ck.Stats().Epochs
		last := epochs[len(epochs)-1]
		if last.Err != nil || last.Durable[storage.LevelLocal] > 0 {
			return last.Err
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (k *worker) openCheckpointer(ctx context.Context) (err error) {
	dir := filepath.Join(k.Dir, fmt.Sprintf("block-%d", k.Rank))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	k.ck, err = coordinated.Open(ctx, mpiwrap.Single(), coordinated.Options{Job: "bench-block", Local: dir, Fresh: true,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	k.blockData = k.data
	if err := k.ck.Protect("data", &k.blockData); err != nil {
		return err
	}
	_, err = k.ck.Restore(ctx)
	return err
}
