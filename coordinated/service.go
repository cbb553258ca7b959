package coordinated

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/storage"
)

// server answers clients at rank 0.
type server struct {
	c    *Checkpointer
	real *control.Plane
	file string
}

// serve publishes the contact file and answers clients until the plane closes.
func (c *Checkpointer) serve(p *control.Plane, key control.Key) error {
	s := &server{c: c, real: p, file: filepath.Join(c.opt.contactDir(), job.ContactName)}
	b, err := json.Marshal(job.Contact{Job: c.opt.Job, Addr: c.clientAddr(p), Node: c.topo.nodes[0], PID: os.Getpid(),
		Key: key})
	if err != nil {
		return fmt.Errorf("coordinated: write the contact file: %w", err)
	}
	if err := vfs.WriteWhole(s.file, append(b, '\n')); err != nil {
		err = fmt.Errorf("coordinated: write the contact file: %w", err)
		if len(c.asked) == 0 {
			return err
		}
		// The directory may be one that this run does without.
		c.log.Warn("holdfast: 'holdfast status' and 'request' cannot find this run", "error", err)
	}
	c.server = s
	c.writers.Go(s.run)
	return nil
}

// clientAddr is where other processes of the owner reach rank 0. An interface that the user
// has chosen serves them too.
func (c *Checkpointer) clientAddr(p *control.Plane) string {
	if c.opt.Interface != "" {
		return p.Addr()
	}
	addr, err := p.ListenElsewhere()
	if err != nil {
		c.log.Warn("holdfast: 'holdfast status' and 'request' work on this node only", "error", err)
		return p.Addr()
	}
	return addr
}

// contactDir is where the contact file lies.
func (o *Options) contactDir() string {
	if o.Global != "" && !storage.IsObjectStore(o.Global) {
		return o.Global
	}
	return o.Local
}

// RunningError says that another run of the job uses the same directory: the two
// would overwrite each other's epochs.
type RunningError struct {
	Dir, Node string
	PID       int
}

// Error names the directory, and the process that uses it.
func (e *RunningError) Error() string {
	return fmt.Sprintf("coordinated: another run of this job uses %s: its rank 0 is process %d on node %s; end that "+
		"run first, or use another directory", e.Dir, e.PID, e.Node)
}

// lingering is how long the ranks of a run that is about to end may still answer.
const lingering = 5 * time.Second

// refuseSecond looks for a run that answers, and goes on answering: survivors of
// a dead rank take a moment to leave. A contact file that a dead run left behind
// is no obstacle.
func refuseSecond(ctx context.Context, dir string) error {
	tick := time.NewTicker(lingering / 10)
	defer tick.Stop()
	for end := time.Now().Add(lingering); ; {
		err := answering(ctx, dir)
		if err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// answering returns a *RunningError when the run that published the contact file
// is alive.
func answering(ctx context.Context, dir string) error {
	k, err := job.ReadContact(dir)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := control.DialClient(ctx, k.Addr, 0, k.Key)
	if err != nil {
		return nil // it is gone, or the port is somebody else's by now
	}
	_ = conn.Close() // it has answered the proof, which is all there was to ask
	return &RunningError{Dir: dir, Node: k.Node, PID: k.PID}
}

func (s *server) run() {
	for {
		conn, err := s.real.AcceptClient(s.c.ctx)
		if err != nil {
			return
		}
		s.c.writers.Go(func() { s.answer(conn) })
	}
}

// close removes the contact file.
func (s *server) close() {
	if s == nil {
		return
	}
	if err := os.Remove(s.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.c.log.Warn("holdfast: cannot remove the contact file", "error", err)
	}
}

// answer serves one client: one line in, one line out, until it hangs up.
func (s *server) answer(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewScanner(conn)
	out := json.NewEncoder(conn)
	for in.Scan() {
		var q job.Query
		r := job.Reply{}
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			r.Error = "malformed query: " + err.Error()
		} else if err := s.handle(q, &r); err != nil {
			r.Error = err.Error()
		}
		if out.Encode(r) != nil {
			return // the client has gone
		}
	}
}

func (s *server) handle(q job.Query, r *job.Reply) error {
	switch q.Op {
	case "status":
	case "request":
		if err := s.request(q); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown operation %q", q.Op)
	}
	var err error
	if r.Status, err = s.status(); err != nil || q.Op != "status" {
		return err
	}
	r.Status.States, err = s.c.rankStates()
	return err
}

// request asks for a checkpoint and, if wanted, waits for the first epoch that
// is asked for now to be at all levels or to fail.
func (s *server) request(q job.Query) error {
	c := s.c
	before := c.stats.newest()
	if err := c.agent.do(c.ctx, func() { c.agent.request(q.Stop, "holdfast request") }); err != nil {
		return err
	}
	if !q.Wait {
		return nil
	}
	for {
		changed := c.stats.watch()
		for _, es := range c.Stats().Epochs {
			if es.Epoch <= before {
				continue
			}
			if es.Err != nil {
				return es.Err
			}
			if es.settled(len(c.levels)) {
				return nil
			}
		}
		select {
		case <-changed:
		case <-c.ctx.Done():
			return ErrClosed
		}
	}
}

func (s *server) status() (*job.Status, error) {
	c := s.c
	st := &job.Status{Job: c.opt.Job, Ranks: c.world.Size(), Nodes: c.topo.nodes, Points: c.points.load(),
		Network: c.topo.network}
	st.Levels, st.Seconds = c.levels, time.Since(c.begun).Seconds()
	if err := c.agent.do(c.ctx, func() {
		st.Cut, st.Next = c.agent.machine.String(), c.agent.trigger.Status()
	}); err != nil {
		return nil, err
	}
	all := c.Stats()
	for _, es := range all.Epochs {
		st.Epochs = append(st.Epochs, *es.status())
	}
	for level, v := range c.opt.every() {
		if slices.Contains(c.levels, level) {
			if st.Every == nil {
				st.Every = map[string]string{}
			}
			st.Every[level] = v.String()
		}
	}
	st.Loss = c.nodeLoss(&all, time.Now())
	return st, nil
}

// nodeLoss says what the loss of a node would cost now: what was computed since the newest
// epoch that is not on one node alone.
func (c *Checkpointer) nodeLoss(all *Stats, now time.Time) *job.LossStatus {
	loss := &job.LossStatus{Seconds: now.Sub(c.begun).Seconds()}
	if r := all.Restore; r.Epoch != 0 {
		loss.Epoch, loss.Level = r.Epoch, r.Level
	}
	for _, es := range all.Epochs {
		for _, level := range c.levels {
			if _, there := es.Durable[level]; there && storage.TraitsOf(level).SurvivesNode() {
				loss.Epoch, loss.Level, loss.Seconds = es.Epoch, level, now.Sub(es.cut).Seconds()
				break
			}
		}
	}
	return loss
}

// status is the epoch in plain data.
func (es *EpochStats) status() *job.EpochStatus {
	e := &job.EpochStatus{Epoch: es.Epoch, Bytes: es.Bytes, BlockedSeconds: es.Blocked.Seconds(),
		DurableSeconds: map[string]float64{}, Skipped: map[string]uint64{}}
	for l, d := range es.Durable {
		e.DurableSeconds[l] = d.Seconds()
	}
	for l, newer := range es.Skipped {
		e.Skipped[l] = uint64(newer)
	}
	if es.Err != nil {
		e.Error = es.Err.Error()
	}
	return e
}
