package image

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/shm"
	"golang.org/x/sys/unix"
)

// whole returns a record of a process that can be started here.
func whole(t *testing.T) *record {
	t.Helper()
	const pid = 1 << 29
	r := &record{Version: recordVersion, PID: pid, Tree: []int{pid}, UID: os.Geteuid(),
		Programs: []program{{PID: pid, Control: 5, Ring: memory{4096, 4096, false}}}}
	var err error
	if r.Machine, r.Kernel, err = system(); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAllowed: what cannot be started here is refused by name.
func TestAllowed(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, make([]byte, 10), 0o600); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	inode := st.Sys().(*syscall.Stat_t).Ino
	for _, c := range []struct {
		change   func(r *record)
		truncate bool
		want     string
	}{
		{func(*record) {}, false, ""},
		{func(r *record) { r.Machine = "pdp11" }, false, "machine of another type: pdp11"},
		{func(r *record) { r.Kernel = "99.1.0" }, false, "newer kernel, 99.1.0"},
		{func(r *record) { r.Kernel = "2.6.32" }, false, ""},
		{func(r *record) { r.PID = os.Getpid() }, false, "another process has now"},
		{func(r *record) { r.Numbers = []int{r.PID, os.Getpid()} }, false, "another process has now"},
		{func(r *record) { r.Files = []file{{log, 10, false, inode, 0}} }, false, ""},
		{func(r *record) { r.Files = []file{{log, 9, false, inode, 0}} }, false, "has grown"},
		{func(r *record) { r.Files = []file{{log, 9, false, inode, 0}} }, true, ""},
		{func(r *record) { r.Files = []file{{log, 9, true, inode, 0}} }, false, ""},
		{func(r *record) { r.Files = []file{{log, 9, true, inode + 1, 0}} }, true, ""},
		{func(r *record) { r.Files = []file{{log, 10, false, inode + 1, 0}} }, true, ""},
		{func(r *record) { r.Files = []file{{log, 9, false, inode + 1, 0}} }, true, "another file than the program"},
		{func(r *record) { r.Files = []file{{log, 11, true, inode, 0}} }, true, "has 10 bytes, and had 11"},
		{func(r *record) { r.Files = []file{{log, 11, false, inode, 0}} }, true, "has 10 bytes, and had 11"},
		{func(r *record) { r.Files = []file{{log + "x", 11, false, inode, 0}} }, true, "is not there"},
	} {
		r := whole(t)
		c.change(r)
		err := r.allowed(&RestoreOptions{Truncate: c.truncate})
		if c.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", r, err, c.want)
		}
	}
	for rotated, want := range map[file]bool{{log, 99, false, inode + 1, 0}: true, {log, 9, false, inode + 1, 0}: true,
		{log, 9, false, inode, 0}: true, {log, 99, false, inode, 0}: false, {log, 99, true, inode + 1, 0}: false} {
		r := whole(t)
		r.Files = []file{rotated}
		if err := r.allowed(&RestoreOptions{Append: true}); want != (err == nil) {
			t.Errorf("to write behind %+v: got %v", rotated, err)
		}
	}
}

