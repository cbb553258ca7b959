package cut

import "fmt"

// Epoch is the number of one global checkpoint. It grows by one with every
// attempt, also with those that are given up.
type Epoch uint64

// Kind is the kind of a Message.
type Kind uint8

// The kinds, written out because they travel between ranks. The comment names
// the direction and the fields that are used besides Epoch.
const (
	kindAsk    Kind = 1  // up: somebody wants a checkpoint. Yes = stop after it
	kindPark   Kind = 2  // down: park at your next Point
	kindAnswer Kind = 3  // up: Min, Max points passed in a subtree; Colls with members elsewhere
	kindHint   Kind = 4  // down: Max = the Point to park at, 0 for the next one; Colls that are not level
	kindRaise  Kind = 5  // both ways: Colls that grew
	kindReady  Kind = 6  // up: Yes = the whole subtree is parked; Round = version
	KindFreeze Kind = 7  // down: vote in Round
	kindVote   Kind = 8  // up: Yes = the whole subtree is frozen; Round; Sum
	kindThaw   Kind = 9  // down: Round failed, go on parking
	kindCut    Kind = 10 // down: Round made the cut. Yes = stop after it
	kindGiveUp Kind = 11 // down: no cut in time, go on
	// direct: Rank is blocked on a message of yours and has had Had; Round = version; Any = elected
	kindNeed    Kind = 12
	KindRetract Kind = 13 // direct: Rank no longer is; Round = version
	// up: Rank is blocked on any member of Comm; Round = number of the question; Max = how many to
	// name
	kindElect   Kind = 14
	kindPoll    Kind = 15 // down: as Elect, to all members
	kindPolled  Kind = 16 // up: Found = parked members of a subtree; Sum = sent to Rank by all of them
	kindElected Kind = 17 // direct, to Rank: as Polled, for all members
	KindGather  Kind = 18 // up: Blobs of a subtree for Stage
	KindPublish Kind = 19 // down: the blobs of all ranks for Stage
	KindLost    Kind = 20 // both ways: Rank has died; Had = the rank that noticed, Stage = how
	KindStatus  Kind = 21 // down: gather for Stage how your rank is
	KindWaiting Kind = 22 // up: a rank has waited for long
)

var kindNames = [...]string{"", "ask", "park", "answer", "hint", "raise", "ready", "freeze", "vote",
	"thaw", "cut", "give-up", "need", "retract", "elect", "poll", "polled", "elected", "gather", "publish", "lost",
	"status", "waiting"}

// String returns the name of k as the scenarios in testdata write it.
func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Message is a message between the machines of two ranks. One record serves all kinds; Kind lists the fields in use.
type Message struct {
	Kind  Kind
	Epoch Epoch
	Round uint64
	Yes   bool
	Any   bool
	Rank  int
	Had   uint64
	Min   uint64
	Max   uint64
	Sum   uint64
	Comm  string
	Colls []Standing
	Found []Candidate
	Stage string
	Blobs []Blob
}

// Blob is one rank's contribution to a gather.
type Blob struct {
	Rank int
	Data []byte
}

// Meeting is an exchange of ranks at a stage of an epoch, which comes once.
type Meeting struct {
	Epoch Epoch
	Stage string
	Data  []byte // of this rank
	Node  bool   // the ranks of a node meet, not all
	// Brief shortens the data for ranks with Whole false: the data of 100,000 ranks are a hundred thousand times those
	// of one. nil: all ranks get all data. The result has a blob of each rank as well, Brief of it changes nothing, and
	// Whole is the same on all ranks.
	Brief func(all []Blob) []Blob
	Whole func(rank int) bool
}
