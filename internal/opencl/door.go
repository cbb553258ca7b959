package opencl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/handshake"
	"golang.org/x/sys/unix"
)

// DoorPrefix begins the names of the abstract sockets of commands that serve programs; child.Name of the program
// follows.
const DoorPrefix = "@holdfast-opencl-"

// doorVersion is that of Ask and Answer.
const doorVersion = 2

// Ask is a request to a command about its program.
type Ask struct {
	Version int     `json:"version"`
	Do      string  `json:"do"`             // state, pause, resume or image
	Wait    float64 `json:"wait,omitempty"` // seconds for commands to end
	Devices string  `json:"devices,omitempty"`
}

// Answer is the result.
type Answer struct {
	State string `json:"state"` // running or paused
	Bytes int64  `json:"bytes"` // of contents that went from the devices, or to them
	// Seconds is how long the program has been paused; in answer to state and image. Devices names those that it uses.
	Seconds float64  `json:"paused_s,omitempty"`
	Devices []string `json:"devices,omitempty"`
	Error   string   `json:"error,omitempty"`

	// Files counts the files of a Still, and Areas the areas among them; in answer to image.
	Files int `json:"files,omitempty"`
	Areas int `json:"areas,omitempty"`
}

// door is where the command that serves a program takes requests to pause it.
type door struct {
	mu       sync.Mutex // held while the state changes
	listener *net.UnixListener
	paused   *kept
}

// openDoor listens. The command that has served the program before it was killed may have the address until it notices.
// Without an address the program cannot be paused.
func (s *Server) openDoor() {
	if s.opt.Next == nil || s.pid == 0 {
		return
	}
	at := &net.UnixAddr{Name: DoorPrefix + child.NameHere(s.pid), Net: "unix"}
	l, err := net.ListenUnix("unix", at)
	if err == nil {
		s.admit(l)
		return
	}
	s.opt.Logger.Warn("the program cannot be paused yet", "err", err)
	go func() {
		for err != nil {
			select {
			case <-s.ended:
				return
			case <-time.After(20 * time.Millisecond):
			}
			l, err = net.ListenUnix("unix", at)
		}
		s.admit(l)
	}()
}

// admit serves visitors until the program has ended.
func (s *Server) admit(l *net.UnixListener) {
	s.door.listener = l
	go func() {
		<-s.ended
		_ = l.Close() // the program has ended
	}()
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go s.visit(c)
		}
	}()
}

// visitTime is how long a visitor may take to ask.
const visitTime = 10 * time.Second

// visit serves one visitor.
func (s *Server) visit(c *net.UnixConn) {
	defer c.Close()
	who, err := handshake.Peer(c)
	if err != nil || int(who.Uid) != os.Getuid() && who.Uid != 0 {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(visitTime))
	var a Ask
	asks := json.NewDecoder(c)
	if err := asks.Decode(&a); err != nil {
		return
	}
	s.door.mu.Lock()
	defer s.door.mu.Unlock()
	if a.Do == "image" {
		s.lend(c, asks, a)
		return
	}
	answer, err := s.do(a)
	if err != nil {
		answer.Error = err.Error()
	}
	err = json.NewEncoder(c).Encode(answer)
	switch {
	case answer.Error != "":
	case a.Do == "resume":
		s.opt.Leave()
	case a.Do == "pause" && err != nil: // the process that asked for it has ended
		if s.resume("") == nil {
			s.opt.Leave()
		}
	}
}

