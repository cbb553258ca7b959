package opencl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
	"golang.org/x/sys/unix"
)

// endWithin is how long a server waits for the commands of a program that has ended.
const endWithin = 5 * time.Second

// Serve serves the program at the other end of the connection until it ends or says
// something impossible, which is an error. It closes the connection, and the devices when they are idle. Where
// they are not within five seconds, as in a kernel without end, Serve returns all the same, and the process
// should end: that ends the commands.
func Serve(ctx context.Context, control *net.UnixConn, opt Options) error {
	s := newServer(control, opt)
	stop := context.AfterFunc(ctx, func() { s.finish(ctx.Err()) })
	defer stop()
	s.finish(s.accept())
	closed := make(chan struct{})
	go func() {
		s.close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(endWithin):
		s.opt.Logger.Warn("the program has ended, its commands have not")
	}
	return s.why
}

// close releases what a server has that is finished.
func (s *Server) close() {
	s.lanes.Wait()
	s.devices.close()
	s.areas.forgetAll()
	if s.ring != nil {
		_ = unix.Munmap(s.ring.mem) // nobody uses it any more
	}
}

// accept takes the ring, lanes and wakings until the program ends.
func (s *Server) accept() error {
	oob := make([]byte, unix.CmsgSpace(4*4))
	var b [1]byte
	for {
		n, oobn, flags, _, err := s.control.ReadMsgUnix(b[:], oob)
		if err != nil {
			return err
		}
		if n == 0 {
			return io.EOF
		}
		files, err := shm.Files(oob[:oobn])
		if err == nil && flags&unix.MSG_CTRUNC == 0 {
			err = s.given(b[0], files)
		} else {
			err = fmt.Errorf("%w: on the control socket", wire.ErrProtocol)
		}
		for _, f := range files {
			_ = f.Close()
		}
		if err != nil {
			return err
		}
	}
}

// given takes in one byte of the control socket with the files that came with it, which the
// caller closes.
func (s *Server) given(what byte, files []*os.File) error {
	switch {
	case what == 'R' && len(files) == 1 && s.ring == nil:
		r, err := newRing(files[0])
		if err != nil {
			return err
		}
		s.ring = r
		s.lanes.Go(s.serveRing)
		return nil
	case what == 'M' && len(files) == 1:
		fd, err := unix.FcntlInt(files[0].Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return s.areas.give(os.NewFile(uintptr(fd), "area"))
	case what == 'D' && len(files) == 0 && s.ring != nil:
		s.ring.wake()
		return nil
	case what == 'L' && len(files) == 1 && s.ring != nil:
		c, err := net.FileConn(files[0])
		if err != nil {
			return fmt.Errorf("%w: a lane that is no socket", wire.ErrProtocol)
		}
		if s.open++; s.open > wire.MaxLanes {
			_ = c.Close()
			return fmt.Errorf("%w: more than %d lanes", wire.ErrProtocol, wire.MaxLanes)
		}
		s.lanes.Go(func() { s.serve(c) })
		return nil
	}
	return fmt.Errorf("%w: byte %q with %d files on the control socket", wire.ErrProtocol, what, len(files))
}

// serve carries out the requests of one lane.
func (s *Server) serve(c net.Conn) {
	stop := make(chan struct{})
	go func() {
		select {
		case <-s.ended:
		case <-stop:
		}
		_ = c.Close()
	}()
	defer close(stop)
	l := &lane{Server: s, conn: c}
	for {
		m, err := wire.ReadRequest(c)
		if err == nil {
			err = l.carryOut(m)
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				err = nil
			}
			s.finish(err)
			return
		}
	}
}
