package opencl

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// devices are those that a program is offered. One is opened when it is first needed, and
// stays open until the program ends.
type devices struct {
	mu   sync.Mutex
	list []*device

	watched, lost int           // that the program makes objects on; of those, that are lost
	over          chan struct{} // closed when all of them are lost; nil until a wait needs it
}

// device is one of them.
type device struct {
	info gpustate.Info
	sel  gpustate.Select

	mu      sync.Mutex
	dev     *gpustate.Device // nil before it is opened, and when it was only asked about
	err     error
	used    bool // the program makes objects on it
	answers map[uint32]answer

	watched sync.Once
}

// answer is a device's answer about itself, from when the program asked first.
type answer struct {
	bytes []byte
	err   error
}

// begin lists the devices of a program.
func (d *devices) begin(only gpustate.Select, one bool, program string, pid int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.list != nil {
		return fmt.Errorf("%w: a second greeting", wire.ErrProtocol)
	}
	only.OpenCL = true // also of moves
	infos, sels, err := gpustate.Matching(only)
	if err != nil {
		return err
	}
	for i, info := range infos {
		sel := sels[i]
		sel.Program, sel.PID = program, pid
		d.list = append(d.list, &device{info: info, sel: sel})
	}
	if one {
		n := only.Index
		if n < 0 || n >= len(d.list) {
			d.list = nil
			return &gpustate.NoDeviceError{Select: only, Found: infos}
		}
		d.list = d.list[n : n+1]
	}
	// the best one first: programs take the first one
	slices.SortStableFunc(d.list, func(a, b *device) int { return rank(a.info) - rank(b.info) })
	return nil
}

func rank(i gpustate.Info) int {
	switch i.Type {
	case "gpu":
		return 0
	case "accelerator":
		return 1
	}
	return 2
}

// at returns the device of a number that the program was given.
func (d *devices) at(n uint64) (*device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n >= uint64(len(d.list)) {
		return nil, fmt.Errorf("%w: device %d", wire.ErrProtocol, n)
	}
	return d.list[n], nil
}

// next returns the device whose number is next in a request.
func (d *devices) next(m *wire.Request) *device { return d.of(m, m.U64()) }

// of is at for a request, which keeps the error.
func (d *devices) of(m *wire.Request, n uint64) *device {
	one, err := d.at(n)
	m.Fail(err)
	return one
}

func (d *devices) all() []*device {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list)
}

// inUse returns the numbers of the devices on which the program has made objects.
func (d *devices) inUse() (list []int) {
	for i, one := range d.all() {
		one.mu.Lock()
		if one.used {
			list = append(list, i)
		}
		one.mu.Unlock()
	}
	return list
}

// used names those that the program makes objects on, or has been moved to.
func (d *devices) used() (names []string) {
	for _, one := range d.all() {
		one.mu.Lock()
		if one.used && one.dev != nil {
			names = append(names, one.dev.Info().Name)
		} else if one.used {
			names = append(names, one.info.Name)
		}
		one.mu.Unlock()
	}
	return names
}

func (d *devices) close() {
	for _, one := range d.all() {
		one.mu.Lock()
		if one.dev != nil {
			_ = one.dev.Close() // the program has gone
		}
		one.mu.Unlock()
	}
}

// open gives the open device.
func (d *device) open() (*gpustate.Device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.opened()
}

// opened is open with mu held.
func (d *device) opened() (*gpustate.Device, error) {
	if d.dev == nil && d.err == nil {
		d.dev, d.err = gpustate.Open(d.sel)
	}
	return d.dev, d.err
}

// use gives the open device to make objects on. Devices that the program has only asked
// about are closed: a server would count them as programs.
func (d *devices) use(one *device) (*gpustate.Device, error) {
	one.mu.Lock()
	first := !one.used
	one.used = true
	dev, err := one.opened()
	one.mu.Unlock()
	if !first {
		return dev, err
	}
	for _, other := range d.all() {
		other.mu.Lock()
		if !other.used && other.dev != nil {
			_ = other.dev.Close() // nothing is on it
			other.dev = nil
		}
		other.mu.Unlock()
	}
	return dev, err
}

