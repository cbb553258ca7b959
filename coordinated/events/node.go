package events

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/handshake"
)

// Node is the ranks of a node that write to one file: the first of them writes it, the others send it their lines over
// a Unix socket. A rank that cannot reach the first, because it has died or is in another container, goes on in a file
// of its own.
type Node struct {
	First  int    // rank
	Ranks  int    // how many there are
	Secret string // the same on all ranks of the job, known to no other process
}

// address returns the address of an abstract socket, which leaves no file behind. Whoever connects has to
// be the same user.
func (n *Node) address() *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("@holdfast-events-%s-%d", n.Secret, n.First)}
}

const (
	// joinTime is how long a rank looks for the first of its node.
	joinTime = 5 * time.Second
	// answerTime bounds the first rank's time to write a batch.
	answerTime = time.Minute
	// leaveTime is how long the first rank waits, in Close, for the others to close.
	leaveTime = 2 * time.Second
)

// answer is the first rank's answer to a batch, on a line.
type answer struct {
	Written int    `json:"n"`
	Error   string `json:"error,omitempty"`
}

// collector is the log of the first rank of a node, which takes in the lines of the others.
type collector struct {
	opt    Options
	listen *net.UnixListener
	conns  sync.WaitGroup
	cancel context.CancelFunc
	ctx    context.Context

	mu   sync.Mutex // guards file
	file *file
}

func newCollector(opt Options) *collector {
	c := &collector{opt: opt}
	opt.MaxBytes *= int64(max(opt.Node.Ranks, 1))
	c.file = newFile(opt, nodeName)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// open opens the file, and lets the others connect. A rank that finds no first rank has a file of its own.
func (c *collector) open() error {
	l, err := net.ListenUnix("unix", c.opt.Node.address())
	if err != nil {
		c.opt.Logger.Warn("holdfast: the ranks of this node have an event log each", "error", err)
	} else {
		c.listen = l
		c.conns.Go(c.accept)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.file.open()
}

func (c *collector) write(batch []Event) (written int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.file.write(batch)
}

// close gives ranks that are about to close a short time.
func (c *collector) close() error {
	if c.listen != nil {
		_ = c.listen.Close() // it has nothing to lose
	}
	t := time.AfterFunc(leaveTime, c.cancel)
	c.conns.Wait()
	t.Stop()
	c.cancel()
	return c.file.close()
}

func (c *collector) accept() {
	for {
		conn, err := c.listen.AcceptUnix()
		if err != nil {
			return
		}
		c.conns.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(c.ctx, func() { _ = conn.Close() })()
			if err := c.serve(conn); err != nil {
				c.opt.Logger.Debug("holdfast: event log of another rank", "error", err)
			}
		})
	}
}

// serve takes in the lines of one rank: batches of lines, each ended by an empty one. The first has only its header.
func (c *collector) serve(conn *net.UnixConn) error {
	if err := handshake.SameUser(conn); err != nil {
		return err
	}
	in, out := bufio.NewReaderSize(conn, maxLine), json.NewEncoder(conn)
	rank := -1
	for {
		batch, err := readBatch(in)
		if err != nil || len(batch) == 0 {
			return err
		}
		var a answer
		switch first := batch[0]; {
		case rank >= 0:
			for i := range batch {
				if batch[i].Rank != rank || batch[i].Header != nil {
					return fmt.Errorf("rank %d sends a line of rank %d", rank, batch[i].Rank)
				}
			}
			a.Written, err = c.write(batch)
		case len(batch) > 1 || first.Name != Open || first.Header == nil || first.Header.Run != c.opt.Header.Run ||
			first.Rank == c.opt.Rank:
			return errors.New("it does not begin with a header of this run")
		default:
			c.mu.Lock()
			err = c.file.join(first)
			c.mu.Unlock()
			if err == nil {
				rank, a.Written = first.Rank, 1
			}
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

// readBatch reads lines up to an empty one; none at the end.
func readBatch(in *bufio.Reader) (batch []Event, err error) {
	for len(batch) <= queueLen {
		line, whole, err := readLine(in)
		if err != nil { // an incomplete batch was not taken in
			return nil, nil
		}
		if whole && len(line) == 0 {
			return batch, nil
		}
		e, ok := parse(line)
		if !whole || !ok {
			return nil, errors.New("a malformed line")
		}
		batch = append(batch, e)
	}
	return nil, fmt.Errorf("more than %d lines at a time", queueLen)
}

// member is the log of another rank of a node.
type member struct {
	opt    Options
	conn   *net.UnixConn // nil: it has not joined
	in     *bufio.Reader
	joined bool
	own    *file           // from when the first rank was not there, or not any more
	ending <-chan struct{} // closed: there is no more time to wait for the first rank
}

// open does nothing: the first rank may not be there yet.
func (m *member) open() error { return nil }

func (m *member) write(batch []Event) (written int, err error) {
	if m.own == nil {
		n, err, gone := m.send(batch)
		if gone == nil {
			return n, err
		}
		m.opt.Logger.Debug("holdfast: this rank goes on in an event log of its own", "why", gone)
		m.leave()
		m.own = newFile(m.opt, partName)
	}
	return m.own.write(batch)
}

// send sends a batch to the first rank; gone reports that it is not there, and may have written the batch.
func (m *member) send(batch []Event) (written int, err, gone error) {
	if m.conn == nil {
		if gone := m.dial(); gone != nil {
			return 0, nil, gone
		}
	}
	if !m.joined {
		if _, err, gone := m.exchange([]Event{head(m.opt)}); err != nil || gone != nil {
			return 0, err, gone
		}
		m.joined = true
	}
	return m.exchange(batch)
}

// dial waits until the first rank listens, and not at all once the log is being closed.
func (m *member) dial() error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(joinTime)
	defer late.Stop()
	for {
		conn, err := net.DialUnix("unix", nil, m.opt.Node.address())
		if err == nil {
			if err = handshake.SameUser(conn); err == nil {
				m.conn, m.in = conn, bufio.NewReaderSize(conn, maxLine)
				return nil
			}
			return errors.Join(err, conn.Close())
		}
		select {
		case <-tick.C:
		case <-late.C:
			return err
		case <-m.ending:
			return err
		}
	}
}

func (m *member) exchange(batch []Event) (written int, err, gone error) {
	var b bytes.Buffer
	for i := range batch {
		line, err := batch[i].line()
		if err != nil {
			return 0, err, nil
		}
		b.Write(line)
	}
	b.WriteByte('\n')
	gone = m.conn.SetDeadline(time.Now().Add(answerTime))
	if gone == nil {
		_, gone = m.conn.Write(b.Bytes())
	}
	var a answer
	if gone == nil {
		var line []byte
		if line, _, gone = readLine(m.in); gone == nil {
			gone = json.Unmarshal(line, &a)
		}
	}
	if a.Error != "" {
		err = errors.New(a.Error)
	}
	return min(a.Written, len(batch)), err, gone
}

func (m *member) leave() {
	if m.conn != nil {
		_ = m.conn.Close() // all answered lines are written
		m.conn = nil
	}
}

func (m *member) close() error {
	m.leave()
	if m.own != nil {
		return m.own.close()
	}
	return nil
}
