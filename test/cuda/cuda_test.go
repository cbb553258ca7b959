package cuda

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSame: a program computes the same with the library in front, however that is put there and however the program
// finds the driver.
func TestSame(t *testing.T) {
	want := alone().run(t, linked)
	if !strings.HasPrefix(want.out, "fake GPU on host memory\n") {
		t.Fatalf("the program does not use the fake driver:\n%s", want.out)
	}
	for _, program := range []string{linked, resolved} {
		for _, w := range []way{alone(), preloaded(library()), path()} {
			r := w.run(t, program)
			r.same(t, want)
			if r.said != "" {
				t.Errorf("%s under %v: the library says\n%s", program, w, r.said)
			}
		}
		r := preloaded(library()).with("HOLDFAST_CUDA_CHECK=0").run(t, program)
		r.same(t, want)
		r = preloaded(library()).run(t, program, "table")
		r.same(t, alone().run(t, program, "table"))
	}
}

// TestAudit: a program that opens the driver by its path gets the library if that audits the dynamic linker.
func TestAudit(t *testing.T) {
	want := alone().run(t, linked)
	const rolls, done = "HOLDFAST_CUDA_CHECK=20", "20 of 20 roll backs"
	byPath := "DRIVER=" + filepath.Join(built.dir, fake, "libcuda.so.1")
	for _, program := range []string{linked, resolved} {
		for _, driver := range []string{"", "HOLDFAST_CUDA_" + byPath} {
			r := audited(library()).with(byPath, rolls, driver).run(t, program)
			r.same(t, want)
			r.has(t, done)
		}
	}
	moved := twoGPUs(t).with("LD_PRELOAD=", "LD_AUDIT="+library(), byPath).start(t, resolved, longProgram...)
	for moved.used(t, 0) == 0 { // it has a context, and no memory yet
		time.Sleep(time.Millisecond)
	}
	if direct, err := goes(t, "1", moved); err != nil || !direct || moved.used(t, 0) != 0 {
		t.Error(direct, err, moved.used(t, 0))
	}
	moved.ends(t, alone().run(t, linked, longProgram...))
	preloaded(library()).with("DRIVER=libcuda.so", rolls).run(t, resolved).has(t, done) // by its name for compilers
	if r := preloaded(library()).with(byPath, rolls).run(t, resolved); strings.Contains(r.said, done) {
		t.Error("the program does not open the driver past a library that is preloaded")
	}
}

// TestRollBacks: at random moments all memory is saved, scribbled over and restored, while threads allocate and launch.
func TestRollBacks(t *testing.T) {
	want := alone().run(t, linked)
	seeds := 12
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		for _, program := range []string{linked, resolved} {
			r := preloaded(library()).with("HOLDFAST_CUDA_CHECK=400", "HOLDFAST_CUDA_CALLS=3600",
				fmt.Sprint("HOLDFAST_CUDA_SEED=", seed)).run(t, program)
			r.same(t, want)
			r.has(t, "400 of 400 roll backs")
			r.has(t, " 0 failed")
			r.has(t, "left as they were: 1 managed, 1 host; not in the ledger: 0; calls not seen: 0 functions; "+
				"launches not looked at: 2") // those that are captured
		}
	}
}

// TestLeftOut plants a bug: a library whose table does nothing for one function that allocates. The program goes on,
// and the library says what its ledger lacks.
func TestLeftOut(t *testing.T) {
	want := alone().run(t, linked)
	for _, name := range []string{"cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocAsync",
		"cuMemAllocFromPoolAsync", "cuMemMap", "cuModuleGetGlobal_v2"} {
		t.Run(name, func(t *testing.T) {
			r := preloaded(without(t, name)).with("HOLDFAST_CUDA_CHECK=5").run(t, linked)
			r.same(t, want)
			r.has(t, "that is not in the ledger")
			if name == "cuMemAllocFromPoolAsync" {
				r.has(t, "cuLaunchKernel uses device memory") // and no other call uses it before it is freed
			}
			if strings.Contains(r.said, "not in the ledger: 0") {
				t.Errorf("the last line has none of it:\n%s", r.said)
			}
		})
	}
}

// without builds a library whose table has no function of its own for a name.
func without(t *testing.T, name string) string {
	t.Helper()
	return withRow(t, regexp.MustCompile("\n"+name+" own\n"), "\n"+name+"\n")
}

