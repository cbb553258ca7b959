package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
)

// workers are the processes of one case, or those that stand for them in this process. After the first error they do
// nothing more, and err has it.
type workers struct {
	members []member
	epoch   uint64
	err     error
}

// A member is a worker: a process, or one in this process.
type member interface {
	Do(command, reply any) error
	Close() error
}

// result is the cost of one command: the time from giving it to all workers until the last was done, and each reply.
type result struct {
	wall    float64
	cpu     float64 // sum
	value   float64 // largest
	stored  int64   // sum
	replies []reply
}

// startWorkers starts the workers as processes.
func startWorkers(ctx context.Context, r *bench.Runner, s Setup) (*workers, error) {
	c := &workers{}
	for s.Rank = range s.Size {
		p, err := bench.StartProcess(ctx, r.Worker("storage", s))
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.members = append(c.members, p)
	}
	c.do(command{Op: "touch"}) // all have started
	return c, c.err
}

// close ends the workers and waits for them.
func (c *workers) close() error {
	var err error
	for _, m := range c.members {
		err = errors.Join(err, m.Close())
	}
	return err
}

// do gives all workers a command and waits for them.
func (c *workers) do(cmd command) (res result) {
	if c.err != nil {
		return res
	}
	cmd.Epoch = c.epoch
	res.replies = make([]reply, len(c.members))
	errs := make([]error, len(c.members))
	start := time.Now()
	var wg sync.WaitGroup
	for i, m := range c.members {
		wg.Go(func() { errs[i] = m.Do(cmd, &res.replies[i]) })
	}
	wg.Wait()
	res.wall = time.Since(start).Seconds()
	for i, r := range res.replies {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%s, worker %d: %w", cmd.Op, i, errs[i])
		}
		res.cpu += r.CPU
		res.value = max(res.value, r.Value)
		res.stored += r.Stored
	}
	c.err = errors.Join(errs...)
	return res
}

// together has all workers write a pack and commit it, and adds up the costs.
func (c *workers) together(level string) result {
	sum := c.do(command{Op: "sizes", Level: level})
	pack := command{Level: level}
	for _, r := range sum.replies {
		pack.Sizes = append(pack.Sizes, r.Size)
	}
	for _, pack.Op = range []string{"parts", "seal", "commit"} {
		sum.next(c.do(pack), &pack)
	}
	return sum
}

// store runs put or flush and the commit that follows, and adds up their costs.
func (c *workers) store(op, level string) result {
	put, commit := c.do(command{Op: op, Level: level}), command{Op: "commit", Level: level}
	for _, r := range put.replies {
		commit.Infos = append(commit.Infos, r.Infos...)
	}
	put.next(c.do(commit), &commit)
	return put
}

// next adds the cost of a command, and gives the following one the workers' reports.
func (r *result) next(done result, following *command) {
	r.wall += done.wall
	r.cpu += done.cpu
	for _, rep := range done.replies {
		following.Infos = append(following.Infos, rep.Infos...)
	}
}

// steps runs commands that are not measured, one after the other.
func (c *workers) steps(ops ...string) {
	for _, op := range ops {
		c.do(command{Op: op})
	}
}
