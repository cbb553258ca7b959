package events_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
)

// A rank logs an event; a tool reads the logs of all ranks.
func Example() {
	dir, err := os.MkdirTemp("", "events")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	rank, err := events.Create(ctx, events.Options{Dir: dir, Begun: time.Now(),
		Header: events.Header{Job: "demo", Run: 1, Size: 1, Node: "n1"}})
	if err != nil {
		log.Fatal(err)
	}
	rank.Emit(events.Event{Name: events.Commit, Epoch: 3, Level: "local"})
	if err := rank.Close(); err != nil {
		log.Fatal(err)
	}

	logs, problems, err := events.ReadDir(ctx, dir, 10)
	if err != nil || len(problems) > 0 {
		log.Fatal(err, problems)
	}
	for _, l := range logs {
		for _, e := range l.Events {
			if e.Epoch > 0 {
				fmt.Println(e.Name, e.Epoch)
			}
		}
	}
	// Output: commit 3
}
