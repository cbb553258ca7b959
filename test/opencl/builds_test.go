package opencl

import (
	"path/filepath"
	"strings"
	"testing"
)

// builtByDevice is what builds.c prints. PoCL has one build for all devices, and ends where another one is launched.
const builtByDevice = `built for the first, device 0: gives 1
built for the first, device 1: -45
built for both, device 0: status 0, options "-DVALUE=1", binary 1
built for both, device 1: status 0, options "-DVALUE=2", binary 1
built for both, device 0: gives 1
built for both, device 1: gives 2
built again for the first, device 0: gives 3
built again for the first, device 1: gives 2
fails for the second: -11
failed for the second, device 0: status 0, options "-DVALUE=3", binary 1
failed for the second, device 1: status -2, options "-DVALUE=none", binary 0
failed for the second, device 0: gives 3
failed for the second, device 1: -45
of binaries, device 0: gives 3
of binaries, device 1: gives 4
linked for the first, device 0: gives 105
linked for the first, device 1: -45
linked with a part for one device: -59
linked for both, device 0: gives 105
linked for both, device 1: gives 206
linked with a library, device 0: gives 105
linked with a library, device 1: gives 206
compiled for the first, device 0: -45
compiled for the first, device 1: gives 7
declared apart: -47
half
later, device 0: gives 3
later, device 1: gives 4
of binaries, later, device 0: gives 3
of binaries, later, device 1: gives 4
built for all, device 0: gives 9
built for all, device 1: gives 9
`

// TestBuildsByDevice: each device of a context has the build, binary and link that the program gave
// it, also after moves.
func TestBuildsByDevice(t *testing.T) {
	onPoCL(t)
	l := newPoCLLab(t)
	l.env = append(l.env, "POCL_DEVICES=pthread basic") // two devices: rusticl does not link these sources
	l.serve()
	second := "unix:" + filepath.Join(l.dir, "second.sock")
	l.serve("--listen", second)
	p := l.startUntil("half", through("remote="+l.socket()+","+platform), "builds", filepath.Join(l.dir, "go on"))
	places := &deviceMover{l: l, servers: []string{l.socket(), second}, refused: map[served]string{}}
	for _, one := range places.find() {
		l.run(nil, "holdfast", "migrate", one.server, one.number, second+","+platform)
		places.done++
	}
	if places.done != 2 {
		t.Errorf("%d of 2 devices moved", places.done)
	}
	l.file("go on", "")
	got, err := p.rest()
	if got = p.before + got; err != nil || got != builtByDevice {
		t.Errorf("%v\n%s\nin place of\n%s\n%s", err, got, builtByDevice, strings.TrimSpace(p.errs.String()))
	}
}
