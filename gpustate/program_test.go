package gpustate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/object"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/record"
)

func init() {
	// out = launches + 100*other; then launches grows by 1 and other by 2
	fake.Register("launches", 1, func(l fake.Launch) {
		le := binary.LittleEndian
		a, b := l.Globals["ticks"], l.Globals["other"]
		v := le.Uint32(a)
		if b != nil {
			v += 100 * le.Uint32(b)
			le.PutUint32(b, le.Uint32(b)+2)
		}
		le.PutUint32(l.Args[0].Bytes, v)
		le.PutUint32(a, le.Uint32(a)+1)
	})
}

const countingSource = "launches global ticks 4 global other 4"

// countingProgram is a program that counts its launches in variables of its own.
type countingProgram struct {
	t *testing.T
	d *Device
	q *Queue
	b *Buffer
	k *Kernel
	n int // launches
}

func openCounting(t *testing.T, d *Device, name, source string) *countingProgram {
	t.Helper()
	c := &countingProgram{t: t, d: d}
	var err error
	if c.q, err = d.Queue("q" + name); err != nil {
		t.Fatal(err)
	}
	if c.b, err = d.Buffer("b"+name, 4); err != nil {
		t.Fatal(err)
	}
	p, err := d.Program(name, Sources{OpenCL: source}, "")
	if err != nil {
		t.Fatal(err)
	}
	if c.k, err = p.Kernel("launches"); err != nil {
		t.Fatal(err)
	}
	if err := c.k.SetArgs(c.b); err != nil {
		t.Fatal(err)
	}
	return c
}

// step launches once and checks what the kernel found in the variables.
func (c *countingProgram) step() {
	c.t.Helper()
	if _, err := c.q.Launch(c.k, []int{1}, nil); err != nil {
		c.t.Fatal(err)
	}
	got := make([]byte, 4)
	if err := c.q.Read(c.b, 0, got); err != nil {
		c.t.Fatal(err)
	}
	if v := int(binary.LittleEndian.Uint32(got)); v != 201*c.n {
		c.t.Fatalf("after %d launches the variables give %d, want %d", c.n, v, 201*c.n)
	}
	c.n++
}

func tallyDevice(t *testing.T, index int) *Device {
	t.Helper()
	drv, err := (&fake.Library{}).Open(index)
	if err != nil {
		t.Fatal(err)
	}
	d := newDevice(drv)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func captured(t *testing.T, d *Device) *Capture {
	t.Helper()
	c, err := d.Capture(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Release() })
	return c
}

func restoreFrom(t *testing.T, d *Device, c *Capture) error {
	t.Helper()
	return d.Restore(context.Background(), c.Record(), func(i int, dst []byte, off int64) error {
		return c.ReadAt(context.Background(), i, dst, off)
	})
}

// TestVariables: the variables of programs are captured, rolled back, restored into
// programs that exist and into nothing, and moved, each time for two programs.
func TestVariables(t *testing.T) {
	for _, index := range []int{0, 1} {
		d := tallyDevice(t, index)
		one, two := openCounting(t, d, "one", countingSource), openCounting(t, d, "", countingSource)
		for range 3 {
			one.step()
		}
		two.step()
		c := captured(t, d)
		for range 2 {
			one.step()
			two.step()
		}
		one.n, two.n = 3, 1
		if err := restoreFrom(t, d, c); err != nil { // back
			t.Fatal(err)
		}
		one.step()
		two.step()

		into := tallyDevice(t, index) // into programs that exist and have run
		a, b := openCounting(t, into, "one", countingSource), openCounting(t, into, "", countingSource)
		a.step()
		if err := restoreFrom(t, into, c); err != nil {
			t.Fatal(err)
		}
		a.n, b.n = 3, 1
		a.step()
		b.step()

		blank := tallyDevice(t, index) // into nothing
		if err := restoreFrom(t, blank, c); err != nil {
			t.Fatal(err)
		}
		a, b = openCounting(t, blank, "one", countingSource), openCounting(t, blank, "", countingSource)
		a.n, b.n = 3, 1
		a.step()
		b.step()

		// a capture of what was restored, after a move
		drv, err := (&fake.Library{}).Open(1 - index)
		if err != nil {
			t.Fatal(err)
		}
		if err := blank.migrate(context.Background(), drv); err != nil {
			t.Fatal(err)
		}
		a.step()
		b.step()
		again := tallyDevice(t, index)
		if err := restoreFrom(t, again, captured(t, blank)); err != nil {
			t.Fatal(err)
		}
		x := openCounting(t, again, "one", countingSource)
		x.n = a.n
		x.step()
	}
}

