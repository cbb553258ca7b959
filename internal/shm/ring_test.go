package shm

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"
)

var small = RingLayout{Written: 0, Read: 64, Asleep: 128, Data: 192, Bytes: 1 << 10}

// ends returns the two sides of a ring, and its memory.
func ends(t testing.TB) (r RingReader, w RingWriter, b []byte) {
	t.Helper()
	b, err := Private(small.Data + small.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Free(b); err != nil {
			t.Error(err)
		}
	})
	return NewRingReader(b, small), NewRingWriter(b, small), b
}

// TestWaking: a reader that sleeps is woken for what is written, and no waking is lost.
func TestWaking(t *testing.T) {
	r, w, _ := ends(t)
	const total = 200_000
	woken := make(chan struct{}, 1)
	var all sync.WaitGroup
	all.Go(func() {
		for sent := 0; sent < total; {
			n, err := w.Write(make([]byte, min(1+sent%300, total-sent)))
			if err != nil {
				t.Error(err)
				return
			}
			if sent += n; n == 0 {
				runtime.Gosched()
			} else if w.Wakes() {
				woken <- struct{}{}
			}
		}
	})
	awake := Awake{Spare: true}
	for got := 0; got < total; {
		n, err := r.Read(make([]byte, 1+got%500))
		if err != nil {
			t.Fatal(err)
		}
		if got += n; n > 0 || awake.Wait(time.Millisecond, func() bool { return !r.Empty() }, nil) || !r.Sleep() {
			continue
		}
		begin := time.Now()
		<-woken
		awake.Slept(time.Millisecond, time.Since(begin))
		r.Watch()
	}
	all.Wait()
}

// TestRoom: a writer fills the ring and no more, and gets room as the reader takes bytes, a part of the ring at a time
// or when nothing is left.
func TestRoom(t *testing.T) {
	r, w, _ := ends(t)
	write := func(want int) {
		t.Helper()
		if n, err := w.Write(make([]byte, 2*small.Bytes)); n != want || err != nil {
			t.Errorf("wrote %d, %v, want %d", n, err, want)
		}
	}
	read := func(n int) {
		t.Helper()
		if got, err := r.Read(make([]byte, n)); got != n || err != nil {
			t.Errorf("read %d, %v, want %d", got, err, n)
		}
	}
	write(small.Bytes)
	write(0)
	read(1)
	write(0)
	read(small.Bytes/publishEvery - 1)
	write(small.Bytes / publishEvery)
	read(small.Bytes - small.Bytes/publishEvery) // what was there when it looked last
	read(small.Bytes / publishEvery)
	if n, err := r.Waiting(); n != 0 || err != nil {
		t.Errorf("got %d bytes of an empty ring, %v", n, err)
	}
	write(small.Bytes)
}

// TestImpossible: a count of the other side that cannot be is an error, also later.
func TestImpossible(t *testing.T) {
	for _, count := range []uint64{uint64(small.Bytes) + 1, 1 << 63, ^uint64(0)} {
		r, w, _ := ends(t)
		r.written.Store(count)
		if n, err := r.Read(make([]byte, 8)); !errors.Is(err, ErrCount) {
			t.Errorf("%d written: read %d bytes, %v", count, n, err)
		}
		w.read.Store(-count)
		for range 2 {
			if n, err := w.Write(make([]byte, 2*small.Bytes)); !errors.Is(err, ErrCount) {
				t.Errorf("%d read: wrote %d bytes, %v", -count, n, err)
			}
		}
	}
}
