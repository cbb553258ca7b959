package report

import "time"

// Report is the account of a job. Durations are in seconds, times in
// microseconds since Start.
type Report struct {
	Job      string     `json:"job"`
	Program  string     `json:"program,omitempty"`
	Size     int        `json:"ranks"`
	Nodes    []string   `json:"nodes"` // of the newest run
	Levels   []string   `json:"levels"`
	Start    time.Time  `json:"start"`
	End      time.Time  `json:"end"`
	Running  bool       `json:"running"` // signs of life until now
	Runs     []Run      `json:"runs"`
	Epochs   []Epoch    `json:"epochs"`
	Ranks    []RankSums `json:"rank_sums"`
	Totals   Totals     `json:"totals"`
	Clocks   []Clock    `json:"clocks"`
	Faults   []Fault    `json:"faults"`
	Notes    []string   `json:"notes"`
	tracks   []track    // by rank and run
	instants []instant
	made     time.Time
}

// Run is one start of the job.
type Run struct {
	Number    int     `json:"run"`
	Begin     int64   `json:"begin_us"`
	End       int64   `json:"end_us"`
	Ended     string  `json:"ended"` // closed, stopped, killed, running
	Why       string  `json:"why,omitempty"`
	Within    float64 `json:"end_within_s"` // the end may be so much later than the last sign of life, End
	Restored  uint64  `json:"restored_epoch,omitempty"`
	Level     string  `json:"restored_from,omitempty"`
	Restore   float64 `json:"restore_s"` // the slowest rank's
	Startup   float64 `json:"startup_s"` // from Open to the first computing, likewise
	Dead      float64 `json:"dead_before_s"`
	Lost      float64 `json:"lost_s"`    // computing that later runs had to do again, mean of the ranks
	Noticed   float64 `json:"noticed_s"` // from the death of a rank until the others knew
	Epochs    int     `json:"epochs"`    // that were committed
	Points    uint64  `json:"points"`    // of rank 0
	Taken     string  `json:"checkpoints_taken,omitempty"`
	Logs      int     `json:"logs"` // ranks that left a log
	Size      int     `json:"ranks"`
	began     bool    // to compute: a rank came to the end of Restore
	truncated bool    // is how it began: the logs have grown too long
	death     int64   // µs, when a rank was last heard of that was lost; math.MaxInt64 if none was
}

// Epoch is one checkpoint that was tried.
type Epoch struct {
	Run       int                  `json:"run"`
	Epoch     uint64               `json:"epoch"`
	Stop      bool                 `json:"stop,omitempty"`
	By        string               `json:"requested_by,omitempty"`
	ByRank    int                  `json:"requested_at_rank"`
	Begin     int64                `json:"begin_us"` // the request, or the first that heard of it
	Cut       int64                `json:"cut_us"`   // the last rank's cut
	Over      int64                `json:"over_us"`  // the last thing that happened
	ToCut     float64              `json:"request_to_cut_s"`
	Park      RankTimes            `json:"park_s"`
	Drain     RankTimes            `json:"drain_s"`
	Capture   RankTimes            `json:"capture_s"`
	Blocked   RankTimes            `json:"blocked_s"`
	Write     RankTimes            `json:"write_s"`
	Vote      float64              `json:"vote_s"` // of the last voter
	Flush     map[string]RankTimes `json:"flush_s"`
	Durable   map[string]float64   `json:"durable_s"` // by level, from the cut to the commit
	Bytes     int64                `json:"bytes"`     // protected, all ranks
	Stored    map[string]int64     `json:"stored"`    // by level, all ranks
	LastIn    int                  `json:"last_to_arrive"`
	Messages  int                  `json:"messages_drained"`
	Rounds    int                  `json:"rounds"`
	Releases  int                  `json:"releases"` // of all ranks
	Fault     string               `json:"fault,omitempty"`
	Completed int                  `json:"completed_by_run,omitempty"` // a later start, which found it whole
	ranks     map[int]bool         // that captured
	seen      map[string]*gathered // samples by what
	written   map[string]int64     // by level, bytes of state, however often
	committed map[string]int       // by level, ranks that saw it
	putOff    bool                 // its cut was not used
}

// RankTimes sums up what the ranks needed, in seconds.
type RankTimes struct {
	Min     float64 `json:"min"`
	Median  float64 `json:"median"`
	Max     float64 `json:"max"`
	Slowest int     `json:"slowest_rank"`
	Ranks   int     `json:"ranks"`
}

// RankSums says what one rank did in all runs, in seconds.
type RankSums struct {
	Rank      int     `json:"rank"`
	Node      string  `json:"node"`
	Computing float64 `json:"computing_s"`
	Stopped   float64 `json:"stopped_s"`
	Longest   float64 `json:"longest_stop_s"`
	Starting  float64 `json:"starting_s"`
	Writing   float64 `json:"writing_s"` // in the background
	Bytes     int64   `json:"bytes"`
	LastIn    int     `json:"last_to_arrive"` // times that the others waited for it
}

// Totals is where the time went: seconds of wall time, the mean of the ranks
// where they differ. The parts add up to Wall.
type Totals struct {
	Wall      float64 `json:"wall_s"`
	Computing float64 `json:"computing_s"` // and kept
	Lost      float64 `json:"lost_s"`      // computed, and had to be done again
	Noticing  float64 `json:"noticing_s"`  // a rank was dead, and the others did not know
	Stopped   float64 `json:"stopped_s"`   // by checkpoints
	Starting  float64 `json:"starting_s"`  // opening and restoring
	Ending    float64 `json:"ending_s"`    // after the program's last step
	Dead      float64 `json:"dead_s"`      // between two runs
	Overhead  float64 `json:"overhead"`    // stopped / (computing + lost)
	Committed int     `json:"epochs_committed"`
	Failed    int     `json:"epochs_failed"`
}

// Clock is how far the clock of a node was from that of rank 0's node in a run.
type Clock struct {
	Run    int     `json:"run"`
	Node   string  `json:"node"`
	Offset float64 `json:"offset_s"` // taken off its times; 0 where nothing shows that the clocks differ
	Low    float64 `json:"low_s"`    // bounds that the common events prove
	High   float64 `json:"high_s"`
}

// Fault is something that went wrong.
type Fault struct {
	Run   int    `json:"run"`
	At    int64  `json:"at_us"`
	Rank  int    `json:"rank"`
	Epoch uint64 `json:"epoch,omitempty"`
	What  string `json:"what"`
	Text  string `json:"text"`
	Ranks int    `json:"ranks"` // that say the same
}

// kind is what a stretch of a track is.
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
	held     // still stopped: what was captured is written first
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

// stretch is a piece of a track.
type stretch struct {
	kind     kind
	from, to int64 // µs
	epoch    uint64
	bytes    int64
	level    string
	open     bool // it was never seen to end
	text     string
}

// track has what one rank did in one run.
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
