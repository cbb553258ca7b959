package checkpoints_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/checkpoints"
)

// A tool lists the epochs of a directory, verifies the newest one, and keeps it.
func Example() {
	dir, err := os.MkdirTemp("", "checkpoints")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	if err := write(ctx, dir); err != nil {
		log.Fatal(err)
	}
	if err := look(ctx, dir); err != nil {
		log.Fatal(err)
	}
	// Output: epoch 1 of 1 ranks: 0 faults
}

func look(ctx context.Context, dir string) error {
	view, err := checkpoints.Open(ctx, dir)
	if err != nil {
		return err
	}
	epochs, err := view.Epochs(ctx)
	if err != nil || len(epochs) == 0 {
		return err
	}
	newest := epochs[0]
	faults, err := view.Verify(ctx, newest.Epoch)
	if err != nil {
		return err
	}
	fmt.Printf("epoch %d of %d ranks: %d faults\n", newest.Epoch, newest.Size, len(faults))
	return checkpoints.PinEpoch(ctx, dir, newest.Epoch, "before the new mesh")
}

// write commits an epoch of a job with one rank.
func write(ctx context.Context, dir string) error {
	s, err := storage.Open(ctx, storage.Options{Job: "demo", Size: 1, Node: "n1",
		Levels: []storage.LevelConfig{{Name: storage.LevelGlobal, Dir: dir}}})
	if err != nil {
		return err
	}
	defer s.Close()
	state := []byte("the state")
	info, err := s.Put(ctx, 1, storage.LevelGlobal, []storage.Section{
		{Name: "x", Size: int64(len(state)), Source: storage.Bytes(state)}})
	if err != nil {
		return err
	}
	return s.Commit(ctx, 1, storage.LevelGlobal, []storage.ShardInfo{info})
}

// An epoch is copied out of the directories of a job, complete in itself, and stays when the job prunes its own.
func ExampleCopy() {
	dir, err := os.MkdirTemp("", "checkpoints")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, job, archive := context.Background(), dir+"/job", dir+"/archive"
	if err := errors.Join(os.Mkdir(job, 0o700), write(ctx, job)); err != nil {
		log.Fatal(err)
	}
	done, err := checkpoints.Copy(ctx, []string{job}, archive, 0, 0) // the newest epoch, four shards at once
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("epoch %d, %d bytes\n", done.Epoch, done.Bytes)
	// Output: epoch 1, 9 bytes
}
