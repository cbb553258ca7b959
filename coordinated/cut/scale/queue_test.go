package scale

// event is something due at a virtual time, in nanoseconds.
type event struct {
	at   int64
	seq  uint64 // equal times keep their order
	kind eventKind
	rank int32
	arg  int32 // of kind
}

type eventKind uint8

const (
	evAdvance eventKind = iota // the program of rank goes on
	evMessage                  // a program's message from arg arrives
	evControl                  // control message number arg arrives
	evHandle                   // the agent of rank handles it
	evTick
	evRequest
)

// queue is a binary heap of events by time. It holds values, as a hundred
// thousand ranks would make too many small objects otherwise.
type queue struct {
	events []event
	seq    uint64
}

func (q *queue) push(e event) {
	q.seq++
	e.seq = q.seq
	q.events = append(q.events, e)
	i := len(q.events) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !q.before(i, up) {
			break
		}
		q.events[i], q.events[up] = q.events[up], q.events[i]
		i = up
	}
}

func (q *queue) pop() event {
	top := q.events[0]
	last := len(q.events) - 1
	q.events[0] = q.events[last]
	q.events = q.events[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && q.before(c+1, c) {
			c++
		}
		if !q.before(c, i) {
			break
		}
		q.events[i], q.events[c] = q.events[c], q.events[i]
		i = c
	}
	return top
}

func (q *queue) before(i, j int) bool {
	a, b := &q.events[i], &q.events[j]
	return a.at < b.at || (a.at == b.at && a.seq < b.seq)
}
