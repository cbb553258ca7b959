package gpustate

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/checkpoint"
)

// CopyFrom copies n bytes of src, an object of another device, to dst, an object of q's
// device, and returns when that is done. It comes after the commands that were issued to q
// and to from, src's queue. The bytes go through the host in pieces, so both devices may
// move meanwhile; a capture of q's device that is taken meanwhile has some of them.
func (q *Queue) CopyFrom(dst Linear, dstOff int, from *Queue, src Linear, srcOff, n int) error {
	to, of := bytesOf(dst, dstOff, n), bytesOf(src, srcOff, n)
	if err := errors.Join(to.Fail("copy to", to.Check(&q.dev.state.Table)),
		of.Fail("copy from", of.Check(&from.dev.state.Table))); err != nil {
		return err
	}
	read, err := from.Marker()
	if err != nil {
		return err
	}
	written, err := q.Marker()
	if err != nil {
		return err
	}
	if from.dev != q.dev {
		return q.stage(dst, dstOff, from, src, srcOff, n, read, written)
	}
	done, err := q.Copy(dst, dstOff, src, srcOff, n, read, written)
	if err != nil {
		return err
	}
	return done.Wait()
}

// stage copies in pieces through the host: one is read while the one before is written.
// read and written are what the first piece waits for, on each side.
func (q *Queue) stage(dst Linear, dstOff int, from *Queue, src Linear, srcOff, n int, read, written *Event) error {
	var room [2][]byte
	var last [2]*Event // writes from room
	for i := 0; n > 0; i++ {
		k, half := min(n, checkpoint.PieceBytes), i&1
		if last[half] != nil {
			if err := last[half].Wait(); err != nil {
				return err
			}
		}
		if len(room[half]) < k {
			room[half] = make([]byte, k)
		}
		piece := room[half][:k]
		r, err := from.ReadAsync(src, srcOff, piece, read)
		if err == nil {
			err = r.Wait()
		}
		if err == nil {
			last[half], err = q.WriteAsync(dst, dstOff, piece, written)
		}
		if err != nil {
			return errors.Join(err, waitAll(last[:]))
		}
		dstOff, srcOff, n = dstOff+k, srcOff+k, n-k
	}
	return waitAll(last[:])
}

func waitAll(events []*Event) error {
	var errs []error
	for _, e := range events {
		if e != nil {
			errs = append(errs, e.Wait())
		}
	}
	return errors.Join(errs...)
}
