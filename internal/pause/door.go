package pause

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/handshake"
)

// version is that of the protocol.
const version = "holdfast-cuda 4"

// doorPrefix is the start of the name of the socket at which the library listens in a process; its number follows.
const doorPrefix = "@holdfast-cuda-"

// door is the connection to a process. A program that is in the middle of a pause goes on when it ends.
type door struct {
	pid          int
	program      string
	conn         *net.UnixConn
	lines        *bufio.Scanner
	moved, total atomic.Int64 // bytes, of the copy under way
}

// errNoDoor is the error of a process without a listener.
var errNoDoor = errors.New("it is no CUDA program that can be paused: start it by holdfast run --cuda, or with " +
	"libholdfast-cuda and HOLDFAST_CUDA_PAUSE=on; it can be paused once it has used a GPU")

// open connects to a process, and makes sure that it is the one that answers.
func open(ctx context.Context, pid int) (*door, error) {
	d := &door{pid: pid, program: ProgramOf(pid)}
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", doorPrefix+strconv.Itoa(pid))
	if err != nil {
		return nil, fmt.Errorf("process %d (%s): %w", pid, d.program, errNoDoor)
	}
	d.conn = c.(*net.UnixConn)
	limit := time.Now().Add(greetTime)
	if t, ok := ctx.Deadline(); ok && t.Before(limit) {
		limit = t
	}
	_ = d.conn.SetDeadline(limit)
	err = d.greet()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errOther
	}
	_ = d.conn.SetDeadline(time.Time{})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("process %d (%s): %w", pid, d.program, err), d.conn.Close())
	}
	return d, nil
}

// errOther: a process answers one command after the other.
var errOther = errors.New("another command is at work on it")

// greetTime is how long a process may take to answer; it answers one command after the other.
const greetTime = 20 * time.Second

func (d *door) greet() error {
	who, err := handshake.Peer(d.conn)
	if err != nil {
		return err
	}
	if int(who.Pid) != d.pid {
		return fmt.Errorf("process %d listens in its place", who.Pid)
	}
	d.lines = bufio.NewScanner(d.conn)
	if !d.lines.Scan() {
		if err := d.lines.Err(); err != nil {
			return err
		}
		return fmt.Errorf("it ends, or refuses the connection: only its user (%d) and root may have it paused", who.Uid)
	}
	if d.lines.Text() != version {
		return fmt.Errorf("it has libholdfast-cuda of another release (%q, want %q)", d.lines.Text(), version)
	}
	return nil
}

func (d *door) close() { _ = d.conn.Close() }

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
	if _, err := fmt.Fprintln(d.conn, line); err != nil {
		return nil, fmt.Errorf("process %d (%s) has gone: %w", d.pid, d.program, err)
	}
	for d.lines.Scan() {
		word, rest, _ := strings.Cut(d.lines.Text(), " ")
		var err error
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
		return nil, fmt.Errorf("process %d (%s): %w", d.pid, d.program, err)
	}
	return nil, fmt.Errorf("process %d (%s) has ended", d.pid, d.program)
}

// state is what a process says of itself.
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
		return s, fmt.Errorf("process %d (%s): %q is no state", d.pid, d.program, f)
	}
	s.name = f[0]
	if _, err := fmt.Sscan(f[1]+" "+f[2]+" "+f[4], &s.arena, &s.other, &s.seconds); err != nil {
		return s, fmt.Errorf("process %d (%s): %w", d.pid, d.program, err)
	}
	for text := range strings.SplitSeq(f[3], ",") {
		uuid, used := strings.CutSuffix(text, "+")
		if uuid != "-" {
			s.devices = append(s.devices, device{uuid, used})
		}
	}
	return s, nil
}
