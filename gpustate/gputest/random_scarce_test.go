package gputest

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/fake"
)

// scarce does something while, on a fake device, one of the next allocations now and then
// fails. A capture goes to the host then; the device takes the memory of captures for what the
// program makes; without any the program's call fails.
func (m *model) scarce(do func() error) error {
	if m.b.sel.Kind != "fake" || m.dev.Info().Server != "" || m.luck.IntN(4) > 0 {
		return do()
	}
	fake.System.Faults.FailAlloc(1 + m.luck.IntN(3))
	defer fake.System.Faults.FailAlloc(0)
	return do()
}

// small has some programs run on fake devices that give only little memory at a time: the shadow of a
// capture is in many blocks then, and objects lie in several of them.
func (m *model) small() {
	if m.b.sel.Kind != "fake" || m.b.sel.Remote != "" || m.luck.IntN(2) == 0 {
		return
	}
	m.b.Cleanup(func() { fake.System.Infos = nil })
	infos, err := fake.System.Devices()
	m.b.ok(err)
	for i := range infos {
		infos[i].MaxAllocBytes = mostSmall
		if m.luck.IntN(2) == 0 {
			infos[i].MaxAllocBytes = 24 << 10
		}
	}
	infos[1].MaxAllocBytes = infos[0].MaxAllocBytes // they move from one to the other
	fake.System.Infos = infos
}

// mostSmall is more than objects of some chunks that are hashed.
const mostSmall = 1 << 20

// hog asks for more memory than the device has left: what captures have there goes to the host, and
// the call fails.
func (m *model) hog() {
	m.b.Helper()
	i := m.dev.Info()
	if m.luck.IntN(16) > 0 || i.Kind != "cuda" || i.Server != "" {
		return
	}
	b, err := m.dev.Buffer("hog", int(i.GlobalBytes))
	if err == nil {
		m.b.Errorf("a buffer takes all of the device's memory, %d bytes", b.Bytes())
		m.b.ok(b.Release())
	} else if !errors.Is(err, gpustate.ErrOutOfMemory) {
		m.b.want(err, gpustate.ErrLimit)
	}
}