// TestVariablesReleased: variables go with their program, not before its kernels.
func TestVariablesReleased(t *testing.T) {
	d := tallyDevice(t, 0)
	c := openCounting(t, d, "p", countingSource)
	c.step()
	p, err := d.Program("p", Sources{OpenCL: countingSource}, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	c.step() // the kernel holds its program
	if err := c.k.Release(); err != nil {
		t.Fatal(err)
	}
	for _, e := range d.state.List {
		if object.IsVariable(&e.Record) {
			t.Errorf("variable %q is left", e.Record.Name)
		}
	}
	if again := openCounting(t, d, "p", countingSource); again != nil {
		again.step() // a new program starts over
	}
}

// TestOtherVariables: a corrected program must still have the variables that the
// record has, unless it says that they need not be kept; new ones start over.
func TestOtherVariables(t *testing.T) {
	d := tallyDevice(t, 0)
	openCounting(t, d, "p", countingSource).step()
	c := captured(t, d)
	for name, o := range map[string]struct {
		source, options string
		want            error
	}{
		"one more":  {countingSource + " global fresh 8", "", nil},
		"one less":  {"launches global ticks 4", "", ErrConflict},
		"larger":    {"launches global ticks 4 global other 8", "", ErrConflict},
		"stateless": {"launches global ticks 4", Stateless, nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := tallyDevice(t, 0)
			if _, err := n.Program("p", Sources{OpenCL: o.source}, o.options); err != nil {
				t.Fatal(err)
			}
			err := restoreFrom(t, n, c)
			if !errors.Is(err, o.want) {
				t.Fatalf("got %v, want %v", err, o.want)
			}
			if o.want != nil && !strings.Contains(err.Error(), "other") {
				t.Errorf("%v does not name the variable", err)
			}
		})
	}
}

// TestHidden: a program whose data cannot be reached is refused, and accepted when it
// says that they need not be kept.
func TestHidden(t *testing.T) {
	d := tallyDevice(t, 0)
	_, err := d.Program("p", Sources{OpenCL: "launches hidden"}, "")
	if !errors.Is(err, ErrHidden) || !strings.Contains(err.Error(), `"p"`) ||
		!strings.Contains(err.Error(), Stateless) {
		t.Errorf("got %v, want ErrHidden with the program's name and the option", err)
	}
	p, err := d.Program("p", Sources{OpenCL: "launches hidden global ticks 4"}, "-D X "+Stateless)
	if err != nil {
		t.Fatal(err)
	}
	if got := object.CompilerOptions(p.e.Record.Program); got != "-D X" {
		t.Errorf("the compiler gets %q, want the options without ours", got)
	}
	if n := len(captured(t, d).Contents()); n != 0 {
		t.Errorf("a stateless program gave a capture %d contents", n)
	}
}

// TestVariableOfOtherAPI: OpenCL has no place for a CUDA program's variables.
func TestVariableOfOtherAPI(t *testing.T) {
	o := record.Object{ID: 2, Name: "ticks", Mem: &record.Mem{Kind: driver.MemGlobal, Bytes: 4, Parent: 1}}
	if err := object.CheckObject(&o, Info{Kind: "opencl"}); !errors.Is(err, ErrHidden) {
		t.Errorf("got %v, want ErrHidden", err)
	}
}

