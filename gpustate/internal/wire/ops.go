package wire

import "reflect"

// Op says what a frame holds. The numbers are part of the protocol.
type Op byte

// What a client sends.
const (
	OpOpen        Op = 1
	opCreateMem   Op = 2
	opCreateSampl Op = 3
	OpBuild       Op = 4
	opCreateKern  Op = 5
	opCreateQueue Op = 6
	opRelease     Op = 7
	OpSetArg      Op = 8
	OpLaunch      Op = 9
	OpTransfer    Op = 10
	OpCopy        Op = 11
	OpMarker      Op = 12
	opFlush       Op = 13
	opFinish      Op = 14
	opAsk         Op = 15
	opExport      Op = 16
	opPull        Op = 17
	opMoved       Op = 18
	opForget      Op = 19
	OpOrder       Op = 20 // on an admin's connection
	OpFetch       Op = 21 // on a peer's connection
	OpDirect      Op = 22
	opUnshare     Op = 23
	OpBeat        Op = 24 // from the server, too
)

// What a server sends.
const (
	opWelcome Op = 64
	OpReply   Op = 65
	OpDone    Op = 66
	OpMove    Op = 67
	OpBye     Op = 68
)

// Message is the body of a frame.
type Message interface {
	Op() Op
	// Fields passes the fields, to be written or read. What is read lies in the memory
	// of the body only for messages that say so, and lists keep their memory.
	Fields(*Fields)
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
	if t := known[op]; t != nil {
		return reflect.New(t).Interface().(Message)
	}
	return nil
}

func (*Open) Op() Op          { return OpOpen }
func (*CreateMem) Op() Op     { return opCreateMem }
func (*CreateSampler) Op() Op { return opCreateSampl }
func (*Build) Op() Op         { return OpBuild }
func (*CreateKernel) Op() Op  { return opCreateKern }
func (*CreateQueue) Op() Op   { return opCreateQueue }
func (*Release) Op() Op       { return opRelease }
func (*SetArg) Op() Op        { return OpSetArg }
func (*Launch) Op() Op        { return OpLaunch }
func (*Transfer) Op() Op      { return OpTransfer }
func (*Copy) Op() Op          { return OpCopy }
func (*Marker) Op() Op        { return OpMarker }
func (*Flush) Op() Op         { return opFlush }
func (*Finish) Op() Op        { return opFinish }
func (*Ask) Op() Op           { return opAsk }
func (*Export) Op() Op        { return opExport }
func (*Pull) Op() Op          { return opPull }
func (*Moved) Op() Op         { return opMoved }
func (*Forget) Op() Op        { return opForget }
func (*Order) Op() Op         { return OpOrder }
func (*Fetch) Op() Op         { return OpFetch }
func (*Direct) Op() Op        { return OpDirect }
func (*Unshare) Op() Op       { return opUnshare }
func (*Beat) Op() Op          { return OpBeat }
func (*Welcome) Op() Op       { return opWelcome }
func (*Reply) Op() Op         { return OpReply }
func (*Done) Op() Op          { return OpDone }
func (*Move) Op() Op          { return OpMove }
func (*Bye) Op() Op           { return OpBye }

// known are the types of messages.
var known = types(
	&Open{}, &CreateMem{}, &CreateSampler{}, &Build{}, &CreateKernel{}, &CreateQueue{}, &Release{}, &SetArg{},
	&Launch{}, &Transfer{}, &Copy{}, &Marker{}, &Flush{}, &Finish{}, &Ask{}, &Export{}, &Pull{}, &Moved{},
	&Forget{}, &Order{}, &Fetch{}, &Direct{}, &Unshare{}, &Beat{}, &Welcome{}, &Reply{}, &Done{}, &Move{},
	&Bye{},
)

func types(list ...Message) (known [256]reflect.Type) {
	for _, m := range list {
		known[m.Op()] = reflect.TypeOf(m).Elem()
	}
	return known
}
