package level_test

import (
	"crypto/rand"
	"os"
	"testing"

	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/holdfast-hpc/holdfast/storage/internal/format"
	"github.com/holdfast-hpc/holdfast/storage/internal/level"
	"github.com/holdfast-hpc/holdfast/storage/storagetest/jobtest"
	"github.com/holdfast-hpc/holdfast/test/fakes3"
)

// realStore names the prefix of an object store, s3://bucket/prefix, that TestRealStore runs on; the usual variables
// say where it is.
const realStore = "HOLDFAST_TEST_S3"

// TestRealStore runs the suite on a store that is no fake. What it makes stays there.
func TestRealStore(t *testing.T) {
	url := os.Getenv(realStore)
	if url == "" {
		t.Skip(realStore + " is not set")
	}
	runSuite(t, tested{Config: storage.LevelConfig{Name: storage.LevelGlobal},
		Nodes:  jobtest.NodeNames(2),
		Shared: true, Store: func(*testing.T) string { return url + "/" + rand.Text() }})
}

func TestLevels(t *testing.T) {
	for name, l := range map[string]tested{
		"local":         {Config: jobtest.Local, Nodes: jobtest.NodeNames(2)},
		"local, shared": {Config: jobtest.Local, Nodes: []string{"n", "n"}},
		"partner":       {Config: jobtest.Partner, Nodes: jobtest.NodeNames(2)},
		"partner, 2 of 3": {Config: storage.LevelConfig{Name: storage.LevelPartner, Copies: 2},
			Nodes: jobtest.NodeNames(3)},
		"parity 2+1": {Config: storage.LevelConfig{Name: storage.LevelParity, Data: 2, Parity: 1},
			Nodes: jobtest.NodeNames(3)},
		"global": {Config: storage.LevelConfig{Name: storage.LevelGlobal}, Nodes: jobtest.NodeNames(2), Shared: true},
		"global, compress": {Config: storage.LevelConfig{Name: storage.LevelGlobal, CompressAlways: true},
			Nodes: jobtest.NodeNames(2), Shared: true},
		"global, object store": {Config: storage.LevelConfig{Name: storage.LevelGlobal}, Nodes: jobtest.NodeNames(2),
			Shared: true, Store: func(t *testing.T) string { return fakes3.Start(t, &fakes3.Server{Page: 3}) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runSuite(t, l)
		})
	}
}

func TestTraitsSayWhatSurvivesANode(t *testing.T) {
	for name, want := range map[string]bool{
		format.LevelLocal: false, format.LevelPartner: true, format.LevelParity: true, format.LevelGlobal: true,
		"unknown": false,
	} {
		if got := level.TraitsOf(name).SurvivesNode(); got != want {
			t.Errorf("level %s: got %v, want %v", name, got, want)
		}
	}
}
