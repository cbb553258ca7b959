package worker

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// TestWorkerEnv: what drivers read stays, the rest goes.
func TestWorkerEnv(t *testing.T) {
	got := workerEnv([]string{"PATH=/bin", "AWS_SECRET=1", "CUDA_VISIBLE_DEVICES=0", "POCL_DEBUG=1", "SLURM_JOB_ID=7",
		"SSH_AUTH_SOCK=/s", "LC_ALL=C",
		"OCL_ICD_VENDORS=/v", "HOLDFAST_GPUD_KEY=/k", "LANG=C", "NOTHING"})
	want := []string{"PATH=/bin", "CUDA_VISIBLE_DEVICES=0", "POCL_DEBUG=1", "LC_ALL=C", "OCL_ICD_VENDORS=/v", "LANG=C"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestBounded: what a worker prints is passed on to its bound, and never stops it.
func TestBounded(t *testing.T) {
	var got bytes.Buffer
	b := &bounded{to: &got, left: 10}
	for range 5 {
		if n, err := b.Write([]byte("1234")); n != 4 || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
	}
	if text := got.String(); !strings.HasPrefix(text, "1234123412\n") || strings.Count(text, "dropped") != 1 {
		t.Errorf("got %q", text)
	}
}
