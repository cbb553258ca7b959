package remote

import (
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// Query asks the server.
func (d *Device) Query(q driver.Query) (answer []byte, err error) {
	m := &wire.Query{Req: d.id(), Of: q.Of, Index: uint64(q.Index), Param: uint64(q.Param)}
	switch o := q.Object.(type) {
	case *kernel:
		m.Object = o.id
	case object:
		m.Object = uint64(o)
	}
	err = d.request(m.Req, m, func(f *wire.Fields) { f.Bytes(&answer) })
	return answer, err
}
