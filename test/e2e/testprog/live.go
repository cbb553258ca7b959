package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/storage"
)

// life is one start of a program.
type life struct {
	name     string
	opt      *coordinated.Options // nil: no checkpoints
	epoch    storage.Epoch        // to restore; 0 is the newest
	restores bool                 // there is one to restore
	pace     time.Duration
	asks     []ask
	want     string // the result; "" if it is not known
}

// outcome is what a life came to, the same on all ranks.
type outcome struct {
	result string
	from   storage.Epoch   // that was restored
	epochs []storage.Epoch // that were committed
}

// live runs a program from its start, or an epoch, to its end.
func (s *soak) live(d *drawn, l life) (o outcome, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s, epoch %d: %w", l.name, l.epoch, err)
		}
	}()
	s.log.reset()
	k := &asker{rank: s.world.Rank(), extent: &s.extent}
	world, end, err := s.world.Restart(k.called)
	if err != nil {
		return o, err
	}
	r := &run{shape: shapes[d.shape], world: world, steps: d.steps, size: d.size, pace: l.pace, asks: k.atPoint}
	if l.opt != nil {
		begun := time.Now()
		opt := *l.opt
		opt.Epoch = l.epoch
		if r.ck, err = coordinated.Open(context.Background(), world, opt); err != nil {
			return o, err
		}
		s.spent["open"] += time.Since(begun)
	}
	k.start(r.ck, l.asks)
	if err := s.through(r, l, k, &o); err != nil {
		return o, err
	}
	if err := errors.Join(r.free(), end()); err != nil {
		return o, err
	}
	if err := s.share(&o); err != nil {
		return o, err
	}
	if l.want != "" && o.result != l.want {
		return o, fmt.Errorf("WRONG RESULT %.12s, want %.12s", o.result, l.want)
	}
	return o, nil
}

// through takes the program from Restore through Close.
func (s *soak) through(r *run, l life, k *asker, o *outcome) error {
	ctx := context.Background()
	begun := time.Now()
	restored, err := r.restore(ctx)
	if err != nil {
		return err
	}
	if restored != l.restores {
		return fmt.Errorf("restored: %t", restored)
	}
	s.spent["restore"] += time.Since(begun)
	begun = time.Now()
	if err := r.shape.body(r, ctx); err != nil {
		return err
	}
	if !r.shape.closesFirst {
		if o.result, err = r.hash(r.world); err != nil {
			return err
		}
	}
	s.spent["compute"] += time.Since(begun)
	begun = time.Now()
	err = r.close()
	k.stop()
	if err != nil {
		return err
	}
	s.spent["close"] += time.Since(begun)
	if r.shape.closesFirst {
		if o.result, err = r.hash(r.world); err != nil {
			return err
		}
	}
	return committed(r.ck, o)
}

func (r *run) close() error {
	if r.ck == nil {
		return nil
	}
	return r.ck.Close()
}

// free frees what the program frees after its last checkpoint.
func (r *run) free() error {
	if r.counter == nil {
		return nil
	}
	return r.counter.Free()
}

// committed notes what a checkpointer has done. No epoch may fail, but for those that find all ranks in Close.
func committed(ck *coordinated.Checkpointer, o *outcome) error {
	if ck == nil {
		return nil
	}
	st := ck.Stats()
	o.from = st.Restore.Epoch
	for _, e := range st.Epochs {
		if errors.Is(e.Err, coordinated.ErrEnded) {
			continue
		}
		if e.Err != nil {
			return fmt.Errorf("epoch %d: %w", e.Epoch, e.Err)
		}
		o.epochs = append(o.epochs, e.Epoch)
	}
	return nil
}

const hashLength = 64

// share gives rank 0's outcome to all ranks.
func (s *soak) share(o *outcome) error {
	const most = 64
	b := make([]byte, hashLength+8*(most+2))
	if s.world.Rank() == 0 {
		copy(b, o.result)
		list := append([]storage.Epoch{o.from, storage.Epoch(len(o.epochs))}, o.epochs...)
		for i, e := range list[:min(len(list), most+2)] {
			binary.LittleEndian.PutUint64(b[hashLength+8*i:], uint64(e))
		}
	}
	if err := mpiwrap.Bcast(s.world, b, 0); err != nil {
		return err
	}
	number := func(i int) uint64 { return binary.LittleEndian.Uint64(b[hashLength+8*i:]) }
	mine := o.epochs
	o.result, o.from, o.epochs = string(b[:hashLength]), storage.Epoch(number(0)), nil
	for i := range number(1) {
		o.epochs = append(o.epochs, storage.Epoch(number(2+int(i))))
	}
	if !slices.Equal(mine, o.epochs) {
		return fmt.Errorf("this rank has seen the epochs %v, rank 0 %v", mine, o.epochs)
	}
	return nil
}
