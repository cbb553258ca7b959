package main

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
)

// ask is a wish for a checkpoint: at a rank's n-th call into MPI, its n-th Point or
// after some time, where n is a part of what the undisturbed run had of these.
type ask struct {
	rank int
	by   askBy
	part float64
}

type askBy int

const (
	byCall askBy = iota
	byPoint
	byTime
	askWays
)

// extent is how long a run is, in each way.
type extent [askWays]int

// asker asks for the checkpoints of one life on one rank.
type asker struct {
	rank   int
	extent *extent // of the undisturbed run, which writes it
	ck     *coordinated.Checkpointer
	due    [askWays]map[int]bool
	had    extent
	begun  time.Time
	timers []*time.Timer
	at     sync.WaitGroup // timers that ask
}

// start begins to count, with the checkpointer open, or without any.
func (k *asker) start(ck *coordinated.Checkpointer, asks []ask) {
	k.had, k.begun, k.ck = extent{}, time.Now(), ck
	for i := range k.due {
		k.due[i] = map[int]bool{}
	}
	for _, a := range asks {
		if a.rank != k.rank {
			continue
		}
		n := int(a.part * float64(k.extent[a.by]))
		if a.by != byTime {
			k.due[a.by][n] = true
			continue
		}
		k.at.Add(1)
		k.timers = append(k.timers, time.AfterFunc(time.Duration(n), func() { defer k.at.Done(); k.request() }))
	}
}

// called counts a call into MPI.
func (k *asker) called(string) { k.count(byCall) }

func (k *asker) atPoint() { k.count(byPoint) }

func (k *asker) count(by askBy) {
	if k.begun.IsZero() { // not started
		return
	}
	if k.due[by][k.had[by]] {
		k.request()
	}
	k.had[by]++
}

func (k *asker) request() {
	_ = k.ck.Request(context.Background()) // closed: the moment came too late
}

// stop ends it, after Close.
func (k *asker) stop() {
	for _, t := range k.timers {
		if t.Stop() {
			k.at.Done()
		}
	}
	k.at.Wait()
	if k.ck == nil {
		k.had[byTime] = int(time.Since(k.begun))
		*k.extent = k.had
	}
	k.begun = time.Time{}
}
