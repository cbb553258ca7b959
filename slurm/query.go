package slurm

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// JobInfo is the controller's description of a job.
type JobInfo struct {
	State      string // RUNNING, PENDING, COMPLETED, ...
	Partition  string
	MayRequeue bool
	Restarts   int           // how often it was requeued
	Start, End time.Time     // End is zero without a time limit, and when the job was ended if it was
	Limit      time.Duration // 0 = none
	Preempted  time.Time     // zero if it is not being preempted
	Nodes      []string      // that it holds now: dead ones are gone from a job with --no-kill
}

// WhyNoRequeue returns the reason why a job that must stop is not to be put back into the queue: it was cancelled, or
// Slurm requeues it by itself, in a preemption or after scontrol requeue. It is empty if the job is to be requeued, as
// at the time limit. restarts is the number of earlier requeues when the job started. While processes of the job are
// left, Slurm calls it COMPLETING and does not give the reason of its end.
func (j *JobInfo) WhyNoRequeue(restarts int) string {
	switch {
	case j.State == "COMPLETING" && j.Restarts <= restarts && (j.Limit == 0 || j.End.Before(j.Start.Add(j.Limit))):
		return "the job was cancelled, or Slurm requeues it by itself, so it is not requeued"
	case strings.HasPrefix(j.State, "CANCELLED"):
		return "the job was cancelled, so it is not requeued"
	case j.State == "PREEMPTED" || j.State == "EXPEDITING" || j.State == "REQUEUED" || j.State == "PENDING" ||
		j.Restarts > restarts:
		return "Slurm requeues the job by itself (" + j.State + ")"
	}
	return ""
}

func errParse(command, field, value string, err error) error {
	return fmt.Errorf("slurm: output of %s: %s=%q: %w", command, field, value, err)
}

// ShowJob returns the controller's description of a job (scontrol show job). Unknown reports whether its error means
// that Slurm has forgotten the job.
func (c *Client) ShowJob(ctx context.Context, id string) (JobInfo, error) {
	out, err := c.ask(ctx, "scontrol", "show", "job", id)
	if err != nil {
		return JobInfo{}, err
	}
	return parseJob(out)
}

func parseJob(out string) (JobInfo, error) {
	f := fields(out)
	j := JobInfo{State: f["JobState"], Partition: f["Partition"],
		MayRequeue: f["Requeue"] != "" && f["Requeue"] != "0"}
	fail := func(field string, err error) (JobInfo, error) {
		return JobInfo{}, errParse("scontrol show job", field, f[field], err)
	}
	if j.State == "" {
		return fail("JobState", fmt.Errorf("missing"))
	}
	var err error
	if j.Restarts, err = strconv.Atoi(f["Restarts"]); err != nil {
		return fail("Restarts", err)
	}
	if j.Nodes, err = ExpandNodes(f["NodeList"]); err != nil {
		return fail("NodeList", err)
	}
	if j.Start, err = parseTime(f["StartTime"]); err != nil {
		return fail("StartTime", err)
	}
	if j.End, err = parseTime(f["EndTime"]); err != nil {
		return fail("EndTime", err)
	}
	if j.Limit, err = parseLimit(f["TimeLimit"]); err != nil {
		return fail("TimeLimit", err)
	}
	if j.Preempted, err = parseTime(f["PreemptTime"]); err != nil {
		return fail("PreemptTime", err)
	}
	return j, nil
}

// fields reads words of the form Name=value.
func fields(out string) map[string]string {
	f := map[string]string{}
	for word := range strings.FieldsSeq(out) {
		if name, value, ok := strings.Cut(word, "="); ok && f[name] == "" {
			f[name] = value
		}
	}
	return f
}

// parseTime reads a time of this machine's zone; none is the zero time.
func parseTime(s string) (time.Time, error) {
	switch s {
	case "", "Unknown", "N/A", "None", "NONE":
		return time.Time{}, nil
	}
	return time.ParseInLocation("2006-01-02T15:04:05", s, time.Local)
}

// parseLimit reads D-HH:MM:SS or HH:MM:SS; no limit is 0.
func parseLimit(s string) (time.Duration, error) {
	if s == "" || s == "UNLIMITED" || s == "Partition_Limit" {
		return 0, nil
	}
	var d, h, m, sec time.Duration
	form, into := "%d-%d:%d:%d", []any{&d, &h, &m, &sec}
	if !strings.Contains(s, "-") {
		form, into = form[3:], into[1:]
	}
	if _, err := fmt.Sscanf(s, form, into...); err != nil {
		return 0, err
	}
	return (24*d+h)*time.Hour + m*time.Minute + sec*time.Second, nil
}

// Deadline returns the time at which a job will be ended, by SLURM_JOB_END_TIME or else by the controller. It is zero
// for a job without a time limit. The limit of a running job can be changed; its environment then has the old one. It
// runs no command if the environment has the time.
func (c *Client) Deadline(ctx context.Context, id string) (time.Time, error) {
	if s := os.Getenv("SLURM_JOB_END_TIME"); s != "" && id == os.Getenv("SLURM_JOB_ID") {
		end, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return time.Time{}, errEnv("SLURM_JOB_END_TIME", s, err)
		}
		return time.Unix(end, 0), nil
	}
	j, err := c.ShowJob(ctx, id)
	return j.End, err
}

