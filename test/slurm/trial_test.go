package slurm

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/events"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/test/cluster"
)

// trial is one job under which nodes die.
type trial struct {
	MPI        int      `json:"mpi"`
	Kind       string   `json:"kind"`  // of death: power, crash, procs, cut or freeze
	Ranks      []int    `json:"ranks"` // whose nodes die, all at one moment
	Aim        string   `json:"aim"`   // the phase of the first of them that is waited for, a key of aims
	Skip       int      `json:"skip"`  // so many times that the phase passes before
	Delay      int      `json:"delay"` // ms from the event to the death
	Redundancy string   `json:"redundancy"`
	Local      bool     `json:"local"`  // no global directory
	Spares     int      `json:"spares"` // beyond the four nodes of the program
	Head       bool     `json:"head"`   // holdfast run is on the head (salloc), no node of the job is special
	Heal       bool     `json:"heal"`   // the nodes come back while the program computes again
	Batch      bool     `json:"batch"`  // the node of the batch script is among those that die: the job is requeued
	Closes     bool     `json:"closes"` // the program calls Close, not Abort, when Restore fails
	Hog        bool     `json:"hog"`    // programs that do nothing but compute run beside it
	flags      []string // more of holdfast run's
	struck     time.Time
	job        *job     // from its directories on
	died       []string // nodes
	slurmSaid  int      // bytes in slurmctld's log before it

	// What came of it.
	Hit   string `json:"hit"`   // what the rank was doing when it died
	Safe  int    `json:"safe"`  // newest epoch that the log had called committed where it survives the death
	Epoch int    `json:"epoch"` // restored
	// seconds from the newest death to holdfast run's first word of it; 0 = none, as where its own
	// node died
	Notice float64   `json:"notice"`
	Split  []float64 `json:"split"`  // seconds from death to computing: notice, relaunch, fetch, restore
	Passed bool      `json:"passed"` // the result was right
	// what the logs say of a trial that has failed for reasons of the machine's or Slurm's; "" otherwise
	Machine string `json:"machine,omitempty"`
}

const ranksOf = 4 // every trial

// loaded is a program that is nearly always in some phase of a checkpoint, of 3 MB
// a rank, whose copying to global takes a tenth of a second. It stays in its middle
// until the deaths have come.
var loaded = []string{"-shape", "stencil", "-steps", "40", "-pace", "5ms", "-size", "400000"}

var loadedEnv = []string{"HOLDFAST_INTERVAL=100ms", "HOLDFAST_FLUSH_RATE=30M", "HOLDFAST_CUT_TIMEOUT=20s",
	"GOTRACEBACK=crash"}

// aims are the events of a rank's log by which a phase is recognised as it
// begins.
var aims = map[string]func(e *events.Event) bool{
	"compute":    func(e *events.Event) bool { return e.Name == events.Resume },
	"agree":      func(e *events.Event) bool { return e.Name == events.Arm },
	"capture":    func(e *events.Event) bool { return e.Name == events.Capture && e.Begin },
	"write":      func(e *events.Event) bool { return e.Name == events.Write && e.Begin },
	"vote":       func(e *events.Event) bool { return e.Name == events.Vote && e.Begin },
	"manifest":   func(e *events.Event) bool { return e.Name == events.Vote && !e.Begin && e.What == "put" },
	"redundancy": func(e *events.Event) bool { return e.Name == events.Redundancy && e.Begin },
	"flush":      func(e *events.Event) bool { return e.Name == events.Flush && e.Begin },
	"restore":    func(e *events.Event) bool { return e.Name == events.Restore && e.Begin },
	atNext:       func(e *events.Event) bool { return e.Name == events.Arm },
}

// Two phases have no event: a start, the first or the one after a death, before its ranks
// have come to Open. One is the first checkpoint after a restart: a death twice in a row.
const (
	atStart   = "start"
	atRestart = "restart"
	atNext    = "next"
)

// second reports whether the last of the ranks dies after the first one's death.
func (tr *trial) second() bool {
	return tr.Aim == "restore" || tr.Aim == atRestart || tr.Aim == atNext
}

