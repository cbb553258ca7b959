package report

import (
	"encoding/json"
	"fmt"
	"io"
)

// traceEvent is one event of the Chrome trace format: "Trace Event Format",
// Google, 2016, the JSON object form. Times are in microseconds.
type traceEvent struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	TS    int64          `json:"ts"`
	Dur   *int64         `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Scope string         `json:"s,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// The threads of a rank in the trace.
const (
	traceMain   = 0
	traceBehind = 1 // one for each kind of work in the background, from here on
)

// WriteTrace writes the lanes in Chrome trace format, for chrome://tracing and
// ui.perfetto.dev: a process per rank, with a thread for the program and one for
// each kind of work behind it.
func (r *Report) WriteTrace(w io.Writer) error {
	if _, err := io.WriteString(w, `{"displayTimeUnit":"ms","otherData":`); err != nil {
		return err
	}
	enc := json.NewEncoder(w)
	if err := enc.Encode(map[string]any{"job": r.Job, "start": r.Start, "tool": "holdfast report"}); err != nil {
		return err
	}
	sep := `,"traceEvents":[`
	put := func(e traceEvent) error {
		if _, err := io.WriteString(w, sep); err != nil {
			return err
		}
		sep = ","
		return enc.Encode(e)
	}
	for _, s := range r.Ranks {
		if err := r.traceNames(put, s); err != nil {
			return err
		}
	}
	for i := range r.lanes {
		if err := r.traceLanes(put, &r.lanes[i]); err != nil {
			return err
		}
	}
	for _, k := range r.marks {
		e := traceEvent{Name: k.what, Cat: "instant", Phase: "i", TS: k.at, PID: k.rank, Scope: "p",
			Args: map[string]any{"text": k.text}}
		if k.epoch > 0 {
			e.Args["epoch"] = k.epoch
		}
		if err := put(e); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, "]}\n")
	return err
}

func (r *Report) traceNames(put func(traceEvent) error, s RankSums) error {
	name := func(what string, tid int, text string) error {
		return put(traceEvent{Name: what, Phase: "M", PID: s.Rank, TID: tid, Args: map[string]any{"name": text}})
	}
	if err := name("process_name", 0, fmt.Sprintf("rank %d on %s", s.Rank, s.Node)); err != nil {
		return err
	}
	if err := put(traceEvent{Name: "process_sort_index", Phase: "M", PID: s.Rank,
		Args: map[string]any{"sort_index": s.Rank}}); err != nil {
		return err
	}
	if err := name("thread_name", traceMain, "program"); err != nil {
		return err
	}
	for k := writing; k < kinds; k++ {
		if err := name("thread_name", traceBehind+int(k-writing), kindNames[k]); err != nil {
			return err
		}
	}
	return nil
}

func (r *Report) traceLanes(put func(traceEvent) error, l *lanes) error {
	for _, list := range [][]stretch{l.main, l.behind} {
		for _, s := range list {
			d := s.to - s.from
			e := traceEvent{Name: kindNames[s.kind], Cat: "program", Phase: "X", TS: s.from, Dur: &d, PID: l.rank,
				TID: traceMain, Args: map[string]any{"start": l.run}}
			if s.kind >= writing {
				e.Cat, e.TID = "behind", traceBehind+int(s.kind-writing)
			}
			if s.epoch > 0 {
				e.Args["epoch"] = s.epoch
			}
			if s.bytes > 0 {
				e.Args["bytes"] = s.bytes
			}
			if s.level != "" {
				e.Args["level"] = s.level
			}
			if s.text != "" {
				e.Args["text"] = s.text
			}
			if s.open {
				e.Args["open"] = true
			}
			if err := put(e); err != nil {
				return err
			}
		}
	}
	return nil
}
