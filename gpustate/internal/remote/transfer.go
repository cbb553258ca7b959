package remote

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// pieceBytes is how large the pieces of a transfer are: small enough that the
// two processes work at the same time, large enough that telling each other costs
// little.
func pieceBytes(n int) int {
	const least = 128 << 10
	return min(max(n/8, least), wire.SlotBytes)
}

// Write sends src to the server. It has been read when Write returns, unless the
// server has it mapped.
func (d *Device) Write(q, h driver.Handle, off int64, src []byte, blocking bool, wait []driver.Event) (driver.Event, error) {
	m := wire.Direct{Queue: q.(*queue).id, Mem: h.(*mem).id, Off: off, Write: true, Wait: wait}
	if ev, ok, err := d.direct(m, src, blocking); ok {
		return ev, err
	}
	return d.transfer(q, h, linear(off, src), true, blocking, wait)
}

// Read asks the server for bytes.
func (d *Device) Read(q, h driver.Handle, off int64, dst []byte, blocking bool, wait []driver.Event) (driver.Event, error) {
	m := wire.Direct{Queue: q.(*queue).id, Mem: h.(*mem).id, Off: off, Wait: wait}
	if ev, ok, err := d.direct(m, dst, blocking); ok {
		return ev, err
	}
	return d.transfer(q, h, linear(off, dst), false, blocking, wait)
}

// WriteImage sends a region.
func (d *Device) WriteImage(q, h driver.Handle, r driver.Region, src []byte, blocking bool, wait []driver.Event) (driver.Event, error) {
	return d.transfer(q, h, boxes(r, h.(*mem).pixel, src), true, blocking, wait)
}

// ReadImage asks for a region.
func (d *Device) ReadImage(q, h driver.Handle, r driver.Region, dst []byte, blocking bool, wait []driver.Event) (driver.Event, error) {
	return d.transfer(q, h, boxes(r, h.(*mem).pixel, dst), false, blocking, wait)
}

// piece is one message's part of a transfer.
type piece struct {
	image  bool
	off    int64
	region driver.Region
	host   []byte
}

func linear(off int64, host []byte) (list []piece) {
	step := pieceBytes(len(host))
	for len(host) > 0 {
		n := min(len(host), step)
		list = append(list, piece{off: off, host: host[:n]})
		off, host = off+int64(n), host[n:]
	}
	return list
}

// boxes divides a region into parts that are one range of the packed bytes each:
// slices, rows, or pieces of a row.
func boxes(r driver.Region, pixel int, host []byte) (list []piece) {
	limit := pieceBytes(len(host))
	row := pixel * r.Size[0]
	slice := row * r.Size[1]
	add := func(x, y, z, w, h, d int) {
		n := w * h * d * pixel
		list = append(list, piece{image: true, host: host[:n], region: driver.Region{
			Origin: [3]int{r.Origin[0] + x, r.Origin[1] + y, r.Origin[2] + z}, Size: [3]int{w, h, d}}})
		host = host[n:]
	}
	for z := 0; z < r.Size[2]; {
		if slice <= limit {
			d := min(limit/slice, r.Size[2]-z)
			add(0, 0, z, r.Size[0], r.Size[1], d)
			z += d
			continue
		}
		for y := 0; y < r.Size[1]; {
			if row <= limit {
				h := min(limit/row, r.Size[1]-y)
				add(0, y, z, r.Size[0], h, 1)
				y += h
				continue
			}
			for x := 0; x < r.Size[0]; {
				w := min(limit/pixel, r.Size[0]-x)
				add(x, y, z, w, 1, 1)
				x += w
			}
			y++
		}
		z++
	}
	return list
}

