package opencl

import (
	"encoding/binary"
	"errors"

	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// reply is the answer to a request.
type reply struct {
	status int32
	body   []byte
	bulk   []byte
	settle bool         // the program is to have the bytes of reads that are complete
	later  func(*reply) // waits, and fills in the rest; may be nil
}

func (r *reply) u32(v uint32)   { r.body = binary.LittleEndian.AppendUint32(r.body, v) }
func (r *reply) u64(v uint64)   { r.body = binary.LittleEndian.AppendUint64(r.body, v) }
func (r *reply) bytes(b []byte) { r.u32(uint32(len(b))); r.body = append(r.body, b...) }
func (r *reply) text(s string)  { r.bytes([]byte(s)) }

// done is the reply where there is nothing to say. Nobody changes it.
var done = &reply{}

// failed is the reply for a call that failed; what is impossible ends the service.
func failed(err error) (*reply, error) {
	if errors.Is(err, wire.ErrProtocol) {
		return nil, err
	}
	r := &reply{status: codeOf(err)}
	r.text(err.Error())
	return r, nil
}

// answered is the reply with an answer, or with the error of the question.
func answered(b []byte, err error) (*reply, error) {
	if err != nil {
		return failed(err)
	}
	r := &reply{}
	r.bytes(b)
	return r, nil
}
