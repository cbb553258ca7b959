package level

import (
	"testing"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

func TestTraitsSayWhatSurvivesANode(t *testing.T) {
	for name, want := range map[string]bool{
		format.LevelLocal: false, format.LevelPartner: true, format.LevelParity: true, format.LevelGlobal: true,
		"unknown": false,
	} {
		if got := TraitsOf(name).SurvivesNode(); got != want {
			t.Errorf("level %s: got %v, want %v", name, got, want)
		}
	}
}
