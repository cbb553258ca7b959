package control_test

import (
	"context"
	"fmt"
	"log"

	"github.com/holdfast-hpc/holdfast/coordinated/control"
)

// Rank 0 sends a message to rank 1. In a job each rank is a process, and MPI carries the key and the addresses.
func Example() {
	var key control.Key
	var planes []*control.Plane
	var addrs []string
	for rank := range 2 {
		p, err := control.Listen(control.Options{Rank: rank, Size: 2, Key: key, Interface: "127.0.0.1"})
		if err != nil {
			log.Fatal(err)
		}
		defer p.Close()
		planes, addrs = append(planes, p), append(addrs, p.Addr())
	}
	for rank, p := range planes {
		if err := p.Start(context.Background(), addrs, []int{1 - rank}); err != nil {
			log.Fatal(err)
		}
	}
	if err := planes[0].Send(1, []byte("arm epoch 3")); err != nil {
		log.Fatal(err)
	}
	m := <-planes[1].Messages()
	fmt.Printf("from rank %d: %s\n", m.From, m.Payload)
	// Output: from rank 0: arm epoch 3
}
