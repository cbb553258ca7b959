package mpitest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

var deviceCases = []Case{
	{"device messages to oneself, to nobody, too long", deviceEdges},
	{"device collectives", deviceCollectives},
	{"device messages of requests that are used again", deviceReused},
}

// numbers returns n values that tell the rank and the place.
func numbers(rank, n int) []int64 {
	v := make([]int64, n)
	for i := range v {
		v[i] = int64(rank+1)<<32 | int64(i)
	}
	return v
}

func deviceEdges(w *mpiwrap.Comm) error {
	me := w.Rank()
	for _, n := range []int{0, 1, 16, 17, 127, 128, 129, 5000} {
		src, dest := deviceWith(numbers(me, n)), newTestDevice(n)
		st, err := mpiwrap.SendrecvDevice(w, src, me, 1, dest, me, 1)
		if err != nil || st.Bytes != 8*n || st.Source != me || !slices.Equal(src.mem, dest.mem) {
			return fmt.Errorf("%d elements to oneself: %+v %v", n, st, err)
		}
		if err := mpiwrap.SendDevice(w, src, mpiwrap.ProcNull, 1); err != nil {
			return err
		}
		if st, err := mpiwrap.RecvDevice(w, dest, mpiwrap.ProcNull, 1); err != nil || st.Bytes != 0 {
			return fmt.Errorf("from nobody: %+v %v", st, err)
		}
	}
	// longer than there is room for: by a few elements, by pieces, for the host
	for _, n := range []int{15, 20, 600, 5000} {
		short := newTestDevice(14)
		out, err := mpiwrap.IsendDevice(w, deviceWith(numbers(me, n)), me, 2)
		if err != nil {
			return err
		}
		if _, err := mpiwrap.RecvDevice(w, short, me, 2); !errors.Is(err, mpiwrap.ErrTruncate) {
			return fmt.Errorf("%d elements for 14: got %v, want ErrTruncate", n, err)
		}
		if _, err := out.Wait(); err != nil {
			return err
		}
	}
	out, err := mpiwrap.IsendDevice(w, deviceWith(numbers(me, 5000)), me, 2)
	if err != nil {
		return err
	}
	host := make([]int64, 20)
	if _, err := mpiwrap.Recv(w, host, me, 2); !errors.Is(err, mpiwrap.ErrTruncate) {
		return fmt.Errorf("5000 elements for 20 of the host: got %v, want ErrTruncate", err)
	}
	_, err = out.Wait()
	return err
}

func deviceCollectives(w *mpiwrap.Comm) error {
	me, size := w.Rank(), w.Size()
	// with pieces of 4 MiB these have one
	for _, n := range []int{1, 512, 3000} {
		d, h := deviceWith(numbers(me, n)), numbers(size-1, n)
		if err := mpiwrap.BcastDevice(w, d, size-1); err != nil || !slices.Equal(d.mem, h) {
			return fmt.Errorf("Bcast of %d: %v", n, err)
		}
		src, dest, want := numbers(me, n), newTestDevice(n), make([]int64, n)
		if err := mpiwrap.Allreduce(w, want, src, mpiwrap.Sum); err != nil {
			return err
		}
		err := mpiwrap.AllreduceDevice[int64](w, dest, deviceWith(src), mpiwrap.Sum)
		if err != nil || !slices.Equal(dest.mem, want) {
			return fmt.Errorf("Allreduce of %d: %v", n, err)
		}
		same := deviceWith(src)
		err = mpiwrap.AllreduceDevice[int64](w, same, same, mpiwrap.Sum)
		if err != nil || !slices.Equal(same.mem, want) {
			return fmt.Errorf("Allreduce of %d in place: %v", n, err)
		}
		all, from := make([]int64, n*size), numbers(me, n*size)
		if err := mpiwrap.Alltoall(w, all, from); err != nil {
			return err
		}
		to := newTestDevice(n * size)
		err = mpiwrap.AlltoallDevice(w, to, mpiwrap.HostRange(from))
		if err != nil || !slices.Equal(to.mem, all) {
			return fmt.Errorf("Alltoall of %d: %v", n, err)
		}
		if err := mpiwrap.Allgather(w, all, src); err != nil {
			return err
		}
		host := make([]int64, n*size)
		err = mpiwrap.AllgatherDevice(w, mpiwrap.HostRange(host), deviceWith(src))
		if err != nil || !slices.Equal(host, all) {
			return fmt.Errorf("Allgather of %d: %v", n, err)
		}
	}
	return nil
}

// deviceReused sends round a ring by requests of devices that are used again, among prepared ones of the host: in the
// order in which they are started.
func deviceReused(w *mpiwrap.Comm) error {
	me, size := w.Rank(), w.Size()
	left, right := (me+size-1)%size, (me+1)%size
	for _, n := range []int{0, 1, 16, 17, 600, 5000} {
		src, dest := newTestDevice(n), newTestDevice(n)
		hostSrc, hostDest := make([]int64, n), make([]int64, n)
		rs, errs := [4]*mpiwrap.Request{1: mpiwrap.NewDeviceRequest(w, dest), 3: mpiwrap.NewDeviceRequest(w, src)},
			[2]error{}
		rs[0], errs[0] = mpiwrap.RecvInit(w, hostDest, left, 1)
		rs[2], errs[1] = mpiwrap.SendInit(w, hostSrc, right, 1)
		if err := all(errs[:]...); err != nil {
			return err
		}
		for round := range 3 {
			src.set(numbers(me+10*round, n))
			copy(hostSrc, numbers(me+1000+10*round, n))
			err := all(mpiwrap.Start(rs[0]), rs[1].Irecv(left, 1), mpiwrap.Start(rs[2]), rs[3].Isend(right, 1))
			if err != nil {
				return err
			}
			src.spoil()
			if round == 1 {
				if err := Drain(w); err != nil {
					return err
				}
			}
			if err := mpiwrap.WaitAll(rs[:]...); err != nil {
				return err
			}
			if !slices.Equal(dest.mem, numbers(left+10*round, n)) ||
				!slices.Equal(hostDest, numbers(left+1000+10*round, n)) {
				return fmt.Errorf("%d elements, round %d: what was received is not what was sent", n, round)
			}
		}
		for _, r := range rs {
			if err := r.Free(); err != nil {
				return err
			}
		}
		if err := rs[1].Irecv(left, 1); err == nil {
			return errors.New("a freed request was started")
		}
	}
	return nil
}
