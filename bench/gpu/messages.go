package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/bench/raw"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// MessageSetup is the setup of the two ranks of the messages suite.
type MessageSetup struct {
	Device string // as Select.String has it
	MiB    []int
}

// Goals of messages.
const (
	goalStaged = bench.AtLeast(0.7) // of pinned copies in both directions at once
	goalShort  = bench.AtMost(1.3)  // of a program that stages by hand
	goalDirect = bench.AtLeast(0.8) // of cudaMemcpyPeer
)

// Messages measures messages of device memory between two ranks of this machine, under each MPI.
// The ranks take the devices that device describes in turn: where it is one, both use it.
func Messages(ctx context.Context, r *bench.Runner, device string, mib []int) error {
	sel, err := gpustate.ParseSelect(device)
	if err != nil {
		return err
	}
	if _, alone, err := gpustate.Matching(sel); err != nil {
		return err
	} else if len(alone) == 0 {
		return fmt.Errorf("there is no device %q", device)
	}
	r.Start("gpu", r.Runs*len(mpirun.Launchers()))
	var failed error
	for _, l := range mpirun.Launchers() {
		if err := l.Available(); err != nil {
			r.Skip(l.Title, "messages of devices", err)
			continue
		}
		set, why := bench.Set{}, ""
		for i := range r.Runs {
			r.Step("messages under %s, run %d of %d", l.Title, i+1, r.Runs)
			var f bench.Figures
			f, err = bench.Measure(ctx, l.Job(2, 3*time.Minute, r.Worker("gpumessages", MessageSetup{device, mib})...))
			set.Join(f.Set)
			if why = f.Texts[notDirect]; err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", l.Title, err))
				break
			}
		}
		if err == nil {
			addMessages(r, l, mib, set, why)
		}
	}
	return failed
}

// notDirect is the name of the line with the reason why messages do not go straight from device memory.
const notDirect = "not direct"

func addMessages(r *bench.Runner, l mpirun.Launcher, mib []int, set bench.Set, why string) {
	where := "messages, " + l.Title
	r.Add(row(where, "8 B, one way", "us").Of(set["short"].Times(1e6), set["by hand"].Times(1e6), goalShort))
	for _, m := range mib {
		n := float64(m<<20) / 1e9
		name := fmt.Sprint(m, " MiB")
		var goal bench.Goal
		if m >= 4 {
			goal = goalStaged
		}
		r.Add(row(where, name+" both ways at once", "GB/s").Of(set["exchange "+name].Rates(n),
			set["pinned "+name].Rates(n), goal),
			row(where, name+" one way", "GB/s").Of(set["one way "+name].Rates(n),
				set["pinned one way "+name].Rates(n), nil))
		for _, way := range ways {
			if len(set["direct "+way+" "+name]) > 0 {
				r.Add(addDirect(where, way, m, set))
			}
		}
	}
	if why != "" {
		r.Skip(where, "MPI given device memory", errors.New(why))
	}
}

// addDirect compares with a copy between the two devices, or within the one that both ranks use, which no message can
// be near to: it moves each byte where it is.
func addDirect(where, way string, mib int, set bench.Set) bench.Row {
	n, name := float64(mib<<20)/1e9, fmt.Sprint(mib, " MiB")
	what := name + " " + way + ", MPI given device memory"
	direct := set["direct "+way+" "+name].Rates(n)
	if between := set[peerCopy+way+" "+name]; len(between) > 0 {
		var goal bench.Goal
		if mib >= 4 {
			goal = goalDirect
		}
		return row(where, what+"; cudaMemcpyPeer", "GB/s").Of(direct, between.Rates(n), goal)
	}
	if within := set[insideCopy+way+" "+name]; len(within) > 0 {
		return row(where, what+"; a copy within the device", "GB/s").Of(direct, within.Rates(n), nil)
	}
	return row(where, what+"; page-locked copies", "GB/s").Of(direct, set["pinned one way "+name].Rates(n), nil)
}

// The names of copies of device memory: between two devices, and within one.
const (
	peerCopy   = "between devices "
	insideCopy = "within the device "
)

// ways of messages.
var ways = []string{"one way", "both ways at once"}

// WorkMessages is one of the two ranks. Rank 0 prints its figures.
func WorkMessages(_ context.Context, s MessageSetup, _ io.Reader, out io.Writer) error {
	w, err := mpiwrap.Init(mpiwrap.Options{})
	if err != nil {
		return err
	}
	if err = exchangeMessages(w, s, out); err != nil {
		fmt.Fprintln(out, err)
		w.Abort(1)
	}
	return mpiwrap.Finalize()
}