// closes reports whether the death closes connections: nothing of the others has to wait in
// vain for an answer. A node whose processes alone die before the program has begun on it has
// none to close. The node of the batch script takes holdfast run with it, which would say so.
func (tr *trial) closes() bool {
	early := tr.Aim == atStart || tr.Aim == atRestart
	return !tr.Batch && (tr.Kind == "crash" || tr.Kind == "procs" && !early)
}

// phases is the order of the table.
var phases = []string{atStart, atRestart, "compute", "agree", "capture", "write", "vote", "manifest", "redundancy",
	"flush", "restore", atNext}

var (
	started  = regexp.MustCompile(`start (\d+): srun.* -w (\S+)`)
	accounts = regexp.MustCompile(
		`computing again .*notice ([\d.]+), relaunch ([\d.]+), fetch ([\d.]+), restore ([\d.]+); (?:epoch (\d+))?`)
	unfit   = regexp.MustCompile(`SIGSEGV|SIGBUS|fatal error:|^panic:`)
	firsts  = regexp.MustCompile(`computing on .*: restored epoch (\d+)`) // after a requeue
	refused = regexp.MustCompile(`giving up: .*`)
	// Slurm has ended the job, which was not requeued before
	timeUp = regexp.MustCompile(`(?m)^.*(?:\*\*\* JOB .* DUE TO TIME LIMIT|has exceeded its time limit).*`)
)

// nodesOf returns the nodes of a start, by rank.
func (j *job) nodesOf(t *testing.T, start int) []string {
	t.Helper()
	for _, m := range started.FindAllStringSubmatch(j.log(), -1) {
		if m[1] == strconv.Itoa(start) {
			nodes, err := slurm.ExpandNodes(m[2])
			if err != nil {
				t.Fatalf("%v in %s", err, m[0])
			}
			return nodes
		}
	}
	return nil
}

// newestStart returns the number of the start that the log tells of last.
func (j *job) newestStart() (n int) {
	for _, m := range started.FindAllStringSubmatch(j.log(), -1) {
		n, _ = strconv.Atoi(m[1]) // digits by the pattern
	}
	return n
}

// rested waits until so many nodes can be used.
func (b *bed) rested(t *testing.T, nodes int) {
	t.Helper()
	var states string
	poll(t, fmt.Sprint(nodes, " idle nodes"), nil, func() string { return states }, func() bool {
		states = b.undrain(t)
		return strings.Count(states, " idle\n") >= nodes
	})
}

// undrain lets Slurm use the nodes that it has drained because processes could not be killed
// in time: on nodes that were frozen or cut off, or on a busy machine. It returns how all
// nodes stand.
func (b *bed) undrain(t *testing.T) (states string) {
	t.Helper()
	states = b.Run(t, "sinfo", "-h", "-N", "-p", "main", "-o", "%N %T")
	for line := range strings.Lines(states) {
		if node, state, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(state, "drain") {
			_, _ = b.Try(t, "scontrol", "update", "NodeName="+node, "State=RESUME") // it may have come back by itself
		}
	}
	return states
}

// launch starts the job of a trial and waits for its first start.
func (b *bed) launch(t *testing.T, tr *trial, name string) *job {
	t.Helper()
	j := b.newJob(t, tr.MPI, name, loaded, ranksOf)
	tr.job, tr.slurmSaid = j, len(b.slurmLog(t))
	vars := append([]string{"HOLDFAST_LOCAL=" + j.local, "HOLDFAST_REDUNDANCY=" + tr.Redundancy}, loadedEnv...)
	if !tr.Local {
		vars = append(vars, "HOLDFAST_GLOBAL="+j.there+"/ckpt")
	}
	line := append([]string{b.bin + "/holdfast", "run", "--start-timeout", startTimeout, "--wait-nodes", "20s",
		"--begin-anew", "1h", "--spares", strconv.Itoa(tr.Spares)}, tr.flags...)
	if tr.Batch {
		line = append(line, "--requeue")
	}
	line = append(append(line, "--"), b.srunLine(tr.MPI, ranksOf, []string{"--export=ALL," + strings.Join(yields, ",")},
		append(append([]string{}, loaded...), "-result", j.there+"/result", "-hold", j.there+"/go")...)...)
	if tr.Closes {
		line = append(line, "-closes")
	}
	b.rested(t, ranksOf+tr.Spares)
	nodes := fmt.Sprint("-N", ranksOf+tr.Spares)
	if tr.Head {
		b.start(t, vars, "bash", "-c", "exec salloc "+nodes+" --no-kill -t 10 -J "+name+" "+strings.Join(line, " ")+
			" > "+j.there+"/log 2>&1")
	} else {
		j.sbatch(t, "#!/bin/bash\nulimit -c unlimited\nexec "+strings.Join(line, " ")+"\n",
			[]string{nodes, "--no-kill", "--requeue", "-t", "10"}, vars, nil)
	}
	j.says(t, "start 1", 1)
	return j
}

