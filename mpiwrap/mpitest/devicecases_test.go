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
	{"device neighbours", deviceNeighbors},
	{"device collectives that do not block", deviceStarted},
	{"device messages that are prepared", devicePrepared},
}

// numbers are n values that tell the rank and the place.
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

func deviceNeighbors(w *mpiwrap.Comm) error {
	me, size := w.Rank(), w.Size()
	left, right := (me+size-1)%size, (me+1)%size
	n, err := w.NewNeighborhood([]int{left, mpiwrap.ProcNull}, []int{right, mpiwrap.ProcNull})
	if err != nil {
		return err
	}
	src, dest := deviceWith(numbers(me, 1000)), deviceWith(numbers(77, 1000))
	if err := mpiwrap.NeighborAlltoallDevice(n, dest, src); err != nil {
		return err
	}
	want := append(numbers(left, 500), numbers(77, 1000)[500:]...)
	if !slices.Equal(dest.mem, want) {
		return errors.New("NeighborAlltoall: the part from the left is not its, or that of nobody was changed")
	}
	dest = newTestDevice(2000)
	err = mpiwrap.NeighborAllgatherDevice(n, dest, src)
	if err != nil || !slices.Equal(dest.mem[:1000], numbers(left, 1000)) {
		return fmt.Errorf("NeighborAllgather: %v", err)
	}
	return nil
}

// deviceStarted compares what non-blocking collectives of devices leave with those of the host: waited for, tested, and
// completed by a drain. Their input is overwritten as soon as they are started.
func deviceStarted(w *mpiwrap.Comm) error {
	me, size := w.Rank(), w.Size()
	for _, n := range []int{0, 1, 512, 3000} {
		for i, end := range []func(r *mpiwrap.Request) error{waited, tested, drainedFirst(w)} {
			if err := deviceStartedOf(w, n, end); err != nil {
				return fmt.Errorf("%d elements, end %d: %w", n, i, err)
			}
		}
	}
	src := numbers(me, 3)
	_, err1 := mpiwrap.IallreduceDevice[int64](w, newTestDevice(4), deviceWith(src), mpiwrap.Sum)
	_, err2 := mpiwrap.IbcastDevice(w, deviceWith(src), size)
	return all(wantErr("IallreduceDevice of other lengths", err1, mpiwrap.ErrLength),
		wantErr("IbcastDevice of no rank", err2, mpiwrap.ErrRank))
}

func waited(r *mpiwrap.Request) error {
	_, err := r.Wait()
	return err
}

func tested(r *mpiwrap.Request) error {
	for {
		if _, ok, err := r.Test(); ok || err != nil {
			return err
		}
	}
}

// drainedFirst has a drain complete the collective: what it gives is on the device then.
func drainedFirst(w *mpiwrap.Comm) func(r *mpiwrap.Request) error {
	return func(r *mpiwrap.Request) error {
		if err := Drain(w); err != nil {
			return err
		}
		_, err := w.Endpoint().SaveMailbox()
		return all(wantErr("a checkpoint with a collective under way", err, mpiwrap.ErrPending), waited(r))
	}
}

