package nccl

import (
	"context"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	_ "github.com/holdfast-hpc/holdfast/gpustate/gputest" // brings the fake
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

func TestRefused(t *testing.T) {
	d, err := gpustate.Open(gpustate.Select{Kind: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := Open(mpiwrap.Single(), d); err == nil || !strings.Contains(err.Error(), "fake:0") {
		t.Errorf("got %v, want the device", err)
	}
}

// TestSum adds up on all devices of this rank, before and after one of them has moved: the
// communicator is made again.
func TestSum(t *testing.T) {
	var devs []*gpustate.Device
	var queues []*gpustate.Queue
	var to, from []*gpustate.Buffer
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	infos, _ := gpustate.Devices()
	for _, i := range infos {
		if i.Kind != "cuda" {
			continue
		}
		d, err := gpustate.Open(gpustate.Select{UUID: i.UUID, Kind: "cuda"})
		ok(err)
		defer d.Close()
		q, err := d.Queue("q")
		ok(err)
		x, err := d.Buffer("x", 8)
		ok(err)
		y, err := d.Buffer("y", 8)
		ok(err)
		ok(q.Write(y, 0, gpustate.Bytes([]uint64{1 << (8 * len(devs))})))
		devs, queues, to, from = append(devs, d), append(queues, q), append(to, x), append(from, y)
	}
	if len(devs) == 0 {
		t.Skip("no CUDA device")
	}
	c, err := Open(mpiwrap.Single(), devs...)
	if err != nil {
		t.Skip(err)
	}
	want := uint64(0)
	for i := range devs {
		want += 1 << (8 * i)
	}
	for round := range 3 {
		ok(c.Sum(queues, to, from))
		for i := range devs {
			got := []uint64{0}
			ok(queues[i].Read(to[i], 0, gpustate.Bytes(got)))
			if got[0] != want {
				t.Errorf("round %d: device %d has the sum %#x, want %#x", round, i, got[0], want)
			}
		}
		last := devs[len(devs)-1]
		ok(last.MigrateTo(context.Background(), gpustate.Select{UUID: last.Info().UUID, Kind: "cuda"}))
	}
	ok(c.Close())
}
