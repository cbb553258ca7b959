package report

import "time"

// Report is the account of a job. Durations are in seconds, times in microseconds since Start.
type Report struct {
	Job      string     `json:"job"`               // name of the job
	Program  string     `json:"program,omitempty"` // name of the program
	Size     int        `json:"ranks"`             // number of ranks of the newest start
	Nodes    []string   `json:"nodes"`             // host names of the newest start's nodes
	Levels   []string   `json:"levels"`            // names of the levels, nearest first
	Start    time.Time  `json:"start"`             // time of the first event; times in µs count from it
	End      time.Time  `json:"end"`               // time of the last event
	Running  bool       `json:"running"`           // the job was alive when the report was made
	Runs     []Run      `json:"runs"`              // starts of the job, oldest first
	Epochs   []Epoch    `json:"epochs"`            // epochs that were begun, oldest first
	Ranks    []RankSums `json:"rank_sums"`         // sums for each rank over all starts
	Totals   Totals     `json:"totals"`            // wall time by use
	Clocks   []Clock    `json:"clocks"`            // clock offsets between nodes
	Faults   []Fault    `json:"faults"`            // faults that ranks reported
	Notes    []string   `json:"notes"`             // gaps of the report, for people
	tracks   []track    // by rank and run
	instants []instant
	made     time.Time
}

// Run is one start of the job.
type Run struct {
	Number    int     `json:"run"`                         // number of the start, from 1
	Begin     int64   `json:"begin_us"`                    // first event, in µs since start
	End       int64   `json:"end_us"`                      // last event, in µs since start
	Ended     string  `json:"ended"`                       // how it ended: closed, stopped, killed or running
	Why       string  `json:"why,omitempty"`               // why it ended
	Within    float64 `json:"end_within_s"`                // seconds by which the end may be later than end_us
	Restored  uint64  `json:"restored_epoch,omitempty"`    // epoch that it restored; absent: none
	Level     string  `json:"restored_from,omitempty"`     // level that it restored from
	Restore   float64 `json:"restore_s"`                   // seconds that the slowest rank restored for
	Startup   float64 `json:"startup_s"`                   // seconds from Open to computing, of the slowest rank
	Dead      float64 `json:"dead_before_s"`               // seconds between the end of the start before and this one
	Lost      float64 `json:"lost_s"`                      // seconds of computing that was repeated, mean of ranks
	Noticed   float64 `json:"noticed_s"`                   // seconds from the death of a rank until the others knew
	Epochs    int     `json:"epochs"`                      // epochs that were committed
	Points    uint64  `json:"points"`                      // points that rank 0 passed
	Taken     string  `json:"checkpoints_taken,omitempty"` // when checkpoints were taken by the clock
	Logs      int     `json:"logs"`                        // ranks that left a log
	Size      int     `json:"ranks"`                       // number of ranks
	began     bool    // to compute: a rank came to the end of Restore
	truncated bool    // is how it began: the logs have grown too long
	death     int64   // µs, when a rank was last heard of that was lost; math.MaxInt64 if none was
}

// Epoch is one checkpoint, committed or not.
type Epoch struct {
	Run       int                  `json:"run"`                        // number of the start
	Epoch     uint64               `json:"epoch"`                      // number of the epoch
	Stop      bool                 `json:"stop,omitempty"`             // it was the final checkpoint
	By        string               `json:"requested_by,omitempty"`     // source of the request
	ByRank    int                  `json:"requested_at_rank"`          // rank that was asked; -1: not known
	Begin     int64                `json:"begin_us"`                   // request, in µs since start
	Cut       int64                `json:"cut_us"`                     // last rank's cut, in µs since start
	Over      int64                `json:"over_us"`                    // last event of the epoch, in µs since start
	ToCut     float64              `json:"request_to_cut_s"`           // seconds from the request to the cut
	Park      RankTimes            `json:"park_s"`                     // seconds in which ranks waited for the others
	Drain     RankTimes            `json:"drain_s"`                    // seconds of receiving messages in flight
	Capture   RankTimes            `json:"capture_s"`                  // seconds in which ranks copied their state
	Blocked   RankTimes            `json:"blocked_s"`                  // seconds for which ranks could not compute
	Write     RankTimes            `json:"write_s"`                    // seconds in which ranks wrote in the background
	Vote      float64              `json:"vote_s"`                     // seconds of the votes to commit
	Flush     map[string]RankTimes `json:"flush_s"`                    // by level: seconds of copying it there
	Durable   map[string]float64   `json:"durable_s"`                  // by level: seconds from the cut to the commit
	Bytes     int64                `json:"bytes"`                      // protected bytes of all ranks
	Stored    map[string]int64     `json:"stored"`                     // by level: bytes that all ranks wrote
	LastIn    int                  `json:"last_to_arrive"`             // rank that the others waited for
	Messages  int                  `json:"messages_drained"`           // messages in flight that were received
	Rounds    int                  `json:"rounds"`                     // rounds in which the ranks agreed on the cut
	Releases  int                  `json:"releases"`                   // of parked ranks: docs/PROTOCOL.md
	Fault     string               `json:"fault,omitempty"`            // why it failed
	Completed int                  `json:"completed_by_run,omitempty"` // later start that committed it
	ranks     map[int]bool         // that captured
	seen      map[string]gathered  // samples by name
	written   map[string]int64     // by level, bytes of state, however often
	committed map[string]int       // by level, ranks that saw it
	putOff    bool                 // its cut was not used
}

