package cl

import "github.com/holdfast-hpc/holdfast/gpustate/internal/driver"

// linesToBuffer copies from an array of images of one dimension on platforms that refuse
// this copy, by way of the host. It is complete when it returns.
func (d *device) linesToBuffer(q driver.Handle, dst *mem, off int64, image *mem, r driver.Region,
	wait []driver.Event) (driver.Event, error) {
	if err := waitAll(wait); err != nil {
		return 0, err
	}
	return d.imageToHost(q, image, r, nil, func(b []byte) (driver.Event, error) {
		return d.Write(q, dst, off, b, true, nil)
	})
}

// bufferToLines is the way back.
func (d *device) bufferToLines(q driver.Handle, image *mem, r driver.Region, src *mem, off int64,
	wait []driver.Event) (driver.Event, error) {
	if err := waitAll(wait); err != nil {
		return 0, err
	}
	b := make([]byte, r.Pixels()*image.pixel)
	if _, err := d.Read(q, src, off, b, true, nil); err != nil {
		return 0, err
	}
	return d.WriteImage(q, image, r, b, true, nil)
}

func waitAll(wait []driver.Event) error {
	for _, e := range wait {
		if err := waitEvent(e); err != nil {
			return err
		}
	}
	return nil
}
