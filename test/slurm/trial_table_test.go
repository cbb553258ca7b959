package slurm

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

var notices = regexp.MustCompile(
	`holdfast run: (\S+) (?:.* is lost|node .* is no longer used|a spare node replaces node|ending start)`)

// noticed returns how long after a death the log tells of it first; 0 if it does not.
func noticed(log string, struck time.Time) float64 {
	for _, m := range notices.FindAllStringSubmatch(log, -1) {
		clock, err := time.ParseInLocation("2006-01-02 15:04:05.000", struck.Format("2006-01-02 ")+m[1], time.Local)
		if d := clock.Sub(struck); err == nil && d > 0 {
			return d.Seconds()
		}
	}
	return 0
}

// record appends a trial to a file that pieces of the long test share.
func (tr *trial) record(file string) error {
	line, err := json.Marshal(tr)
	if err != nil || file == "" {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// table prints what came of trials: by kind, phase and MPI.
func table(list []trial) string {
	type key struct{ kind, phase, mpi string }
	type row struct {
		tried, passed, hit int
		times              [][]float64
	}
	rows := map[key]*row{}
	var keys []key
	for _, tr := range list {
		kind := tr.Kind
		if len(tr.Ranks) > 1 && !tr.second() {
			kind += " x2"
		}
		if tr.Batch {
			kind += " batch"
		}
		k := key{kind, tr.Aim, mpis[tr.MPI].name}
		if rows[k] == nil {
			rows[k] = &row{}
			keys = append(keys, k)
		}
		r := rows[k]
		r.tried++
		if tr.Passed {
			r.passed++
		}
		if strings.Contains(tr.Hit, tr.Aim) {
			r.hit++
		}
		if len(tr.Split) == 4 {
			r.times = append(r.times, tr.Split)
		}
	}
	slices.SortFunc(keys, func(a, b key) int {
		if c := strings.Compare(a.kind, b.kind); c != 0 {
			return c
		}
		if c := slices.Index(phases, a.phase) - slices.Index(phases, b.phase); c != 0 {
			return c
		}
		return strings.Compare(a.mpi, b.mpi)
	})
	var b strings.Builder
	fmt.Fprintf(&b, "%-15s %-10s %-8s %5s %6s %6s  %s\n", "death", "phase", "MPI", "tried", "passed", "in it",
		"median s: notice relaunch fetch restore = all (worst)")
	var every [][]float64
	for _, k := range keys {
		r := rows[k]
		every = append(every, r.times...)
		fmt.Fprintf(&b, "%-15s %-10s %-8s %5d %6d %6d  %s\n", k.kind, k.phase, k.mpi, r.tried, r.passed, r.hit,
			medians(r.times))
	}
	passed, machine := 0, 0
	for _, tr := range list {
		if tr.Passed {
			passed++
		} else if tr.Machine != "" {
			machine++
			fmt.Fprintf(&b, "not Holdfast's: %s: %s\n", tr.name(), tr.Machine)
		}
	}
	fmt.Fprintf(&b, "%d tried, %d passed, %d failed by the machine alone, %d otherwise; %s\n", len(list), passed,
		machine, len(list)-passed-machine, medians(every))
	b.WriteString(noticeTable(list))
	return b.String()
}

// noticeTable lists the times until a death was reported, with and without closed connections.
func noticeTable(list []trial) string {
	var b strings.Builder
	for _, closes := range []bool{true, false} {
		var took []float64
		worst, own := trial{}, 0
		for _, tr := range list {
			switch {
			case tr.closes() != closes:
			case tr.Batch || tr.Notice == 0: // its guards have requeued the job
				own++
			default:
				took = append(took, tr.Notice)
				if tr.Notice > worst.Notice {
					worst = tr
				}
			}
		}
		what := map[bool]string{true: "where connections close", false: "where nothing closes"}[closes]
		fmt.Fprintf(&b, "noticed %s: ", what)
		if len(took) > 0 {
			slices.Sort(took)
			fmt.Fprintf(&b, "median %.2f s, worst %.2f s (%s) of %d; ", took[len(took)/2], worst.Notice, worst.name(),
				len(took))
		}
		fmt.Fprintf(&b, "in %d others the node of holdfast run died, or nothing was there yet to die\n", own)
	}
	return b.String()
}

func medians(times [][]float64) string {
	if len(times) == 0 {
		return "-"
	}
	col := make([][]float64, 5)
	for _, t := range times {
		sum := 0.0
		for i, x := range t {
			col[i] = append(col[i], x)
			sum += x
		}
		col[4] = append(col[4], sum)
	}
	var out []any
	for _, c := range col {
		slices.Sort(c)
		out = append(out, c[len(c)/2])
	}
	return fmt.Sprintf("%.2f %.2f %.2f %.2f = %.2f (%.2f)", append(out, col[4][len(col[4])-1])...)
}
