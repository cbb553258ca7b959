package gputest

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// save writes a capture into one file: its record and contents, each behind its
// length.
func save(c *gpustate.Capture, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	put := func(b []byte) {
		if err == nil {
			err = binary.Write(f, binary.LittleEndian, uint64(len(b)))
		}
		if err == nil {
			_, err = f.Write(b)
		}
	}
	put(c.Record())
	for i, content := range c.Contents() {
		b := make([]byte, content.Bytes)
		if err := c.ReadAt(context.Background(), i, b, 0); err != nil {
			return err
		}
		put(b)
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// fetch reads what save wrote.
func fetch(file string) (record []byte, contents [][]byte, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	var list [][]byte
	for len(b) >= 8 {
		n := binary.LittleEndian.Uint64(b)
		if n > uint64(len(b)-8) {
			return nil, nil, fmt.Errorf("%s is cut short", file)
		}
		list = append(list, b[8:8+n])
		b = b[8+n:]
	}
	if len(list) == 0 {
		return nil, nil, fmt.Errorf("%s holds no capture", file)
	}
	return list[0], list[1:], nil
}

// restore brings a saved capture to a device.
func restore(d *gpustate.Device, file string) error {
	record, contents, err := fetch(file)
	if err != nil {
		return err
	}
	return d.Restore(context.Background(), record, func(i int, dst []byte, off int64) error {
		if copy(dst, contents[i][off:]) != len(dst) {
			return fmt.Errorf("content %d ends early", i)
		}
		return nil
	})
}

// Write runs the world for one step on a device, captures it into a file and
// runs on: what the capture holds must not change by that.
func Write(sel gpustate.Select, file string) error {
	d, err := gpustate.Open(sel)
	if err != nil {
		return err
	}
	w, err := open(d)
	if err != nil {
		return err
	}
	if err := w.begin(); err != nil {
		return err
	}
	if err := w.step(); err != nil {
		return err
	}
	c, err := d.Capture(context.Background(), nil)
	if err != nil {
		return err
	}
	if err := w.step(); err != nil {
		return err
	}
	if err := save(c, file); err != nil {
		return err
	}
	if err := w.check(2); err != nil {
		return err
	}
	return c.Release()
}

// Read restores a file of Write on a device, into objects that exist when
// before is set and into none otherwise, and runs the world on with the
// arguments it had.
func Read(sel gpustate.Select, file string, before bool) (err error) {
	d, err := gpustate.Open(sel)
	if err != nil {
		return err
	}
	defer func() {
		if e := d.Close(); err == nil {
			err = e
		}
	}()
	var w *world
	if before {
		if w, err = open(d); err != nil {
			return err
		}
	}
	if err := restore(d, file); err != nil {
		return err
	}
	if !before {
		if w, err = open(d); err != nil {
			return err
		}
	}
	if err := w.check(1); err != nil {
		return err
	}
	if err := w.step(); err != nil {
		return err
	}
	return w.check(2)
}