func deviceStartedOf(w *mpiwrap.Comm, n int, end func(r *mpiwrap.Request) error) error {
	me, size := w.Rank(), w.Size()
	left, right := (me+size-1)%size, (me+1)%size
	hood, err := w.NewNeighborhood([]int{left, mpiwrap.ProcNull}, []int{right, mpiwrap.ProcNull})
	if err != nil {
		return err
	}
	mine := numbers(me, n*size)
	sum, every, parts := make([]int64, n), make([]int64, n*size), make([]int64, n*size)
	err = all(mpiwrap.Allreduce(w, sum, mine[:n], mpiwrap.Sum), mpiwrap.Allgather(w, every, mine[:n]),
		mpiwrap.Alltoall(w, parts, mine))
	if err != nil {
		return err
	}
	around := slices.Concat(numbers(left, n), numbers(77, 2*n)[n:])
	shifted := slices.Concat(numbers(left, 2*n)[:n], numbers(77, 2*n)[n:])
	counts, displs := make([]int, size), make([]int, size)
	for i := range displs {
		counts[i], displs[i] = n, i*n
	}
	cases := []struct {
		name  string
		src   []int64
		dest  int
		start func(dest, src *testDevice) (*mpiwrap.Request, error)
		want  []int64
	}{
		{"Allreduce", mine[:n], n, func(d, s *testDevice) (*mpiwrap.Request, error) {
			return mpiwrap.IallreduceDevice[int64](w, d, s, mpiwrap.Sum)
		}, sum},
		{"Allgather", mine[:n], n * size, func(d, s *testDevice) (*mpiwrap.Request, error) {
			return mpiwrap.IallgatherDevice(w, d, s)
		}, every},
		{"Alltoall", mine, n * size, func(d, s *testDevice) (*mpiwrap.Request, error) {
			return mpiwrap.IalltoallDevice(w, d, s)
		}, parts},
		{"Alltoallv", mine, n * size, func(d, s *testDevice) (*mpiwrap.Request, error) {
			return mpiwrap.IalltoallvDevice[int64](w, d, counts, displs, s, counts, displs)
		}, parts},
		{"NeighborAllgather", mine[:n], 2 * n, func(d, s *testDevice) (*mpiwrap.Request, error) {
			return mpiwrap.IneighborAllgatherDevice(hood, d, s)
		}, around},
		{"NeighborAlltoall", numbers(me, 2*n), 2 * n, func(d, s *testDevice) (*mpiwrap.Request, error) {
			return mpiwrap.IneighborAlltoallDevice(hood, d, s)
		}, shifted},
		{"NeighborAlltoallv", numbers(me, 2*n), 2 * n, func(d, s *testDevice) (*mpiwrap.Request, error) {
			c, at := []int{8 * n, 8 * n}, []int{0, 8 * n}
			return mpiwrap.IneighborAlltoallvDevice(hood, d, c, at, s, c, at)
		}, shifted},
		{"Bcast", numbers(me, n), n, func(d, s *testDevice) (*mpiwrap.Request, error) {
			if me == size-1 {
				copy(d.mem, s.mem)
				return mpiwrap.IbcastDevice(w, s, size-1)
			}
			return mpiwrap.IbcastDevice(w, d, size-1)
		}, numbers(size-1, n)},
	}
	for _, c := range cases {
		src, dest := deviceWith(c.src), deviceWith(numbers(77, c.dest))
		r, err := c.start(dest, src)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		clear(src.mem)
		if err := end(r); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if !slices.Equal(dest.mem, c.want) {
			return errors.New(c.name + ": what it left on the device is not what the host's does")
		}
	}
	return nil
}

// devicePrepared sends round a ring by prepared requests of devices, among prepared ones of the host: in the order in
// which they are started.
func devicePrepared(w *mpiwrap.Comm) error {
	me, size := w.Rank(), w.Size()
	left, right := (me+size-1)%size, (me+1)%size
	for _, n := range []int{0, 1, 16, 17, 600, 5000} {
		src, dest := newTestDevice(n), newTestDevice(n)
		hostSrc, hostDest := make([]int64, n), make([]int64, n)
		var rs [4]*mpiwrap.Request
		var errs [4]error
		rs[0], errs[0] = mpiwrap.RecvInit(w, hostDest, left, 1)
		rs[1], errs[1] = mpiwrap.RecvInitDevice(w, dest, left, 1)
		rs[2], errs[2] = mpiwrap.SendInit(w, hostSrc, right, 1)
		init := mpiwrap.SendInitDevice
		if n%2 == 1 {
			init = mpiwrap.SsendInitDevice
		}
		rs[3], errs[3] = init(w, src, right, 1)
		if err := all(errs[:]...); err != nil {
			return err
		}
		for round := range 3 {
			src.set(numbers(me+10*round, n))
			copy(hostSrc, numbers(me+1000+10*round, n))
			if err := mpiwrap.Start(rs[:]...); err != nil {
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
		if err := mpiwrap.Start(rs[1]); err == nil {
			return errors.New("a freed request was started")
		}
	}
	return nil
}
