package persist

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestOver: the program's end waits for every epoch, and for none of them when the time is up.
func TestOver(t *testing.T) {
	p, _ := alone(t, "")
	var log bytes.Buffer
	p.Log = slog.New(slog.NewTextHandler(&log, nil))
	_, end1 := p.begin(1)
	_, end2 := p.begin(2)
	end2()
	over := p.Over()
	select {
	case <-over:
		t.Error("epoch 1 is on its way, and it is not waited for")
	default:
	}
	p.End.Within(time.Nanosecond)
	select {
	case <-p.Over():
	case <-time.After(time.Minute):
		t.Fatal("the time is up, and epoch 1 is still waited for")
	}
	if !strings.Contains(log.String(), "epochs=[1]") {
		t.Errorf("got %q, want it to name the epoch that is left", log.String())
	}
	end1()
	<-over
}

// TestClosing: the time for closing and leaving does not shrink as the end comes near.
func TestClosing(t *testing.T) {
	var e End
	if left, known := e.closing(); known {
		t.Errorf("nobody knows the end, and %v are left", left)
	}
	at := time.Now().Add(time.Minute)
	e.By(at)
	e.By(at.Add(time.Second)) // the earliest counts
	if got, want := at.Sub(e.leave), 5*time.Second; got != want {
		t.Errorf("got %v for closing, want %v", got, want)
	}
	e.set(10 * time.Second)
	if got := e.at.Sub(e.leave).Round(10 * time.Millisecond); got != time.Second {
		t.Errorf("got %v for closing, want 1s", got)
	}
}
