package persist_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect"
	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect/connecttest"
	"github.com/holdfast-hpc/holdfast/coordinated/jobtest"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestNotShared: nodes whose global directories are not the same are named, and nothing
// is left in those that are.
func TestNotShared(t *testing.T) {
	for _, alone := range []int{-1, 2} { // node with a directory of its own
		t.Run(fmt.Sprint("alone ", alone), func(t *testing.T) {
			base := jobtest.Options(t)
			base.Logger = slog.New(slog.DiscardHandler)
			plane := connecttest.NewNet(6).Plane
			own := filepath.Join(filepath.Dir(base.Global), "own")
			if err := os.Mkdir(own, 0o700); err != nil {
				t.Fatal(err)
			}
			err := mpitest.NewWorld(6, mpitest.Options{Seed: 1}).Run(func(w *mpiwrap.Comm) error {
				o := base
				node := w.Rank() % 3
				ctx := connect.WithSeam(t.Context(), connect.Seam{Plane: plane, Host: fmt.Sprint("n", node),
					ShareWait: 300 * time.Millisecond})
				if node == alone {
					o.Global = own
				}
				ck, _, err := jobtest.OpenStep(ctx, w, o)
				if err != nil {
					return err
				}
				return ck.Close()
			})
			switch {
			case alone < 0 && err != nil:
				t.Error(err)
			case alone >= 0 && (err == nil || !strings.Contains(err.Error(), "node(s) n2 do") ||
				!strings.Contains(err.Error(), "do not see what node n0 writes")):
				t.Errorf("got %v, want an error that names n2", err)
			}
			if left, _ := filepath.Glob(filepath.Join(base.Global, "holdfast.shared*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}