// allLost is closed when all devices that the program makes objects on are lost.
func (d *devices) allLost() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over == nil {
		d.over = make(chan struct{})
		if d.watched > 0 && d.lost == d.watched {
			close(d.over)
		}
	}
	return d.over
}

// watchOne counts a device that the program makes objects on; loseOne counts its loss.
func (d *devices) watchOne() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watched > 0 && d.lost == d.watched {
		d.over = nil // waits from now on may succeed
	}
	d.watched++
}

func (d *devices) loseOne() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost++; d.lost == d.watched && d.over != nil {
		close(d.over)
	}
}

// own returns the device's answer about itself. At the first question all are asked.
func (d *device) own(param uint32) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.answers == nil {
		dev, err := d.opened()
		if err != nil {
			return nil, err
		}
		d.answers = map[uint32]answer{}
		for p := uint32(infoFirst); p <= infoLast; p++ {
			b, err := dev.CLInfo(p)
			d.answers[p] = answer{b, err}
		}
	}
	a := d.answers[param]
	return a.bytes, a.err
}

// Types of devices by OpenCL's numbers.
var typeNumbers = map[string]uint64{"cpu": 2, "gpu": 4, "accelerator": 8}

func (d *device) typeNumber() uint64 {
	if n := typeNumbers[d.info.Type]; n != 0 {
		return n
	}
	return 8
}

// Questions about devices whose answers are not the device's own.
const (
	infoBaseAlign     = 0x1019
	infoExecution     = 0x1029
	infoQueues        = 0x102A
	infoVersion       = 0x102F
	infoExtensions    = 0x1030
	infoUnified       = 0x1035
	infoFirst         = 0x1000
	infoLast          = 0x1049
	infoCVersion      = 0x103D
	infoBuiltIn       = 0x103F
	infoSubDevices    = 0x1043
	infoPartitions    = 0x1044
	infoAffinity      = 0x1045
	infoPartitionType = 0x1046
)

// extensions are those that need nothing but the compiler and the device.
var extensions = []string{"cl_khr_byte_addressable_store", "cl_khr_global_int32_base_atomics",
	"cl_khr_global_int32_extended_atomics", "cl_khr_local_int32_base_atomics", "cl_khr_local_int32_extended_atomics",
	"cl_khr_int64_base_atomics", "cl_khr_int64_extended_atomics", "cl_khr_fp16", "cl_khr_fp64",
	"cl_khr_3d_image_writes"}

// ask answers clGetDeviceInfo.
func (d *device) ask(param uint32) ([]byte, error) {
	if param < infoFirst || param > infoLast {
		return nil, coded(clInvalidValue, "unknown question about a device")
	}
	word := binary.NativeEndian.AppendUint32
	switch param {
	case infoVersion:
		return []byte("OpenCL 1.2 Holdfast\x00"), nil
	case infoCVersion:
		return []byte("OpenCL C 1.2 Holdfast\x00"), nil
	case infoExecution:
		return binary.NativeEndian.AppendUint64(nil, 1), nil // kernels, no functions of the host
	case infoQueues:
		return binary.NativeEndian.AppendUint64(nil, 3), nil
	case infoUnified, infoSubDevices:
		return word(nil, 0), nil
	case infoBuiltIn:
		return []byte{0}, nil
	case infoPartitions, infoAffinity, infoPartitionType:
		return make([]byte, 8), nil
	}
	b, err := d.own(param)
	switch {
	case err != nil:
		return nil, err
	case param == infoBaseAlign && len(b) == 4: // in bits
		return word(nil, max(binary.NativeEndian.Uint32(b), gpustate.SubAlign*8)), nil
	case param == infoExtensions:
		have := strings.Fields(strings.TrimRight(string(b), "\x00"))
		have = slices.DeleteFunc(have, func(e string) bool { return !slices.Contains(extensions, e) })
		return append([]byte(strings.Join(have, " ")), 0), nil
	}
	return b, nil
}
