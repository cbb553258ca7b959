package gpustate

import "errors"

// Matching lists the devices that a selection describes, without regard to its Index and
// Rank, and beside each the selection of it alone. Of several servers each lists its own. It
// fails when no API or server can be used.
func Matching(sel Select) (list []Info, alone []Select, err error) {
	if sel.err != nil {
		return nil, nil, sel.err
	}
	none := sel
	none.Index, none.Place = -1, 0 // no device: the refusal lists what there is
	_, err = openDriver(none)
	var refusal *NoDeviceError
	if !errors.As(err, &refusal) {
		return nil, nil, err
	}
	place := map[string]int{}
	for _, i := range refusal.Found {
		place[i.Server]++
		if sel.Place > 0 && place[i.Server] != sel.Place || sel.Place == 0 && !sel.matches(i) {
			continue
		}
		one := sel
		one.Remote, one.Place, one.Index, one.Rank = i.Server, place[i.Server], 0, 0
		list, alone = append(list, i), append(alone, one)
	}
	return list, alone, nil
}
