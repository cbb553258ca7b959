package agent_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect/connecttest"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/watch"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestRankStatus asks a job in which one rank is blocked on another, one
// computes and one waits at a Point.
func TestRankStatus(t *testing.T) {
	opt := jobtest.Options(t)
	opt.Interval = time.Hour
	leave, asked := make(chan struct{}), make(chan error, 1)
	err := mpitest.NewWorld(3, mpitest.Options{Seed: 3}).Run(func(world *mpiwrap.Comm) error {
		ctx := context.Background()
		var parts connect.Inside
		ck, step, err := jobtest.OpenStep(inside(ctx, &parts), world, opt)
		if err != nil {
			return err
		}
		err = ck.Request(ctx)
		switch world.Rank() {
		case 0: // parks, as a checkpoint is wanted
			go func() { asked <- askRanks(opt.Global); close(leave) }()
		case 1:
			_, err = mpiwrap.Recv(world, []float64{0}, 2, 5)
		case 2: // computes
			<-leave
			err = mpiwrap.Send(world, []float64{1}, 1, 5)
		}
		for i := 0; i < 50 && err == nil; i++ {
			*step++
			err = errors.Join(ck.Point(ctx), world.Barrier())
		}
		if err == nil {
			err = ck.Wait(ctx, "global")
		}
		if err == nil && world.Rank() == 0 {
			var states []job.RankStatus
			if states, err = parts.Ranks(); err == nil && (states[2].Last == 0 || states[2].Level == "" ||
				states[2].Cost <= 0) {
				err = fmt.Errorf("after a checkpoint: rank 2 says %+v", states[2])
			}
		}
		if err == nil {
			err = world.Barrier() // no rank is asked in Close
		}
		return errors.Join(err, ck.Close())
	})
	if err := errors.Join(err, <-asked); err != nil {
		t.Fatal(err)
	}
}

// askRanks asks until the ranks are where the test puts them.
func askRanks(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cl, err := job.DialJob(ctx, dir)
	if err != nil {
		return err
	}
	defer cl.Close()
	for {
		st, err := cl.Status(ctx)
		if err != nil {
			return err
		}
		if len(st.States) != 3 || st.Next == nil || st.Next.Seconds < 3000 || len(st.Levels) != 2 {
			return fmt.Errorf("got %+v", st)
		}
		parked, blocked, running := st.States[0], st.States[1], st.States[2]
		if parked.State != watch.StateParked || blocked.State != watch.StateBlocked ||
			running.State == watch.StateRestoring {
			continue // not there yet
		}
		if blocked.Call != "Recv" || blocked.Waits != "from rank 2 tag 5" || blocked.Comm == "" ||
			blocked.Phase == "" || blocked.Epoch != 1 {
			return fmt.Errorf("the blocked rank: got %+v", blocked)
		}
		if running.State != watch.StateRunning || running.Node == "" || running.Seconds <= 0 || parked.Points != 1 {
			return fmt.Errorf("the others: got %+v, %+v", running, parked)
		}
		return nil
	}
}

// TestSilentRank: a rank that does not answer is named; the others are listed.
func TestSilentRank(t *testing.T) {
	opt := jobtest.Options(t)
	net := connecttest.NewNet(3)
	hush, done := make(chan struct{}), make(chan struct{})
	err := mpitest.NewWorld(3, mpitest.Options{Seed: 3}).Run(func(world *mpiwrap.Comm) error {
		ctx := context.Background()
		var parts connect.Inside
		ck, err := coordinated.Open(connect.WithSeam(ctx, connect.Seam{Plane: net.Plane,
			Opened: func(p connect.Inside) { parts = p }}), world, opt)
		if err != nil {
			return err
		}
		if _, err := ck.Restore(ctx); err != nil {
			return err
		}
		if world.Rank() == 2 {
			// Its agent is kept from answering for as long as it takes.
			if err := parts.OnAgent(ctx, func() { close(hush); <-done }); err != nil {
				return err
			}
		}
		if world.Rank() == 0 {
			<-hush
			states, err := parts.Ranks()
			close(done)
			if err != nil || states[0].State != watch.StateRunning || states[1].State == watch.StateSilent ||
				states[2].State != watch.StateSilent {
				t.Errorf("got %+v, %v, want rank 2 silent, the others not", states, err)
			}
		}
		return ck.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}