// TestVariableFoundInVain: a restore that fails after it has found a variable for which the program has
// not asked leaves nothing of it, and says what failed: where that is not the variable's absence, not that.
func TestVariableFoundInVain(t *testing.T) {
	const source = "launches global ticks 4 constant table 16"
	first, _ := fakeDevice(t)
	v := must(must(first.Program("p", Sources{OpenCL: source}, ""))(t).Variable("table"))(t)
	ok(t, must(first.Queue("q"))(t).Write(v, 0, []byte("0123456789abcdef")))
	must(first.Buffer("last", 100))(t)
	rec, contents := capture(t, first, nil)
	for _, last := range []int{200, 100} { // refused, and the allocation of the variable's handle fails
		d, lib := fakeDevice(t)
		must(d.Program("p", Sources{OpenCL: source}, ""))(t)
		must(d.Buffer("last", last))(t)
		live := lib.Faults.Live()
		want := ErrConflict
		if last == 100 {
			lib.Faults.FailAlloc(1)
			want = ErrOutOfMemory
		}
		err := d.Restore(context.Background(), rec, readFrom(contents))
		if !errors.Is(err, want) || errors.Is(err, ErrConflict) != (want == ErrConflict) {
			t.Errorf("got %v, want one of %v", err, want)
		}
		if n := lib.Faults.Live(); n != live {
			t.Errorf("%v: %d memory objects, before it %d", err, n, live)
		}
		if last == 100 { // it is no worse for that
			ok(t, d.Restore(context.Background(), rec, readFrom(contents)))
		}
	}
}

// programs returns the names in a list of programs built from source.
func programs(list []SourceBuild) (names []string) {
	for _, s := range list {
		names = append(names, fmt.Sprint(s.Program, s.Kernels))
	}
	return names
}

func wantFromSource(t *testing.T, where string, got []SourceBuild, want ...string) {
	t.Helper()
	if names := programs(got); !slices.Equal(names, want) {
		t.Errorf("%s: built from source are %q, want %q", where, names, want)
	}
	for _, s := range got {
		if s.Why == "" {
			t.Errorf("%s: %q does not say why", where, s.Program)
		}
	}
}

// TestBuiltFromSource loads a binary form on the device that it is for. Restored or moved
// to another device its program is built from source there, and the program can ask.
func TestBuiltFromSource(t *testing.T) {
	open := func(arch string) *Device {
		d, _ := fakeDevice(t, func(i *driver.Info) { i.Arch = arch })
		return d
	}
	d := open("one")
	both := Sources{OpenCL: axpySource, PTX: fake.Binary("one", "the binary of axpy")}
	p := must(d.Program("both", both, ""))(t)
	must(p.Kernel("axpy"))(t)
	must(p.NewKernel("axpy"))(t)
	must(d.Program("", Sources{OpenCL: axpySource, IL: fake.Binary("one", "axpy")}, ""))(t)
	must(d.Program("source only", Sources{OpenCL: axpySource}, ""))(t)
	wantFromSource(t, "where they load", d.BuiltFromSource())
	rec, contents := capture(t, d, nil)

	other := open("two")
	ok(t, other.Restore(context.Background(), rec, readFrom(contents)))
	wantFromSource(t, "after a restore", other.BuiltFromSource(), "both[axpy]", "#1[]")

	drv := must(
		(&fake.Library{Infos: []driver.Info{{Kind: "fake", Arch: "two", GlobalBytes: 1 << 20,
			MaxAllocBytes: 1 << 20}}}).Open(0))(t)
	w := checkpoint.Stopwatch{}
	ok(t, d.watched(context.Background(), drv, &w))
	wantFromSource(t, "of a move", w.Report.FromSource, "both[axpy]", "#1[]")
	wantFromSource(t, "after a move", d.BuiltFromSource(), "both[axpy]", "#1[]")
	ok(t, p.Release())
	for _, k := range d.state.List {
		if k := k.Kernel; k != nil {
			defer own(d, &k.Entry, newKernel).Release()
		}
	}
	wantFromSource(t, "with a kernel that is left", d.BuiltFromSource(), "both[axpy]", "#1[]")

	_, err := other.Program("binary only", Sources{PTX: both.PTX}, "")
	var failed *BuildError
	if !errors.As(err, &failed) {
		t.Errorf("a binary of another device without a source: got %v, want a BuildError", err)
	}
}

