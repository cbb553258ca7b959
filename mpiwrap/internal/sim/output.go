package sim

import "github.com/holdfast-hpc/holdfast/mpiwrap/internal/driver"

func rooted(a *driver.Coll, me int) bool {
	switch a.Kind {
	case driver.Gather, driver.Gatherv, driver.Reduce:
		return me == a.Root
	}
	return true
}

// contribution returns the bytes a rank brings, in place or not.
func contribution(a *driver.Coll, me int) []byte {
	n := a.Count * a.Type.Size()
	switch {
	case a.Kind == driver.Bcast:
		if me == a.Root {
			return a.Recv
		}
		return nil
	case !a.InPlace || !rooted(a, me):
		return a.Send
	case a.Kind == driver.Scatter || a.Kind == driver.Scatterv:
		return a.Send
	case a.Kind == driver.Gather || a.Kind == driver.Allgather:
		return a.Recv[me*n : (me+1)*n]
	case a.Kind == driver.Gatherv || a.Kind == driver.Allgatherv:
		return piece(a.Recv, a.RecvCounts, a.RecvDispls, me, a.Type.Size())
	}
	return a.Recv
}

func piece(b []byte, counts, displs []int32, i, size int) []byte {
	from := int(displs[i]) * size
	return b[from : from+int(counts[i])*size]
}

func place(dst, src []byte) error {
	if len(src) != len(dst) {
		return fail(driver.ClassTruncate, "ranks disagree about the length: %d bytes sent, %d expected", len(src),
			len(dst))
	}
	copy(dst, src)
	return nil
}

// output writes rank me's result into its buffers.
func (s *slot) output(a *driver.Coll, me int) error {
	n, size := a.Count*a.Type.Size(), a.Type.Size()
	switch a.Kind {
	case driver.Bcast:
		if me == a.Root {
			return nil
		}
		return place(a.Recv, s.in[a.Root].data)
	case driver.Scatter:
		if a.InPlace && me == a.Root {
			return nil
		}
		return place(a.Recv, span(s.in[a.Root].data, me*n, n))
	case driver.Scatterv:
		root := s.in[a.Root]
		if a.InPlace && me == a.Root {
			return nil
		}
		return place(a.Recv, piece(root.data, root.a.SendCounts, root.a.SendDispls, me, size))
	case driver.Gather, driver.Allgather, driver.Gatherv, driver.Allgatherv:
		return s.gather(a, me)
	case driver.Alltoall, driver.Alltoallv:
		return s.exchange(a, me)
	case driver.Barrier:
		return nil
	}
	return s.reduce(a, me)
}

func span(b []byte, from, n int) []byte {
	if from+n > len(b) {
		return nil
	}
	return b[from : from+n]
}

func (s *slot) gather(a *driver.Coll, me int) error {
	if !rooted(a, me) {
		return nil
	}
	n, size := a.Count*a.Type.Size(), a.Type.Size()
	for j, in := range s.in {
		var dst []byte
		if a.RecvCounts != nil {
			dst = piece(a.Recv, a.RecvCounts, a.RecvDispls, j, size)
		} else {
			dst = a.Recv[j*n : (j+1)*n]
		}
		if err := place(dst, in.data); err != nil {
			return err
		}
	}
	return nil
}

func (s *slot) exchange(a *driver.Coll, me int) error {
	n, size := a.Count*a.Type.Size(), a.Type.Size()
	for j, in := range s.in {
		var src, dst []byte
		if a.Kind == driver.Alltoall {
			src, dst = span(in.data, me*n, n), a.Recv[j*n:(j+1)*n]
		} else {
			counts, displs := in.a.SendCounts, in.a.SendDispls
			if in.a.InPlace {
				counts, displs = in.a.RecvCounts, in.a.RecvDispls
			}
			src, dst = piece(in.data, counts, displs, me, size), piece(a.Recv, a.RecvCounts, a.RecvDispls, j, size)
		}
		if err := place(dst, src); err != nil {
			return err
		}
	}
	return nil
}

func (s *slot) reduce(a *driver.Coll, me int) error {
	from, to := 0, len(s.in)
	switch a.Kind {
	case driver.Reduce:
		if me != a.Root {
			return nil
		}
	case driver.Scan:
		to = me + 1
	case driver.Exscan:
		if to = me; me == 0 {
			return nil
		}
	}
	acc := append([]byte(nil), s.in[from].data...)
	for _, in := range s.in[from+1 : to] {
		if len(in.data) != len(acc) {
			return fail(driver.ClassTruncate, "ranks disagree about the length: %d and %d bytes", len(acc),
				len(in.data))
		}
		if err := Fold(a.Type, a.Op, acc, in.data); err != nil {
			return err
		}
	}
	switch a.Kind {
	case driver.ReduceScatterBlock:
		n := a.Count * a.Type.Size()
		acc = acc[me*n : (me+1)*n]
		return place(a.Recv[:n], acc)
	case driver.ReduceScatter:
		before := 0
		for _, c := range a.RecvCounts[:me] {
			before += int(c)
		}
		n := int(a.RecvCounts[me]) * a.Type.Size()
		return place(a.Recv[:n], acc[before*a.Type.Size():before*a.Type.Size()+n])
	}
	return place(a.Recv[:len(acc)], acc)
}