// end is one rank with its device.
type end struct {
	w          *mpiwrap.Comm
	q, q2      *gpustate.Queue
	mine, from *gpustate.Buffer
	host, in   []byte // page-locked
	most       int
	alone      []gpustate.Select // the devices
}

func openEnd(w *mpiwrap.Comm, s MessageSetup) (e *end, d *gpustate.Device, err error) {
	sel, err := gpustate.ParseSelect(s.Device)
	if err != nil {
		return nil, nil, err
	}
	_, alone, err := gpustate.Matching(sel)
	if err != nil {
		return nil, nil, err
	}
	if d, err = gpustate.Open(alone[w.Rank()%len(alone)]); err != nil {
		return nil, nil, err
	}
	e = &end{w: w, most: 8, alone: alone}
	for _, m := range s.MiB {
		e.most = max(e.most, m<<20)
	}
	var errs [6]error
	e.q, errs[0] = d.Queue("a")
	e.q2, errs[1] = d.Queue("b")
	e.mine, errs[2] = d.Buffer("mine", e.most)
	e.from, errs[3] = d.Buffer("from", e.most)
	e.host, _, errs[4] = gpustate.HostMemory[byte](d, e.most)
	e.in, _, errs[5] = gpustate.HostMemory[byte](d, e.most)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, d, err
	}
	pattern(e.host, w.Rank())
	return e, d, e.q.Write(e.mine, 0, e.host)
}

// pattern fills b with bytes that no other rank has.
func pattern(b []byte, rank int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + i>>16*29 + rank*101)
	}
}

func exchangeMessages(w *mpiwrap.Comm, s MessageSetup, out io.Writer) error {
	if w.Size() != 2 {
		return fmt.Errorf("%d ranks; this program measures between 2", w.Size())
	}
	e, d, err := openEnd(w, s)
	if err != nil {
		return err
	}
	show := func(name string, rounds int, per float64, do func() error) error {
		mine, slower := make([]float64, rounds), make([]float64, rounds)
		for i := range mine {
			if err := w.Barrier(); err != nil {
				return err
			}
			t := time.Now()
			if err := do(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			mine[i] = time.Since(t).Seconds() / per
		}
		if err := mpiwrap.Allreduce(w, slower, mine, mpiwrap.Max); err != nil {
			return err
		}
		if w.Rank() == 0 {
			return bench.Print(out, name, slices.Min(slower))
		}
		return nil
	}
	way := w.Endpoint()
	way.GPUAware(false)
	const reps = 50
	errs := []error{
		show("by hand", 40, 2*reps, func() error { return e.pingPong(reps, e.sendByHand, e.recvByHand) }),
		show("short", 40, 2*reps, func() error { return e.pingPong(reps, e.send, e.recv) })}
	for _, m := range s.MiB {
		n, name := m<<20, fmt.Sprint(m, " MiB")
		errs = append(errs, e.check(n),
			show("pinned "+name, 10, 1, func() error { return e.copies(n, true, true) }),
			show("exchange "+name, 10, 1, func() error { return e.exchange(n) }),
			show("pinned one way "+name, 10, 1, func() error { return e.copies(n, w.Rank() == 0, w.Rank() == 1) }),
			show("one way "+name, 10, 2, func() error { return e.pingPongOf(n) }))
		way.GPUAware(true)
		direct, err := e.goesDirectly(n)
		if errs = append(errs, err); direct {
			errs = append(errs, e.check(n),
				show("direct one way "+name, 10, 2, func() error { return e.pingPongOf(n) }),
				show("direct both ways at once "+name, 10, 1, func() error { return e.exchange(n) }))
			if err := errors.Join(append(errs, e.showPeers(n, name, show))...); err != nil {
				return err
			}
		} else if w.Rank() == 0 {
			fmt.Fprintf(out, "%s\t%s\n", notDirect, w.DeviceMessages().Why)
		}
		way.GPUAware(false)
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return errors.Join(w.Barrier(), d.Close())
}

// shower measures both ranks' work and shows a part's time, best of the rounds. A round has n parts and is as long as
// the slower rank takes. Two processes that share a GPU take turns on it: the time of one of them may be that of a
// device of its own.
type shower func(name string, rounds int, per float64, do func() error) error

// showPeers is the baseline of messages that MPI carries in device memory: copies from the device of the other rank,
// in rank 0 alone and in both. Devices that cannot copy so have none.
func (e *end) showPeers(n int, name string, show shower) (err error) {
	kind := peerCopy
	if len(e.alone) == 1 {
		kind = insideCopy
	}
	var both [2]*raw.Device
	for i := range both {
		if both[i], err = raw.Open(e.alone[(e.w.Rank()+i)%len(e.alone)]); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, both[i].Close()) }()
	}
	copies, err := both[0].Peer(both[1], int64(n))
	if errors.Is(err, gpustate.ErrUnsupported) {
		return nil
	} else if err != nil {
		return err
	}
	alone := copies.Copy
	if e.w.Rank() != 0 {
		alone = func() error { return nil }
	}
	return errors.Join(show(kind+ways[0]+" "+name, 20, 1, alone), show(kind+ways[1]+" "+name, 20, 1, copies.Copy),
		copies.Free())
}

