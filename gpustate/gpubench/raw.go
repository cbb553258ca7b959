package gpubench

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// raw measures what the device can do without gpustate: pinned copies in both
// directions and copies within the device.
func (r *runner) raw() (err error) {
	d, err := r.bare()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	const rounds = 8
	piece := int64(256 << 20)
	if r.info.HostMemory || r.info.Kind == "fake" {
		piece = 32 << 20
	}
	q, err := d.CreateQueue(driver.QueueDesc{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.ReleaseQueue(q)) }()
	var mem [2]driver.Handle
	for i := range mem {
		if mem[i], err = d.CreateMem(driver.MemDesc{Kind: driver.MemBuffer, Bytes: piece}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.ReleaseMem(mem[i])) }()
	}
	host, err := d.AllocPinned(int(piece))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Free()) }()
	for i := range host.Bytes() {
		host.Bytes()[i] = byte(i)
	}
	times := func(do func() (driver.Event, error)) ([]float64, error) {
		return r.repeat(func() error {
			for range rounds {
				ev, err := do()
				if err != nil {
					return err
				}
				d.ReleaseEvent(ev)
			}
			return d.Finish(q)
		})
	}
	up, err := times(func() (driver.Event, error) { return d.Write(q, mem[0], 0, host.Bytes(), false, nil) })
	if err != nil {
		return err
	}
	down, err := times(func() (driver.Event, error) { return d.Read(q, mem[0], 0, host.Bytes(), false, nil) })
	if err != nil {
		return err
	}
	inside, err := times(func() (driver.Event, error) { return d.Copy(q, mem[1], 0, mem[0], 0, piece, nil) })
	if err != nil {
		return err
	}
	total := float64(rounds * piece)
	r.upload, r.pinned = total/median(up), total/median(down)
	r.figure("baseline", "pinned copy to host", "GB/s", rates(down, rounds*piece), 0, 0, noGoal)
	r.figure("baseline", "pinned copy to device", "GB/s", rates(up, rounds*piece), 0, 0, noGoal)
	r.figure("baseline", "copy within device", "GB/s", rates(inside, rounds*piece), 0, 0, noGoal)
	return nil
}
