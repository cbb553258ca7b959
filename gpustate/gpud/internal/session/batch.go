package session

import (
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// batch are launches without an event, and arguments, which the client has sent one after the other. While
// its messages come faster than the driver takes them, they are given to the driver several at a time.
//
// They belong to the reading goroutine, which does them before it waits for a message, and before it does another one.
type batch struct {
	driver driver.Batch // nil where the driver has none
	steps  []driver.Step
	of     []batched
	values []byte // of arguments
	most   int    // steps of the next one
}

// batched is whose a step is.
type batched struct {
	queue  *queue // nil: of an argument
	kernel *kernel
}

// mostBatched bounds for how many others a launch may wait, some 0.1 us for each. The first of many waits for none,
// those after it for more and more.
const mostBatched = 64

// launchLater enters a launch; false: it is to be issued by itself.
func (s *Session) launchLater(q *queue, k *kernel, g *driver.Grid) bool {
	if s.batch.driver == nil || !q.lazy || q.desc.OutOfOrder || len(k.bad) > 0 {
		return false
	}
	s.addStep(driver.Step{Queue: q.h, Kernel: k.h, Grid: *g}, batched{q, k})
	return true
}

// setLater enters an argument in the same way.
func (s *Session) setLater(k *kernel, i int, a driver.Arg) bool {
	if s.batch.driver == nil || len(k.bad) > 0 || a.Kind != driver.ArgValue && a.Kind != driver.ArgMem {
		return false
	}
	b := &s.batch
	at := len(b.values)
	b.values = append(b.values, a.Value...)
	a.Value = b.values[at:len(b.values):len(b.values)]
	s.addStep(driver.Step{Kernel: k.h, Index: i, Arg: a}, batched{nil, k})
	return true
}

func (s *Session) addStep(step driver.Step, of batched) {
	b := &s.batch
	b.steps, b.of = append(b.steps, step), append(b.of, of)
	switch n := len(b.steps); {
	case !wire.FrameBuffered(s.in):
		b.most = 1
	case n < b.most:
		return
	default:
		b.most = min(2*n, mostBatched)
	}
	s.doBatch()
}

// doBatch gives the driver the entered commands.
func (s *Session) doBatch() {
	b := &s.batch
	if len(b.steps) == 0 {
		return
	}
	done, err := b.driver.Do(b.steps)
	s.did(b.of[:done])
	if err != nil {
		// Commands that the driver has not done are done step by step; the first step failed.
		for i, of := range s.batch.of[done:] {
			step := &s.batch.steps[done+i]
			switch {
			case of.queue == nil && i == 0:
				of.kernel.refuse(step.Index, err)
			case of.queue == nil:
				s.setArg(of.kernel, step.Index, step.Arg)
			case i == 0:
				of.queue.add(of.kernel.launched(0, err))
			default:
				s.launch(of.queue, of.kernel, step.Grid)
			}
		}
	}
	clear(b.steps) // they hold objects that the client may release
	clear(b.of)
	b.steps, b.of, b.values = b.steps[:0], b.of[:0], b.values[:0]
}

// did counts launches that the driver has taken.
func (s *Session) did(of []batched) {
	for len(of) > 0 {
		q, n := of[0].queue, 0
		for n < len(of) && of[n].queue == q {
			n++
		}
		if of = of[n:]; q != nil {
			q.addQuiet(int64(n))
		}
	}
}