// TestInUse: a number is in use as long as a process of a group has it, even when its own process has ended.
func TestInUse(t *testing.T) {
	leader := exec.Command("sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
	leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := leader.Output()
	if err != nil {
		t.Fatal(err)
	}
	number := leader.Process.Pid // of its group now
	other, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	if !inUse(number) || !inUse(os.Getpid()) {
		t.Errorf("the number %d of a group, or %d of this process, is free", number, os.Getpid())
	}
	if err := syscall.Kill(other, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !awaitFree(number, true) {
		t.Errorf("the number %d of a group that has ended is in use", number)
	}
}

// TestPassOver: a process that is started during a restore gets none of the numbers that are needed.
func TestPassOver(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can tell the kernel which number is next")
	}
	b, err := os.ReadFile("/proc/sys/kernel/ns_last_pid")
	if err != nil {
		t.Skipf("the kernel does not tell its newest number: %v", err)
	}
	needed, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if needed += 1000; needed > 30_000 {
		needed = 1500 // of the next round
	}
	passOver([]int{needed - 2, needed, needed - 1})
	next := exec.Command("true")
	if err := next.Run(); err != nil {
		t.Fatal(err)
	}
	if got := next.Process.Pid; got <= needed {
		t.Errorf("a new process has the number %d, want one above %d", got, needed)
	}
}

// TestDecode: a record of another version, or one that does not fit together, is no record.
func TestDecode(t *testing.T) {
	for _, c := range []struct {
		change func(r *record)
		want   string
	}{
		{func(*record) {}, ""},
		{func(r *record) { r.Version = 3 }, "version 3, and this command knows 2"},
		{func(r *record) { r.Programs[0].Asked[0].Area = 2 }, "names an area"},
		{func(r *record) { r.Programs[0].Asked[0].Connection = 1 }, "names an area or a connection"},
		{func(r *record) { r.Programs[0].Areas[0].New = false }, "does not fit together"},
		{func(r *record) { r.PID = 1 }, "does not fit together"},
		{func(r *record) { r.Tree = []int{r.PID + 1} }, "does not fit together"},
		{func(r *record) { r.Programs[0].PID++ }, "does not fit together"},
		{func(r *record) { r.Programs = nil }, "does not fit together"},
		{func(r *record) { r.Programs[0].Ring.Address = 0 }, "does not fit together"},
	} {
		r := whole(t)
		r.Programs[0].Areas, r.Programs[0].Asked = []memory{{8192, 4096, true}}, []message{{'M', 1, 0}}
		c.change(r)
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = decode(text)
		if c.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", text, err, c.want)
		}
	}
	for _, text := range []string{"", "{", `{"version":2,"more":1}`} {
		if _, err := decode([]byte(text)); err == nil {
			t.Errorf("%q is a record", text)
		}
	}
}

// TestPeek: what is on the way is read with its files and stays there, and comes first in a new pair of sockets.
func TestPeek(t *testing.T) {
	program, helper, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	defer helper.Close()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, b := range []byte("DLDM") { // each has a message of its own, as in the library
		var fds []int
		if b != 'D' {
			fds = []int{int(file.Fd())}
		}
		if err := put(program, []byte{b}, fds...); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		var text []byte
		var with []int
		err := peek(helper, 1, func(b []byte, files []*os.File) error {
			if len(files) > 0 && b[0] != 'D' { // D may have those of the next one
				with = append(with, len(text))
			}
			closeAll(files)
			text = append(text, b...)
			return nil
		})
		if err != nil || string(text) != "DLDM" || len(with) != 2 || with[0] != 1 || with[1] != 3 {
			t.Fatalf("got %q, files with %v, %v", text, with, err)
		}
	}
	all, err := peers()
	if err != nil {
		t.Fatal(err)
	}
	mine, err := inode(program)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := programEnd(helper, all, map[uint64]bool{mine: true}); err != nil || got != mine {
		t.Errorf("got %d, %v, want %d", got, err, mine)
	}
	if _, err := programEnd(helper, all, map[uint64]bool{}); err == nil {
		t.Error("the socket of another process is the program's")
	}
	const most = 8 << 20
	if err := widen(program, 2*most, func() error { return put(program, make([]byte, most)) }); err != nil {
		t.Error(err)
	}
	other, _, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	room := func(f *os.File) int {
		n, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_SNDBUF)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got, want := room(program), room(other); got != want {
		t.Errorf("the program's end has room for %d bytes, want the %d of a new one", got, want)
	}
}

// TestSections: an image has no file outside of its folder.
func TestSections(t *testing.T) {
	for section, want := range map[string]string{
		"criu/core-1.img": "core-1.img", "criu/.img": ".img", "opencl/0": "opencl-0",
		"area/3/12": "area-3-12", "opencl": "", "area/3": "", "area/3/x": "", "opencl/../x": "", "area/0/1/../x": "",
		"criu/../x.img": "", "criu/a/b.img": "", "criu/x": "", "area/x": "", "area/-1": "", "other": "",
	} {
		if got := fileOf(section); got != want {
			t.Errorf("%s: got %q, want %q", section, got, want)
		}
	}
}