// strike lets the nodes of ranks die in a start when the phase that is aimed at has begun. If that start ends before,
// it is the next one that is struck, and returned.
func (j *job) strike(t *testing.T, tr *trial, start int, ranks []int, aim string) (struck int) {
	t.Helper()
	j.says(t, fmt.Sprintf("start %d: ", start), 1)
	nodes := j.nodesOf(t, start)
	var die []string
	for _, r := range ranks {
		die = append(die, nodes[r])
	}
	s := j.Aim(t, tr.Kind, die...)
	begins := aims[aim]
	if begins == nil {
		j.hit(t, tr, s, die, start, nil)
		return start
	}
	l, seen := j.logOf(tr, ranks[0], nodes), 0
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(hard); seen <= tr.Skip; <-tick.C {
		for _, e := range l.more() {
			if begins(&e) {
				seen++
			}
		}
		if over(j.log()) || time.Now().After(end) {
			break
		}
		if n := j.newestStart(); n > start { // a rank that got no core was taken for lost
			start, seen = n, 0
			l = j.logOf(tr, ranks[0], j.nodesOf(t, start))
			l.after = l.newest()
		}
	}
	j.struck = max(l.run, l.after)
	j.hit(t, tr, s, die, start, l)
	return start
}

// hit lets nodes die after the delay of a trial. l is the log of the first of the ranks, nil
// before Open.
func (j *job) hit(t *testing.T, tr *trial, s *cluster.Strike, die []string, start int, l *tail) {
	t.Helper()
	pause := time.NewTimer(time.Duration(tr.Delay) * time.Millisecond)
	<-pause.C
	log, at := j.log(), time.Now()
	if err := s.Hit(); err != nil {
		t.Error(err)
	}
	tr.Hit, tr.struck, tr.died = tr.Aim, at, append(tr.died, die...)
	if l != nil {
		tr.Hit = l.doing(at)
	}
	if tr.Aim == atNext {
		tr.Hit = atNext + "+" + tr.Hit
	}
	tr.Safe = tr.surviving(log)
	t.Logf("%s of %v, aimed at %s, hit %s; epoch %d must survive", tr.Kind, die, tr.Aim, tr.Hit, tr.Safe)
	if tr.Heal && start == 1 {
		poll(t, "computing again", nil, j.log, func() bool { return accounts.MatchString(j.log()) || over(j.log()) })
		j.bring(t, tr.Kind, die)
	} else {
		t.Cleanup(func() { j.bring(t, tr.Kind, die) })
	}
}

func over(log string) bool {
	return strings.Contains(log, "the program has ended\n") || strings.Contains(log, "all ranks called Close, then") ||
		refused.MatchString(log) || timeUp.MatchString(log)
}

// bring brings nodes back. One that Slurm has drained meanwhile is not up at once;
// rested waits for what the next trial needs.
func (j *job) bring(t *testing.T, kind string, nodes []string) {
	back := map[string]string{"power": "revive", "crash": "revive", "cut": "heal", "freeze": "thaw"}[kind]
	for _, n := range nodes {
		if back == "" {
			continue
		}
		if err := j.TryVerb(back, n); err != nil {
			t.Log(err)
		}
	}
}

