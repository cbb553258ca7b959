package session

import (
	"fmt"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/gpustate/internal/wire"
	"github.com/holdfast-hpc/holdfast/internal/codec"
)

// doAsk answers a question about an object or the device.
func (s *Session) doAsk(m *wire.Ask) error {
	switch m.What {
	case wire.AskFree:
		free := s.usage.Free(s.drv.FreeBytes())
		return s.reply(m.Req, nil, func(f *wire.Fields) { codec.Size(f, &free) })
	case wire.AskWorkGroup:
		return s.askKernel(m)
	case wire.AskGlobals, wire.AskGlobal:
		return s.askGlobals(m)
	case wire.AskFormats:
		var i driver.ImageDesc
		i.SetShape(m.Index)
		if i.Dims < 1 || i.Dims > 3 || i.Array && i.Dims == 3 || m.Object > uint64(driver.WriteOnly) {
			return s.reply(m.Req, driver.ErrUnsupported, nil)
		}
		list, err := s.drv.ImageFormats(driver.Access(m.Object), m.Index)
		return s.reply(m.Req, err, func(f *wire.Fields) { wire.Formats(f, &list) })
	}
	return fmt.Errorf("%w: question %d", wire.ErrProtocol, m.What)
}

func (s *Session) askGlobals(m *wire.Ask) error {
	p, err := object[*program](s, m.Object, "program")
	if err != nil {
		return err
	}
	var list []driver.Global
	if m.What == wire.AskGlobal {
		if g, ok := s.drv.Global(p.h, m.Name); ok {
			list = append(list, g)
		}
	} else {
		list, err = s.drv.Globals(p.h)
	}
	return s.reply(m.Req, err, func(f *wire.Fields) { wire.Globals(f, &list) })
}

func (s *Session) askKernel(m *wire.Ask) error {
	k, err := object[*kernel](s, m.Object, "kernel")
	if err != nil {
		return err
	}
	size, multiple, err := s.drv.WorkGroup(k.h)
	return s.reply(m.Req, err, func(f *wire.Fields) { codec.Size(f, &size, &multiple) })
}

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
	b, err := s.drv.Query(q)
	return s.reply(m.Req, err, func(f *wire.Fields) { f.Bytes(&b) })
}
