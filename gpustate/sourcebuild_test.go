package gpustate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// programs are the names in a list of programs built from source.
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
			defer d.public(&k.Entry).(*Kernel).Release()
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
