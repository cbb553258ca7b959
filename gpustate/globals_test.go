package gpustate

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

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

// TestHidden: a program whose data nobody can reach is refused, and taken when it
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
