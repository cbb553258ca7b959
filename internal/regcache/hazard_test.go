package regcache

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bufferBytes is a message large enough to be an allocation of its own.
const bufferBytes = 8 << 20

// TestGoMemory sends Go memory from a card that keeps its registration while the
// runtime gives the pages back in between. With the runtime's default, stale bytes
// leave: this is what the plan guards against. With GODEBUG=madvdontneed=0 they
// must not, even when the kernel is made to take back what it may.
func TestGoMemory(t *testing.T) {
	for _, c := range []struct{ godebug, want string }{
		{"madvdontneed=1", "stale"},
		{"madvdontneed=0", "fresh"},
	} {
		t.Run(c.godebug, func(t *testing.T) {
			p := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
			p.Env = append(os.Environ(), "GODEBUG="+c.godebug, childEnv+"="+filepath.Join(t.TempDir(), "out"))
			out, err := p.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			_, verdict, _ := strings.Cut(string(out), "verdict: ")
			verdict, _, _ = strings.Cut(verdict, "\n")
			if reason, none := strings.CutPrefix(verdict, "none: "); none {
				t.Skip(reason)
			}
			if p := makePlan(System{Lookup: func(string) (string, bool) {
				return c.godebug, true
			}, Release: release(t)}); c.want == "fresh" && !p.Pages {
				t.Skipf("Linux %s may take pinned pages back", release(t))
			}
			if verdict != c.want {
				t.Errorf("the card sent %s bytes, want %s\n%s", verdict, c.want, out)
			}
		})
	}
}

func release(t *testing.T) string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	return unix.ByteSliceToString(u.Release[:])
}

// childEnv makes a process of this test the sender; it names the file to send to.
const childEnv = "HOLDFAST_TEST_REGCACHE"

func TestChild(t *testing.T) {
	file := os.Getenv(childEnv)
	if file == "" {
		t.Skip("only as the process that TestGoMemory starts")
	}
	card, err := newCard(file)
	if errors.Is(err, errNoRing) {
		fmt.Println("verdict: none:", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer card.close()
	if taken, err := takesBack(); err != nil {
		t.Fatal(err)
	} else if !taken {
		fmt.Println("verdict: none: the kernel does not take lazily freed pages back on request")
		return
	}
	again, err := reused(card)
	if errors.Is(err, errNotReused) {
		fmt.Println("verdict: none:", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range again {
		again[i] = 'n'
	}
	got, err := card.send(again, bufferBytes)
	if err != nil {
		t.Fatal(err)
	}
	verdict := "stale"
	if bytes.Equal(got, again) {
		verdict = "fresh"
	}
	fmt.Println("verdict:", verdict)
}

// takesBack returns the control: pages that no device has pinned must be gone after the
// request that registered makes, or that one proves nothing.
func takesBack() (bool, error) {
	b, err := unix.Mmap(-1, 0, bufferBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return false, err
	}
	for i := range b {
		b[i] = 'o'
	}
	err = errors.Join(unix.Madvise(b, unix.MADV_FREE), unix.Madvise(b, unix.MADV_PAGEOUT))
	taken := bytes.Contains(b, make([]byte, os.Getpagesize()))
	return taken, errors.Join(err, unix.Munmap(b))
}

// registered fills a buffer, registers it, sends it once, and lets go of it.
func registered(card *fakeCard) (uintptr, error) {
	b := make([]byte, bufferBytes)
	for i := range b {
		b[i] = 'o'
	}
	if err := card.register(b); err != nil {
		return 0, err
	}
	got, err := card.send(b, len(b))
	if err == nil && !bytes.Equal(got, b) {
		err = errors.New("the card does not send what is in memory")
	}
	// What MADV_FREE left in place may be taken at any time: here at once.
	if strings.Contains(os.Getenv("GODEBUG"), "madvdontneed=0") {
		err = errors.Join(err, unix.Madvise(b, unix.MADV_FREE), unix.Madvise(b, unix.MADV_PAGEOUT))
	}
	return uintptr(unsafe.Pointer(&b[0])), err
}

var errNotReused = errors.New("the runtime does not hand out the address again")

// reused registers a buffer, lets the runtime have it back, and returns the next one
// that lies at the same address.
func reused(card *fakeCard) ([]byte, error) {
	for range 32 {
		address, err := registered(card)
		if err != nil {
			return nil, err
		}
		runtime.GC()
		debug.FreeOSMemory() // as the runtime does by itself after minutes
		if again := at(address); again != nil {
			return again, nil
		}
		// Something smaller lies there now.
	}
	return nil, errNotReused
}

// at allocates until the runtime hands out the address, or returns nil. It keeps what
// it got before: the runtime prefers low addresses and would hand out the same again.
func at(address uintptr) []byte {
	var kept [][]byte
	for range 64 {
		b := make([]byte, bufferBytes)
		if uintptr(unsafe.Pointer(&b[0])) == address {
			return b
		}
		kept = append(kept, b)
	}
	runtime.KeepAlive(kept)
	return nil
}
