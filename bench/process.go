package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// Figures are a process's printed measurements: samples by name, and texts.
type Figures struct {
	Set
	Names []string // of samples, in the order in which they came
	Texts map[string]string
}

// Print prints samples for Figures: a line "name, tab, value" each. Programs in C do the same.
func Print(w io.Writer, name string, samples ...float64) error {
	for _, v := range samples {
		if _, err := fmt.Fprintf(w, "%s\t%.12g\n", name, v); err != nil {
			return err
		}
	}
	return nil
}

// ReadFigures reads a process's output, in which other lines are those of libraries. It is an error if a figure that is
// wanted is missing.
func ReadFigures(out string, want ...string) (Figures, error) {
	f := Figures{Set: Set{}, Texts: map[string]string{}}
	for line := range strings.Lines(out) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			f.Texts[name] = value
			continue
		}
		if f.Set[name] == nil {
			f.Names = append(f.Names, name)
		}
		f.Add(name, v)
	}
	for _, name := range want {
		if len(f.Set[name]) == 0 {
			return f, fmt.Errorf("it printed nothing for %q:\n%s", name, out)
		}
	}
	return f, nil
}

// Measure runs a job and reads its figures.
func Measure(ctx context.Context, j mpirun.Job, want ...string) (Figures, error) {
	out, err := j.Output(ctx)
	if err != nil {
		return Figures{}, err
	}
	return ReadFigures(out, want...)
}

// Process is a process of a suite that carries out commands, and answers.
type Process struct {
	*exec.Cmd
	in  io.WriteCloser
	enc *json.Encoder
	dec *json.Decoder
}

// answer is a Process's reply to a command that it has carried out.
type answer struct {
	Err   string
	Reply any
}

// StartProcess starts a Worker that calls Answer. Close ends it.
func StartProcess(ctx context.Context, line []string) (*Process, error) {
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p := newProcess(in, out)
	p.Cmd = cmd
	return p, cmd.Start()
}

func newProcess(in io.WriteCloser, out io.Reader) *Process {
	return &Process{in: in, enc: json.NewEncoder(in), dec: json.NewDecoder(out)}
}

// Do gives the process a command and waits for its answer. Reply is a pointer.
func (p *Process) Do(command, reply any) error {
	if err := p.enc.Encode(command); err != nil {
		return err
	}
	a := answer{Reply: reply}
	if err := p.dec.Decode(&a); err != nil || a.Err == "" {
		return err
	}
	return errors.New(a.Err)
}

// Close ends the process.
func (p *Process) Close() error { return errors.Join(p.in.Close(), p.Wait()) }

// Answer carries out the commands of the other end of a Process, until there are no more.
func Answer[Command, Reply any](in io.Reader, out io.Writer, do func(Command, *Reply) error) error {
	dec, enc := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var c Command
		if err := dec.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var r Reply
		a := answer{Reply: &r}
		if err := do(c, &r); err != nil {
			a.Err = err.Error()
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
}

// Server is a process that others use until it is stopped.
type Server struct {
	Input io.Closer // its standard input
	p     *child.Process
	said  said
}

// said is a server's standard error.
type said struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// Serve starts a server and waits until it has printed a line that says that it is ready.
func Serve(cmd *exec.Cmd, ready func(line string) bool) (*Server, error) {
	s := &Server{}
	up, isUp := make(chan struct{}), false
	cmd.Stderr, cmd.Stdout = &s.said, &child.Lines{Each: func(line []byte) {
		if !isUp && ready(string(line)) {
			isUp = true
			close(up)
		}
	}}
	var err error
	if s.Input, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if s.p, err = child.Start(cmd); err != nil {
		return nil, err
	}
	select {
	case <-up:
		return s, nil
	case <-s.p.Ended:
		err := s.Wait()
		if err == nil {
			err = errors.New(s.Said())
		}
		return nil, fmt.Errorf("it does not start: %w", err)
	}
}

// Said returns the server's standard error.
func (s *Server) Said() string {
	s.said.mu.Lock()
	defer s.said.mu.Unlock()
	return s.said.b.String()
}

// Wait waits for the end of the server. That its context has ended it is no error.
func (s *Server) Wait() error {
	err := s.p.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && !exit.Exited() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(s.p.Cmd.Args[:2], " "), err, s.Said())
	}
	return nil
}

// Stop ends the server by SIGTERM.
func (s *Server) Stop() error {
	if s == nil {
		return nil
	}
	s.p.Signal(syscall.SIGTERM)
	return s.Wait()
}
