package session

import (
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
)

// doQuery answers a question in OpenCL's own numbers.
func (s *Session) doQuery(m *wire.Query) error {
	q := driver.Query{Of: m.Of, Index: int(m.Index), Param: uint32(m.Param)}
	switch m.Of {
	case driver.QueryDevice:
	case driver.QueryBuild, driver.QueryProgram:
		p, err := object[*program](s, m.Object, "program")
		if err != nil {
			return err
		}
		q.Object = p.h
	default:
		k, err := object[*kernel](s, m.Object, "kernel")
		if err != nil {
			return err
		}
		q.Object = k.h
	}
	asker, ok := s.drv.(driver.Querier)
	if !ok {
		return s.reply(m.Req, driver.ErrUnsupported, nil)
	}
	b, err := asker.Query(q)
	return s.reply(m.Req, err, func(f *wire.Fields) { f.Bytes(&b) })
}
