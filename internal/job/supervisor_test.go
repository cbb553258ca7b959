package job

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/config"
)

// TestSupervisorWords: what a supervisor sets is what a rank reads.
func TestSupervisorWords(t *testing.T) {
	s, err := Supervise("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.RequeueJob = "12_3"
	for _, lost := range []bool{false, true} {
		v, err := ParseSupervisor(s.Var(lost, lost)[len(config.SupervisorVar)+1:])
		if err != nil || v.NodeLost != lost || v.Continues != lost || v.Requeue != "12_3" ||
			v.addr != s.plane.Addr() || v.key != s.key {
			t.Errorf("lost %v: got %+v, %v", lost, v, err)
		}
	}
}

// TestSupervisorStands: a supervisor that stood still for longer than its patience,
// as in a job that was suspended, does not take the job for silent. One that is
// silent while it runs, it does.
func TestSupervisorStands(t *testing.T) {
	s, err := Supervise("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	v, err := ParseSupervisor(s.Var(false, false)[len(config.SupervisorVar)+1:])
	if err != nil {
		t.Fatal(err)
	}
	job, err := v.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer job.Close()
	if err := json.NewEncoder(job).Encode(Report{Points: 1}); err != nil {
		t.Fatal(err)
	}
	w, err := s.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if rep, err := w.Next(time.Minute); err != nil || rep.Points != 1 {
		t.Errorf("the first report: got %+v, %v", rep, err)
	}
	stood := &standing{Conn: w.conn, job: job}
	w.conn = stood
	const patience = time.Second
	if rep, err := w.Next(patience); err != nil || rep.Points != 7 {
		t.Errorf("after standing still: got %+v, %v", rep, err)
	}
	begin := time.Now()
	if _, err := w.Next(patience); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("silence: got %v", err)
	}
	if d := time.Since(begin); d < patience {
		t.Errorf("silence is noticed after %v, want no less than %v", d, patience)
	}
}

// standing is a connection on which a read comes to its deadline although it began
// long after it: its process was stopped. The other side speaks shortly afterwards.
type standing struct {
	net.Conn
	job  net.Conn
	once bool
}

func (c *standing) Read(b []byte) (int, error) {
	if !c.once {
		c.once = true
		if err := c.SetReadDeadline(time.Now()); err != nil {
			return 0, err
		}
		time.AfterFunc(100*time.Millisecond, func() { _ = json.NewEncoder(c.job).Encode(Report{Points: 7}) })
	}
	return c.Conn.Read(b)
}
