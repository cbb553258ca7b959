package mpiwrap

import (
	"strings"
	"testing"
)

// TestGPUAwareVariable: the environment says what the program leaves open, and nothing more.
func TestGPUAwareVariable(t *testing.T) {
	for _, c := range []struct {
		set  GPUAware
		text string
		want GPUAware
	}{
		{GPUAwareAuto, "", GPUAwareAuto}, {GPUAwareAuto, "auto", GPUAwareAuto}, {GPUAwareAuto, "off", GPUAwareOff},
		{GPUAwareAuto, "on", GPUAwareOn}, {GPUAwareOn, "off", GPUAwareOn}, {GPUAwareOff, "on", GPUAwareOff},
	} {
		t.Setenv(gpuAwareVar, c.text)
		if got, err := c.set.chosen(); got != c.want || err != nil {
			t.Errorf("%v with %q: got %v, %v, want %v", c.set, c.text, got, err, c.want)
		}
	}
	t.Setenv(gpuAwareVar, "yes")
	if _, err := Init(Options{}); err == nil || !strings.Contains(err.Error(), `HOLDFAST_GPU_AWARE: "yes" is none of`) {
		t.Errorf("Init with a word that is not understood: got %v", err)
	}
}
