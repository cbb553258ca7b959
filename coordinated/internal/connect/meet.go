package connect

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/outcome"
	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
)

// OpenWait is how many times wait_timeout all ranks may take to come to Open: a program
// may read its input before.
const OpenWait = 10

// hereTag is the tag of the messages of the ranks that wait in Open for the others.
const hereTag = 7

// NotAll returns the error of an Open that not all ranks have called in time. The missing ones are those that rank 0
// knows; nil on other ranks.
func NotAll(waited time.Duration, missing []int) error {
	who := "at least one has not (rank 0 says which, unless it is missing itself)"
	if len(missing) > 0 {
		who = "rank(s) " + outcome.Ranks(missing) + " have not"
	}
	return fmt.Errorf("open the checkpoints: every rank must call Open (hf_init), but after %v %s; see what they do, "+
		"or raise wait_timeout (Open waits %d times as long)", waited, who, OpenWait)
}

// meet waits until all ranks have come to Open, for at most limit. There is no control plane yet: ranks that wait
// report to rank 0, which names the missing ones.
func meet(priv *mpiwrap.Comm, limit time.Duration, log *slog.Logger) error {
	all, err := priv.Ibarrier()
	if err != nil {
		return fmt.Errorf("wait for all ranks in Open: %w", err)
	}
	start := time.Now()
	here := make([]bool, priv.Size())
	here[priv.Rank()] = true
	reported, pause := false, sleep.Backoff{First: 20 * time.Microsecond, Longest: 5 * time.Millisecond}
	for {
		if _, done, err := all.Test(); done || err != nil {
			return err
		}
		waited := time.Since(start)
		if waited > limit/(4*OpenWait) {
			if err := gatherHere(priv, here, reported); err != nil {
				return err
			}
			reported = true
		}
		if waited > limit/OpenWait && priv.Rank() == 0 && log != nil {
			log.Warn("holdfast: Open waits for other ranks", "missing", outcome.Ranks(missing(here)), "waited",
				waited.Round(time.Second), "ends after", limit)
			log = nil
		}
		if waited > limit {
			if priv.Rank() > 0 {
				return NotAll(limit, nil)
			}
			return NotAll(limit, missing(here))
		}
		time.Sleep(pause.Next())
	}
}

// gatherHere reports once to rank 0 that this rank is here; rank 0 receives the reports.
func gatherHere(priv *mpiwrap.Comm, here []bool, reported bool) error {
	if priv.Rank() > 0 {
		if reported {
			return nil
		}
		r, err := mpiwrap.Isend(priv, []byte{1}, 0, hereTag)
		if err == nil {
			_, _, err = r.Test() // it is short: MPI has taken it
		}
		return err
	}
	for {
		st, there, err := priv.Iprobe(mpiwrap.AnySource, hereTag)
		if err != nil || !there {
			return err
		}
		if _, err := mpiwrap.Recv(priv, []byte{0}, st.Source, hereTag); err != nil {
			return err
		}
		here[st.Source] = true
	}
}

func missing(here []bool) []int {
	var out []int
	for r, h := range here {
		if !h {
			out = append(out, r)
		}
	}
	return out
}
