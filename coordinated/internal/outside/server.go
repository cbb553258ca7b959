package outside

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/internal/job"
)

// ServerOptions configure a Server.
type ServerOptions struct {
	Plane      *control.Plane
	Dir        string // of the contact file
	Job        string
	Node       string
	Key        control.Key
	Supervisor string // as ReporterOptions has it
	Daemon     bool   // this process serves a program that may outlive it
	Listen     bool   // on an interface that other nodes reach, beside that of the plane
	// Optional lets a job run whose contact file cannot be written: it may use no epoch of that directory.
	Optional bool
	Log      *slog.Logger
	Go       func(func()) // runs f on a goroutine that is waited for at the end

	// Request asks for a checkpoint and, if wanted, waits for its outcome.
	Request func(stop, wait bool) error
	// Status returns the state of the job, Ranks that of each rank.
	Status func() (*job.Status, error)
	Ranks  func() ([]job.RankStatus, error)
}

// Server answers clients at rank 0. A nil Server does nothing.
type Server struct {
	opt  ServerOptions
	ctx  context.Context
	file string
}

// Serve publishes the contact file and answers clients until ctx or the plane ends. The
// error is of that file.
func Serve(ctx context.Context, opt ServerOptions) (*Server, error) {
	s := &Server{opt: opt, ctx: ctx, file: filepath.Join(opt.Dir, job.ContactName)}
	v, _ := job.ParseSupervisor(opt.Supervisor) // no supervisor is no error
	if err := (job.Contact{Job: opt.Job, Addr: s.clientAddr(), Node: opt.Node, Daemon: opt.Daemon,
		Key: opt.Key, Supervisor: v.Address()}).Write(s.file); err != nil {
		err = fmt.Errorf("write the contact file: %w", err)
		if !opt.Optional {
			return nil, err
		}
		opt.Log.Warn("holdfast: 'holdfast status' and 'request' cannot find this run", "error", err)
	}
	opt.Go(s.run)
	return s, nil
}

// clientAddr returns where other processes of the owner reach rank 0. An interface that the user
// has chosen serves them too.
func (s *Server) clientAddr() string {
	p := s.opt.Plane
	if !s.opt.Listen {
		return p.Addr()
	}
	addr, err := p.ListenElsewhere()
	if err != nil {
		s.opt.Log.Warn("holdfast: 'holdfast status' and 'request' work on this node only", "error", err)
		return p.Addr()
	}
	return addr
}

func (s *Server) run() {
	for {
		conn, err := s.opt.Plane.AcceptClient(s.ctx)
		if err != nil {
			return
		}
		s.opt.Go(func() { s.answer(conn) })
	}
}

// Close removes the contact file.
func (s *Server) Close() {
	if s == nil {
		return
	}
	if err := os.Remove(s.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.opt.Log.Warn("holdfast: cannot remove the contact file", "error", err)
	}
}

// answer serves one client: one line in, one line out, until it hangs up.
func (s *Server) answer(conn net.Conn) {
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

func (s *Server) handle(q job.Query, r *job.Reply) error {
	switch q.Op {
	case "status":
	case "request":
		if err := s.opt.Request(q.Stop, q.Wait); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown operation %q", q.Op)
	}
	var err error
	if r.Status, err = s.opt.Status(); err != nil || q.Op != "status" {
		return err
	}
	r.Status.States, err = s.opt.Ranks()
	return err
}
