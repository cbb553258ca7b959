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
	}
	switch a.Kind {
	case driver.Gather, driver.Allgather, driver.Gatherv, driver.Allgatherv:
		return part(a, a.Recv, a.RecvCounts, a.RecvDispls, me)
	}
	return a.Recv
}

// part returns rank i's part of b, nil if b is too short. Without counts all parts are of a.Count elements; without
// displacements they follow each other.
func part(a *driver.Coll, b []byte, counts, displs []int32, i int) []byte {
	from, n := a.Count*i, a.Count
	if counts != nil {
		from, n = 0, int(counts[i])
		for _, c := range counts[:i] {
			from += int(c)
		}
	}
	if displs != nil {
		from = int(displs[i])
	}
	from, n = from*a.Type.Size(), n*a.Type.Size()
	if from+n > len(b) {
		return nil
	}
	return b[from : from+n]
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
	switch a.Kind {
	case driver.Barrier:
		return nil
	case driver.Bcast:
		if me == a.Root {
			return nil
		}
		return place(a.Recv, s.in[a.Root].data)
	case driver.Scatter, driver.Scatterv:
		if a.InPlace && me == a.Root {
			return nil
		}
		root := s.in[a.Root]
		return place(a.Recv, part(a, root.data, root.a.SendCounts, root.a.SendDispls, me))
	case driver.Gather, driver.Allgather, driver.Gatherv, driver.Allgatherv, driver.Alltoall, driver.Alltoallv:
		return s.gather(a, me)
	}
	return s.reduce(a, me)
}

// gather writes what the ranks have given, or of it what was for rank me.
func (s *slot) gather(a *driver.Coll, me int) error {
	if !rooted(a, me) {
		return nil
	}
	for j, in := range s.in {
		src := in.data
		if a.Kind == driver.Alltoall || a.Kind == driver.Alltoallv {
			counts, displs := in.a.SendCounts, in.a.SendDispls
			if in.a.InPlace {
				counts, displs = in.a.RecvCounts, in.a.RecvDispls
			}
			src = part(a, src, counts, displs, me)
		}
		if err := place(part(a, a.Recv, a.RecvCounts, a.RecvDispls, j), src); err != nil {
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
	if a.Kind == driver.ReduceScatterBlock || a.Kind == driver.ReduceScatter {
		acc = part(a, acc, a.RecvCounts, nil, me)
	}
	return place(a.Recv[:len(acc)], acc)
}