// TestSPIRVFromSource gives the OpenCL platforms SPIR-V that none of them loads, twice:
// the second build takes the first one's binary.
func TestSPIRVFromSource(t *testing.T) {
	onDevices(t, func(t *testing.T, open func() *Device) {
		for range 2 {
			d := open()
			p := must(d.Program("p", Sources{OpenCL: axpySource, IL: []byte("\x03\x02\x23\x07 and no more")}, ""))(t)
			must(p.Kernel("axpy"))(t)
			got := d.BuiltFromSource()
			wantFromSource(t, "SPIR-V that is none", got, "p[axpy]")
			if d.Info().Kind == "opencl" && len(got) == 1 && !strings.Contains(got[0].Why, "clCreateProgramWithIL") {
				t.Errorf("got the reason %q, want the call that failed in it", got[0].Why)
			}
		}
	})
}

const putSource = `
__kernel void put(__global float *y, float a, __local float *tmp) {
	tmp[0] = a;
	y[0] = tmp[0];
}`

func init() {
	fake.RegisterTyped("put", []int{fake.Memory, 4, fake.Local}, func(l fake.Launch) {
		binary.NativeEndian.PutUint32(l.Args[0].Bytes, binary.NativeEndian.Uint32(l.Args[1].Bytes))
	})
}

// TestRefusedArgument: what a refused call was given is neither in the kernel nor in
// the record. The kernel computes as before, here, after a migration and after a
// restart.
func TestRefusedArgument(t *testing.T) {
	refusals := map[string]func(k *Kernel, y *Buffer) error{
		"size of a value":    func(k *Kernel, _ *Buffer) error { return k.SetArg(1, float64(5)) },
		"value for a buffer": func(k *Kernel, _ *Buffer) error { return k.SetArg(0, float32(5)) },
		"beyond the last":    func(k *Kernel, _ *Buffer) error { return k.SetArg(3, float32(5)) },
		"type":               func(k *Kernel, _ *Buffer) error { return k.SetArg(1, "5") },
		"local of no bytes":  func(k *Kernel, _ *Buffer) error { return k.SetArg(2, Local(0)) },
		"last of all":        func(k *Kernel, y *Buffer) error { return k.SetArgs(y, float32(7), float32(3)) },
		"second of all":      func(k *Kernel, y *Buffer) error { return k.SetArgs(y, float64(7), Local(16)) },
		"too few":            func(k *Kernel, y *Buffer) error { return k.SetArgs(y, float32(7)) },
		"too many": func(k *Kernel, y *Buffer) error {
			return k.SetArgs(y, float32(7), Local(16), int32(1))
		},
		"a type behind a value": func(k *Kernel, y *Buffer) error { return k.SetArgs(y, float32(7), "x") },
	}
	onDevices(t, func(t *testing.T, open func() *Device) {
		d := open()
		q := must(d.Queue("q"))(t)
		y := must(d.Buffer("y", 64))(t)
		p := must(d.Program("put", Sources{OpenCL: putSource}, ""))(t)
		k := must(p.Kernel("put"))(t)
		run := func(q *Queue, k *Kernel, y *Buffer) float32 {
			ok(t, q.Write(y, 0, make([]byte, 4)))
			must(q.Launch(k, []int{1}, nil))(t)
			got := make([]float32, 1)
			ok(t, q.Read(y, 0, Bytes(got)))
			return got[0]
		}
		for name, refused := range refusals {
			if d.lazy && (name == "beyond the last" || name == "too many") {
				continue // their number is not known
			}
			ok(t, k.SetArgs(y, float32(1), Local(16)))
			ok(t, k.SetArgs(y, float32(2), Local(16)))
			if err := refused(k, y); err == nil {
				t.Errorf("%s: it was taken", name)
			}
			if got := run(q, k, y); got != 2 {
				t.Errorf("%s: the kernel computes with %g, want 2", name, got)
			}
			rec, contents := capture(t, d, nil)
			again := open()
			ok(t, again.Restore(context.Background(), rec, readFrom(contents)))
			p := must(again.Program("put", Sources{OpenCL: putSource}, ""))(t)
			got := run(must(again.Queue("q"))(t), must(p.Kernel("put"))(t), must(again.Buffer("y", 64))(t))
			if got != 2 {
				t.Errorf("%s: after a restart the kernel computes with %g, want 2", name, got)
			}
			ok(t, again.Close())
			ok(t, d.MigrateTo(context.Background(), Select{Kind: d.Info().Kind, Platform: d.Info().Platform}))
			if got := run(q, k, y); got != 2 {
				t.Errorf("%s: after a migration the kernel computes with %g, want 2", name, got)
			}
		}
	})
}

