package wire

// Version is that of the protocol.
const Version = 5

// Sizes and limits.
const (
	HeaderBytes    = 24
	MaxBody        = 64 << 20
	MaxList        = 65536   // devices, arguments of a kernel
	MaxNumber      = 1 << 62 // places and sizes
	MaxConnections = 1024    // for requests: calls that run at the same time
)

// The shared memory of the ring: numbers in cache lines of their own, reply slots, words of the slots of
// transfers, the bytes of the ring.
const (
	RingWritten = 0
	RingAsleep  = 64
	RingRead    = 128
	RingLost    = 192
	RingReplies = 4096
	RingSlots   = 64
	RingSlot    = 64
	RingWords   = 8192
	RingData    = 16384
	RingBytes   = 256 << 10
	RingMessage = 64 << 10
)

// States of a reply slot.
const (
	SlotFree     = 0
	SlotAsked    = 1
	SlotSleeps   = 2
	SlotAnswered = 3
)

// Slots of transfers, in an area of their own.
const (
	Slots     = 32
	SlotBytes = 512 << 10
)

// States of a slot of transfers.
const (
	Empty   = 0 // of a write: the library fills it; of a read: the server
	Full    = 1 // the other one empties it
	Taken   = 2 // the device fills or empties it
	Refused = 3 // the command has failed
)

// Operations of requests, and from OpNote on of messages that the server sends by itself.
const (
	OpHello         = 1
	OpDevices       = 2
	OpDeviceInfo    = 3
	OpCreateQueue   = 4
	OpCreateBuffer  = 5
	OpCreateSub     = 6
	OpCreateImage   = 7
	OpCreateSampler = 8
	OpRelease       = 9
	OpBuild         = 10
	OpCreateKernel  = 11
	OpSetArg        = 12
	OpWorkGroup     = 13
	OpArgInfo       = 14
	OpFormats       = 15
	OpLaunch        = 16
	OpRead          = 17
	OpWrite         = 18
	OpCopy          = 19
	OpFill          = 20
	OpMarker        = 21
	OpFlush         = 22
	OpFinish        = 23
	OpUserEvent     = 24
	OpSetUserEvent  = 25
	OpEventStatus   = 26
	OpEventTimes    = 27
	OpWait          = 28
	OpWatch         = 29
	OpForget        = 30
	OpShare         = 31
	OpUnshare       = 32
	OpAreaWait      = 33
	OpContext       = 34
	OpCapture       = 35
	OpState         = 36
	OpRestore       = 37
	OpCloneKernel   = 38
	OpNote          = 64
	OpDelivery      = 65
	OpLost          = 66
)

// Flags of READ, WRITE, COPY, FILL and MARKER.
const (
	Blocking = 1
	Barrier  = 2
	InArea   = 4  // the host's bytes lie in an area
	InSlots  = 8  // they pass through slots
	Deliver  = 16 // a DELIVERY without bytes reports its completion
	NoEvent  = 32 // the program has no event of it: an error is the queue's
)

// Alone is the flag of a MARKER that does not wait for its queue.
const Alone = 4

// Forms of places.
const (
	Linear = 0 // a range: origin[0] and region[0] in bytes
	Rect   = 1 // rows of a buffer: region[0] and origin[0] in bytes
	Pixels = 2 // a box of an image
)

// Kinds of kernel arguments.
const (
	ArgMem     = 1
	ArgSampler = 2
	ArgLocal   = 3
	ArgValue   = 4
	ArgNull    = 5
)

// The kinds of handles that an argument takes.
const (
	TakesUnknown    = 0 // or none
	TakesBuffer     = 1
	TakesSampler    = 2
	TakesImage      = 3 // in both ways
	TakesImageRead  = 4
	TakesImageWrite = 5
)

// The kinds of builds.
const (
	Program = 0 // one source
	Object  = 1 // one source, compiled and not linked: nothing is kept
	Linked  = 2 // several sources, each compiled, and linked
)

// Array is added to the dimensions of an image that is an array.
const Array = 4
