package gpud

import (
	"fmt"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// The figures are of a device that does nothing: what the way to it costs.

func BenchmarkLaunch(b *testing.B) {
	c := open(b, serve(b, Options{}).sel)
	defer c.d.Close()
	b.ReportAllocs()
	for b.Loop() {
		ok(b, c.k.SetArg(0, c.b))
		ok(b, c.step())
	}
	ok(b, c.q.Finish())
}

func BenchmarkLaunchAndWait(b *testing.B) {
	c := open(b, serve(b, Options{}).sel)
	defer c.d.Close()
	b.ReportAllocs()
	for b.Loop() {
		ok(b, c.step())
		ok(b, c.q.Finish())
	}
}

func BenchmarkTransfer(b *testing.B) {
	const most = 4 << 20
	d := must(gpustate.Open(serve(b, Options{}).sel))(b)
	defer d.Close()
	q := must(d.Queue("q"))(b)
	x := must(d.Buffer("x", most))(b)
	for _, n := range []int{64 << 10, 1 << 20, most} {
		host := make([]byte, n)
		for name, move := range map[string]func(gpustate.Linear, int, []byte) error{"write": q.Write, "read": q.Read} {
			b.Run(fmt.Sprintf("%s/%dKiB", name, n>>10), func(b *testing.B) {
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					ok(b, move(x, 0, host))
				}
				ok(b, q.Finish())
			})
		}
	}
}
