package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// How a directory is measured: so many requests at a time, as a shard is written, and for so long at
// most, since a file server that is in trouble answers slowly.
const (
	rateFiles  = 256
	rateLanes  = 4
	rateWithin = 5 * time.Second
	rateBlock  = 4 << 20
)

// rates is what a directory does for this node, with several requests at a time.
type rates struct {
	Create, Stat, Unlink float64 // files a second
	Write, Read          float64 // bytes a second: synced, and past the page cache
	Direct               bool
}

func (m *rates) figures() map[string]float64 {
	return map[string]float64{"creates_per_s": m.Create, "stats_per_s": m.Stat, "unlinks_per_s": m.Unlink,
		"write_bytes_per_s": m.Write, "read_bytes_per_s": m.Read}
}

// measure makes a directory in dir, works in it and removes it.
func measure(ctx context.Context, dir string) (m rates, err error) {
	work := filepath.Join(dir, fmt.Sprintf(".holdfast-doctor-%d", os.Getpid()))
	if err := os.Mkdir(work, 0o700); err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err := m.bandwidth(filepath.Join(work, "data")); err != nil {
		return m, err
	}
	return m, m.metadata(ctx, work)
}

// metadata makes small files as a job's levels do, each named once.
func (m *rates) metadata(ctx context.Context, dir string) error {
	file := func(i int) string { return filepath.Join(dir, fmt.Sprintf("file-%d", i)) }
	made := 0
	var err error
	made, m.Create, err = perSecond(ctx, rateFiles, func(i int) error {
		f, err := os.OpenFile(file(i), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		return f.Close()
	})
	if err == nil {
		_, m.Stat, err = perSecond(ctx, made, func(i int) error { _, err := os.Lstat(file(i)); return err })
	}
	if err == nil {
		_, m.Unlink, err = perSecond(ctx, made, func(i int) error { return os.Remove(file(i)) })
	}
	return err
}

// perSecond does 0..n-1, several at a time, until it is done or the time is over. It returns how many
// of them were done, which are the first ones, and the rate.
func perSecond(ctx context.Context, n int, do func(i int) error) (done int, rate float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, rateWithin)
	defer cancel()
	var next atomic.Int64
	var mu sync.Mutex
	start := time.Now()
	lanes(func(int) {
		for ctx.Err() == nil {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			if e := do(i); e != nil {
				mu.Lock()
				err = errors.Join(err, e)
				mu.Unlock()
				return
			}
		}
	})
	done = min(int(next.Load()), n)
	return done, float64(done) / max(time.Since(start), 1).Seconds(), err
}

// lanes runs do in several goroutines.
func lanes(do func(lane int)) {
	var wg sync.WaitGroup
	for l := range rateLanes {
		wg.Go(func() { do(l) })
	}
	wg.Wait()
}

// bandwidth writes and syncs a file as storage does, and reads it back past the page cache.
func (m *rates) bandwidth(name string) (err error) {
	f, err := vfs.OS{}.Create(name, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	m.Direct = f.Direct()
	buf := aligned(rateLanes * rateBlock)
	for i := range buf {
		buf[i] = byte(i*7 + i>>16)
	}
	if m.Write, err = blocksPerSecond(buf, f.WriteAt, f.Sync); err != nil {
		return err
	}
	past, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECT, 0)
	if errors.Is(err, syscall.EINVAL) {
		past, err = os.Open(name)
	}
	if err != nil {
		return err
	}
	defer past.Close()
	_ = unix.Fadvise(int(past.Fd()), 0, 0, unix.FADV_DONTNEED) // advice: where there is no O_DIRECT
	m.Read, err = blocksPerSecond(buf, past.ReadAt, func() error { return nil })
	return err
}