// do carries out the request; the door is held.
func (s *Server) do(a Ask) (Answer, error) {
	if a.Version != doorVersion {
		return Answer{}, fmt.Errorf("it is served by a command of another release (version %d, want %d)", doorVersion,
			a.Version)
	}
	var err error
	switch paused := s.door.paused != nil; {
	case (a.Do == "pause" || a.Do == "image") && paused:
		err = errors.New("it is paused")
	case a.Do == "resume" && !paused:
		err = errors.New("it is not paused")
	case a.Do == "pause" || a.Do == "image":
		s.door.paused, err = s.hold(time.Duration(a.Wait*float64(time.Second)), a.Do == "pause")
		if err == nil && a.Do == "pause" {
			s.devices.close()
			go s.watchPaused()
		}
	case a.Do == "resume":
		bytes := s.door.paused.contents
		if err = s.resume(a.Devices); err == nil {
			return Answer{State: "running", Bytes: bytes}, nil
		}
	}
	answer := Answer{State: "running", Devices: s.devices.used()}
	if s.door.paused != nil {
		answer.State, answer.Bytes = "paused", s.door.paused.contents
		answer.Seconds = time.Since(s.door.paused.since).Seconds()
	}
	return answer, err
}

// watchPaused ends the service of a program that ends while it is paused.
func (s *Server) watchPaused() {
	for gone := false; !gone; gone = s.gone(200) {
		select {
		case <-s.ended:
			return
		default:
		}
	}
	s.finish(nil)
	s.goOn() // waits at the gate notice that
}

// gone reports whether the program has ended, and waits up to some milliseconds for that.
func (s *Server) gone(ms int) (yes bool) {
	raw, err := s.control.SyscallConn()
	if err != nil {
		return false // as below
	}
	_ = raw.Control(func(fd uintptr) { // it fails once the service has ended
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, ms)
		yes = err == nil && n > 0
	})
	return yes
}

// resume has another process serve the program. After an error it is paused as before.
func (s *Server) resume(devices string) error {
	files, _, release, err := s.files()
	defer release()
	if err != nil {
		return err
	}
	_ = s.door.listener.Close() // the next one listens there
	if err = s.opt.Next(files, devices); err != nil {
		s.openDoor()
	}
	return err
}

// files returns the files for Next, and how many of them are areas. release must be called.
func (s *Server) files() (files []*os.File, areas int, release func(), err error) {
	var own []*os.File
	dupOf := func(c interface{ File() (*os.File, error) }) {
		f, e := c.File()
		if err = errors.Join(err, e); e == nil {
			files, own = append(files, f), append(own, f)
		}
	}
	dupOf(s.control)
	files = append(files, s.door.paused.file, s.ring.file)
	for _, a := range s.allAreas(s.held.owed()) {
		files = append(files, a.file)
		areas++
	}
	for _, c := range s.connections.all() {
		dupOf(c.UnixConn)
	}
	return files, areas, func() {
		for _, f := range own {
			_ = f.Close() // a duplicate
		}
	}, err
}

func unmap(b []byte) error {
	if b == nil {
		return nil
	}
	return unix.Munmap(b)
}

// Visit asks the command that serves a program.
func Visit(ctx context.Context, pid int, a Ask) (Answer, error) {
	c, err := call(ctx, pid)
	if err != nil {
		return Answer{}, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	return ask(c, pid, a)
}

// call connects to the command that serves a program.
func call(ctx context.Context, pid int) (*net.UnixConn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", DoorPrefix+child.Name(pid))
	if err != nil {
		return nil, fmt.Errorf("no holdfast opencl command serves process %d: %w", pid, err)
	}
	u := c.(*net.UnixConn)
	who, err := handshake.Peer(u)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	owner, err := os.Stat("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("there is no process %d", pid), c.Close())
	}
	if st, ok := owner.Sys().(*syscall.Stat_t); !ok || who.Uid != st.Uid {
		return nil, errors.Join(fmt.Errorf("a process of another user (%d) listens for process %d", who.Uid, pid),
			c.Close())
	}
	return u, nil
}

// ask gives the answer to one question.
func ask(c net.Conn, pid int, a Ask) (answer Answer, err error) {
	a.Version = doorVersion
	if err = json.NewEncoder(c).Encode(a); err == nil {
		err = json.NewDecoder(c).Decode(&answer)
	}
	if err != nil {
		return Answer{}, fmt.Errorf("the command that serves process %d has ended, or refuses: only its user and root "+
			"may have it paused: %w", pid, err)
	}
	if answer.Error != "" {
		return answer, errors.New(answer.Error)
	}
	return answer, nil
}
