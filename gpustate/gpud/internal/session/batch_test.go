package session

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud/internal/usage"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// script is a device that records its calls. Arguments that begin with 0xBAD and launches of 13 items it
// refuses.
type script struct {
	driver.Device
	calls   []string
	batches []int // how many steps each had
}

func (d *script) SetArg(k driver.Handle, i int, a driver.Arg) error {
	err := error(nil)
	if bytes.HasPrefix(a.Value, []byte{0xBA, 0xD0}) {
		err = fmt.Errorf("value % x", a.Value)
	}
	d.calls = append(d.calls, fmt.Sprintf("argument %d of %v: %x %v", i, k, a.Value, err))
	return err
}

func (d *script) Launch(q, k driver.Handle, g driver.Grid, wait []driver.Event) (driver.Event, error) {
	err := error(nil)
	if g.Global[0] == 13 {
		err = fmt.Errorf("%d items", g.Global[0])
	}
	d.calls = append(d.calls, fmt.Sprintf("launch of %v: %d %v", k, g.Global[0], err))
	return 0, err
}

func (d *script) Marker(driver.Handle, []driver.Event) (driver.Event, error) {
	d.calls = append(d.calls, "marker")
	return 1, nil
}

func (d *script) WaitEvent(driver.Event) error         { return nil }
func (d *script) EventDone(driver.Event) (bool, error) { return true, nil }
func (d *script) ReleaseEvent(driver.Event)            {}
func (d *script) Finish(driver.Handle) error           { return nil }
func (d *script) ReleaseKernel(driver.Handle) error    { return nil }

func (d *script) Do(steps []driver.Step) (int, error) {
	d.batches = append(d.batches, len(steps))
	for i, s := range steps {
		var err error
		if s.Queue == nil {
			err = d.SetArg(s.Kernel, s.Index, s.Arg)
		} else {
			_, err = d.Launch(s.Queue, s.Kernel, s.Grid, nil)
		}
		if err != nil {
			return i, err
		}
	}
	return len(steps), nil
}

// arriving gives messages in portions, as they come through a ring.
type arriving struct {
	rest []byte
	r    *rand.Rand
	most int
}

func (a *arriving) Read(b []byte) (int, error) {
	if len(a.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, a.rest[:min(1+a.r.IntN(a.most), len(a.rest))])
	a.rest = a.rest[n:]
	return n, nil
}

// play serves a client that sends all, and returns the calls of the device and the answers to the client.
func play(t *testing.T, all []byte, portions int, batches bool) (d *script, answers []string, commands int64) {
	t.Helper()
	near, far := net.Pipe()
	own := &usage.Usage{}
	s := New(&Service{Usages: &usage.Table{}}, near, Identity{}, own, nil)
	lib := &fake.Library{}
	under, err := lib.Open(1)
	ok(t, err)
	infos, err := lib.Devices()
	ok(t, err)
	d = &script{Device: under}
	s.dev, s.drv = Device{Info: infos[1], At: 1}, d
	if batches {
		s.batch.driver = d
	}
	ok(t, s.createQueue(&wire.CreateQueue{ID: 2, Desc: driver.QueueDesc{Lazy: true}}))
	for id := range uint64(3) {
		s.objects[3+id] = &kernel{h: id, name: fmt.Sprint("kernel ", id)}
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_ = wire.ReadFrames(bufio.NewReader(far), func(op wire.Op, body []byte) error {
			switch op {
			case wire.OpReply:
				var m wire.Reply
				err := wire.Decode(body, &m)
				answers = append(answers, fmt.Sprint("reply ", m.Req, " ", m.Err))
				return err
			case wire.OpDone:
				var m wire.Done
				err := wire.Decode(body, &m)
				answers = append(answers, fmt.Sprintf("done %+v", m))
				return err
			}
			return nil
		})
	}()
	s.in = bufio.NewReaderSize(&arriving{all, rand.New(rand.NewPCG(3, 3)), portions}, 4096)
	if err := s.serve(); !HungUp(err) {
		t.Fatal(err)
	}
	if n := len(s.batch.steps); n > 0 {
		t.Fatalf("%d steps were left", n)
	}
	q := s.objects[2].(*queue)
	delete(s.objects, 2)
	ok(t, q.close())
	_ = near.Close()
	<-answered
	if n := own.Unfinished.Load(); n != 0 {
		t.Errorf("%d commands are counted as unfinished at the end", n)
	}
	return d, answers, own.Commands.Load()
}

// TestBatches: launches and arguments that come at once reach the device as those that come one by one do: all of them,
// in the same order, with the same errors for the same commands, and before whatever else the client says.
func TestBatches(t *testing.T) {
	batched, refused := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		var all []byte
		say := func(m wire.Message) { all = wire.Append(all, m) }
		event := uint64(0)
		for req := range uint64(1 + r.IntN(120)) {
			k := 3 + uint64(r.IntN(3))
			grid := driver.Grid{Dims: 1, Global: [3]int{1 + r.IntN(12), 1, 1}}
			switch n := r.IntN(100); {
			case n < 50:
				say(&wire.Launch{Queue: 2, Kernel: k, Grid: grid})
			case n < 80:
				say(&wire.SetArg{Kernel: k, Index: r.IntN(3), Arg: wire.Arg{Kind: driver.ArgValue,
					Value: []byte{byte(n), byte(req), 7}[:1+r.IntN(3)]}})
			case n < 83:
				grid.Global[0] = 13
				say(&wire.Launch{Queue: 2, Kernel: k, Grid: grid})
			case n < 86:
				say(&wire.SetArg{Kernel: k, Index: 0, Arg: wire.Arg{Kind: driver.ArgValue,
					Value: []byte{0xBA, 0xD0, byte(req)}}})
			case n < 89:
				say(&wire.SetArg{Kernel: k, Index: r.IntN(3), Arg: wire.Arg{Kind: driver.ArgLocal, Local: 16}})
			case n < 94:
				event++
				say(&wire.Launch{Event: event, Queue: 2, Kernel: k, Grid: grid})
			case n < 97:
				event++
				say(&wire.Marker{Event: event, Queue: 2})
			default:
				say(&wire.Finish{Req: req, Queue: 2})
			}
		}
		say(&wire.Finish{Req: 1000, Queue: 2})
		plain, want, commands := play(t, all, 1<<20, false)
		for _, portions := range []int{1, 40, 200, 1 << 20} {
			d, answers, counted := play(t, all, portions, true)
			if !slices.Equal(d.calls, plain.calls) {
				t.Fatalf("seed %d, portions of %d: the device got\n%q\none by one\n%q", seed, portions, d.calls,
					plain.calls)
			}
			if !slices.Equal(answers, want) || counted != commands {
				t.Fatalf("seed %d, portions of %d: %d commands, answers\n%q\none by one %d\n%q", seed, portions,
					counted, answers, commands, want)
			}
			if n := slices.Max(append(d.batches, 0)); n > mostBatched {
				t.Fatalf("a batch of %d steps", n)
			} else if n > 1 {
				batched++
			}
		}
		for _, a := range want {
			if !bytes.HasSuffix([]byte(a), []byte("<nil>")) {
				refused++
			}
		}
	}
	if batched == 0 || refused == 0 {
		t.Errorf("%d runs with batches, %d errors: the test tries less than it says", batched, refused)
	}
}