// surviving returns the newest epoch that the log calls committed at a level that
// survives the death.
func (tr *trial) surviving(log string) int {
	safe := newest(log, "global")
	if tr.Batch { // it may continue on other nodes
		return safe
	}
	if tr.Kind == "procs" {
		safe = max(safe, newest(log, "local"))
	}
	if len(tr.Ranks) <= tr.tolerates() {
		safe = max(safe, newest(log, "partner"), newest(log, "parity"))
	}
	return safe
}

// tolerates returns how many nodes may die at once.
func (tr *trial) tolerates() int {
	_, count, _ := strings.Cut(tr.Redundancy, ":")
	if _, p, ok := strings.Cut(count, "+"); ok {
		count = p
	}
	n, _ := strconv.Atoi(count) // none is 0
	return n
}

// try runs a trial and checks what came of it: the result of the undisturbed
// run, no older epoch restored than there had to be, no rank crashed.
func (b *bed) try(t *testing.T, tr *trial, name string) {
	if tr.Hog {
		b.hog(t)
	}
	j := b.launch(t, tr, name)
	if tr.second() { // while the program starts again, or soon after
		first := *tr
		first.Skip, first.Heal = 1, false
		struck := j.strike(t, &first, 1, tr.Ranks[:1], "flush")
		j.strike(t, tr, struck+1, tr.Ranks[1:], tr.Aim)
		tr.Safe, tr.died = first.Safe, append(tr.died, first.died...)
	} else {
		j.strike(t, tr, 1, tr.Ranks, tr.Aim)
	}
	j.proceed(t)
	j.finish(t, tr)
	tr.Passed = !t.Failed()
	if t.Failed() || testing.Verbose() {
		t.Log("\n" + j.decisions())
	}
	if t.Failed() {
		t.Log("\n" + j.log())
		state, _ := b.Try(t, "bash", "-c", "squeue -a; sinfo -N; tail -40 $TESTBED_STATE/log/slurmctld.log")
		t.Log(state)
	}
	if !tr.Head {
		_ = b.TryCommand("scancel", j.id) // it has ended, but for a step that Slurm believes in
	}
}

// finish waits for the end and compares.
func (j *job) finish(t *testing.T, tr *trial) {
	j.says(t, "holdfast run: ", 1)
	looked := time.Now()
	poll(t, "the end of the job", nil, j.log, func() bool {
		if time.Since(looked) > 5*time.Second { // a job that was requeued waits for nodes
			j.undrain(t)
			looked = time.Now()
		}
		return over(j.log())
	})
	log := j.log()
	for _, m := range accounts.FindAllStringSubmatch(log, -1) {
		tr.Split = nil
		for _, s := range m[1:5] {
			x, _ := strconv.ParseFloat(s, 64) // digits by the pattern
			tr.Split = append(tr.Split, x)
		}
		tr.Epoch, _ = strconv.Atoi(m[5]) // none is 0
	}
	if m := firsts.FindAllStringSubmatch(log, -1); tr.Batch && len(m) > 0 {
		tr.Epoch, _ = strconv.Atoi(m[len(m)-1][1]) // digits by the pattern
	}
	tr.Notice = noticed(log, tr.struck)
	if tr.closes() && tr.Notice > 5 {
		t.Errorf("the death was noticed after %.1f s, although connections closed", tr.Notice)
	}
	// Slurm's pmix plugin makes Open MPI crash in MPI_Init now and then
	// (test/cluster/README.md); the program has only to come up after it.
	// So may MPI do when others die while it starts.
	early := strings.Contains(log, "_Cfunc_hfmpi_init") || (tr.Aim == atStart || tr.Aim == atRestart) &&
		strings.Contains(log, "_Cfunc_hfmpi_")
	if bad := unfit.FindString(log); bad != "" && !early {
		t.Errorf("a rank crashed: %s", bad)
	}
	got, err := os.ReadFile(j.here + "/result")
	lost := len(tr.Ranks) > tr.tolerates() && tr.Local && tr.Safe == 0
	switch {
	case lost && refused.MatchString(log):
		if err == nil {
			t.Errorf("a result although nothing could be restored: %s", got)
		}
		t.Log(refused.FindString(log))
	case err != nil:
		t.Errorf("no result: %v", err)
	case strings.TrimSpace(string(got)) != j.want:
		t.Errorf("got %s, the undisturbed run %s", got, j.want)
	case tr.Epoch < tr.Safe:
		t.Errorf("restored epoch %d, and %d had been committed where it survives", tr.Epoch, tr.Safe)
	}
}

