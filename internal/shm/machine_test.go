package shm

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// TestLimits: what control groups of both versions, and those above them, have left for a process. Those without a
// limit are none.
func TestLimits(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"job/memory.max":          "1000\n",
		"job/memory.current":      "700\n",
		"job/memory.stat":         "anon 200\ninactive_file 100\nactive_file 50\nworkingset_inactive_file 7\n",
		"job/step/memory.max":     "max\n",
		"job/step/memory.current": "600\n",

		"memory/job/memory.limit_in_bytes": "2000\n",
		"memory/job/memory.usage_in_bytes": "1500\n",
		"memory/job/memory.stat":           "inactive_file 3\ntotal_inactive_file 20\ntotal_active_file 30\n",
		"memory/memory.limit_in_bytes":     "9223372036854771712\n",
		"memory/memory.usage_in_bytes":     "5000\n",
	} {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for groups, want := range map[string]map[string]int64{
		"0::/job/step\n":                       {root + "/job": 450},
		"5:cpu:/x\n4:memory,misc:/job\n0::/\n": {root + "/memory/job": 550},
		"0::/other\n":                          {},
		"":                                     {},
	} {
		if got := limits(root, groups); !maps.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", groups, got, want)
		}
	}
}
