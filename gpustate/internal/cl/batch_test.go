package cl

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// TestBatch: random launches and arguments, some of which are refused, do in batches what they do one by one, with the
// same errors at the same steps.
func TestBatch(t *testing.T) {
	d, q := poclDevice(t)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d.remembers = range []bool{false, true} {
		p, err := d.Build(driver.ProgramDesc{Name: "p", OpenCL: `
__kernel void blend(__global uint *out, __global const uint *a, __global const uint *b, uint add)
{
	out[0] = 31 * out[0] + 100 * a[0] + b[0] + add;
}`})
		ok(err)
		memory := func(kind driver.MemKind, v uint32) driver.Handle {
			h, err := d.CreateMem(driver.MemDesc{Kind: kind, Bytes: 64})
			ok(err)
			_, err = put(d, q, h, binary.LittleEndian.AppendUint32(nil, v))
			ok(err)
			return h
		}
		in := []driver.Handle{memory(driver.MemBuffer, 3), memory(driver.MemBuffer, 5), memory(driver.MemShared, 7)}
		const steady, ways = 2, 2 // kernels, and whether in batches or one by one
		var kernels, outs [ways][steady]driver.Handle
		for w := range ways {
			for k := range steady {
				outs[w][k] = memory(driver.MemBuffer, 1)
				kernels[w][k], err = d.CreateKernel(p, "blend")
				ok(err)
				for i, h := range []driver.Handle{outs[w][k], in[0], in[1]} {
					ok(d.SetArg(kernels[w][k], i, driver.Arg{Kind: driver.ArgMem, Handle: h}))
				}
				ok(d.SetArg(kernels[w][k], 3, driver.Arg{Kind: driver.ArgValue, Value: make([]byte, 4)}))
			}
		}
		b := d.NewBatch()
		r := rand.New(rand.NewPCG(2, 1))
		failures := 0
		for round := range 400 {
			var steps [ways][]driver.Step
			for range r.IntN(12) {
				k, what, value := r.IntN(steady), r.IntN(20), r.Uint32()
				index, number := 1+r.IntN(2), 3
				from := in[r.IntN(len(in))]
				for w := range ways {
					s := driver.Step{Kernel: kernels[w][k]}
					switch {
					case what == 0: // an argument that is refused
						number = 9
						fallthrough
					case what < 6:
						s.Index = number
						s.Arg = driver.Arg{Kind: driver.ArgValue, Value: binary.LittleEndian.AppendUint32(nil, value%9)}
					case what < 11:
						s.Index, s.Arg = index, driver.Arg{Kind: driver.ArgMem, Handle: from}
					case what == 11: // a launch that is refused
						s.Queue, s.Grid = q, driver.Grid{Dims: 1, Global: [3]int{4, 1, 1}, Local: [3]int{3, 1, 1}}
					default:
						s.Queue, s.Grid = q, driver.Grid{Dims: 1, Global: [3]int{1, 1, 1}}
					}
					steps[w] = append(steps[w], s)
				}
			}
			done, err := b.Do(steps[0])
			wantDone, wantErr := oneByOne(d, steps[1])
			if done != wantDone || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("round %d: %d done, %v; one by one: %d, %v", round, done, err, wantDone, wantErr)
			}
			if err != nil { // a kernel that was refused an argument may have lost it
				failures++
				for w := range ways {
					for _, k := range kernels[w] {
						ok(d.SetArg(k, 3, driver.Arg{Kind: driver.ArgValue, Value: []byte{1, 0, 0, 0}}))
					}
				}
			}
			ok(d.Finish(q))
			for k := range steady {
				var got [ways][4]byte
				for w := range ways {
					_, err := get(d, q, outs[w][k], 0, got[w][:])
					ok(err)
				}
				if got[0] != got[1] {
					t.Fatalf("round %d: kernel %d has % x, one by one % x", round, k, got[0], got[1])
				}
			}
		}
		if failures == 0 {
			t.Error("nothing was refused: the test tries less than it says")
		}
		for w := range ways {
			for k := range steady {
				ok(d.ReleaseKernel(kernels[w][k]))
				ok(d.ReleaseMem(outs[w][k]))
			}
		}
		for _, h := range in {
			ok(d.ReleaseMem(h))
		}
		ok(d.ReleaseProgram(p))
	}
}

func oneByOne(d *device, steps []driver.Step) (done int, err error) {
	for i, s := range steps {
		if s.Queue != nil {
			_, err = d.Launch(s.Queue, s.Kernel, s.Grid, nil)
		} else {
			err = d.SetArg(s.Kernel, s.Index, s.Arg)
		}
		if err != nil {
			return i, err
		}
	}
	return len(steps), nil
}