// Config is the part of the site's configuration that concerns jobs with checkpoints.
type Config struct {
	KillWait   time.Duration // from TERM to KILL
	SlurmdPort int           // TCP port of slurmd; the first, if there is a range
}

// Config returns the site's configuration (scontrol show config). A value that cannot be read is zero, and an error.
func (c *Client) Config(ctx context.Context) (Config, error) {
	out, err := c.ask(ctx, "scontrol", "show", "config")
	if err != nil {
		return Config{}, err
	}
	return parseConfig(out)
}

func parseConfig(out string) (Config, error) {
	f := map[string]string{}
	for line := range strings.SplitSeq(out, "\n") {
		if name, value, ok := strings.Cut(line, "="); ok {
			f[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	var k Config
	var err error
	wait, _, _ := strings.Cut(f["KillWait"], " ")
	seconds, perr := strconv.ParseUint(wait, 10, 31)
	if perr != nil {
		err = errParse("scontrol show config", "KillWait", f["KillWait"], perr)
	}
	k.KillWait = time.Duration(seconds) * time.Second
	port, _, _ := strings.Cut(f["SlurmdPort"], "-") // may be a range
	n, perr := strconv.ParseUint(port, 10, 16)
	if perr != nil {
		err = errParse("scontrol show config", "SlurmdPort", f["SlurmdPort"], perr)
	}
	k.SlurmdPort = int(n)
	return k, err
}

// GraceTime returns the time that jobs of a partition have from being preempted to their end (scontrol show partition).
func (c *Client) GraceTime(ctx context.Context, partition string) (time.Duration, error) {
	out, err := c.ask(ctx, "scontrol", "show", "partition", partition)
	if err != nil {
		return 0, err
	}
	s := fields(out)["GraceTime"]
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return 0, errParse("scontrol show partition", "GraceTime", s, err)
	}
	return time.Duration(n) * time.Second, nil
}

// Warning is a signal that a job is to get before its end, --signal of sbatch.
type Warning struct {
	Signal string        // without SIG: "USR1"
	Batch  bool          // to the batch shell, not to the steps
	Lead   time.Duration // from the signal to the end of the job
}

// ScriptWarning returns the last --signal among the #SBATCH lines of a job's script (scontrol write batch_script), or
// false if there is none. Slurm does not report a --signal of the command line.
func (c *Client) ScriptWarning(ctx context.Context, id string) (Warning, bool, error) {
	out, err := c.ask(ctx, "scontrol", "write", "batch_script", id, "-")
	if err != nil {
		return Warning{}, false, err
	}
	w, ok := scriptWarning(out)
	return w, ok, nil
}

func scriptWarning(script string) (w Warning, found bool) {
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			return w, found // sbatch reads no further
		}
		rest, ok := strings.CutPrefix(line, "#SBATCH")
		if !ok {
			continue
		}
		words := strings.Fields(rest)
		for i, word := range words {
			value, ok := strings.CutPrefix(word, "--signal=")
			if word == "--signal" && i+1 < len(words) {
				value, ok = words[i+1], true
			}
			if parsed, good := ParseWarning(value); ok && good {
				w, found = parsed, true
			}
		}
	}
	return w, found
}

// defaultLead is Slurm's time when --signal names none.
const defaultLead = 60 * time.Second

// ParseWarning reads the value of --signal: [{R|B}:]SIGNAL[@SECONDS]. Without seconds Lead is Slurm's 60 s. It returns
// false for a value that it does not understand.
func ParseWarning(s string) (Warning, bool) {
	w := Warning{Lead: defaultLead}
	if flags, rest, ok := strings.Cut(s, ":"); ok {
		w.Batch = strings.Contains(strings.ToUpper(flags), "B")
		s = rest
	}
	name, lead, ok := strings.Cut(s, "@")
	if ok {
		n, err := strconv.ParseUint(lead, 10, 16)
		if err != nil {
			return Warning{}, false
		}
		w.Lead = time.Duration(n) * time.Second
	}
	w.Signal = strings.TrimPrefix(strings.ToUpper(name), "SIG")
	switch w.Signal {
	case "":
		return Warning{}, false
	case "10":
		w.Signal = "USR1"
	case "12":
		w.Signal = "USR2"
	case "15":
		w.Signal = "TERM"
	}
	return w, true
}

// Step is a step of a job.
type Step struct{ ID, Name string }

// Steps lists the steps of a job that Slurm believes to run (squeue), without those that sbatch and salloc make by
// themselves.
func (c *Client) Steps(ctx context.Context, id string) ([]Step, error) {
	out, err := c.ask(ctx, "squeue", "-h", "-s", "-j", id, "-o", "%i %j")
	if err != nil {
		return nil, err
	}
	var steps []Step
	for line := range strings.Lines(out) {
		step, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, number, ok := strings.Cut(step, "."); ok && strings.Trim(number, "0123456789") == "" {
			steps = append(steps, Step{step, name})
		}
	}
	return steps, nil
}
