package cut

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/scenario"
)

// TestScenarios plays testdata/*.txt: what the machines do about the commands that
// scene_test.go lists.
func TestScenarios(t *testing.T) {
	scenario.Play(t, 25, "nothing\n", func() scenario.Scene { return &scene{} })
}
