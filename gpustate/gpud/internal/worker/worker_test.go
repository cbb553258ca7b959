package worker

import (
	"slices"
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
