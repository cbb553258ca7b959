package opencl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/handshake"
	"github.com/holdfast-hpc/holdfast/internal/shm"
	"golang.org/x/sys/unix"
)

// Still is a program that stands still for an image of its process: it is paused, has read all that was sent to it, and
// is stopped (SIGSTOP). When the connection ends, because GoOn or Close was called or the caller has died, the program
// goes on. If the command that serves the program is killed meanwhile, Close has it run into the loss of its device.
type Still struct {
	PID     int
	Process int       // the same, a descriptor
	Bytes   int64     // of contents that went from the devices
	Since   time.Time // its calls wait from then on

	// Control is the command's end of the control connection. State has the objects, once Filled has returned; Resume
	// reads it. Ring and Areas are memory that the program has mapped, and Connections the command's ends of these. The
	// caller must take nothing from the sockets.
	Control, State, Ring *os.File
	Areas, Connections   []*os.File

	conn    *net.UnixConn
	server  int  // the command that serves the program, a descriptor
	stopped bool // the command may have stopped the program, and has not had it run again
}

// Stop has a program stand still, once its commands have ended, for which it waits.
func Stop(ctx context.Context, pid int, wait time.Duration) (_ *Still, err error) {
	c, err := call(ctx, pid)
	if err != nil {
		return nil, err
	}
	made := &Still{PID: pid, Process: -1, conn: c, server: -1, stopped: true}
	defer func() {
		if err != nil {
			made.Close()
		}
	}()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if made.Process, err = unix.PidfdOpen(pid, 0); err != nil {
		return nil, err
	}
	who, err := handshake.Peer(c)
	if err == nil {
		made.server, err = unix.PidfdOpen(int(who.Pid), 0)
	}
	if err != nil {
		return nil, fmt.Errorf("the command that serves process %d has ended: %w", pid, err)
	}
	a, err := ask(c, pid, Ask{Do: "image", Wait: wait.Seconds()})
	made.stopped = a.Error == "" // a command that refuses has left the program as it was
	if err != nil {
		return nil, err
	}
	files, err := receiveFiles(c, a.Files)
	if err == nil && len(files) < 3+a.Areas {
		err = errors.New("the command that serves the program has given too few files")
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	made.Bytes, made.Since = a.Bytes, time.Now().Add(-time.Duration(a.Seconds*float64(time.Second)))
	made.Control, made.State, made.Ring = files[0], files[1], files[2]
	made.Areas, made.Connections = files[3:3+a.Areas], files[3+a.Areas:]
	return made, nil
}

// receiveFiles asks for files until it has all of them.
func receiveFiles(c *net.UnixConn, n int) (files []*os.File, err error) {
	oob := make([]byte, unix.CmsgSpace(filesAtOnce*4))
	for len(files) < n {
		if err := json.NewEncoder(c).Encode(Ask{Version: doorVersion, Do: "files"}); err != nil {
			return files, err
		}
		var b [1]byte
		for b[0] != 'F' {
			_, oobn, flags, _, err := c.ReadMsgUnix(b[:], oob)
			if err != nil {
				return files, err
			}
			more, err := shm.Files(oob[:oobn])
			files = append(files, more...)
			if err != nil || flags&unix.MSG_CTRUNC != 0 {
				return files, errors.Join(errors.New("no room for the files of a program (ulimit -n)"), err)
			}
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // another process has it, too
	}
}

// Filled returns when State is whole. The contents come from the devices while the caller looks at the process.
func (s *Still) Filled() error {
	_, err := ask(s.conn, s.PID, Ask{Do: "fill"})
	return err
}

// GoOn has the program go on.
func (s *Still) GoOn() error {
	_, err := ask(s.conn, s.PID, Ask{Do: "resume"})
	s.stopped = err != nil
	return errors.Join(err, s.conn.Close())
}

// Close closes the files. A program that has not gone on does.
func (s *Still) Close() {
	_ = s.conn.Close() // GoOn has closed it
	if s.Control != nil {
		closeAll([]*os.File{s.Control, s.State, s.Ring})
	}
	closeAll(s.Areas)
	closeAll(s.Connections)
	if s.stopped && s.server >= 0 {
		s.free()
	}
	for _, fd := range []int{s.Process, s.server} {
		_ = unix.Close(fd) // it may not be open
	}
}

// free returns when the program is no longer stopped, or has ended. It has the program run if the command that had
// stopped it has been killed.
func (s *Still) free() {
	ended := func(process int) bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, 0)
		return n > 0
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ended(s.Process) {
			return
		}
		if ended(s.server) {
			start(s.PID)
			return
		}
		if state, err := states(s.PID); err != nil || !strings.Contains(state, "T") {
			return
		}
	}
}

// filesAtOnce is how many descriptors one message has; the kernel takes 253.
const filesAtOnce = 128

