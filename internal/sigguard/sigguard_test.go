package sigguard

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// kernelAction is the kernel's struct sigaction on 64-bit Linux.
type kernelAction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

const saOnStack = 0x08000000

func action(t *testing.T, s syscall.Signal) kernelAction {
	t.Helper()
	var a kernelAction
	_, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), 0,
		uintptr(unsafe.Pointer(&a)), 8, 0, 0)
	if e != 0 {
		t.Fatalf("rt_sigaction(%v): %v", s, e)
	}
	return a
}

func setAction(t *testing.T, s syscall.Signal, a kernelAction) {
	t.Helper()
	_, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s),
		uintptr(unsafe.Pointer(&a)), 0, 8, 0, 0)
	if e != 0 {
		t.Fatalf("rt_sigaction(%v): %v", s, e)
	}
}

// steal makes the process ignore s, as a native library's handler would hide
// it from os/signal.
func steal(t *testing.T, s syscall.Signal) {
	t.Helper()
	a := action(t, s)
	a.handler, a.flags = 1, a.flags&^saOnStack
	setAction(t, s, a)
}

func TestStolenSignalComesBack(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM, syscall.SIGHUP} {
		before := action(t, s)
		if err := Around(func() error { steal(t, s); return nil }); err != nil {
			t.Fatal(err)
		}
		if got := action(t, s); got.handler != before.handler || got.flags != before.flags || got.mask != before.mask {
			t.Errorf("%v: got %+v, want %+v", s, got, before)
		}
	}
}

func TestNotifyWorksAfterwards(t *testing.T) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	defer signal.Stop(c)
	if err := Around(func() error { steal(t, syscall.SIGUSR1); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatal("SIGUSR1 did not reach os/signal")
	}
}

func TestFPEHandlerStaysOnAlternateStack(t *testing.T) {
	before := action(t, syscall.SIGFPE)
	defer setAction(t, syscall.SIGFPE, before)
	other := action(t, syscall.SIGSEGV).handler
	changed := before
	changed.handler, changed.flags, changed.mask = other, before.flags&^saOnStack, 0
	if err := Around(func() error { setAction(t, syscall.SIGFPE, changed); return nil }); err != nil {
		t.Fatal(err)
	}
	got := action(t, syscall.SIGFPE)
	if got.handler != other {
		t.Errorf("handler: got %#x, want the one load left (%#x)", got.handler, other)
	}
	if got.flags&saOnStack == 0 {
		t.Error("SA_ONSTACK was not added")
	}
}

func TestLoadErrorAndPanic(t *testing.T) {
	want := errors.New("library is not there")
	before := action(t, syscall.SIGUSR2)
	if err := Around(func() error { steal(t, syscall.SIGUSR2); return want }); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
	func() {
		defer func() { _ = recover() }()
		_ = Around(func() error { steal(t, syscall.SIGUSR2); panic("boom") })
	}()
	if got := action(t, syscall.SIGUSR2); got.handler != before.handler {
		t.Errorf("handler after failure: got %#x, want %#x", got.handler, before.handler)
	}
}

// TestCallsAtOnce: libraries that save what they find and put it back, at the same time and
// in any order, as compilers do that take a signal for each compilation.
func TestCallsAtOnce(t *testing.T) {
	const s = syscall.SIGTERM
	want := action(t, s)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				err := Around(func() error {
					found := action(t, s)
					steal(t, s)
					runtime.Gosched()
					found.flags &^= saOnStack // signal(2) keeps the handler alone
					setAction(t, s, found)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := action(t, s); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestCallInACall(t *testing.T) {
	want := action(t, syscall.SIGTERM)
	err := Around(func() error {
		steal(t, syscall.SIGTERM)
		return Around(func() error { steal(t, syscall.SIGTERM); return nil })
	})
	if got := action(t, syscall.SIGTERM); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestNilDereferenceStillRecovers(t *testing.T) {
	if err := Around(func() error { steal(t, syscall.SIGUSR1); return nil }); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("nil dereference did not panic")
		}
	}()
	var p *int
	*p = 1
}
