package mpi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// The numbers here are those of twin/twin.c.
const (
	rounds = 200
	window = 64
)

// cases have the names of the twin's.
var cases = []struct {
	name   string
	metric string
	run    func(w *mpiwrap.Comm) (float64, error)
	goal   bench.AtMost // ratio to C
}{
	{"ping-pong 8 B", "one way", func(w *mpiwrap.Comm) (float64, error) { return pingPong(w, 8, 1000) }, 1.6},
	{"ping-pong 64 KiB", "one way", func(w *mpiwrap.Comm) (float64, error) { return pingPong(w, 1<<16, 60) }, 1.05},
	{"ping-pong 1 MiB", "one way", func(w *mpiwrap.Comm) (float64, error) { return pingPong(w, 1<<20, 6) }, 1.02},
	{"ping-pong 4 MiB", "one way", func(w *mpiwrap.Comm) (float64, error) { return pingPong(w, 4<<20, 2) }, 1.02},
	{"Allreduce 8 B", "a call", func(w *mpiwrap.Comm) (float64, error) { return allreduce(w, 1000) }, 1.4},
	{"64 Isend and Irecv of 8 B", "a message", func(w *mpiwrap.Comm) (float64, error) { return rate(w, 20) }, 1.5},
	{"64 persistent of 8 B", "a message", func(w *mpiwrap.Comm) (float64, error) { return persistent(w, 20) }, 1.5},
}

// Names of cases without a twin.
const (
	armedName  = "armed"
	mallocName = "mallocs"
)

// Work is one rank of the measured Go program. Rank 0 prints the figure of each case.
func Work(_ context.Context, _ struct{}, _ io.Reader, out io.Writer) error {
	w, err := mpiwrap.Init(mpiwrap.Options{})
	if err != nil {
		return err
	}
	if w.Size() != 2 {
		return errors.Join(fmt.Errorf("%d ranks; this program measures between 2", w.Size()), mpiwrap.Finalize())
	}
	show := func(name string, f func(w *mpiwrap.Comm) (float64, error)) {
		v, err := f(w)
		if err != nil {
			fmt.Fprintln(os.Stderr, name, err)
			w.Abort(1)
		}
		if w.Rank() == 0 {
			_ = bench.Print(out, name, v) // the suite reports missing cases
		}
	}
	for _, c := range cases {
		show(c.name, c.run)
	}
	show(armedName, armed)
	show(mallocName, mallocs)
	return mpiwrap.Finalize()
}

// measure returns the best round's seconds per unit.
func measure(w *mpiwrap.Comm, units float64, round func() error) (float64, error) {
	best := 1e9
	for range rounds {
		if err := w.Barrier(); err != nil {
			return 0, err
		}
		t := time.Now()
		if err := round(); err != nil {
			return 0, err
		}
		best = min(best, time.Since(t).Seconds()/units)
	}
	return best, nil
}

func pingPong(w *mpiwrap.Comm, bytes, reps int) (float64, error) {
	buf, peer := make([]byte, bytes), 1-w.Rank()
	if w.Rank() == 0 {
		return measure(w, 2*float64(reps), func() error {
			for range reps {
				if err := mpiwrap.Send(w, buf, peer, 0); err != nil {
					return err
				}
				if _, err := mpiwrap.Recv(w, buf, peer, 0); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return measure(w, 2*float64(reps), func() error {
		for range reps {
			if _, err := mpiwrap.Recv(w, buf, peer, 0); err != nil {
				return err
			}
			if err := mpiwrap.Send(w, buf, peer, 0); err != nil {
				return err
			}
		}
		return nil
	})
}

func allreduce(w *mpiwrap.Comm, reps int) (float64, error) {
	in, out := []float64{1}, []float64{0}
	return measure(w, float64(reps), func() error {
		for range reps {
			if err := mpiwrap.Allreduce(w, out, in, mpiwrap.Sum); err != nil {
				return err
			}
		}
		return nil
	})
}

func rate(w *mpiwrap.Comm, reps int) (float64, error) {
	var in, out [window][8]byte
	reqs := make([]*mpiwrap.Request, 2*window)
	peer := 1 - w.Rank()
	return measure(w, float64(reps)*window, func() (err error) {
		for range reps {
			for k := range window {
				if reqs[k], err = mpiwrap.Irecv(w, in[k][:], peer, 1); err != nil {
					return err
				}
			}
			for k := range window {
				if reqs[window+k], err = mpiwrap.Isend(w, out[k][:], peer, 1); err != nil {
					return err
				}
			}
			if err := mpiwrap.WaitAll(reqs...); err != nil {
				return err
			}
		}
		return nil
	})
}

// persistent is rate with requests that are prepared once.
func persistent(w *mpiwrap.Comm, reps int) (float64, error) {
	var in, out [window][8]byte
	reqs := make([]*mpiwrap.Request, 2*window)
	var err error
	for k := range window {
		if reqs[k], err = mpiwrap.RecvInit(w, in[k][:], 1-w.Rank(), 1); err != nil {
			return 0, err
		}
		if reqs[window+k], err = mpiwrap.SendInit(w, out[k][:], 1-w.Rank(), 1); err != nil {
			return 0, err
		}
	}
	best, err := measure(w, float64(reps)*window, func() error {
		for range reps {
			if err := mpiwrap.Start(reqs...); err != nil {
				return err
			}
			if err := mpiwrap.WaitAll(reqs...); err != nil {
				return err
			}
		}
		return nil
	})
	for _, r := range reqs {
		err = errors.Join(err, r.Free())
	}
	return best, err
}

// armed returns the ping-pong of 8 bytes while an agent reads the rank's publications, a thousand times a second, as a
// checkpointer's does.
func armed(w *mpiwrap.Comm) (float64, error) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		e := w.Endpoint()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				e.Activity()
				e.Collectives()
				for i := range w.Size() {
					e.Sent(i)
					e.Received(i)
				}
			}
		}
	}()
	defer func() { close(stop); <-done }()
	return pingPong(w, 8, 1000)
}

// mallocs counts allocations per blocking call.
func mallocs(w *mpiwrap.Comm) (float64, error) {
	in, out, peer := []float64{1}, []float64{0}, 1-w.Rank()
	counts, both := []int{1, 1}, make([]float64, 2)
	send, err := mpiwrap.SendInit(w, in, peer, 1)
	if err != nil {
		return 0, err
	}
	recv, err := mpiwrap.RecvInit(w, out, peer, 1)
	if err != nil {
		return 0, err
	}
	reqs := []*mpiwrap.Request{recv, send}
	calls := []func() error{
		func() error { _, err := mpiwrap.Sendrecv(w, in, peer, 0, out, peer, 0); return err },
		func() error { return mpiwrap.Allreduce(w, out, in, mpiwrap.Sum) },
		func() error { return mpiwrap.Bcast(w, out, 0) },
		func() error { return mpiwrap.Allgather(w, both, in) },
		func() error { return mpiwrap.Allgatherv(w, both, counts, nil, in) },
		func() error { return mpiwrap.Start(reqs...) },
		func() error { return mpiwrap.WaitAll(reqs...) },
		w.Barrier,
	}
	const reps = 1000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range reps {
		for _, call := range calls {
			if err := call(); err != nil {
				return 0, err
			}
		}
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(reps*len(calls)), errors.Join(send.Free(), recv.Free())
}
