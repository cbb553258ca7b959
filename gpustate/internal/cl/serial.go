package cl

import (
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// serial is a device of Oclgrind, which is not thread-safe: calls take turns, those
// that wait for commands too.
type serial struct{ *device }

// oclgrind is held for a turn. There is one for all devices: Oclgrind keeps the commands
// of every context in the same maps, so calls on two devices, as in a migration from one
// to the other, damage the maps as calls on one device do.
var oclgrind sync.Mutex

// Short names for a long table.
type (
	object = driver.Handle
	event  = driver.Event
)

// turn begins a call; what it gives ends it.
func (s *serial) turn() func() {
	oclgrind.Lock()
	return oclgrind.Unlock
}

func (s *serial) Close() error { defer s.turn()(); return s.device.Close() }

func (s *serial) CreateMem(m driver.MemDesc) (object, error) {
	defer s.turn()()
	return s.device.CreateMem(m)
}

func (s *serial) ReleaseMem(h object) error { defer s.turn()(); return s.device.ReleaseMem(h) }

func (s *serial) MapShared(q, h object) ([]byte, error) {
	defer s.turn()()
	return s.device.MapShared(q, h)
}

func (s *serial) UnmapShared(q, h object) error { defer s.turn()(); return s.device.UnmapShared(q, h) }

func (s *serial) Adopt(pointer uintptr, bytes int64) (object, error) {
	defer s.turn()()
	return s.device.Adopt(pointer, bytes)
}

func (s *serial) AdoptQueue(native uintptr) (object, driver.QueueDesc, error) {
	defer s.turn()()
	return s.device.AdoptQueue(native)
}

func (s *serial) CreateSampler(d driver.SamplerDesc) (object, error) {
	defer s.turn()()
	return s.device.CreateSampler(d)
}

func (s *serial) ReleaseSampler(h object) error { defer s.turn()(); return s.device.ReleaseSampler(h) }

func (s *serial) NewBatch() driver.Batch { return serialBatch{s.device.NewBatch()} }

// serialBatch does all its steps in one turn.
type serialBatch struct{ driver.Batch }

func (b serialBatch) Do(steps []driver.Step) (int, error) {
	defer (*serial)(nil).turn()()
	return b.Batch.Do(steps)
}

func (s *serial) Build(p driver.ProgramDesc) (object, error) {
	defer s.turn()()
	return s.device.Build(p)
}

func (s *serial) ReleaseProgram(h object) error { defer s.turn()(); return s.device.ReleaseProgram(h) }

func (s *serial) CreateKernel(p object, name string) (object, error) {
	defer s.turn()()
	return s.device.CreateKernel(p, name)
}

func (s *serial) ReleaseKernel(h object) error { defer s.turn()(); return s.device.ReleaseKernel(h) }

func (s *serial) SetArg(k object, i int, a driver.Arg) error {
	defer s.turn()()
	return s.device.SetArg(k, i, a)
}

func (s *serial) CreateQueue(q driver.QueueDesc) (object, error) {
	defer s.turn()()
	return s.device.CreateQueue(q)
}

func (s *serial) ReleaseQueue(q object) error { defer s.turn()(); return s.device.ReleaseQueue(q) }

func (s *serial) Flush(q object) error { defer s.turn()(); return s.device.Flush(q) }

func (s *serial) Finish(q object) error { defer s.turn()(); return s.device.Finish(q) }

func (s *serial) Launch(q, k object, g driver.Grid, wait []event) (event, error) {
	defer s.turn()()
	return s.device.Launch(q, k, g, wait)
}

func (s *serial) Write(q, h object, off int64, src []byte, block bool, wait []event) (event, error) {
	defer s.turn()()
	return s.device.Write(q, h, off, src, block, wait)
}

func (s *serial) Read(q, h object, off int64, dst []byte, block bool, wait []event) (event, error) {
	defer s.turn()()
	return s.device.Read(q, h, off, dst, block, wait)
}

func (s *serial) Copy(q, dst object, dstOff int64, src object, srcOff, n int64, wait []event) (event, error) {
	defer s.turn()()
	return s.device.Copy(q, dst, dstOff, src, srcOff, n, wait)
}

func (s *serial) WriteImage(q, h object, r driver.Region, src []byte, block bool, wait []event) (event, error) {
	defer s.turn()()
	return s.device.WriteImage(q, h, r, src, block, wait)
}

func (s *serial) ReadImage(q, h object, r driver.Region, dst []byte, block bool, wait []event) (event, error) {
	defer s.turn()()
	return s.device.ReadImage(q, h, r, dst, block, wait)
}

func (s *serial) Fill(q, h object, off, n int64, pattern []byte, wait []event) (event, error) {
	defer s.turn()()
	return s.device.Fill(q, h, off, n, pattern, wait)
}

func (s *serial) WriteRect(q, h object, r driver.Rect, src []byte, block bool, wait []event) (event, error) {
	defer s.turn()()
	return s.device.WriteRect(q, h, r, src, block, wait)
}

func (s *serial) ReadRect(q, h object, r driver.Rect, dst []byte, block bool, wait []event) (event, error) {
	defer s.turn()()
	return s.device.ReadRect(q, h, r, dst, block, wait)
}

func (s *serial) CopyRect(q, dst, src object, r driver.Rect, wait []event) (event, error) {
	defer s.turn()()
	return s.device.CopyRect(q, dst, src, r, wait)
}

func (s *serial) CopyImageToBuffer(q, dst object, off int64, image object, r driver.Region, wait []event) (event,
	error) {
	defer s.turn()()
	return s.device.CopyImageToBuffer(q, dst, off, image, r, wait)
}

func (s *serial) CopyBufferToImage(q, image object, r driver.Region, src object, off int64, wait []event) (event,
	error) {
	defer s.turn()()
	return s.device.CopyBufferToImage(q, image, r, src, off, wait)
}

func (s *serial) CopyImage(q, dst object, to [3]int, src object, r driver.Region, wait []event) (event, error) {
	defer s.turn()()
	return s.device.CopyImage(q, dst, to, src, r, wait)
}

func (s *serial) FillImage(q, image object, r driver.Region, c driver.Color, wait []event) (event, error) {
	defer s.turn()()
	return s.device.FillImage(q, image, r, c, wait)
}

func (s *serial) Barrier(q object, wait []event) (event, error) {
	defer s.turn()()
	return s.device.Barrier(q, wait)
}

func (s *serial) Marker(q object, wait []event) (event, error) {
	defer s.turn()()
	return s.device.Marker(q, wait)
}

func (s *serial) WaitEvent(e event) error { defer s.turn()(); return s.device.WaitEvent(e) }

func (s *serial) EventDone(e event) (bool, error) { defer s.turn()(); return s.device.EventDone(e) }

func (s *serial) Running(e event) (bool, error) { defer s.turn()(); return s.device.Running(e) }

func (s *serial) EventTimes(e event) (driver.Times, error) {
	defer s.turn()()
	return s.device.EventTimes(e)
}

func (s *serial) ReleaseEvent(e event) { defer s.turn()(); s.device.ReleaseEvent(e) }

func (s *serial) AllocPinned(bytes int) (driver.Pinned, error) {
	defer s.turn()()
	p, err := s.device.AllocPinned(bytes)
	if err != nil {
		return nil, err
	}
	return serialPinned{p, s}, nil
}

// serialPinned is pinned memory of a serial device.
type serialPinned struct {
	driver.Pinned
	s *serial
}

func (p serialPinned) Free() error {
	defer p.s.turn()()
	return p.Pinned.Free()
}

func (s *serial) Group(k object) (driver.Group, error) {
	defer s.turn()()
	return s.device.Group(k)
}

func (s *serial) ArgInfo(k object, i int) (driver.ArgInfo, error) {
	defer s.turn()()
	return s.device.ArgInfo(k, i)
}

func (s *serial) Binary(p object) ([]byte, error) {
	defer s.turn()()
	return s.device.Binary(p)
}

func (s *serial) Globals(p object) ([]driver.Global, error) {
	defer s.turn()()
	return s.device.Globals(p)
}

func (s *serial) ImageFormats(a driver.Access, shape int) ([][2]uint32, error) {
	defer s.turn()()
	return s.device.ImageFormats(a, shape)
}

func (s *serial) Query(q driver.Query) ([]byte, error) {
	defer s.turn()()
	return s.device.Query(q)
}
