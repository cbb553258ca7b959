package wire

import "reflect"

// Op is the kind of a frame. The numbers are part of the protocol; they are below 64 from a client, and from 64 on from
// a server. Those that others need have names.
type Op byte

// The messages of a client.
const (
	OpOpen     Op = 1
	OpBuild    Op = 4
	OpSetArg   Op = 8
	OpLaunch   Op = 9
	OpTransfer Op = 10
	OpCopy     Op = 11
	OpMarker   Op = 12
	OpOrder    Op = 20 // on an admin's connection
	OpDirect   Op = 22
	OpBeat     Op = 24 // from the server, too
	OpFill     Op = 25
)

// The messages of a server.
const (
	OpReply Op = 65
	OpDone  Op = 66
	OpMove  Op = 67
	OpBye   Op = 68
)

// Message is the body of a frame.
type Message interface {
	op() Op
	// fields passes the fields, to be written or read. A result lies in the memory of the body only for messages that
	// say so, and lists keep their memory.
	fields(*Fields)
}

// Bounds of the memory that a peer can make the other side hold.
const (
	SlotBytes = 1 << 20 // one piece of a transfer
	Slots     = 16      // pieces in flight for one client
	MaxWait   = 4096    // events that a command waits for
	MaxArgs   = 1024    // arguments of a kernel
)

// OpOf returns the operation of a message's frame.
func OpOf(m Message) Op { return m.op() }

// New gives an empty message for an operation, nil for an unknown one.
func New(op Op) Message {
	if t := known[op]; t != nil {
		return reflect.New(t).Interface().(Message)
	}
	return nil
}

func (*Open) op() Op          { return OpOpen }
func (*CreateMem) op() Op     { return 2 }
func (*CreateSampler) op() Op { return 3 }
func (*Build) op() Op         { return OpBuild }
func (*CreateKernel) op() Op  { return 5 }
func (*CreateQueue) op() Op   { return 6 }
func (*Release) op() Op       { return 7 }
func (*SetArg) op() Op        { return OpSetArg }
func (*Launch) op() Op        { return OpLaunch }
func (*Transfer) op() Op      { return OpTransfer }
func (*Copy) op() Op          { return OpCopy }
func (*Marker) op() Op        { return OpMarker }
func (*Flush) op() Op         { return 13 }
func (*Finish) op() Op        { return 14 }
func (*Ask) op() Op           { return 15 }
func (*Moved) op() Op         { return 18 }
func (*Forget) op() Op        { return 19 }
func (*Order) op() Op         { return OpOrder }
func (*Direct) op() Op        { return OpDirect }
func (*Unshare) op() Op       { return 23 }
func (*Beat) op() Op          { return OpBeat }
func (*Fill) op() Op          { return OpFill }
func (*Query) op() Op         { return 40 }
func (*Welcome) op() Op       { return 64 }
func (*Reply) op() Op         { return OpReply }
func (*Done) op() Op          { return OpDone }
func (*Move) op() Op          { return OpMove }
func (*Bye) op() Op           { return OpBye }

// known are the types of messages.
var known = types(
	&Open{}, &CreateMem{}, &CreateSampler{}, &Build{}, &CreateKernel{}, &CreateQueue{}, &Release{}, &SetArg{},
	&Launch{}, &Transfer{}, &Copy{}, &Marker{}, &Flush{}, &Finish{}, &Ask{}, &Moved{},
	&Forget{}, &Order{}, &Direct{}, &Unshare{}, &Beat{}, &Fill{}, &Query{},
	&Welcome{}, &Reply{}, &Done{}, &Move{}, &Bye{},
)

func types(list ...Message) (known [256]reflect.Type) {
	for _, m := range list {
		known[m.op()] = reflect.TypeOf(m).Elem()
	}
	return known
}
