package layout

// Even returns the part of n indices that place i of p has, when they are divided evenly: runs differ by at most one.
func Even(n, p, i int64) []Span {
	lo, hi := split(n, p, i), split(n, p, i+1)
	if lo == hi {
		return nil
	}
	return []Span{Run(lo, hi-lo)}
}

// split is i*n/p without overflow.
func split(n, p, i int64) int64 { return n/p*i + n%p*i/p }

// Cyclic returns the part of n indices that place i of p has, when blocks of indices are dealt out in turn, as by
// MPI_DISTRIBUTE_CYCLIC.
func Cyclic(n, p, i, block int64) []Span {
	if p == 1 && n > 0 {
		return []Span{Run(0, n)}
	}
	if n == 0 || i > (n-1)/block {
		return nil
	}
	last := (n - 1) / block         // number of the last block
	times := (last-i)/p + 1         // blocks of this place
	own := i + (times-1)*p          // number of the last of them
	tail := min(n-own*block, block) // its length
	var out []Span
	if tail < block {
		times--
	}
	switch {
	case times == 1:
		out = append(out, Run(i*block, block))
	case times > 1:
		out = append(out, Span{Start: i * block, Count: block, Stride: p * block, Times: times})
	}
	if tail < block {
		out = append(out, Run(own*block, tail))
	}
	return out
}
