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

	"github.com/holdfast-hpc/holdfast/internal/bench"
)

// crew is the worker processes of one case.
type crew struct {
	members []*member
	epoch   uint64
}

type member struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	enc *json.Encoder
	dec *json.Decoder
}

// result is what one command came to: the time from giving it to all until the
// last was done, and each reply.
type result struct {
	wall    float64
	cpu     float64 // sum
	value   float64 // largest
	stored  int64   // sum
	replies []reply
}

// hire starts the workers.
func hire(ctx context.Context, r *bench.Runner, s Setup) (*crew, error) {
	c := &crew{}
	for s.Rank = range s.Size {
		line := r.Worker("storage", s)
		cmd := exec.CommandContext(ctx, line[0], line[1:]...)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, errors.Join(err, c.dismiss())
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, errors.Join(err, c.dismiss())
		}
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(err, c.dismiss())
		}
		c.members = append(c.members, &member{cmd: cmd, in: in, enc: json.NewEncoder(in), dec: json.NewDecoder(out)})
	}
	_, err := c.do(command{Op: "touch"}) // all have started
	return c, err
}

// dismiss ends the workers and waits for them.
func (c *crew) dismiss() error {
	var err error
	for _, m := range c.members {
		err = errors.Join(err, m.in.Close(), m.cmd.Wait())
	}
	return err
}

// do gives all workers a command and waits for them.
func (c *crew) do(cmd command) (result, error) {
	res := result{replies: make([]reply, len(c.members))}
	errs := make([]error, len(c.members))
	start := time.Now()
	var wg sync.WaitGroup
	for i, m := range c.members {
		if err := m.enc.Encode(cmd); err != nil {
			return res, err
		}
		wg.Go(func() { errs[i] = m.dec.Decode(&res.replies[i]) })
	}
	wg.Wait()
	res.wall = time.Since(start).Seconds()
	for i, r := range res.replies {
		if errs[i] == nil && r.Err != "" {
			errs[i] = errors.New(r.Err)
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%s, worker %d: %w", cmd.Op, i, errs[i])
		}
		res.cpu += r.CPU
		res.value = max(res.value, r.Value)
		res.stored += r.Stored
	}
	return res, errors.Join(errs...)
}

// together writes a pack by all workers and commits it, and adds up the costs.
func (c *crew) together(level string) (result, error) {
	sum, err := c.do(command{Op: "sizes", Level: level, Epoch: c.epoch})
	if err != nil {
		return sum, err
	}
	pack := command{Level: level, Epoch: c.epoch}
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
func (c *crew) store(op, level string) (result, error) {
	put, err := c.do(command{Op: op, Level: level, Epoch: c.epoch})
	if err != nil {
		return put, err
	}
	commit := command{Op: "commit", Level: level, Epoch: c.epoch}
	for _, r := range put.replies {
		commit.Infos = append(commit.Infos, r.Infos...)
	}
	done, err := c.do(commit)
	put.wall += done.wall
	put.cpu += done.cpu
	return put, err
}
