package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/pause"
	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/spf13/cobra"
)

func newStatus() *cobra.Command {
	var o statusOptions
	processes := func(cmd *cobra.Command, args []string) error {
		if _, err := verb.Processes(args); err == nil {
			return nil
		}
		return cobra.MaximumNArgs(1)(cmd, args)
	}
	cmd := newVerb("status [DIR | PID...]", "show what a job and its ranks are doing, and which programs are paused",
		processes, func(cmd *cobra.Command, args []string) error {
			o.asJSON, o.terminal = cli.AsJSON(cmd), cli.IsTerminal(cmd.OutOrStdout())
			pids, err := verb.Processes(args)
			if err == nil && len(pids) > 0 {
				these := func(ctx context.Context) ([]pause.Program, error) { return programs(ctx, pids) }
				_, err := o.ofPrograms(cmd.Context(), cmd.OutOrStdout(), these)
				return err
			}
			dir, err := verb.Dir(cmd, args)
			if env := coordinated.FromEnv(); err != nil && env.Off() != "" {
				return err
			} else if err != nil {
				found, perr := o.ofPrograms(cmd.Context(), cmd.OutOrStdout(),
					func(ctx context.Context) ([]pause.Program, error) { return programs(ctx, nil) })
				if found {
					err = nil // without a directory only they can be asked
				}
				return errors.Join(err, perr)
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), dir)
		})
	f := cmd.Flags()
	cli.JSON(f, "write one JSON object; with --watch one each time", jobStatus{}, programsRow{})
	f.BoolVar(&o.all, "all", false, "write a line for each rank, however many there are")
	f.BoolVarP(&o.watch, "watch", "w", false, "repeat until the job ends")
	f.DurationVar(&o.every, "every", 2*time.Second, "time between two answers of --watch")
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long to wait for an answer; with --watch also for the "+
		"next start after a death")
	return cmd
}

type statusOptions struct {
	asJSON, all, watch bool
	every, timeout     time.Duration
	terminal           bool   // the screen may be cleared
	programs           lister // of the ranks that can be paused; nil: none
}

// run looks once, or until the job ends. A program that takes no checkpoints has but a holdfast run that answers.
func (o *statusOptions) run(ctx context.Context, w, notes io.Writer, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, job.RunName)); err == nil {
		o.programs = ofRun(dir)
		if _, err := job.ReadContact(dir, job.ContactName); err != nil {
			if found, err := o.ofPrograms(ctx, w, o.programs); found {
				return err
			}
		}
	}
	if o.watch {
		return o.follow(ctx, w, notes, dir)
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	c, err := job.DialJob(ctx, dir)
	if err != nil {
		return err
	}
	defer c.Close()
	st, err := c.Status(ctx)
	if err != nil {
		return err
	}
	return o.print(ctx, w, st, nil, 0)
}

// jobStatus is the state of a job, and of its ranks that can be paused.
type jobStatus struct {
	job.Status
	Programs []pause.Program `json:"programs,omitempty"` // ranks that can be paused
}