// TestNewKernelInCapture: a capture that comes as soon as a kernel is among the objects has
// its number of arguments. Without it the kernel could not be restored, or was launched
// without arguments.
func TestNewKernelInCapture(t *testing.T) {
	onDevices(t, func(t *testing.T, open func() *Device) {
		d := open()
		p := must(d.Program("put", Sources{OpenCL: putSource}, ""))(t)
		o := record.Object{Name: "put", Kernel: &record.Kernel{Program: p.e.Record.ID, Function: "put"}}
		must(obtain(d, o, p.e, newKernel, nil))(t) // what Program.Kernel begins with
		rec, contents := capture(t, d, nil)
		r := must(record.Decode(rec))(t)
		if n := len(r.Objects[len(r.Objects)-1].Kernel.Args); n != 3 {
			t.Errorf("the record has %d arguments, want 3", n)
		}
		again := open()
		ok(t, again.Restore(context.Background(), rec, readFrom(contents)))
	})
}

// TestFewerArguments restores kernels of which a device that does not tell how many
// arguments there are had recorded fewer. What was not set is not set; a kernel that was
// complete is another one.
func TestFewerArguments(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		for _, c := range []struct {
			name string
			keep int // of the three arguments
			set  bool
			want error
		}{{"none", 0, false, nil}, {"two, not set", 2, false, nil}, {"two, set", 2, true, ErrConflict}} {
			d, _ := fakeDevice(t, func(i *driver.Info) { i.Lazy = lazy })
			y := must(d.Buffer("y", 64))(t)
			k := must(must(d.Program("put", Sources{OpenCL: putSource}, ""))(t).Kernel("put"))(t)
			if c.set {
				ok(t, k.SetArgs(y, float32(1), Local(16)))
			}
			rec, contents := capture(t, d, nil)
			r := must(record.Decode(rec))(t)
			recorded := r.Objects[len(r.Objects)-1].Kernel
			recorded.Args = recorded.Args[:c.keep]
			want := c.want
			if lazy {
				want = nil // not known
			}
			for _, early := range []bool{false, true} {
				again, _ := fakeDevice(t, func(i *driver.Info) { i.Lazy = lazy })
				kernel := func() *Kernel {
					return must(must(again.Program("put", Sources{OpenCL: putSource}, ""))(t).Kernel("put"))(t)
				}
				if early {
					kernel()
				}
				if err := again.Restore(context.Background(), r.Encode(), readFrom(contents)); !errors.Is(err, want) {
					t.Errorf("%s, lazy %v, early %v: got %v, want %v", c.name, lazy, early, err, want)
				}
				if want != nil {
					continue
				}
				_, err := must(again.Queue("q"))(t).Launch(kernel(), []int{1}, nil)
				if !errors.Is(err, ErrArgNotSet) {
					t.Errorf("%s, lazy %v, early %v: launch gave %v, want ErrArgNotSet", c.name, lazy, early, err)
				}
			}
		}
	}
}
