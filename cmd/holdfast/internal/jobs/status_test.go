package jobs

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/job"
)

func someStatus(ranks int) *job.Status {
	st := &job.Status{Job: "sun", Ranks: ranks, Levels: []string{"local", "global"}, Seconds: 3700,
		Next: &job.NextStatus{By: "Daly's interval", Seconds: 95},
		Epochs: []job.EpochStatus{{Epoch: 7, Bytes: 5 << 30, BlockedSeconds: 0.12,
			DurableSeconds: map[string]float64{"local": 2.5}}}}
	for r := range ranks {
		s := job.RankStatus{Rank: r, Node: fmt.Sprint("n", r/2), State: "running", Seconds: 12,
			Points: uint64(1000 + r), Last: 7, Level: "local", Cost: 0.12}
		if r == 3 {
			s.State, s.Call, s.Comm, s.Waits, s.Phase, s.Epoch = "blocked", "Recv", "world", "from rank 2 tag 5",
				"parking", 8
		}
		if r%2 == 0 {
			s.Work = []job.Work{{What: "flush", Epoch: 7, Level: "global", Seconds: 2, Bytes: 1 << 30,
				Total: 4 << 30}}
		}
		st.Nodes = append(st.Nodes, s.Node)
		st.States = append(st.States, s)
	}
	return st
}

func TestStatusText(t *testing.T) {
	var out bytes.Buffer
	before := someStatus(4)
	for i := range before.States {
		before.States[i].Points -= 100
	}
	if err := (&statusOptions{}).print(t.Context(), &out, someStatus(4), before, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"job sun: 4 ranks on 2 node(s), up 61 min 40 s", "next checkpoint in 95 s, by Daly's interval",
		"flush of epoch 7 to global by 2 rank(s), for 2.0 s: 2.0 GiB of about 8.0 GiB (25 %), 1.0 GiB/s, about 6.0 " +
			"s to go",
		"Recv on world from rank 2 tag 5 (epoch 8: parking)", "1003 (50/s)", "7 at local, blocked 120.0 ms",
		"flush epoch 7 to global 25 %",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "running"); n != 3 {
		t.Errorf("got %d running ranks, want 3:\n%s", n, out.String())
	}
}

// TestStatusFailedEpoch: a long error stands below the table, whole.
func TestStatusFailedEpoch(t *testing.T) {
	st := someStatus(2)
	why := "level local directory /scratch is full: " + strings.Repeat("make room there, ", 20) + "or keep fewer"
	st.Epochs = append(st.Epochs, job.EpochStatus{Epoch: 8, Bytes: 5 << 30, Error: why})
	var out bytes.Buffer
	if err := (&statusOptions{}).print(t.Context(), &out, st, nil, 0); err != nil {
		t.Fatal(err)
	}
	want := "8      5.0 GiB       0.0 ms    failed, see below\nepoch 8 failed: " + why + "\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("got\n%s", out.String())
	}
}

// TestStatusManyRanks: of a thousand ranks those that differ come first, and the
// others are one line.
func TestStatusManyRanks(t *testing.T) {
	var out bytes.Buffer
	if err := (&statusOptions{}).print(t.Context(), &out, someStatus(1000), nil, 0); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) > 12 || !strings.Contains(lines[len(lines)-2], "blocked") ||
		!strings.Contains(lines[len(lines)-1], "999") {
		t.Errorf("got\n%s", out.String())
	}
	out.Reset()
	if err := (&statusOptions{all: true}).print(t.Context(), &out, someStatus(1000), nil, 0); err != nil ||
		strings.Count(out.String(), "\n") < 1000 {
		t.Errorf("with --all: %d lines, %v", strings.Count(out.String(), "\n"), err)
	}
}
