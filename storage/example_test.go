package storage_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/holdfast-hpc/holdfast/storage"
)

// One rank puts a shard, commits the epoch, and reads it back.
func Example() {
	dir, err := os.MkdirTemp("", "checkpoints")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := keep(context.Background(), dir); err != nil {
		log.Fatal(err)
	}
	// Output: epoch 1: 9 bytes, the state
}

func keep(ctx context.Context, dir string) error {
	s, err := storage.Open(ctx, storage.Options{Job: "demo", Rank: 0, Size: 1, Node: "n1",
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
	// With several ranks all of them vote here whether their shards are durable.
	if err := s.Commit(ctx, 1, storage.LevelGlobal, []storage.ShardInfo{info}); err != nil {
		return err
	}

	shard, err := s.Fetch(ctx, 1)
	if err != nil {
		return err
	}
	defer shard.Close()
	back := make([]byte, len(state))
	if err := shard.ReadAt(ctx, "x", back, 0); err != nil {
		return err
	}
	fmt.Printf("epoch 1: %d bytes, %s\n", info.Bytes, back)
	return nil
}

// An epoch that is committed at a node's directory is copied to the one that all nodes see, and is read from there when
// the node is lost.
func ExampleStore_Flush() {
	dir, err := os.MkdirTemp("", "checkpoints")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := flush(context.Background(), dir+"/local", dir+"/global"); err != nil {
		log.Fatal(err)
	}
	// Output: epoch 1 from global: the state
}

func flush(ctx context.Context, local, global string) error {
	s, err := storage.Open(ctx, storage.Options{Job: "demo", Size: 1, Node: "n1", Levels: []storage.LevelConfig{
		{Name: storage.LevelLocal, Dir: local, Create: true}, {Name: storage.LevelGlobal, Dir: global, Create: true}}})
	if err != nil {
		return err
	}
	defer s.Close()
	state := []byte("the state")
	secs := []storage.Section{{Name: "x", Size: int64(len(state)), Source: storage.Bytes(state)}}
	info, err := s.Put(ctx, 1, storage.LevelLocal, secs)
	if err != nil {
		return err
	}
	if err := s.Commit(ctx, 1, storage.LevelLocal, []storage.ShardInfo{info}); err != nil {
		return err
	}

	// nil: read the shard back from local, as a program does that no longer has the sections.
	if info, err = s.Flush(ctx, 1, storage.LevelLocal, storage.LevelGlobal, nil); err != nil {
		return err
	}
	if err := s.Commit(ctx, 1, storage.LevelGlobal, []storage.ShardInfo{info}); err != nil {
		return err
	}

	if err := os.RemoveAll(local); err != nil { // the node is lost
		return err
	}
	shard, err := s.Fetch(ctx, 1)
	if err != nil {
		return err
	}
	defer shard.Close()
	back := make([]byte, len(state))
	if err := shard.ReadAt(ctx, "x", back, 0); err != nil {
		return err
	}
	fmt.Printf("epoch %d from %s: %s\n", shard.Epoch(), shard.Level(), back)
	return nil
}
