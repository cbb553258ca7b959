package gpustate

import (
	"errors"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
)

// Matching lists the devices that a selection describes, without regard to its Index and
// Rank, and beside each the selection of it alone. Of several servers each lists its own. When nothing
// matches, the error is a *NoDeviceError that lists what there is.
func Matching(sel Select) (list []Info, alone []Select, err error) {
	if sel.err != nil {
		return nil, nil, sel.err
	}
	found, err := offered(sel)
	if err != nil {
		return nil, nil, err
	}
	place := map[string]int{}
	for _, i := range found {
		place[i.Server]++
		if sel.Place > 0 && place[i.Server] != sel.Place || sel.Place == 0 && !sel.matches(i) ||
			sel.OpenCL && !driver.Can(i).TakesOpenCL {
			continue
		}
		one := sel
		one.Remote, one.Place, one.Index, one.Rank = i.Server, place[i.Server], 0, 0
		list, alone = append(list, i), append(alone, one)
	}
	if len(list) == 0 {
		return nil, nil, &NoDeviceError{Select: sel, Found: withoutFake(found)}
	}
	return list, alone, nil
}

// offered are all devices of where a selection looks.
func offered(sel Select) ([]Info, error) {
	if sel.Remote == "" {
		found, _, missing := discover()
		if len(found) == 0 {
			return nil, errors.Join(missing...)
		}
		return found, nil
	}
	sel.Index, sel.Place = -1, 0 // none of them: the refusal lists what there is
	_, err := openDriver(sel)
	var refusal *NoDeviceError
	if !errors.As(err, &refusal) {
		return nil, err
	}
	return refusal.Found, nil
}