// RankTimes is a summary of the times of all ranks, in seconds.
type RankTimes struct {
	Min     float64 `json:"min"`          // seconds of the fastest rank
	Median  float64 `json:"median"`       // seconds of the median rank
	Max     float64 `json:"max"`          // seconds of the slowest rank
	Slowest int     `json:"slowest_rank"` // number of the slowest rank
	Ranks   int     `json:"ranks"`        // ranks that were counted
}

// RankSums is the sum of one rank over all starts.
type RankSums struct {
	Rank      int     `json:"rank"`           // number of the rank
	Node      string  `json:"node"`           // host name of its newest node
	Computing float64 `json:"computing_s"`    // seconds of computing
	Stopped   float64 `json:"stopped_s"`      // seconds stopped by checkpoints
	Longest   float64 `json:"longest_stop_s"` // longest stop in seconds
	Starting  float64 `json:"starting_s"`     // seconds of opening and restoring
	Writing   float64 `json:"writing_s"`      // seconds of writing in the background
	Bytes     int64   `json:"bytes"`          // bytes that it wrote
	LastIn    int     `json:"last_to_arrive"` // number of checkpoints for which the others waited for it
}

// Totals is the wall time of the job by use, in seconds: the mean of the ranks if they differ. The parts add up to
// Wall.
type Totals struct {
	Wall      float64 `json:"wall_s"`           // seconds from the first start to the last event
	Computing float64 `json:"computing_s"`      // seconds of computing that was kept
	Lost      float64 `json:"lost_s"`           // seconds of computing that was repeated
	Noticing  float64 `json:"noticing_s"`       // seconds in which a rank was dead and the others did not know
	Stopped   float64 `json:"stopped_s"`        // seconds stopped by checkpoints
	Starting  float64 `json:"starting_s"`       // seconds of opening and restoring
	Ending    float64 `json:"ending_s"`         // seconds after the program's last step
	Dead      float64 `json:"dead_s"`           // seconds between two starts
	Overhead  float64 `json:"overhead"`         // stopped_s / (computing_s + lost_s)
	Committed int     `json:"epochs_committed"` // epochs that were committed
	Failed    int     `json:"epochs_failed"`    // epochs that failed
}

// Clock is the offset of a node's clock from that of rank 0's node in one start.
type Clock struct {
	Run    int     `json:"run"`      // number of the start
	Node   string  `json:"node"`     // host name
	Offset float64 `json:"offset_s"` // seconds taken off its times; 0 if nothing shows that the clocks differ
	Low    float64 `json:"low_s"`    // smallest offset in seconds that common events allow
	High   float64 `json:"high_s"`   // largest offset in seconds that common events allow
}

// Fault is one error that ranks reported.
type Fault struct {
	Run   int    `json:"run"`             // number of the start
	At    int64  `json:"at_us"`           // time, in µs since start
	Rank  int    `json:"rank"`            // rank that reported it
	Epoch uint64 `json:"epoch,omitempty"` // epoch that it is about
	What  string `json:"what"`            // what failed
	Text  string `json:"text"`            // error message
	Ranks int    `json:"ranks"`           // ranks that reported the same
}

type kind uint8

const (
	computing kind = iota
	lost           // computing that later runs had to do again
	noticing       // a rank was dead, and the others did not know
	starting
	restoring
	parked
	draining
	capturing
	held     // still stopped: the capture is written first
	stopping // after the final cut
	ending   // after the last step
	writing
	voting
	redundancy
	flushing
	kinds
)

// kindNames are those of the page.
var kindNames = [kinds]string{"computing", "lost", "noticing", "starting", "restoring", "parked", "draining",
	"capturing", "held", "stopping",
	"ending", "writing", "voting", "redundancy", "flushing"}

type stretch struct {
	kind     kind
	from, to int64 // µs
	epoch    uint64
	bytes    int64
	open     bool // it was never seen to end
	text     string
}

// track has one rank's activities in one run.
type track struct {
	run, rank   int
	size        int // of the run
	node        string
	main        []stretch
	behind      []stretch
	first, last int64
	closed      bool
	stopped     bool
	lost        *int // the rank that this one says is lost
	why         string
	death       int64 // µs, when the lost rank was last heard of
	points      uint64
	alive       int64 // how often there are signs of life
}

// instant is something that takes no time.
type instant struct {
	run, rank int
	at        int64
	what      string // request, commit, giveup, error
	epoch     uint64
	text      string
}
