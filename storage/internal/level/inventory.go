package level

import (
	"slices"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// Inventory lists what is committed at a place, for its ledger, oldest epoch first.
func Inventory(l Epochs) ([]format.LedgerEpoch, error) {
	epochs, err := l.Epochs()
	if err != nil {
		return nil, err
	}
	slices.Reverse(epochs)
	var out []format.LedgerEpoch
	for _, e := range epochs {
		p := format.LedgerEpoch{Epoch: e}
		have, err := HasManifest(l, e)
		if err != nil || !have {
			continue
		}
		if _, merr := l.ReadManifest(e); OfOtherRun(merr) {
			continue
		}
		if !l.Traits().Shared { // there the manifest names all that there is
			list, err := l.Files(e)
			if err != nil {
				continue // pruned by another rank meanwhile
			}
			for _, f := range list {
				if _, _, ok := format.ParseName(f.Name); ok {
					p.Files = append(p.Files, f.Name)
				}
			}
		}
		out = append(out, p)
	}
	return out, nil
}