// TestTrusted: a directory that others can write to, or that is another user's, starts nothing.
func TestTrusted(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := trusted(dir); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(file, 0o620); err != nil {
		t.Fatal(err)
	}
	if err := trusted(dir); err == nil || !strings.Contains(err.Error(), "can be written to by other users") {
		t.Errorf("got %v", err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(file, 12345, 0); err != nil {
		t.Fatal(err)
	}
	if err := trusted(dir); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
		t.Errorf("got %v", err)
	}
}

// TestLengthened: CRIU does not check the length of a file that has grown. A process that writes at its end is there
// again, and one that reads goes on where it was. Other files stay as they are.
func TestLengthened(t *testing.T) {
	entry := func(name string, flags, pos uint64, size ...uint64) (b []byte) {
		reg := field{number: 1, value: 7}.append(nil)
		reg = field{number: regFlags, value: flags}.append(reg)
		if len(size) > 0 {
			reg = field{number: regPos, value: pos}.append(reg)
		}
		reg = field{number: regName, kind: byBytes, bytes: []byte(name)}.append(reg)
		if len(size) > 0 {
			reg = field{number: regSize, value: size[0]}.append(reg)
		} else {
			reg = field{number: regPos, value: pos}.append(reg)
		}
		e := field{number: entryReg, kind: byBytes, bytes: reg}.append(field{number: 1, value: 1}.append(nil))
		return append(binary.LittleEndian.AppendUint32(nil, uint32(len(e))), e...)
	}
	list := func(entries ...[]byte) []byte { return append([]byte("8 bytes."), bytes.Join(entries, nil)...) }
	const appends, reads = unix.O_WRONLY | unix.O_APPEND, unix.O_RDONLY | unix.O_NONBLOCK
	entries := [][]byte{entry("/log", unix.O_RDWR, 300, 300), entry("/other", unix.O_RDWR, 5, 5),
		entry("/log", appends, 20, 300), entry("/log", reads, 300, 300)}
	before := list(entries...)
	after, err := lengthened(before, map[string]int64{"/log": 1000})
	if want := list(entry("/log", unix.O_RDWR, 1000), entries[1], entry("/log", appends, 20),
		entry("/log", reads, 300)); err != nil || !bytes.Equal(after, want) {
		t.Errorf("got %q, %v, want %q", after, err, want)
	}
	path := filepath.Join(t.TempDir(), filesImage)
	r := &record{Files: []file{{"/log", 9, false, 1, 0}, {"/none", 8, false, 1, 0}}}
	if err := errors.Join(os.WriteFile(path, before, 0o600), r.measure(path)); err != nil || r.Files[0].Bytes != 300 ||
		r.Files[1].Bytes != 8 {
		t.Errorf("as CRIU saved them: got %+v, %v", r.Files, err)
	}
	log := filepath.Join(t.TempDir(), "log") // two processes append to it, and one reads
	r = &record{Files: []file{{log, 200, false, 1, 0}}}
	both := list(entry(log, appends, 150), entry(log, appends, 350), entry(log, reads, 380))
	if err := errors.Join(os.WriteFile(log, make([]byte, 400), 0o600), os.WriteFile(path, both, 0o600),
		r.measure(path)); err != nil || r.Files[0].Bytes != 350 {
		t.Errorf("a file that is appended to: got %+v, %v", r.Files, err)
	}
	whole := map[int]bool{8: true}
	for n, e := 8, 0; e < len(entries); e++ {
		n += len(entries[e])
		whole[n] = true
	}
	for n := range before {
		if _, err := lengthened(before[:n], nil); err == nil && !whole[n] {
			t.Errorf("the first %d bytes are a list", n)
		}
	}
}

// TestTimers: a periodic timer whose ticks were not read when CRIU saved it ticks on; others stay as they are. One of a
// clock that CRIU does not restore is refused.
func TestTimers(t *testing.T) {
	list := func(clock, ticks, value, interval uint64) []byte {
		var timer []byte
		for n, v := range []uint64{7, 0, 9, clock, ticks, 1, 0, value, 2, interval} { // from field 1 on
			timer = field{number: n + 1, value: v}.append(timer)
		}
		e := field{number: entryTimer, kind: byBytes, bytes: timer}.append(field{number: 1, value: 17}.append(nil))
		return append(binary.LittleEndian.AppendUint32([]byte("8 bytes."), uint32(len(e))), e...)
	}
	path := filepath.Join(t.TempDir(), filesImage)
	for _, c := range []struct {
		ticks, value uint64
		ticking      bool
	}{{3, 0, true}, {0, 0, false}, {3, 5, false}} {
		want := list(1, c.ticks, c.value, 8)
		if c.ticking {
			want = bytes.Replace(want, []byte{7 << 3, 0, 8 << 3, 0}, []byte{7 << 3, 2, 8 << 3, 8}, 1)
		}
		err := os.WriteFile(path, list(1, c.ticks, c.value, 8), 0o600)
		if err = errors.Join(err, new(record).measure(path), adapt(path, nil)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d ticks, the next in %d ns: got %q, %v, want %q", c.ticks, c.value, got, err, want)
		}
	}
	err := errors.Join(os.WriteFile(path, list(7, 0, 5, 8), 0o600), new(record).measure(path))
	if err == nil || !strings.Contains(err.Error(), "a timer (timerfd) of clock 7") {
		t.Errorf("got %v", err)
	}
}

// TestKept: what a restore cuts from a file lies beside it until it is put back, or not wanted any more.
func TestKept(t *testing.T) {
	log := file{Path: filepath.Join(t.TempDir(), "log"), Bytes: 4}
	if err := os.WriteFile(log.Path, []byte("old new"), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := behind([]file{log})
	if err = errors.Join(err, shorten([]file{log})); err != nil {
		t.Fatal(err)
	}
	has := func(path string) string {
		found, err := filepath.Glob(path)
		if err != nil || len(found) != 1 {
			return strings.Join(found, ", ")
		}
		b, _ := os.ReadFile(found[0]) // else it is empty
		return string(b)
	}
	if got, kept := has(log.Path), has(log.Path+keptName+"*"); got != "old " || kept != "new" {
		t.Errorf("got %q and %q", got, kept)
	}
	if err := errors.Join(list[0].back(), list[0].drop()); err != nil {
		t.Fatal(err)
	}
	if got, kept := has(log.Path), has(log.Path+keptName+"*"); got != "old new" || kept != "" {
		t.Errorf("put back: got %q and %q", got, kept)
	}
	if _, err := behind([]file{log, {Path: log.Path + "x"}}); err == nil || has(log.Path+keptName+"*") != "" {
		t.Errorf("got %v, and %q is left", err, has(log.Path+keptName+"*"))
	}
}

// TestLook: what the kernel makes for a process to read need not be there before the process is. A process that uses
// io_uring is refused.
func TestLook(t *testing.T) {
	status, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer status.Close()
	r := &record{}
	if _, err := r.look(os.Getpid()); err != nil || slices.ContainsFunc(r.Files, func(f file) bool {
		return strings.HasPrefix(f.Path, "/proc/")
	}) {
		t.Errorf("got %v, %+v", err, r.Files)
	}
	var params [120]byte
	ring, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params)), 0)
	if errno != 0 {
		t.Skipf("this kernel has no io_uring: %v", errno)
	}
	defer unix.Close(int(ring))
	if _, err := r.look(os.Getpid()); err == nil || !strings.Contains(err.Error(), "uses io_uring") {
		t.Errorf("got %v", err)
	}
}