func (e *end) pingPong(reps int, send, recv func() error) error {
	first, second := send, recv
	if e.w.Rank() == 1 {
		first, second = recv, send
	}
	for range reps {
		if err := first(); err != nil {
			return err
		}
		if err := second(); err != nil {
			return err
		}
	}
	return nil
}

func (e *end) sendByHand() error {
	if err := e.q.Read(e.mine, 0, e.host[:8]); err != nil {
		return err
	}
	return mpiwrap.Send(e.w, e.host[:8], 1-e.w.Rank(), 0)
}

func (e *end) recvByHand() error {
	if _, err := mpiwrap.Recv(e.w, e.in[:8], 1-e.w.Rank(), 0); err != nil {
		return err
	}
	return e.q.Write(e.from, 0, e.in[:8])
}

func (e *end) send() error {
	return mpiwrap.SendDevice(e.w, e.q.Range(e.mine, 0, 8), 1-e.w.Rank(), 0)
}

func (e *end) recv() error {
	_, err := mpiwrap.RecvDevice(e.w, e.q.Range(e.from, 0, 8), 1-e.w.Rank(), 0)
	return err
}

// pingPongOf sends n bytes there and back.
func (e *end) pingPongOf(n int) error {
	return e.pingPong(1, func() error { return mpiwrap.SendDevice(e.w, e.q.Range(e.mine, 0, n), 1-e.w.Rank(), 0) },
		func() error {
			_, err := mpiwrap.RecvDevice(e.w, e.q.Range(e.from, 0, n), 1-e.w.Rank(), 0)
			return err
		})
}

// goesDirectly reports whether MPI is given device memory, alike on both ranks. The first message tries it, and a
// sender may find its receiver late.
func (e *end) goesDirectly(n int) (bool, error) {
	before := e.w.DeviceMessages().SentDirect
	for range 5 {
		if err := e.pingPongOf(n); err != nil {
			return false, err
		}
	}
	mine, all := []int64{int64(e.w.DeviceMessages().SentDirect - before)}, []int64{0}
	err := mpiwrap.Allreduce(e.w, all, mine, mpiwrap.Min)
	return all[0] > 0, err
}

func (e *end) exchange(n int) error {
	_, err := mpiwrap.SendrecvDevice(e.w, e.q.Range(e.mine, 0, n), 1-e.w.Rank(), 0, e.q.Range(e.from, 0, n),
		1-e.w.Rank(), 0)
	return err
}

// copies are the pinned copies that a message of n bytes cannot do without, in both ranks at once.
func (e *end) copies(n int, down, up bool) error {
	var events []*gpustate.Event
	if down {
		a, err := e.q.ReadAsync(e.mine, 0, e.host[:n])
		if err != nil {
			return err
		}
		events = append(events, a)
	}
	if up {
		b, err := e.q2.WriteAsync(e.from, 0, e.in[:n])
		if err != nil {
			return err
		}
		events = append(events, b)
	}
	for _, ev := range events {
		if err := ev.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// check exchanges n bytes a few times, so that all ways have been taken, and compares them.
func (e *end) check(n int) error {
	want, got := make([]byte, n), make([]byte, n)
	pattern(want, 1-e.w.Rank())
	for i := range 3 {
		if _, err := e.q.Fill(e.from, 0, n, []byte{0xee}); err != nil {
			return err
		}
		if err := e.exchange(n); err != nil {
			return err
		}
		if err := e.q.Read(e.from, 0, got); err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("exchange %d of %d bytes: what was received is not what was sent", i, n)
		}
	}
	return nil
}