// cores returns the core files that ranks have left.
func (b *bed) cores() []string {
	list, _ := filepath.Glob(b.PFS() + "/core*") // the pattern is right
	return list
}

// hog takes the machine's cores away while a test runs.
func (b *bed) hog(t *testing.T) {
	t.Helper()
	for range runtime.NumCPU() {
		c := exec.Command("sh", "-c", "while :; do :; done")
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	}
}

// aimed are phases that a long test has to have, however short it is: every sixth trial is
// one that begins before Open, in the first epoch, in a flush, in the restart itself, and
// right after it; the last is anything.
var aimed = []func(tr *trial, rng *rand.Rand){
	func(tr *trial, rng *rand.Rand) { tr.Aim, tr.Delay = atStart, rng.IntN(400) },
	func(tr *trial, rng *rand.Rand) {
		if tr.Skip = 0; tr.second() {
			tr.Aim = "write"
		}
	},
	func(tr *trial, rng *rand.Rand) { tr.Aim = "flush" },
	func(tr *trial, rng *rand.Rand) { tr.Aim, tr.Delay = atRestart, rng.IntN(400) },
	func(tr *trial, rng *rand.Rand) { tr.Aim = atNext },
	func(tr *trial, rng *rand.Rand) {},
}

// random draws the i-th trial.
func random(rng *rand.Rand, i int) *trial {
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	kinds := []string{"power", "crash", "procs", "cut", "freeze"} // each in each phase, in turn
	tr := &trial{MPI: rng.IntN(len(mpis)), Kind: kinds[(i+i/len(aimed))%len(kinds)],
		Aim:        pick(phases[2 : len(phases)-1]...),
		Redundancy: pick("partner:1", "partner:1", "parity:2+1", "parity:3+1"), Spares: 1, Skip: rng.IntN(5),
		Delay: rng.IntN(12),
		Local: rng.IntN(4) == 0, Head: rng.IntN(2) == 0, Heal: rng.IntN(3) == 0, Hog: true}
	aimed[i%len(aimed)](tr, rng)
	// Where its node lives on, the end of the batch script is the end of the job.
	tr.Batch = !tr.Head && !tr.second() && rng.IntN(3) == 0 && tr.Kind != "procs"
	first := 1
	if tr.Head {
		first = 0 // the node of rank 0 runs no batch script
	}
	victims := rng.Perm(ranksOf - first)
	for i := range victims {
		victims[i] += first
	}
	if tr.Batch {
		victims = append([]int{0}, victims...)
	}
	tr.Ranks = victims[:1]
	switch {
	case tr.second():
		tr.Ranks, tr.Skip, tr.Spares, tr.Local, tr.Heal = victims[:2], 0, 2, false, false
	case rng.IntN(4) == 0: // two at once
		tr.Ranks, tr.Spares = victims[:2], 1+rng.IntN(2)
		tr.Redundancy = pick("partner:2", "parity:2+2", "partner:1")
		tr.Local = tr.Local && tr.tolerates() == 2
	}
	if tr.Aim == "flush" || tr.Aim == "manifest" {
		tr.Local = tr.Local && tr.Aim == "manifest"
	}
	if tr.Batch {
		tr.Local, tr.Heal = false, false
	}
	return tr
}

func (tr *trial) name() string {
	kind := tr.Kind
	if tr.Batch {
		kind += "-batch"
	}
	return fmt.Sprintf("%s-%s-%v-%s-%s", kind, tr.Aim, strings.Trim(fmt.Sprint(tr.Ranks), "[]"), tr.Redundancy,
		mpis[tr.MPI].name)
}
