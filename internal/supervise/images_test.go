package supervise

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
)

// TestRequestOfEndedRun: a request for an image that no start takes any more does not keep the run from its end.
func TestRequestOfEndedRun(t *testing.T) {
	dir := t.TempDir()
	r := &run{setup: &setup{opt: Options{Command: []string{"program"}, Images: &Images{Dir: dir}}}}
	m, stop, err := r.startImages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := job.DialJob(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() {
		_, err := c.Request(context.Background(), false, true)
		answer <- err
	}()
	for len(m.wanted) == 0 {
		time.Sleep(time.Millisecond) // until it is asked for
	}
	ended := make(chan struct{})
	go func() {
		stop()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the run does not end")
	}
	if err := <-answer; err == nil {
		t.Error("the request was answered as if there were an image")
	}
}