// TestFolder: a folder that a killed command has left goes when the next one needs one, and not before its end.
func TestFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	left, err := os.MkdirTemp("", "holdfast-image-")
	if err != nil {
		t.Fatal(err)
	}
	first, removeFirst, err := folder()
	if err != nil {
		t.Fatal(err)
	}
	_, removeSecond, err := folder()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what was left is there")
	}
	if _, err := os.Stat(first); err != nil {
		t.Errorf("a folder in use: %v", err)
	}
	if err := errors.Join(removeFirst(), removeSecond()); err != nil {
		t.Error(err)
	}
	if list, err := os.ReadDir(os.TempDir()); err != nil || len(list) > 0 {
		t.Errorf("%v is left, %v", list, err)
	}
}

// TestReasons: CRIU's errors are reasons, but not the one that it writes wherever it lacks a right and goes on.
func TestReasons(t *testing.T) {
	const log = "(00.001) Error (criu/rlimit.c:21): " + noLimit + "\n(00.002) Warn  (a.c:1): odd\n" +
		"(00.003) Error (b.c:2): no: reason\n(00.004) Error (c.c:3): another, consider using --an-option\n"
	if got, want := reasons(log), "no: reason; another"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTaken: CRIU's words for a number that another process has.
func TestTaken(t *testing.T) {
	for said, want := range map[string]bool{
		"criu restore: exit status 1: Unable to create a thread: -17; Restoring FAILED.": true,
		"criu restore: exit status 1: Can't fork for 77: File exists":                    true,
		"criu restore: exit status 1: Unable to create a thread: -11":                    false,
		"criu restore: exit status 1: Can't open file x: File exists":                    false,
	} {
		if isTaken(said) != want {
			t.Errorf("%q: got %v", said, !want)
		}
	}
}

// TestChanged: a file that is written to within its length is named, unless it has grown or is cut. One that is only
// read is named if it is of another time.
func TestChanged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	open, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	mapped, err := unix.Mmap(int(open.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err = errors.Join(err, open.Close(), os.Chtimes(path, old, old)); err != nil {
		t.Fatal(err)
	}
	r := &record{}
	if _, err := r.look(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(r.Files, func(f file) bool { return f.Path == path })
	if at < 0 {
		t.Fatalf("a file that is mapped is not among %+v", r.Files)
	}
	if got := lacks([]int{os.Getpid()}); !slices.ContainsFunc(got, func(text string) bool {
		return strings.Contains(text, " has mapped "+path+" and writes to it")
	}) {
		t.Errorf("got %q", got)
	}
	f := r.Files[at]
	read := f
	read.Read = true
	if f.changed(nil) != "" || read.changed(nil) != "" {
		t.Errorf("it has not changed: got %q and %q", f.changed(nil), read.changed(nil))
	}
	mapped[0] = 1
	if err := errors.Join(unix.Msync(mapped, unix.MS_SYNC), unix.Munmap(mapped)); err != nil {
		t.Fatal(err)
	}
	if f.changed(nil) == "" || read.changed(nil) == "" {
		t.Errorf("it has changed: got %q, %q where it is only read", f.changed(nil), read.changed(nil))
	}
	for other, named := range map[time.Time]bool{old.Truncate(time.Second): false, old.Add(-time.Hour): true} {
		if err := os.Chtimes(path, other, other); err != nil {
			t.Fatal(err)
		}
		if got := read.changed(nil); (got != "") != named || f.changed(nil) != "" {
			t.Errorf("of %v: got %q, %q where it is only read", other, f.changed(nil), got)
		}
	}
	if err := os.WriteFile(path, make([]byte, 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	if grown := f.changed(nil) + read.changed(nil); grown != "" || shorten([]file{f}) != nil || f.changed(nil) != "" {
		t.Errorf("grown: got %q, cut: got %q", grown, f.changed(nil))
	}
}

// TestEnd: what a process has started while its image was written ends with it.
func TestEnd(t *testing.T) {
	c := exec.Command("sh", "-c", "read line; sleep 600 & wait")
	to, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := hold([]int{c.Process.Pid})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if _, err := to.Write([]byte("go on\n")); err != nil {
		t.Fatal(err)
	}
	var children []int
	for len(children) == 0 {
		children = child.Children(c.Process.Pid)
	}
	waited := make(chan error, 1)
	go func() { waited <- c.Wait() }()
	if err := f.end(); err != nil {
		t.Error(err)
	}
	<-waited
	if p, err := child.Look(children[0]); err == nil && !p.Ended {
		t.Errorf("process %d is left", children[0])
	}
}

// TestLeaveNumbers: the next process of a new PID namespace has no number that a thread of another one could have.
func TestLeaveNumbers(t *testing.T) {
	const inside = "HOLDFAST_TEST_NAMESPACE"
	if os.Geteuid() != 0 {
		t.Skip("only root makes PID namespaces")
	}
	if os.Getenv(inside) != "" {
		LeaveNumbers()
		if c := exec.Command("true"); c.Run() != nil || c.Process.Pid < 1000 {
			t.Error("the next process: ", c.Process)
		}
		return
	}
	c := exec.Command(os.Args[0], "-test.run=^TestLeaveNumbers$")
	c.Env = append(os.Environ(), inside+"=yes")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestConnected: what a process has from the program that has forked it is no connection of its own.
func TestConnected(t *testing.T) {
	program, helper, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	start := func(end *os.File) int {
		c := exec.CommandContext(t.Context(), "sleep", "60")
		c.ExtraFiles = []*os.File{end}
		if err := errors.Join(c.Start(), end.Close()); err != nil {
			t.Fatal(err)
		}
		return c.Process.Pid
	}
	forked, err := shm.Dup(program)
	if err != nil {
		t.Fatal(err)
	}
	own, child := start(program), start(forked)
	start(helper)
	if pid, err := connected([]int{own, child}, []int{own}); pid != 0 || err != nil {
		t.Errorf("process %d is connected, %v", pid, err)
	}
	if pid, err := connected([]int{own, child}, nil); pid == 0 || err != nil {
		t.Errorf("no process is connected, %v", err)
	}
}

// TestLacks: a pipe from another process is named, and none within the image.
func TestLacks(t *testing.T) {
	c := exec.CommandContext(t.Context(), "sleep", "60")
	to, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	tree := []int{c.Process.Pid}
	if got := lacks(tree); len(got) != 1 || !strings.Contains(got[0], "its standard input is a pipe from process "+
		strconv.Itoa(os.Getpid())) {
		t.Errorf("got %q", got)
	}
	if got := lacks(append(tree, os.Getpid())); slices.ContainsFunc(got, func(text string) bool {
		return strings.Contains(text, "input")
	}) {
		t.Errorf("within the image: got %q", got)
	}
	dir := t.TempDir() // a shell under the name of the helper, which has what its program writes to
	shell, err := os.ReadFile("/bin/sh")
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(dir, "holdfast"), shell, 0o700),
			os.WriteFile(filepath.Join(dir, "opencl"), []byte("read line"), 0o600))
	}
	helper := exec.CommandContext(t.Context(), filepath.Join(dir, "holdfast"), "opencl")
	helper.Dir, helper.Stdout = dir, to.(*os.File)
	if _, e := helper.StdinPipe(); e != nil {
		err = errors.Join(err, e)
	}
	if err = errors.Join(err, helper.Start(), to.Close()); err != nil {
		t.Fatal(err)
	}
	if got := lacks(tree); len(got) > 0 {
		t.Errorf("a pipe that only a helper has: got %q", got)
	}
	other, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	number, err := unix.IoctlGetInt(int(other.Fd()), unix.TIOCGPTN)
	err = errors.Join(err, unix.IoctlSetPointerInt(int(other.Fd()), unix.TIOCSPTLCK, 0))
	terminal, e := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	shown := exec.CommandContext(t.Context(), "sleep", "60")
	shown.Stderr = terminal
	if err = errors.Join(err, e, shown.Start()); err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if got := lacks([]int{shown.Process.Pid}); len(got) != 1 || !strings.Contains(got[0], "is a terminal") {
		t.Errorf("got %q", got)
	}
}
