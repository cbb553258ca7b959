package cut_test

import (
	"fmt"
	"log"

	"github.com/holdfast-hpc/holdfast/coordinated/cut"
)

// A job of one rank agrees on a cut. The driver gives the machine each event and carries out the actions.
func Example() {
	m, err := cut.New(cut.Config{Size: 1, Parent: -1})
	if err != nil {
		log.Fatal(err)
	}
	for _, ev := range []cut.Event{
		cut.Request{},          // a checkpoint is wanted
		cut.Sampled{Points: 6}, // the look: the program computes
		cut.Arrived{Points: 7}, // the main thread stands at a Point
		cut.Captured{Epoch: 1}, // it has copied its state and continues
		cut.Done{Epoch: 1},     // the epoch is committed
	} {
		for _, a := range m.Step(ev) {
			fmt.Printf("%T leads to %T\n", ev, a)
		}
	}
	// Output:
	// cut.Request leads to cut.Arm
	// cut.Request leads to cut.Look
	// cut.Arrived leads to cut.Disarm
	// cut.Arrived leads to cut.Cut
}