// blocksPerSecond moves probeBytes, several blocks at a time, and ends with end.
func blocksPerSecond(buf []byte, move func([]byte, int64) (int, error), end func() error) (float64, error) {
	var next atomic.Int64
	var failed [rateLanes]error
	start := time.Now()
	lanes(func(lane int) {
		p := buf[lane*rateBlock:][:rateBlock]
		for failed[lane] == nil {
			off := (next.Add(1) - 1) * rateBlock
			if off >= probeBytes {
				return
			}
			_, failed[lane] = move(p, off)
		}
	})
	err := errors.Join(append(failed[:], end())...)
	return probeBytes / time.Since(start).Seconds(), err
}

// What an epoch does to a level, roughly: a file that is made under another name first, its place in
// the directory, the manifest, and all of it removed when it is pruned.
const opsPerFile = 6

// Times that are worth a word.
const (
	longMetadata = 10 * time.Second
	longWrite    = 2 * time.Minute
)

// judgeRates warns of what will hurt a job of so many ranks.
func (r *report) judgeRates(level, dir string, m rates) {
	detail := fmt.Sprintf("%.0f creates, %.0f stats, %.0f unlinks a second", m.Create, m.Stat, m.Unlink)
	slow := min(m.Create, m.Unlink)
	files, who := r.filesPerEpoch(level)
	took := time.Duration(float64(files*opsPerFile) / max(slow, 1e-3) * float64(time.Second))
	f := Finding{Area: "directories", Check: level + ": metadata", State: OK, Detail: detail, Figures: m.figures()}
	if files > 0 {
		f.Detail += fmt.Sprintf("; %s make %d files an epoch, %v at this rate", who, files,
			took.Round(time.Millisecond))
	}
	if took > longMetadata {
		f.State = Warning
		f.Remedy = "take checkpoints less often, or ask the administrators why " + dir + " is slow; the scratch file " +
			"system is faster than a home directory, as a rule"
	}
	r.put(f)
	if r.Bytes <= 0 || r.Ranks <= 0 {
		return
	}
	bytes, whose := float64(r.Bytes)*float64(r.perNode()), "the ranks of a node"
	took = time.Duration(bytes / max(m.Write, 1) * float64(time.Second))
	f = Finding{Area: "directories", Check: level + ": an epoch", State: OK, Detail: fmt.Sprintf("%s write %.1f GB in "+
		"%v and read it back in %v, if each node has this rate", whose, bytes/1e9, took.Round(10*time.Millisecond),
		time.Duration(bytes/max(m.Read, 1)*float64(time.Second)).Round(10*time.Millisecond))}
	if took > longWrite {
		f.State, f.Remedy = Warning, "the interval must be longer than that: take checkpoints less often, "+
			"protect less, or set compress"
	}
	r.put(f)
}

// OfJob takes the number of ranks and nodes of this Slurm job where nothing else is said.
func (o *Options) OfJob() {
	j, ok, err := slurm.FromEnv(os.Getenv)
	if err != nil || !ok {
		return
	}
	o.Ranks, o.Nodes = cmp.Or(o.Ranks, j.Tasks), cmp.Or(o.Nodes, len(j.Nodes))
}

// threeEpochs is what the two epochs that are kept and the next one take of a level, in bytes; 0 if that
// is not known.
func (r *report) threeEpochs(level string) float64 {
	ranks := r.Ranks
	if !storage.TraitsOf(level).Shared {
		ranks = r.perNode()
	}
	return 3 * float64(ranks) * float64(r.Bytes)
}

// perNode is how many ranks a node has.
func (r *report) perNode() int {
	n := max(r.Nodes, 1)
	return (r.Ranks + n - 1) / n
}

// filesPerEpoch is how many files are made at a level, and by whom: a shard for each rank of a node, or
// a pack for each node.
func (r *report) filesPerEpoch(level string) (files int, who string) {
	switch {
	case r.Ranks <= 0:
		return 0, ""
	case storage.TraitsOf(level).Shared:
		return max(r.Nodes, 1) + 1, fmt.Sprintf("%d nodes", max(r.Nodes, 1))
	}
	return r.perNode() + 1, fmt.Sprintf("%d ranks of a node", r.perNode())
}
