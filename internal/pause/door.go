package pause

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/handshake"
	"github.com/holdfast-hpc/holdfast/internal/job"
)

// Version is that of the protocol.
const Version = "holdfast-cuda 5"

// doorPrefix is the start of the name of the socket at which the library listens in a process; child.Name follows.
const doorPrefix = "@holdfast-cuda-"

// door is the connection to a process. A program that is in the middle of a pause goes on when it ends.
type door struct {
	job.Process
	node string // empty: this one
	link
	machine      *Machine     // that of node
	moved, total atomic.Int64 // bytes, of the copy under way
}

type link interface {
	Line(patience time.Duration) (string, error)
	SayLine(text string) error
	Close() error
}

// near is the link to a process of this node.
type near struct {
	*net.UnixConn
	lines *bufio.Scanner
}

func (n near) Line(patience time.Duration) (string, error) {
	_ = n.SetReadDeadline(time.Now().Add(patience)) // closed is as good
	if !n.lines.Scan() {
		return "", errors.Join(n.lines.Err(), io.EOF)
	}
	return n.lines.Text(), nil
}

func (n near) SayLine(text string) error {
	_, err := fmt.Fprintln(n, text)
	return err
}

// Close ends the connection. A program that has nothing to do has closed its end then, which an image could not hold.
func (n near) Close() error {
	if n.CloseWrite() == nil {
		_, _ = n.Line(time.Second) // its end; one that is stopped or busy is not waited for longer
	}
	return n.UnixConn.Close()
}

// String names a process in errors.
func (d *door) String() string {
	return (&Result{Node: d.node, Rank: d.number(), PID: d.PID, Program: d.Program}).String()
}

// errNoDoor is the error of a process without a listener.
var errNoDoor = errors.New("it is no CUDA program that can be paused: start it by holdfast run --cuda, or with " +
	"libholdfast-cuda and HOLDFAST_CUDA_PAUSE=on; it can be paused once it has used a GPU")

// open connects to a process, and makes sure that it is the one that answers.
func open(ctx context.Context, pid int) (*door, error) {
	d := &door{Process: job.Process{PID: pid, Program: ProgramOf(pid)}}
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", doorPrefix+child.Name(pid))
	if err != nil && gone(pid) {
		return nil, fmt.Errorf("process %d has ended", pid)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d, errNoDoor)
	}
	conn := c.(*net.UnixConn)
	d.link = near{conn, bufio.NewScanner(conn)}
	limit := greetTime
	if t, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(t))
	}
	if err := d.greet(conn, limit); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", d, err), d.Close())
	}
	return d, nil
}

// errOther: a process answers one command after the other.
var errOther = errors.New("another command is at work on it")

// errStopped: nothing of a process runs, nor its listener.
var errStopped = errors.New("it is stopped, as by Ctrl-Z: kill -CONT has it go on")

func stopped(pid int) error {
	if p, err := child.Look(pid); err == nil && p.Stopped {
		return errStopped
	}
	return nil
}

// greetTime is how long a process may take to answer; it answers one command after the other.
const greetTime = 20 * time.Second

// greet makes sure that the process itself answers.
func (d *door) greet(c *net.UnixConn, limit time.Duration) error {
	who, err := handshake.Peer(c)
	if err != nil {
		return err
	}
	if int(who.Pid) != d.PID {
		return fmt.Errorf("process %d listens in its place", who.Pid)
	}
	err = d.hello(limit)
	if errors.Is(err, errOther) { // one that is restored from an image is let go on at about this time
		return cmp.Or(stopped(d.PID), err)
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("it ends, or refuses the connection: only its user (%d) and root may have it paused", who.Uid)
}

// hello reads which protocol the library speaks.
func (d *door) hello(limit time.Duration) error {
	line, err := d.Line(limit)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errOther
	case err != nil:
		return err
	case line != Version:
		return fmt.Errorf("it has libholdfast-cuda of another release (%q, want %q)", line, Version)
	}
	return nil
}

// ProgramOf names a process as people do.
func ProgramOf(pid int) string {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return "?"
	}
	return filepath.Base(strings.TrimSuffix(exe, " (deleted)"))
}

// Answers that are no error of the connection.
var (
	errRefused = errors.New("it cannot be paused")
	errBusy    = errors.New("it does not come to rest")
)

// ask has the process do something, and returns the fields of its answer.
func (d *door) ask(line string) ([]string, error) {
	_ = d.SayLine(line) // an error is the end of the process, which Line tells of
	for {
		text, err := d.Line(silence)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, fmt.Errorf("%s has been silent for %v", d, silence)
		}
		if err != nil && d.node == "" && !gone(d.PID) {
			return nil, fmt.Errorf("%s has closed the connection, and goes on", d)
		}
		if err != nil {
			return nil, fmt.Errorf("%s has ended%s", d, map[bool]string{true: ", or its node has"}[d.node != ""])
		}
		word, rest, _ := strings.Cut(text, " ")
		switch word {
		case "moved":
			var moved, total int64
			if _, err := fmt.Sscan(rest, &moved, &total); err == nil {
				d.moved.Store(moved)
				d.total.Store(total)
			}
			continue
		case "error":
			err = errors.New(rest)
		case "refused":
			err = fmt.Errorf("%w: %s", errRefused, rest)
		case "busy":
			err = fmt.Errorf("%w: %s", errBusy, rest)
		default:
			return strings.Fields(rest), nil
		}
		return nil, fmt.Errorf("%s: %w", d, err)
	}
}

type state struct {
	name         string // running or paused, between steps also quiet and saved
	arena, other int64  // bytes of device memory: those that the library copies, and the driver's
	devices      []device
	seconds      float64 // that it has been paused
}

// device is one that a process sees, in the order of its numbers.
type device struct {
	uuid string // 32 hexadecimal digits
	used bool
}

func (d *door) state() (s state, err error) {
	f, err := d.ask("state")
	if err != nil {
		return s, err
	}
	if len(f) != 5 {
		return s, fmt.Errorf("%s: %q is no state", d, f)
	}
	s.name = f[0]
	if _, err := fmt.Sscan(f[1]+" "+f[2]+" "+f[4], &s.arena, &s.other, &s.seconds); err != nil {
		return s, fmt.Errorf("%s: %w", d, err)
	}
	for text := range strings.SplitSeq(f[3], ",") {
		uuid, used := strings.CutSuffix(text, "+")
		if uuid != "-" {
			s.devices = append(s.devices, device{uuid, used})
		}
	}
	return s, nil
}
