package node

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// robustList has words of shared memory in which the kernel notes the end of this process, however it ends: a program
// that loads the word sees that its daemon has died. For the kernel each is a robust mutex
// (set_robust_list(2)) that a thread holds which lives as long as the process: at its end the kernel replaces the
// thread's number in the word by FUTEX_OWNER_DIED.
type robustList struct {
	owner uint32 // the thread
	head  *robustHead

	mu  sync.Mutex // guards the fields below, and the list
	all []*uint64  // the entries: each leads to the one before it, the head to the last
}

// robustHead is struct robust_list_head of linux/futex.h. It and the entries lie in shared memory, because the kernel
// first frees the private memory of a process that it ends for lack of memory.
type robustHead struct {
	next    uint64 // address of the first entry; of the last one it is that of the head
	offset  int64  // from an entry to its word
	pending uint64
}

// The word of a flags page, and its entry in the list.
const (
	robustWord  = 4
	robustEntry = 8
)

// theRobustList starts the thread, once in a process.
var theRobustList = sync.OnceValues(func() (*robustList, error) {
	seg, err := newSegment("wills", os.Getpagesize())
	if err != nil {
		return nil, err
	}
	w := &robustList{head: (*robustHead)(unsafe.Pointer(unsafe.SliceData(seg.bytes)))}
	w.head.next, w.head.offset = address(&w.head.next), robustWord-robustEntry
	ready := make(chan error)
	go func() {
		runtime.LockOSThread()
		w.owner = uint32(unix.Gettid())
		_, _, errno := unix.Syscall(unix.SYS_SET_ROBUST_LIST, uintptr(unsafe.Pointer(w.head)),
			unsafe.Sizeof(*w.head), 0)
		if errno != 0 {
			ready <- fmt.Errorf("have the kernel note the end of this process: %w", errno)
			return
		}
		ready <- nil
		select {}
	}()
	return w, <-ready
})

func address(p *uint64) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// add has the kernel note the end of this process in a page.
func (w *robustList) add(page []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := (*uint64)(unsafe.Pointer(&page[robustEntry]))
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&page[robustWord])), w.owner)
	atomic.StoreUint64(e, w.head.next)
	atomic.StoreUint64(&w.head.next, address(e)) // the list is whole before and after
	w.all = append(w.all, e)
}

// remove takes a page out, which will be unmapped.
func (w *robustList) remove(page []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := (*uint64)(unsafe.Pointer(&page[robustEntry]))
	i := slices.Index(w.all, e)
	if i < 0 {
		return
	}
	to := &w.head.next
	if i+1 < len(w.all) {
		to = w.all[i+1]
	}
	atomic.StoreUint64(to, *e)
	w.all = slices.Delete(w.all, i, i+1)
}
