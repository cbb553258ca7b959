package capture_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// TestFirstIncrement: the first checkpoint after a restart, and after another one, stores what the program has changed
// since the restored one, of its device and of its memory.
func TestFirstIncrement(t *testing.T) {
	const chunks = 20
	opt := jobtest.Options(t)
	opt.Global = ""
	run := func() error {
		return jobtest.OnFake(opt, func(ctx context.Context, dev *gpustate.Device, ck *coordinated.Checkpointer) error {
			q, err := dev.Queue("q")
			if err != nil {
				return err
			}
			buf, err := dev.Buffer("field", chunks*storage.ChunkBytes)
			if err != nil {
				return err
			}
			mem := make([]byte, chunks*storage.ChunkBytes)
			if err := errors.Join(ck.Protect("dev", dev), ck.Protect("mem", &mem)); err != nil {
				return err
			}
			restored, err := ck.Restore(ctx)
			if err != nil {
				return err
			}
			if !restored {
				_, _ = rand.NewChaCha8([32]byte{1}).Read(mem)
				if err := q.Write(buf, 0, mem); err != nil {
					return err
				}
			}
			at := int(ck.Stats().Restore.Epoch) % chunks * storage.ChunkBytes
			mem[at]++
			err = errors.Join(q.Write(buf, at, mem[at:at+1]), ck.Request(ctx))
			for err == nil && len(ck.Stats().Epochs) == 0 {
				err = ck.Point(ctx)
			}
			if err == nil {
				err = ck.Wait(ctx, storage.LevelLocal)
			}
			return errors.Join(err, ck.Close())
		})
	}
	for range 3 {
		if err := run(); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := checkpoints.Open(t.Context(), opt.Local)
	if err != nil {
		t.Fatal(err)
	}
	list, err := dir.Epochs(t.Context())
	if err != nil || len(list) != 3 {
		t.Fatalf("got %d epochs, %v, want three", len(list), err)
	}
	for _, e := range list {
		most := int64(2*storage.ChunkBytes + 16<<10)
		if e.Epoch == 1 {
			most = 3 * chunks * storage.ChunkBytes
		}
		if got := e.Shards[0].Stored; got > most {
			t.Errorf("epoch %d: %d bytes were written, want %d at most", e.Epoch, got, most)
		}
	}
}
