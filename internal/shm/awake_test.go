package shm

import (
	"testing"
	"time"
)

// TestAwake: a reader begins to stay awake when it has slept for a short time, and stops when its waits are long.
func TestAwake(t *testing.T) {
	a := Awake{Spare: true}
	if a.Stays() {
		t.Error("it stays awake before it has waited")
	}
	a.Slept(time.Millisecond, time.Millisecond)
	for range mostShort {
		if !a.Wait(time.Millisecond, func() bool { return true }, nil) {
			t.Error("it does not stay awake after a short wait")
		}
	}
	for range mostShort {
		if !a.Stays() {
			t.Error("it stops before as many long waits as it remembers short ones")
		}
		a.Slept(time.Millisecond, time.Second)
	}
	if a.Stays() {
		t.Error("it stays awake after long waits")
	}
	a.Slept(time.Millisecond, 0)
	if a.Spare = false; a.Stays() {
		t.Error("it stays awake without a core for it")
	}
}

// TestBusy: the limit runs from the end of busy on.
func TestBusy(t *testing.T) {
	a := Awake{Spare: true}
	for {
		a.Slept(time.Millisecond, 0)
		begin := time.Now()
		after := func(d time.Duration) func() bool { return func() bool { return time.Since(begin) > d } }
		busy := after(5 * time.Millisecond)
		if a.Wait(time.Millisecond, busy, func() bool { return !busy() }) {
			break
		}
		if time.Since(begin) < longest { // else another process had the core
			t.Fatal("it does not stay awake for what somebody is busy with")
		}
	}
	begin := time.Now()
	if a.Wait(time.Millisecond, func() bool { return false }, nil) || time.Since(begin) < time.Millisecond {
		t.Error("it stays awake for less than a moment")
	}
}
