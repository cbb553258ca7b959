package job

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/coordinated"
)

// Times is the output of -times: the parts of a run's time, in seconds, as rank 0 measured them.
type Times struct {
	Program string  `json:"program"`
	Ranks   int     `json:"ranks"`
	Device  string  `json:"device"`
	Build   float64 `json:"build"` // compiling the kernels
	Open    float64 `json:"open"`  // opening the checkpoints
	Restore float64 `json:"restore"`
	First   int     `json:"first"` // step that this start began with
	Last    int     `json:"last"`
	Loop    float64 `json:"loop"` // from the first step to the end of the last one
	// RestoredEpoch is 0 on a first start.
	RestoredEpoch uint64       `json:"restored_epoch"`
	RestoredBytes int64        `json:"restored_bytes"`
	Restoring     []PartTime   `json:"restoring,omitempty"` // the parts of restore, in order
	Epochs        []EpochTimes `json:"epochs"`
}

// PartTime is one part of a restore, see coordinated.RestorePart.
type PartTime struct {
	Part string  `json:"part"`
	Took float64 `json:"took"`
}

// EpochTimes has the times of one checkpoint.
type EpochTimes struct {
	Epoch   uint64             `json:"epoch"`
	Bytes   int64              `json:"bytes"`
	Waited  float64            `json:"waited"`  // until all ranks stood at a Point
	Drain   float64            `json:"drain"`   // receiving messages in flight
	Capture float64            `json:"capture"` // copying the state
	Blocked float64            `json:"blocked"` // all that the program waited
	Durable map[string]float64 `json:"durable"` // by level, from the cut
	Error   string             `json:"error,omitempty"`
}

func (t *Times) add(s coordinated.Stats) {
	t.Epochs = []EpochTimes{}
	t.Restore = s.Restore.Took.Seconds()
	t.RestoredEpoch, t.RestoredBytes = uint64(s.Restore.Epoch), s.Restore.Bytes
	for _, p := range s.Restore.Parts {
		t.Restoring = append(t.Restoring, PartTime{p.Name, p.Took.Seconds()})
	}
	for _, e := range s.Epochs {
		if errors.Is(e.Err, coordinated.ErrEnded) { // it has come too late, and cost nothing
			continue
		}
		et := EpochTimes{Epoch: uint64(e.Epoch), Bytes: e.Bytes, Waited: e.Waited.Seconds(), Drain: e.Drain.Seconds(),
			Capture: e.Capture.Seconds(), Blocked: e.Blocked.Seconds(), Durable: map[string]float64{}}
		for level, d := range e.Durable {
			et.Durable[level] = d.Seconds()
		}
		if e.Err != nil {
			et.Error = e.Err.Error()
		}
		t.Epochs = append(t.Epochs, et)
	}
}
