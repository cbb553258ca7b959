package gpustate

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// lateMaker makes a buffer of a certain length only when bytes of another one have come.
type lateMaker struct {
	driver.Device
	late  int64
	began chan struct{}
	fail  error // in its place
}

func (l *lateMaker) CreateMem(m driver.MemDesc) (driver.Handle, error) {
	if m.Bytes == l.late {
		select {
		case <-l.began:
		case <-time.After(time.Minute):
			return nil, errors.New("no bytes come before all objects are made")
		}
		if l.fail != nil {
			return nil, l.fail
		}
	}
	return l.Device.CreateMem(m)
}

// TestRestoreOverlaps: the bytes of an object come while the next one is made. When that fails, so does the restore,
// and nothing stays of it.
func TestRestoreOverlaps(t *testing.T) {
	const n, late = 1 << 16, 1 << 15
	d, _ := fakeDevice(t)
	q := must(d.Queue("q"))(t)
	want := map[int]byte{}
	for i, size := range []int{n, late, n} {
		x := must(d.Buffer("", size))(t)
		want[i] = byte(i + 1)
		if err := q.Write(x, 0, bytes.Repeat([]byte{want[i]}, size)); err != nil {
			t.Fatal(err)
		}
	}
	c := must(d.Capture(context.Background(), nil))(t)
	defer c.Release()
	for _, fail := range []error{nil, ErrOutOfMemory} {
		again, lib := fakeDevice(t)
		s := again.state.Session
		s.Device = &lateMaker{Device: s.Device, late: late, began: make(chan struct{}), fail: fail}
		began := sync.OnceFunc(func() { close(again.state.Session.Device.(*lateMaker).began) })
		err := again.Restore(context.Background(), c.Record(), func(i int, dst []byte, off int64) error {
			began()
			return c.ReadAt(context.Background(), i, dst, off)
		})
		if !errors.Is(err, fail) {
			t.Fatalf("got %v, want %v", err, fail)
		}
		if fail != nil {
			if live := lib.Faults.Live(); live != 0 {
				t.Errorf("%d memory objects are left of a restore that failed", live)
			}
			continue
		}
		for i, size := range []int{n, late, n} {
			got := make([]byte, size)
			if err := must(again.Queue("q"))(t).Read(must(again.Buffer("", size))(t), 0, got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, bytes.Repeat([]byte{want[i]}, size)) {
				t.Errorf("buffer %d has other bytes", i)
			}
		}
	}
}
