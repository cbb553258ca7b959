package wire

// Op says what a frame holds. The numbers are part of the protocol.
type Op byte

// What a client sends.
const (
	OpOpen        Op = 1
	OpCreateMem   Op = 2
	OpCreateSampl Op = 3
	OpBuild       Op = 4
	OpCreateKern  Op = 5
	OpCreateQueue Op = 6
	OpRelease     Op = 7
	OpSetArg      Op = 8
	OpLaunch      Op = 9
	OpTransfer    Op = 10
	OpCopy        Op = 11
	OpMarker      Op = 12
	OpFlush       Op = 13
	OpFinish      Op = 14
	OpAsk         Op = 15
	OpExport      Op = 16
	OpPull        Op = 17
	OpMoved       Op = 18
	OpForget      Op = 19
	OpOrder       Op = 20 // on an admin's connection
	OpFetch       Op = 21 // on a peer's connection
	OpDirect      Op = 22
	OpUnshare     Op = 23
	OpBeat        Op = 24 // from the server, too
)

// What a server sends.
const (
	OpWelcome Op = 64
	OpReply   Op = 65
	OpDone    Op = 66
	OpMove    Op = 67
	OpBye     Op = 68
)

// Message is the body of a frame.
type Message interface {
	Op() Op
	Encode(*Writer)
	Decode(*Reader)
}

// Numbers that bound what a peer can make the other side hold.
const (
	SlotBytes = 1 << 20 // one piece of a transfer
	Slots     = 16      // pieces in flight for one client
	MaxWait   = 4096    // events that a command waits for
	MaxArgs   = 1024    // arguments of a kernel
	maxAddrs  = 64
)

// New gives an empty message for an operation, nil for an unknown one.
func New(op Op) Message {
	switch op {
	case OpOpen:
		return &Open{}
	case OpCreateMem:
		return &CreateMem{}
	case OpCreateSampl:
		return &CreateSampler{}
	case OpBuild:
		return &Build{}
	case OpCreateKern:
		return &CreateKernel{}
	case OpCreateQueue:
		return &CreateQueue{}
	case OpRelease:
		return &Release{}
	case OpSetArg:
		return &SetArg{}
	case OpLaunch:
		return &Launch{}
	case OpTransfer:
		return &Transfer{}
	case OpCopy:
		return &Copy{}
	case OpMarker:
		return &Marker{}
	case OpFlush:
		return &Flush{}
	case OpFinish:
		return &Finish{}
	case OpAsk:
		return &Ask{}
	case OpExport:
		return &Export{}
	case OpPull:
		return &Pull{}
	case OpMoved:
		return &Moved{}
	case OpForget:
		return &Forget{}
	case OpOrder:
		return &Order{}
	case OpFetch:
		return &Fetch{}
	case OpDirect:
		return &Direct{}
	case OpUnshare:
		return &Unshare{}
	case OpBeat:
		return &Beat{}
	}
	return answer(op)
}

func answer(op Op) Message {
	switch op {
	case OpWelcome:
		return &Welcome{}
	case OpReply:
		return &Reply{}
	case OpDone:
		return &Done{}
	case OpMove:
		return &Move{}
	case OpBye:
		return &Bye{}
	}
	return nil
}