// transfer sends the pieces, each when a slot is free.
func (d *Device) transfer(qh, h driver.Handle, list []piece, write, blocking bool, wait []driver.Event) (driver.Event, error) {
	if len(wait) > wire.MaxWait {
		return 0, fmt.Errorf("a transfer that waits for %d commands, the most is %d: %w", len(wait), wire.MaxWait, driver.ErrUnsupported)
	}
	ev := d.expecting(len(list))
	m := wire.Transfer{Queue: qh.(*queue).id, Mem: h.(*mem).id, Event: uint64(ev), Write: write,
		Inline: write && d.arena == nil, Wait: wait}
	step := 1
	if write && d.arena != nil {
		step = d.copiers
	}
	for i := 0; i < len(list); i += step {
		some := list[i:min(i+step, len(list))]
		if err := d.sendPieces(&m, some, i+len(some) == len(list)); err != nil {
			d.drop(ev)
			return 0, err
		}
	}
	if !blocking {
		return ev, nil
	}
	err := d.WaitEvent(ev)
	d.ReleaseEvent(ev)
	return 0, err
}

// sendPieces sends some pieces, which it copies to their slots at the same time.
func (d *Device) sendPieces(m *wire.Transfer, list []piece, last bool) error {
	slots := make([]int, len(list))
	var copies sync.WaitGroup
	for i, p := range list {
		n, err := d.takeSlot(p, m.Write)
		if err != nil {
			copies.Wait()
			return err
		}
		slots[i] = n
		switch into := n * wire.SlotBytes; {
		case !m.Write || m.Inline:
		case len(list) == 1:
			copy(d.arena[into:], p.host)
		default:
			copies.Go(func() { copy(d.arena[into:], p.host) })
		}
	}
	copies.Wait()
	for i, p := range list {
		m.Slot, m.Image, m.Off, m.Region, m.Bytes = slots[i], p.image, p.off, p.region, int64(len(p.host))
		m.Last = last && i == len(list)-1
		var err error
		if m.Inline {
			err = d.out.Bulk(m, p.host)
		} else {
			err = d.out.Now(m)
		}
		if err != nil {
			return d.failing(err)
		}
	}
	return nil
}

// takeSlot waits for a free slot.
func (d *Device) takeSlot(p piece, write bool) (int, error) {
	var n int
	select {
	case n = <-d.slots:
	default:
		if err := d.out.Flush(); err != nil { // what frees one may not be sent yet
			return 0, d.failing(err)
		}
		select {
		case n = <-d.slots:
		case <-d.dead:
			return 0, d.deadErr
		}
	}
	s := slot{busy: true}
	if !write {
		s.dst = p.host
	}
	d.mu.Lock()
	d.into[n] = s
	d.mu.Unlock()
	return n, nil
}

// Ranges of a buffer that servers exchange at the same time: a connection moves
// as much as a core does.
const (
	rangeBytes = 16 << 20
	maxRanges  = 4
)

// CopyFrom lets the server fetch the bytes of a buffer from another server, or
// from another device of its own. It returns false where the two do not reach
// each other.
func (d *Device) CopyFrom(_, dst driver.Handle, other driver.Device, src driver.Handle, n int64) (bool, error) {
	from, ok := other.(*Device)
	if !ok {
		return false, nil
	}
	k := min(max(n/rangeBytes, 1), maxRanges)
	step := (n + k - 1) / k
	reached, errs := make([]bool, k), make([]error, k)
	var all sync.WaitGroup
	for i := range k {
		all.Go(func() {
			off := i * step
			reached[i], errs[i] = d.fetch(from, dst.(*mem).id, src.(*mem).id, off, min(step, n-off))
		})
	}
	all.Wait()
	return !slices.Contains(reached, false), errors.Join(errs...)
}

// fetch fetches one range.
func (d *Device) fetch(from *Device, dst, src uint64, off, n int64) (bool, error) {
	id := from.id()
	reply, err := from.request(id, &wire.Export{Req: id, Mem: src, Off: off, Bytes: n})
	if err != nil {
		return false, err
	}
	r := &wire.Reader{B: reply.Body}
	ticket := r.Bytes()
	if err := r.End(); err != nil {
		return false, err
	}
	id = d.id()
	reply, err = d.request(id, &wire.Pull{Req: id, Mem: dst, Off: off, Bytes: n,
		Addrs: append([]string{from.addr}, from.addrs...), Ticket: ticket})
	if err != nil {
		return false, err
	}
	r = &wire.Reader{B: reply.Body}
	reached := r.Bool()
	return reached, r.End()
}
