package doctor

import (
	"errors"
	"strings"
	"testing"
)

// TestJudgeLayer judges what programs say of their calls.
func TestJudgeLayer(t *testing.T) {
	for _, c := range []struct {
		out  string
		err  error
		want State
		says string
	}{
		{"a banner\nproof: libmpi.so.40 sees\n", nil, OK, "loaded libmpi.so.40"},
		{"proof: libmpi.so.40 misses\n", nil, Warning, "does not see"},
		{"", errors.New("exit status 1: no such library"), Note, "no such library"},
		{"nothing", nil, Note, "no answer: nothing"},
	} {
		r := report{}
		r.judgeLayer("Open MPI", c.out, c.err)
		if f := r.findings[0]; f.State != c.want || !strings.Contains(f.Detail, c.says) {
			t.Errorf("%q, %v: got %+v", c.out, c.err, f)
		}
	}
}
