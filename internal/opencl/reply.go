package opencl

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/opencl/wire"
)

// reply is the answer to a request.
type reply struct {
	status  int32
	body    []byte
	bulk    []byte
	deliver bool         // the program is to have the bytes of reads that are complete
	wait    func(*reply) // waits, and fills in the rest; may be nil
	stuck   func() bool  // that lasts until the program sets a user event; nil: where the request's command is kept
}

func (r *reply) u32(v uint32)   { r.body = binary.LittleEndian.AppendUint32(r.body, v) }
func (r *reply) u64(v uint64)   { r.body = binary.LittleEndian.AppendUint64(r.body, v) }
func (r *reply) bytes(b []byte) { r.u32(uint32(len(b))); r.body = append(r.body, b...) }
func (r *reply) text(s string)  { r.bytes([]byte(s)) }

// done is the empty reply. It is never changed.
var done = &reply{}

// failed returns the reply for a call that failed; an impossible request ends the service.
func failed(err error) (*reply, error) {
	if errors.Is(err, wire.ErrProtocol) {
		return nil, err
	}
	r := &reply{status: codeOf(err)}
	r.text(err.Error())
	return r, nil
}

// answered returns the reply with an answer, or with the error of the question.
func answered(b []byte, err error) (*reply, error) {
	if err != nil {
		return failed(err)
	}
	r := &reply{}
	r.bytes(b)
	return r, nil
}

// Errors of OpenCL that the server gives.
const (
	clSuccess              = 0
	clDeviceNotAvailable   = -2
	clAllocationFailure    = -4
	clOutOfResources       = -5
	clNoProfiling          = -7
	clBuildFailure         = -11
	clCompileFailure       = -15
	clLinkerNotAvailable   = -16
	clLinkFailure          = -17
	clMisaligned           = -13
	clWaitListFailure      = -14
	clArgInfoNotAvailable  = -19
	clInvalidValue         = -30
	clInvalidMem           = -38
	clInvalidImageSize     = -40
	clInvalidBuild         = -43
	clInvalidProgram       = -44
	clInvalidExecutable    = -45
	clInvalidKernelName    = -46
	clInvalidKernelDef     = -47
	clInvalidArgValue      = -50
	clInvalidKernelArgs    = -52
	clInvalidWorkGroupSize = -54
	clInvalidOperation     = -59
	clInvalidCompiler      = -66
	clInvalidLinker        = -67
)

// conditions are the codes of gpustate's errors, the first that fits.
var conditions = []struct {
	err  error
	code int32
}{
	{gpustate.ErrDeviceLost, clDeviceNotAvailable},
	{gpustate.ErrClosed, clDeviceNotAvailable},
	{gpustate.ErrOutOfMemory, clAllocationFailure},
	{gpustate.ErrKernelFault, clOutOfResources},
	{gpustate.ErrHidden, clBuildFailure},
	{gpustate.ErrFP64, clBuildFailure},
	{gpustate.ErrNoKernel, clInvalidKernelName},
	{gpustate.ErrArgNotSet, clInvalidKernelArgs},
	{gpustate.ErrReleased, clInvalidMem},
	{gpustate.ErrLimit, clAllocationFailure},
	{gpustate.ErrRange, clInvalidValue},
	{gpustate.ErrUnsupported, clInvalidOperation},
}

// codeOf returns the error of OpenCL for one of gpustate, clSuccess for none.
func codeOf(err error) int32 {
	if err == nil {
		return clSuccess
	}
	if coded, ok := errors.AsType[*codedError](err); ok {
		return coded.code
	}
	if errors.As(err, new(*gpustate.BuildError)) {
		return clBuildFailure
	}
	if errors.Is(err, gpustate.ErrDeviceLost) {
		return clDeviceNotAvailable
	}
	var call *gpustate.CallError
	if errors.As(err, &call) && strings.HasPrefix(call.Call, "cl") && call.Code < 0 && call.Code > -100 {
		return int32(call.Code)
	}
	for _, c := range conditions {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return clOutOfResources
}

// codedError is an error of OpenCL's own.
type codedError struct {
	code int32
	text string
}

func (e *codedError) Error() string { return e.text }

func coded(code int32, text string) error { return &codedError{code, text} }
