package remote

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/shm"
)

// Options say which server, and which of its devices.
type Options struct {
	Addr  string
	Key   wire.Key
	Label string // shown to people beside the program's name
	// Program and PID are for people; empty and 0: this process.
	Program string
	PID     int
	// Silence is how long the server may say nothing before it is given up; 0 is
	// wire.Silence.
	Silence time.Duration
	// Pick chooses among the server's devices; below 0 is none of them.
	Pick func([]driver.Info) int
}

// NoDeviceError is a server without a device that is wanted.
type NoDeviceError struct {
	Server string
	Found  []driver.Info
}

// Error names the server. gpustate lists the devices of all servers that were asked.
func (e *NoDeviceError) Error() string {
	return fmt.Sprintf("GPU server %s has no such device", e.Server)
}

// Open connects to a server and opens one of its devices.
func Open(ctx context.Context, o Options) (*Device, error) {
	c, err := wire.Dial(ctx, o.Addr, o.Key, wire.ForDevice)
	if err != nil {
		return nil, err
	}
	d, err := start(c, o)
	if err != nil {
		_ = c.Close() // of no use
		if !errors.As(err, new(*NoDeviceError)) {
			err = &wire.ServerError{Server: o.Addr, Op: "open a device of", Err: err}
		}
		return nil, err
	}
	return d, nil
}

// start takes the rest of the way from an admitted connection to a device.
func start(c net.Conn, o Options) (*Device, error) {
	if err := c.SetDeadline(time.Now().Add(openTime)); err != nil {
		return nil, err
	}
	ear := &wire.ActivityReader{Reader: c}
	br := bufio.NewReaderSize(ear, 64<<10)
	var welcome wire.Welcome
	if err := expect(br, &welcome); err != nil {
		return nil, err
	}
	for i := range welcome.Devices {
		welcome.Devices[i].Server = o.Addr
	}
	n := o.Pick(welcome.Devices)
	if n < 0 || n >= len(welcome.Devices) {
		return nil, &NoDeviceError{Server: o.Addr, Found: welcome.Devices}
	}
	d := newDevice(c, br, o.Addr, welcome, n)
	d.input, d.silence = ear, max(cmp.Or(o.Silence, wire.Silence), wire.MinSilence)
	if u, ok := c.(*net.UnixConn); ok {
		f, arena, err := shm.New("memory", wire.SharedBytes)
		if err != nil {
			return nil, err
		}
		d.arena, d.memory.key = arena, o.Key
		if err := errors.Join(wire.Grant(u, f, 1, wire.SharedBytes), f.Close()); err != nil {
			return nil, errors.Join(err, shm.Free(arena))
		}
	}
	host, _ := os.Hostname()
	open := &wire.Open{Req: 0, Index: n, Program: cmp.Or(o.Program, filepath.Base(os.Args[0])), Host: host,
		PID: cmp.Or(o.PID, os.Getpid()), Label: o.Label}
	if err := d.out.Now(open); err != nil {
		return nil, errors.Join(err, shm.Free(d.arena))
	}
	var reply wire.Reply
	err := expect(br, &reply)
	err = cmp.Or(err, reply.Err)
	if err == nil {
		err = errors.Join(c.SetDeadline(time.Time{}), wire.LimitSilence(c, d.silence))
	}
	if err != nil {
		return nil, errors.Join(err, shm.Free(d.arena))
	}
	d.memory.token = reply.Body
	if u, ok := c.(*net.UnixConn); ok { // from now on it only wakes
		if d.ring, err = wire.NewRing(u, d.arena, true); err != nil {
			return nil, errors.Join(err, shm.Free(d.arena))
		}
		d.conn, d.out = d.ring, wire.NewSender(d.ring, 0)
		if d.copiers > 1 {
			d.emptied = make(chan *report, wire.Slots)
		}
	}
	go d.out.Run(d.stop)
	go d.receive()
	go d.beat(d.silence)
	return d, nil
}

// openTime bounds opening a device: an API's library may start slowly.
const openTime = 60 * time.Second
