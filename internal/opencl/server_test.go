package opencl

import (
	"errors"
	"sync"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// TestFindAgain: a number stands for its object until that is removed, and then for the next one, even if
// the number was just looked for, or another one that is remembered in the same place.
func TestFindAgain(t *testing.T) {
	s := &Server{objects: map[uint64]any{}}
	const id = 3
	other := uint64(id + len(s.found))
	for round := range 3 {
		for _, n := range []uint64{id, other} {
			if _, err := find[*kernel](s, n); !errors.Is(err, wire.ErrProtocol) {
				t.Fatalf("round %d, %d before it is made: got %v, want errProtocol", round, n, err)
			}
		}
		made := map[uint64]*kernel{id: {}, other: {}}
		for n, k := range made {
			if err := s.add(n, k); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range []uint64{id, other, id, other} {
			if k, err := find[*kernel](s, n); err != nil || k != made[n] {
				t.Fatalf("round %d: got %p, %v for %d, want %p", round, k, err, n, made[n])
			}
			if _, err := find[*queue](s, n); !errors.Is(err, wire.ErrProtocol) {
				t.Fatalf("a kernel taken for a queue: got %v, want errProtocol", err)
			}
		}
		s.mu.Lock()
		s.remove(other)
		s.remove(id)
		s.mu.Unlock()
	}
}

// TestFindBesides: no request finds what another one has removed, whatever lookups run meanwhile.
func TestFindBesides(t *testing.T) {
	s := &Server{objects: map[uint64]any{}}
	const rounds = 2000
	var group sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = find[*kernel](s, 1)
				}
			}
		})
	}
	for round := range rounds {
		k := &kernel{count: round}
		if err := s.add(1, k); err != nil {
			t.Fatal(err)
		}
		if got, err := find[*kernel](s, 1); err != nil || got != k {
			t.Fatalf("round %d: got %v, %v", round, got, err)
		}
		s.mu.Lock()
		s.remove(1)
		s.mu.Unlock()
		if got, err := find[*kernel](s, 1); err == nil {
			t.Fatalf("round %d: found kernel %d after it was removed", round, got.count)
		}
	}
	close(stop)
	group.Wait()
}
