package capture_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/gpustate"
)

// TestFromSource restores a device program whose binary form the device does not load: the
// log, the event log and the Stats of the restart name it, each once.
func TestFromSource(t *testing.T) {
	opt := jobtest.Options(t)
	var log bytes.Buffer
	opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
	var told []coordinated.FromSource
	run := func(again bool) error {
		return jobtest.OnFake(opt, func(ctx context.Context, dev *gpustate.Device, ck *coordinated.Checkpointer) error {
			err := ck.Protect("dev", dev)
			if err == nil {
				_, err = ck.Restore(ctx)
			}
			told = ck.Stats().Restore.FromSource
			if err == nil && !again {
				_, err = dev.Program("flow", gpustate.Sources{OpenCL: "text", PTX: []byte("of another device")}, "")
			}
			if err == nil {
				err = ck.Request(ctx)
			}
			for err == nil && len(ck.Stats().Epochs) == 0 {
				err = ck.Point(ctx)
			}
			if err == nil {
				err = ck.Wait(ctx, "local")
			}
			return errors.Join(err, ck.Close())
		})
	}
	for _, again := range []bool{false, true} {
		log.Reset()
		if err := run(again); err != nil {
			t.Fatal(err)
		}
		const line = "program=flow"
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("restarted %v: the log has %q %d times, want once", again, line, n)
		}
	}
	if len(told) != 1 || told[0].Device != "dev" || told[0].Program != "flow" ||
		!strings.Contains(told[0].Why, "no binary") {
		t.Errorf("Stats of the restart: got %+v, want the program flow of dev, and why", told)
	}
	logs, _, err := events.ReadDir(t.Context(), opt.Global, 0)
	if err != nil || len(logs) != 2 {
		t.Fatalf("event logs: got %d, %v, want those of two runs", len(logs), err)
	}
	for _, l := range logs {
		n := 0
		for _, e := range l.Events {
			if e.Name == events.Source && e.What == "dev/flow" && strings.Contains(e.Text, "no binary") {
				n++
			}
		}
		if n != 1 {
			t.Errorf("run %d: %d events of the program, want one", l.Header.Run, n)
		}
	}
}
