package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
)

// workers are the processes of one case, or those that stand for them in this process.
type workers struct {
	members []member
	epoch   uint64
}

// A member is a worker: a process, or one in this process.
type member interface {
	do(c command, rep *reply) error
	close() error
}

// process is a worker that is a process of its own.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	enc *json.Encoder
	dec *json.Decoder
}

func (p *process) do(c command, rep *reply) error {
	if err := p.enc.Encode(c); err != nil {
		return err
	}
	if err := p.dec.Decode(rep); err != nil || rep.Err == "" {
		return err
	}
	return errors.New(rep.Err)
}

func (p *process) close() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

// result is what one command cost: the time from giving it to all workers until the last was done,
// and each reply.
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
		line := r.Worker("storage", s)
		cmd := exec.CommandContext(ctx, line[0], line[1:]...)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.members = append(c.members, &process{cmd: cmd, in: in, enc: json.NewEncoder(in), dec: json.NewDecoder(out)})
	}
	_, err := c.do(command{Op: "touch"}) // all have started
	return c, err
}

// close ends the workers and waits for them.
func (c *workers) close() error {
	var err error
	for _, m := range c.members {
		err = errors.Join(err, m.close())
	}
	return err
}

// do gives all workers a command and waits for them.
func (c *workers) do(cmd command) (result, error) {
	cmd.Epoch = c.epoch
	res := result{replies: make([]reply, len(c.members))}
	errs := make([]error, len(c.members))
	start := time.Now()
	var wg sync.WaitGroup
	for i, m := range c.members {
		wg.Go(func() { errs[i] = m.do(cmd, &res.replies[i]) })
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
	return res, errors.Join(errs...)
}

// together has all workers write a pack and commit it, and adds up the costs.
func (c *workers) together(level string) (result, error) {
	sum, err := c.do(command{Op: "sizes", Level: level})
	if err != nil {
		return sum, err
	}
	pack := command{Level: level}
	for _, r := range sum.replies {
		pack.Sizes = append(pack.Sizes, r.Size)
	}
	for _, op := range []string{"parts", "seal", "commit"} {
		pack.Op = op
		done, err := c.do(pack)
		if err != nil {
			return sum, err
		}
		sum.wall += done.wall
		sum.cpu += done.cpu
		for _, r := range done.replies {
			pack.Infos = append(pack.Infos, r.Infos...)
		}
	}
	return sum, nil
}

// store runs put or flush and the commit that follows, and adds up their costs.
func (c *workers) store(op, level string) (result, error) {
	put, err := c.do(command{Op: op, Level: level})
	if err != nil {
		return put, err
	}
	commit := command{Op: "commit", Level: level}
	for _, r := range put.replies {
		commit.Infos = append(commit.Infos, r.Infos...)
	}
	done, err := c.do(commit)
	put.wall += done.wall
	put.cpu += done.cpu
	return put, err
}

// steps runs commands that are not measured, one after the other.
func (c *workers) steps(ops ...string) error {
	for _, op := range ops {
		if _, err := c.do(command{Op: op}); err != nil {
			return err
		}
	}
	return nil
}
