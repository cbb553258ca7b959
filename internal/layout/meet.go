package layout

// Place says where the local array of a part lies: Base is where its first element is, and Stride, by dimension, how
// far apart neighbours are. All in elements.
type Place struct {
	Base   int64
	Stride []int64
}

// Dense returns the place of a local array without gaps that begins at base.
func Dense(p *Part, base int64) Place { return Place{base, strides(p.Shape())} }

func strides(shape []int64) []int64 {
	out := make([]int64, len(shape))
	n := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		out[d] = n
		n *= shape[d]
	}
	return out
}

// Meet visits the elements that two parts have in common, as runs that lie together in both places: n elements from
// index from of a's and to of b's. They come in the order of a's place, if that is dense. A visit that fails ends it.
func Meet(a *Part, at Place, b *Part, bt Place, visit func(from, to, n int64) error) error {
	dims := len(a.Spans)
	common := make([][]shared, dims)
	for d := range common {
		var err error
		if common[d], err = meet(a.Spans[d], b.Spans[d]); err != nil || len(common[d]) == 0 {
			return err
		}
	}
	m := &meeting{at: at, bt: bt, common: common, visit: visit}
	if err := m.dim(0, at.Base, bt.Base); err != nil {
		return err
	}
	return m.flush()
}

// Reaches says, by a cheap look, whether two parts can have anything in common.
func Reaches(a, b *Part) bool {
	for d := range a.Spans {
		x, y := a.Spans[d], b.Spans[d]
		if x[0].Start >= y[len(y)-1].end() || y[0].Start >= x[len(x)-1].end() {
			return false
		}
	}
	return true
}

// shared is a run of indices that both parts have, by where it is in their local arrays.
type shared struct{ a, b, n int64 }

// meet finds the indices that both lists of spans have.
func meet(x, y []Span) (out []shared, err error) {
	p, err := runs(x)
	if err != nil {
		return nil, err
	}
	q, err := runs(y)
	if err != nil {
		return nil, err
	}
	for i, k := 0, 0; i < len(p) && k < len(q); {
		lo, hi := max(p[i].start, q[k].start), min(p[i].end(), q[k].end())
		if lo < hi {
			s := shared{p[i].local + lo - p[i].start, q[k].local + lo - q[k].start, hi - lo}
			if n := len(out); n > 0 && out[n-1].a+out[n-1].n == s.a && out[n-1].b+out[n-1].n == s.b {
				out[n-1].n += s.n
			} else {
				out = append(out, s)
			}
		}
		if p[i].end() <= q[k].end() {
			i++
		} else {
			k++
		}
	}
	return out, nil
}

// meeting walks over the common elements of two parts, and joins runs that follow each other in both.
type meeting struct {
	at, bt      Place
	common      [][]shared
	visit       func(from, to, n int64) error
	from, to, n int64 // not visited yet
}

func (m *meeting) dim(d int, a, b int64) error {
	last := d == len(m.common)-1
	for i := range m.common[d] {
		s := &m.common[d][i]
		if last && m.at.Stride[d] == 1 && m.bt.Stride[d] == 1 {
			if err := m.add(a+s.a, b+s.b, s.n); err != nil {
				return err
			}
			continue
		}
		for k := range s.n {
			from, to := a+(s.a+k)*m.at.Stride[d], b+(s.b+k)*m.bt.Stride[d]
			var err error
			if last {
				err = m.add(from, to, 1)
			} else {
				err = m.dim(d+1, from, to)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *meeting) add(from, to, n int64) error {
	if m.n > 0 && m.from+m.n == from && m.to+m.n == to {
		m.n += n
		return nil
	}
	if err := m.flush(); err != nil {
		return err
	}
	m.from, m.to, m.n = from, to, n
	return nil
}

func (m *meeting) flush() error {
	if m.n == 0 {
		return nil
	}
	from, to, n := m.from, m.to, m.n
	m.n = 0
	return m.visit(from, to, n)
}