// lend has the program stand still as long as a visitor wants; the door is held. Then it goes on with its devices.
func (s *Server) lend(c *net.UnixConn, asks *json.Decoder, a Ask) {
	wait := time.Duration(a.Wait * float64(time.Second))
	answer, err := s.do(a)
	if err != nil {
		_ = json.NewEncoder(c).Encode(Answer{State: answer.State, Error: err.Error()}) // the caller may have gone
		return
	}
	k := s.door.paused
	if err = errors.Join(s.heard(wait), s.stop(wait)); err == nil {
		fill := sync.OnceValue(func() error { return k.fill(false) })
		go func() { _ = fill() }() // the next call has its error
		err = s.serveFiles(c, asks, answer, fill)
		if e := fill(); err == nil { // the devices are read until then
			err = e
		}
		if err == nil { // CRIU has ended
			_ = unix.Kill(s.pid, unix.SIGCONT) // it may have been killed
		} else {
			start(s.pid)
		}
	}
	s.door.paused = nil
	if s.gone(0) {
		s.finish(nil)
	}
	s.goOn()
	answer = Answer{State: "running"}
	if err != nil {
		answer.Error = err.Error()
	}
	_ = json.NewEncoder(c).Encode(answer) // as above
	_ = k.close()                         // it was only read; to unmap much takes long
}

// serveFiles gives the visitor the program's files, of which fill completes the state. It returns when the visitor
// wants the program to go on, or has gone.
func (s *Server) serveFiles(c *net.UnixConn, asks *json.Decoder, answer Answer, fill func() error) error {
	files, areas, release, err := s.files()
	defer release()
	if err != nil {
		return err
	}
	answer.Files, answer.Areas = len(files), areas
	answer.Seconds = time.Since(s.door.paused.since).Seconds()
	if err := json.NewEncoder(c).Encode(answer); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Time{})
	for {
		var a Ask
		if err := asks.Decode(&a); err != nil {
			return fmt.Errorf("who took an image has ended: %w", err)
		}
		switch a.Do {
		case "files":
		case "fill":
			err := fill()
			if err == nil {
				err = json.NewEncoder(c).Encode(Answer{State: "paused"})
			}
			if err != nil {
				return err
			}
			continue
		default:
			return nil
		}
		n := min(len(files), filesAtOnce)
		var fds []int
		for _, f := range files[:n] {
			fds = append(fds, int(f.Fd()))
		}
		if _, _, err := c.WriteMsgUnix([]byte{'F'}, unix.UnixRights(fds...), nil); err != nil {
			return err
		}
		files = files[n:]
	}
}

// heard returns when the program has read all that was sent to it: a new socket would not have it.
func (s *Server) heard(wait time.Duration) error {
	list := []*net.UnixConn{s.control}
	for _, c := range s.connections.all() {
		list = append(list, c.UnixConn)
	}
	for end := time.Now().Add(wait); ; time.Sleep(time.Millisecond) {
		left := 0
		for _, c := range list {
			raw, err := c.SyscallConn()
			if err != nil {
				return err
			}
			if e := raw.Control(func(fd uintptr) {
				var n int
				n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
				left += n
			}); e != nil || err != nil {
				return errors.Join(e, err)
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(end) {
			return errors.New("it does not read what was sent to it")
		}
	}
}

// stop stops all threads of the program.
func (s *Server) stop(wait time.Duration) error {
	if state, err := states(s.pid); err != nil || strings.ContainsAny(state, "Tt") {
		return errors.Join(errors.New("it is stopped, or a debugger has it"), err)
	}
	if err := unix.Kill(s.pid, unix.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(wait); ; time.Sleep(time.Millisecond) {
		state, err := states(s.pid)
		if err == nil && strings.Trim(state, "TZX") == "" {
			return nil
		}
		if err != nil || time.Now().After(end) {
			return errors.Join(errors.New("its threads do not stop"), err, unix.Kill(s.pid, unix.SIGCONT))
		}
	}
}

// states has a letter for each thread of a process.
func states(pid int) (string, error) {
	files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	if err == nil && len(files) == 0 {
		err = errors.New("it has ended")
	}
	var out strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if i := bytes.LastIndexByte(b, ')'); err == nil && i > 0 && len(b) > i+2 { // else it has ended
			out.WriteByte(b[i+2])
		}
	}
	return out.String(), err
}

// start has a program run again. CRIU may still have it if the command that takes the image has died: CRIU leaves the
// program as it has found it.
func start(pid int) {
	for calm, tries := 0, 0; calm < 3 && tries < 30000; tries++ {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		if err != nil {
			return // it has ended
		}
		state, err := states(pid)
		switch {
		case err != nil:
			return
		case !bytes.Contains(b, []byte("\nTracerPid:\t0\n")):
			calm = 0
		case strings.Contains(state, "T"):
			calm = 0
			_ = unix.Kill(pid, unix.SIGCONT) // it has ended
		default:
			calm++
		}
		time.Sleep(time.Millisecond)
	}
}