func (o *statusOptions) print(ctx context.Context, w io.Writer, st, before *job.Status, since time.Duration) error {
	var list []pause.Program
	if o.programs != nil {
		list, _ = o.programs(ctx) // no program uses a GPU, or the run has ended
	}
	if o.asJSON {
		return cli.JSONLines(w, []jobStatus{{*st, list}})
	}
	var b strings.Builder
	o.follows(&b, before != nil)
	if err := printEpochs(&b, st); err != nil {
		return err
	}
	b.WriteByte('\n')
	if err := cli.Table(&b, rankTable(st, before, since, o.all || len(st.States) <= fewRanks)); err != nil {
		return err
	}
	if len(list) > 0 {
		b.WriteByte('\n')
		if err := tellPrograms(&b, list); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// follows keeps an answer of --watch apart from the one before, if there was one.
func (o *statusOptions) follows(b *strings.Builder, before bool) {
	if o.watch && o.terminal {
		b.WriteString("\x1b[H\x1b[2J")
	} else if before {
		b.WriteByte('\n')
	}
}

func printEpochs(w io.Writer, st *job.Status) error {
	fmt.Fprintf(w, "job %s: %d ranks on %d node(s), up %s\n", st.Job, st.Ranks,
		len(slices.Compact(slices.Sorted(slices.Values(st.Nodes)))), cli.AgeText(st.Seconds))
	if st.Deadlock != "" {
		fmt.Fprintf(w, "DEADLOCK: %s\n", st.Deadlock)
	}
	if st.Watched {
		_, err := fmt.Fprintln(w, "watched by holdfast run --watch: no checkpoints are taken")
		return err
	}
	if st.Run != "" {
		fmt.Fprintln(w, st.Run)
	}
	if st.Network != "" {
		fmt.Fprintf(w, "control plane on %s\n", st.Network)
	}
	if s := daemonText(st.States); s != "" {
		fmt.Fprintln(w, s)
	}
	if st.Timing != "" {
		fmt.Fprintf(w, "checkpoints are taken by the clock: %s\n", st.Timing)
	} else {
		fmt.Fprintln(w, "checkpoints are taken only when asked for, not by the clock")
	}
	if st.Failing != "" {
		fmt.Fprintf(w, "NO CHECKPOINT: %s\n", st.Failing)
	}
	if n := st.Next; n != nil {
		what := "next checkpoint"
		if n.Final {
			what = "final checkpoint"
		}
		fmt.Fprintf(w, "%s in %s, by %s\n", what, cli.AgeText(n.Seconds), n.By)
	}
	if st.PutOff > 0 {
		fmt.Fprintf(w, "a checkpoint waits until no message is in flight: %d cut(s) not used\n", st.PutOff)
	}
	for _, level := range st.Levels {
		if v := st.Every[level]; v != "" {
			fmt.Fprintf(w, "%s takes %s\n", level, v)
		}
	}
	if s := lossText(st.Loss); s != "" {
		fmt.Fprintln(w, s)
	}
	if s := flushText(st.States); s != "" {
		fmt.Fprintln(w, s)
	}
	if len(st.Epochs) == 0 {
		_, err := fmt.Fprintln(w, "no checkpoint yet in this run")
		return err
	}
	return epochTable(w, st.Epochs)
}

func epochTable(w io.Writer, epochs []job.EpochStatus) error {
	out := [][]string{{"EPOCH", "RANK 0 SAVED", "BLOCKED", "DURABLE"}}
	var failed []string
	const most = 8
	for _, e := range epochs[max(0, len(epochs)-most):] {
		durable := ""
		if e.Error != "" {
			durable = "failed, see below"
			failed = append(failed, fmt.Sprintf("epoch %d failed: %s", e.Epoch, e.Error))
		}
		for _, level := range storage.LevelNames() {
			if s, ok := e.DurableSeconds[level]; ok {
				durable += fmt.Sprintf(" %s %.3f s", level, s)
			} else if newer := e.Skipped[level]; newer > 0 {
				durable += fmt.Sprintf(" (%s: epoch %d in its place)", level, newer)
			}
		}
		out = append(out, []string{fmt.Sprint(e.Epoch), units.Bytes(e.Bytes),
			fmt.Sprintf("%.1f ms", 1000*e.BlockedSeconds), strings.TrimSpace(durable)})
	}
	if err := cli.Table(w, out); err != nil {
		return err
	}
	for _, s := range failed {
		fmt.Fprintln(w, s)
	}
	return nil
}

// daemonText names the node daemons of a program that is not in Go.
func daemonText(ranks []job.RankStatus) string {
	var all []string
	for _, r := range ranks {
		s := fmt.Sprintf("%d on %s", r.Daemon, r.Node)
		if r.Daemon != 0 && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	const most = 8
	switch {
	case len(all) == 0:
		return ""
	case len(all) > most:
		return fmt.Sprintf("holdfast node: process %s and %d more; --json has all", strings.Join(all[:most], ", "),
			len(all)-most)
	}
	return "holdfast node: process " + strings.Join(all, ", ")
}

func lossText(l *job.LossStatus) string {
	switch {
	case l == nil:
		return ""
	case l.Epoch == 0:
		return fmt.Sprintf("if a node is lost now, the job starts over: %s are lost", cli.AgeText(l.Seconds))
	case !storage.TraitsOf(l.Level).SurvivesNode():
		return fmt.Sprintf("if a node is lost now, more than %s are lost: no newer epoch than %d is on other disks",
			cli.AgeText(l.Seconds), l.Epoch)
	}
	return fmt.Sprintf("if a node is lost now, %s are lost: epoch %d is at %s", cli.AgeText(l.Seconds), l.Epoch,
		l.Level)
}

// flushText sums up the copying to the furthest level that is under way.
func flushText(ranks []job.RankStatus) string {
	var sum job.Work
	n := 0
	for _, r := range ranks {
		for _, w := range r.Work {
			if w.What != "flush" {
				continue
			}
			if n == 0 || w.Epoch < sum.Epoch {
				sum.Epoch = w.Epoch
			}
			sum.Level, sum.Bytes, sum.Total, sum.Seconds = w.Level, sum.Bytes+w.Bytes, sum.Total+w.Total,
				max(sum.Seconds, w.Seconds)
			n++
		}
	}
	if n == 0 {
		return ""
	}
	s := fmt.Sprintf("flush of epoch %d to %s by %d rank(s), for %s: %s", sum.Epoch, sum.Level, n,
		cli.AgeText(sum.Seconds), units.Bytes(sum.Bytes))
	if sum.Total > 0 {
		s += fmt.Sprintf(" of about %s (%.0f %%)", units.Bytes(sum.Total),
			min(100, 100*float64(sum.Bytes)/float64(sum.Total)))
	}
	if sum.Seconds > 0 && sum.Bytes > 0 {
		rate := float64(sum.Bytes) / sum.Seconds
		s += fmt.Sprintf(", %s/s", units.Bytes(int64(rate)))
		if left := float64(sum.Total-sum.Bytes) / rate; left > 0 {
			s += ", about " + cli.AgeText(left) + " to go"
		}
	}
	return s
}

// fewRanks is how many get a line each without being asked for.
const fewRanks = 40

// rankTable shows the ranks' calls, a line each or one for ranks in the same call.
func rankTable(st, before *job.Status, since time.Duration, each bool) [][]string {
	if each {
		out := [][]string{{"RANK", "NODE", "STATE", "FOR", "DOING", "POINTS", "LAST EPOCH", "BEHIND"}}
		for i, r := range st.States {
			points := fmt.Sprint(r.Points)
			if before != nil && i < len(before.States) && since > 0 && r.State != "silent" {
				points += fmt.Sprintf(" (%.4g/s)", float64(r.Points-before.States[i].Points)/since.Seconds())
			}
			out = append(out, []string{fmt.Sprint(r.Rank), r.Node, r.State, cli.AgeText(r.Seconds), doingText(r),
				points, lastText(r), behindText(r.Work)})
		}
		return out
	}
	type group struct {
		ranks  []int
		first  job.RankStatus
		lo, hi uint64
		longer float64
	}
	var order []string
	groups := map[string]*group{}
	for _, r := range st.States {
		key := r.State + "\x00" + r.Call + "\x00" + r.Comm + "\x00" + r.Phase
		g := groups[key]
		if g == nil {
			g = &group{first: r, lo: r.Points}
			groups[key] = g
			order = append(order, key)
		}
		g.ranks = append(g.ranks, r.Rank)
		g.lo, g.hi, g.longer = min(g.lo, r.Points), max(g.hi, r.Points), max(g.longer, r.Seconds)
	}
	// the odd ones first
	slices.SortStableFunc(order, func(a, b string) int { return len(groups[a].ranks) - len(groups[b].ranks) })
	out := [][]string{{"RANKS", "WHICH", "STATE", "FOR UP TO", "DOING", "POINTS"}}
	for _, key := range order {
		g := groups[key]
		if len(g.ranks) > 1 {
			g.first.Waits = ""
		}
		which := cli.Ranges(g.ranks)
		if len(which) > 32 {
			which = which[:strings.LastIndex(which[:32], ",")+1] + "…"
		}
		out = append(out, []string{fmt.Sprint(len(g.ranks)), which, g.first.State, cli.AgeText(g.longer),
			doingText(g.first), fmt.Sprintf("%d-%d", g.lo, g.hi)})
	}
	return out
}

func doingText(r job.RankStatus) string {
	var parts []string
	if r.Call != "" {
		parts = append(parts, r.Call)
	}
	if r.Comm != "" {
		parts = append(parts, "on "+r.Comm)
	}
	if r.Waits != "" {
		parts = append(parts, r.Waits)
	}
	if r.Phase != "" {
		parts = append(parts, fmt.Sprintf("(epoch %d: %s)", r.Epoch, r.Phase))
	}
	return cli.Dash(strings.Join(parts, " "))
}

func lastText(r job.RankStatus) string {
	if r.Last == 0 {
		return "-"
	}
	s := fmt.Sprintf("%d", r.Last)
	switch {
	case r.Level != "":
		s += " at " + r.Level
	case r.Fault != "":
		s += " failed"
	default:
		s += " being written"
	}
	return s + fmt.Sprintf(", blocked %.1f ms", 1000*r.Cost)
}

func behindText(list []job.Work) string {
	var parts []string
	for _, w := range list {
		s := fmt.Sprintf("%s epoch %d to %s", w.What, w.Epoch, w.Level)
		if w.Total > 0 && w.Bytes > 0 {
			s += fmt.Sprintf(" %.0f %%", min(100, 100*float64(w.Bytes)/float64(w.Total)))
		}
		parts = append(parts, s)
	}
	return cli.Dash(strings.Join(parts, ", "))
}
