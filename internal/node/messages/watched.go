package messages

// Offsets of the fields behind the page, in a page that holdfast run --watch looks at.
const (
	atAsked    = 0
	atAnswered = 8
	atReceives = 16
	atEnded    = 24
	atMet      = 32
)

// WatchedBytes returns the size of such a page and the fields behind it.
func WatchedBytes(size int) int { return Bytes(size) + atMet + MostMet*MetBytes }

// Watched is the page of a rank that is only looked at.
type Watched struct {
	*Page
	behind *Page
}

// NewWatched returns the page in b, of WatchedBytes(size) bytes.
func NewWatched(b []byte, size int) *Watched {
	at := Bytes(size)
	return &Watched{NewPage(b, size), &Page{b[at : at+atMet+MostMet*MetBytes], size}}
}

// Ask has the program report at its next call which of its calls and requests would refuse a checkpoint. It returns
// false while the previous question is open.
func (w *Watched) Ask() bool {
	asked := w.behind.load(atAsked)
	if w.behind.load(atAnswered) != asked {
		return false
	}
	w.behind.store(atAsked, asked+1)
	return true
}

// Answered reports whether there is an answer, and returns the number of receives that were pending then, and the calls
// that would have been refused.
func (w *Watched) Answered() (receives uint64, met map[string]uint64, ok bool) {
	if n := w.behind.load(atAsked); n == 0 || w.behind.load(atAnswered) != n {
		return 0, nil, false
	}
	return w.behind.load(atReceives), w.met(MostMet/2, MostMet), true
}

// Refused are calls that no checkpoint can keep, and how often the program has made them.
func (w *Watched) Refused() map[string]uint64 { return w.met(0, MostMet/2) }

func (w *Watched) met(from, to int) map[string]uint64 {
	var out map[string]uint64
	for i := from; i < to; i++ {
		at := atMet + i*MetBytes
		n := w.behind.load(at)
		if n == 0 {
			break
		}
		if out == nil {
			out = map[string]uint64{}
		}
		out[w.behind.name(at+8, MetBytes-8)] = n
	}
	return out
}

// Over reports whether the rank has called MPI_Finalize, and whether libholdfast counts its messages elsewhere by now.
func (w *Watched) Over() (finalized, elsewhere bool) {
	how := w.behind.load(atEnded)
	return how == 1, how == 2
}

// Messages returns those that the rank has sent and received.
func (w *Watched) Messages() (sent, received uint64) {
	for r := range w.size {
		sent += w.sent(r)
		received += w.received(r)
	}
	return sent, received
}
