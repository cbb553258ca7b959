package gpustate

import "github.com/holdfast-hpc/holdfast/gpustate/internal/record"

// RecordedContent describes the bytes of one memory object by its device's record.
type RecordedContent struct {
	Content
	Kind string // "buffer", "image", "shared buffer", "host buffer" or "program variable"
}

// RecordedContents reads off the record of a Capture what its Contents are, in their order, without a device.
func RecordedContents(b []byte) ([]RecordedContent, error) {
	r, err := record.Decode(b)
	if err != nil {
		return nil, err
	}
	var out []RecordedContent
	for _, o := range r.Contents() {
		out = append(out, RecordedContent{Content{ID: o.ID, Name: o.Name, Bytes: o.Mem.Bytes}, o.Kind()})
	}
	return out, nil
}
