package coordinated

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestMetrics: the first rank of a node writes what its checkpoints cost, while
// the job runs.
func TestMetrics(t *testing.T) {
	opt := testOptions(t)
	opt.MetricsDir, opt.MetricsListen = t.TempDir(), "127.0.0.1:0"
	err := mpitest.NewWorld(3, mpitest.Options{Seed: 7}).Run(func(world *mpiwrap.Comm) error {
		ctx := context.Background()
		ck, _, err := openStep(ctx, world, opt)
		if err != nil {
			return err
		}
		if world.Rank() == 1 {
			err = ck.RequestStop(ctx)
		}
		for err == nil {
			if err = world.Barrier(); err == nil {
				err = ck.Point(ctx)
			}
		}
		if errors.Is(err, ErrStop) {
			err = nil
		}
		if err == nil && world.Rank() == 0 {
			err = watchMetrics(opt.MetricsDir)
		}
		if err == nil && (ck.record.metrics != nil) != (world.Rank() == 0) {
			err = fmt.Errorf("rank %d: metrics %v", world.Rank(), ck.record.metrics != nil)
		}
		return errors.Join(err, ck.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(opt.MetricsDir); err != nil || len(left) > 0 {
		t.Errorf("after the job: %v, %v, want no file", left, err)
	}
}

// watchMetrics reads the file until it has the checkpoint.
func watchMetrics(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.prom"))
	if err != nil || len(names) != 1 {
		return fmt.Errorf("files %v, %v, want one", names, err)
	}
	var b []byte
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		if b, err = os.ReadFile(names[0]); err != nil {
			return err
		}
		text := string(b)
		if strings.Contains(text, `level="global"`) && strings.Contains(text, "holdfast_epochs_captured_total{") &&
			strings.Contains(text, "holdfast_flush_backlog_epochs") &&
			strings.Contains(text, `holdfast_step_seconds_total{job_name="test"`) {
			return nil
		}
	}
	return fmt.Errorf("the file never showed the checkpoint:\n%s", b)
}
