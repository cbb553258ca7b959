package trigger_test

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/trigger"
)

// TestDueOnTheClock: each wish comes at its time and says what it is for, and a final
// checkpoint that fails is wanted again.
func TestDueOnTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		tr := trigger.New(trigger.Options{Clock: true, Interval: 10 * time.Second, Final: begin.Add(25 * time.Second),
			Log: slog.New(slog.DiscardHandler)})
		for _, want := range []struct {
			at   time.Duration
			wish trigger.Wish
			then func()
		}{
			{10 * time.Second, trigger.Wish{By: "the interval"}, func() { time.Sleep(time.Second); tr.Over(0) }},
			{21 * time.Second, trigger.Wish{By: "the interval"}, func() { tr.GivenUp(time.Minute) }},
			{25 * time.Second, trigger.Wish{Stop: true, By: "the deadline"}, tr.Again},
			{30 * time.Second, trigger.Wish{Stop: true, By: "a failed final checkpoint"}, tr.Again},
			{40 * time.Second, trigger.Wish{Stop: true, By: "a failed final checkpoint"}, func() {}},
		} {
			<-tr.Timer()
			w, ok := tr.Due()
			if d := time.Since(begin); !ok || w != want.wish || d != want.at {
				t.Errorf("after %v: got %+v, %t, want %+v after %v", d, w, ok, want.wish, want.at)
			}
			want.then()
		}
		if s := tr.Status(); s != nil {
			t.Errorf("got %+v, want nothing due any more", s)
		}
	})
}

// TestPutOff: a checkpoint that was put off is wanted again, unless there is a cut before. A final one is wanted until
// there is a final cut.
func TestPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := trigger.New(trigger.Options{Clock: true, Log: slog.New(slog.DiscardHandler)})
		for i, c := range []struct {
			stop bool
			cuts []bool // whether they are final
			want bool
		}{{want: true}, {stop: true, want: true}, {cuts: []bool{false}}, {cuts: []bool{true}},
			{stop: true, cuts: []bool{false}, want: true}, {stop: true, cuts: []bool{false, true}}} {
			tr.PutOff(c.stop, time.Second)
			if s := tr.Status(); s == nil || s.Final != c.stop || s.Seconds != 1 {
				t.Errorf("%d: status %+v", i, s)
			}
			for _, stop := range c.cuts {
				tr.Cut(stop)
			}
			begin := time.Now()
			got := false
			select {
			case <-tr.Timer():
				var w trigger.Wish
				w, got = tr.Due()
				if want := (trigger.Wish{Stop: c.stop, By: "a checkpoint that was put off"}); w != want ||
					time.Since(begin) != time.Second {
					t.Errorf("%d: got %+v after %v, want %+v after 1s", i, w, time.Since(begin), want)
				}
			case <-time.After(time.Minute):
			}
			if got != c.want {
				t.Errorf("%d: asked again %v, want %v", i, got, c.want)
			}
		}
	})
}

// TestFinalAt: the deadline may become known later, and counts from then on.
func TestFinalAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		tr := trigger.New(trigger.Options{Clock: true, Log: slog.New(slog.DiscardHandler)})
		if s := tr.Status(); s != nil {
			t.Errorf("got %+v, want nothing due", s)
		}
		tr.Final(begin.Add(time.Minute))
		if s := tr.Status(); s == nil || !s.Final || s.Seconds != 60 {
			t.Errorf("got %+v, want a final one in a minute", s)
		}
		<-tr.Timer()
		if w, ok := tr.Due(); !ok || !w.Stop || time.Since(begin) != time.Minute {
			t.Errorf("got %+v, %t after %v", w, ok, time.Since(begin))
		}
	})
}

// TestSignalled: the signals of the process, or those of a program in another process; the ones for a
// final checkpoint are recognised.
func TestSignalled(t *testing.T) {
	far := make(chan os.Signal, 2)
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	tr := trigger.New(trigger.Options{Checkpoint: []os.Signal{syscall.SIGUSR1}, Stop: []os.Signal{syscall.SIGUSR2},
		Foreign: far, Log: log})
	tr.Catch()
	defer tr.Release()
	far <- syscall.SIGUSR1
	far <- syscall.SIGUSR2
	for _, stop := range []bool{false, true} {
		if w := tr.Signalled(<-tr.Signals()); w.Stop != stop || w.By == "" {
			t.Errorf("got %+v, want stop %t and a name", w, stop)
		}
	}
	if said.Len() > 0 {
		t.Errorf("a rank but 0 logs what all ranks get: %s", said.String())
	}
	own := trigger.New(trigger.Options{Clock: true, Checkpoint: []os.Signal{syscall.SIGUSR1}, Log: log})
	own.Catch()
	defer own.Release()
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if w := own.Signalled(<-own.Signals()); w.Stop {
		t.Errorf("got %+v, want no final one", w)
	}
	if !strings.Contains(said.String(), "user defined signal 1") {
		t.Errorf("rank 0 does not log its signal: %q", said.String())
	}
}