// withRow builds a library whose table has another row.
func withRow(t *testing.T, row *regexp.Regexp, other string) string {
	t.Helper()
	dir := t.TempDir()
	table, err := os.ReadFile("../../lib/cuda/names.txt")
	if err != nil {
		t.Fatal(err)
	}
	changed := row.ReplaceAllString(string(table), other)
	if changed == string(table) {
		t.Fatalf("the table has no row %s", row)
	}
	names := filepath.Join(dir, "names.txt")
	if err := os.WriteFile(names, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "libholdfast-cuda.so")
	objects, err := filepath.Glob(filepath.Join(built.dir, "cuda-*.o"))
	if err != nil {
		t.Fatal(err)
	}
	objects = slices.DeleteFunc(objects, func(o string) bool { return filepath.Base(o) == "cuda-stubs.o" })
	for _, c := range [][]string{
		{"sh", "-c", `awk -v WHAT=stubs -f ../../lib/cuda/stubs.awk "$0" >"$1"`, names, filepath.Join(dir, "stubs.S")},
		append([]string{"cc", "-shared", "-pthread", "-Wl,-soname,libcuda.so.1", "-o", out,
			filepath.Join(dir, "stubs.S")}, objects...),
	} {
		if err := run(c); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestSanitized rolls back with address and undefined-behaviour sanitizers in the library, the driver and the program.
func TestSanitized(t *testing.T) {
	dir := t.TempDir()
	flags := "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined"
	if err := build(dir, flags); err != nil {
		t.Fatal(err)
	}
	w := way{"ASAN_OPTIONS=detect_leaks=0", "HOLDFAST_CUDA_CHECK=40", "HOLDFAST_CUDA_CALLS=1200",
		"HOLDFAST_CUDA_LIST=" + filepath.Join(dir, "list"),
		"LD_LIBRARY_PATH=" + filepath.Join(dir, front) + ":" + filepath.Join(dir, fake)}
	r := w.run(t, filepath.Join(dir, linked), "2", "leave")
	r.same(t, alone().run(t, linked, "2", "leave"))
	r.has(t, "40 of 40 roll backs")
}

// TestLost: a copy back that the device does not make is noticed, and ends the program before it computes with garbage.
func TestLost(t *testing.T) {
	noticed := 0
	for n := 1; n < 12; n++ {
		r, err := preloaded(library()).with("HOLDFAST_CUDA_CHECK=2", fmt.Sprint("FAKE_DROPS=", n)).try(t, linked, "1")
		if err == nil {
			continue // the program's own copy, or none
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGABRT {
			t.Fatalf("copy %d: %v\n%s", n, err, r.said)
		}
		r.has(t, "is not what was copied back: the program cannot go on")
		noticed++
	}
	if noticed < 5 {
		t.Errorf("noticed %d lost copies, want 5 or more", noticed)
	}
}

// TestBusy: where a kernel waits for the host no moment is quiet. The library names the call and goes on.
func TestBusy(t *testing.T) {
	r := preloaded(library()).with("HOLDFAST_CUDA_CHECK=8", "HOLDFAST_CUDA_CALLS=5", "HOLDFAST_CUDA_WAIT=1").
		run(t, linked, "spin")
	r.same(t, alone().run(t, linked, "spin"))
	if !regexp.MustCompile(`no roll back at call \d: stream 0x[0-9a-f]+ has been busy for 1 s; ` +
		`its last call is cuLaunchKernel, call 2`).MatchString(r.said) {
		t.Errorf("no stream and call are named:\n%s", r.said)
	}
}

// TestFork: a child of a program that has used the device calls the driver while its parent's threads do, and ends.
func TestFork(t *testing.T) {
	want := alone().run(t, linked, "fork")
	for _, w := range []way{preloaded(library()), preloaded(library()).with("HOLDFAST_CUDA_CHECK=3000",
		"HOLDFAST_CUDA_CALLS=20000")} {
		w.run(t, linked, "fork").same(t, want)
	}
}

// TestBarrier: the kernel takes time to register a process with threads, so that is done only for the gate.
func TestBarrier(t *testing.T) {
	w := preloaded(library())
	for _, c := range []struct {
		w    way
		want string
	}{{w, "registered: 0\n"}, {w.with("HOLDFAST_CUDA_PAUSE=on"), "registered: 1\n"},
		{w.with("HOLDFAST_CUDA_CHECK=0"), "registered: 1\n"}} {
		if r := c.w.run(t, linked, "barrier"); !strings.HasSuffix(r.out, c.want) {
			t.Errorf("under %v: got %q, want %q", c.w, r.out, c.want)
		}
	}
}

// TestLedger reads the list of what a program leaves behind: in which order, how large, and whose it is.
func TestLedger(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list")
	preloaded(library()).with("HOLDFAST_CUDA_LIST="+list).run(t, linked, "2", "leave")
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if f[0] == "order" {
			continue
		}
		got = append(got, strings.Join([]string{f[0], f[1], f[3]}, " "))
		if !regexp.MustCompile(`/linked\+0x[0-9a-f]+$`).MatchString(f[5]) {
			t.Errorf("asked by %s, want the program", f[5])
		}
	}
	slices.Sort(got)
	want := []string{"1 variable 8", "2 device 40000", "3 device 40000", "4 pitched 10240", "5 managed 4096",
		"6 host 40000", "7 array 840"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	preloaded(library()).with("HOLDFAST_CUDA_LIST="+filepath.Join(list, "no")).run(t, linked, "init").
		has(t, "HOLDFAST_CUDA_LIST: "+list+"/no: ")
}

// TestNoDriver: on a machine without a driver a program sees no device, as it should.
func TestNoDriver(t *testing.T) {
	r := preloaded(library()).with("HOLDFAST_CUDA_DRIVER=/nowhere").run(t, linked, "init")
	if r.out != "init 100\n" {
		t.Errorf("got %q, want CUDA_ERROR_NO_DEVICE", r.out)
	}
	r.has(t, "/nowhere")
}

// TestNames: the library exports the names of the table, and those that libholdfast and programs ask for.
func TestNames(t *testing.T) {
	table, err := os.ReadFile("../../lib/cuda/names.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"hf_cuda_ledger", "dlopen", "la_version", "la_objopen", "la_objsearch"}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 0 && f[0] != "#" {
			want = append(want, f[0])
		}
	}
	out, err := exec.Command("nm", "-D", "--defined-only", library()).Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(out)) {
		got = append(got, strings.Fields(line)[2])
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(want) < 600 {
		t.Errorf("%d names, want the %d of the table", len(got), len(want))
	}
}
