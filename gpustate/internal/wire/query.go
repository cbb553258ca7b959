package wire

import "github.com/holdfast-hpc/holdfast/gpustate/internal/driver"

// OpQuery is a question in OpenCL's own numbers.
const OpQuery Op = 40

// Query asks about the device, a kernel or a program. The reply's body is the answer as
// OpenCL lays it out.
type Query struct {
	Req    uint64
	Of     driver.QueryOf
	Object uint64 // 0: the device
	Index  uint64
	Param  uint64
}

func (*Query) op() Op { return OpQuery }

func (m *Query) fields(f *Fields) {
	of := uint64(m.Of)
	f.Uint(&m.Req, &of, &m.Object, &m.Index, &m.Param)
	f.Check(of <= uint64(driver.QueryProgram), "unknown kind of question")
	f.Check(m.Index < MaxArgs && m.Param <= 1<<32-1, "a question out of range")
	m.Of = driver.QueryOf(of)
}
