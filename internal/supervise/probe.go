package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/sleep"
	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// limits of a probe: of the connection, and of a step that does nothing.
type limits struct{ connect, step time.Duration }

// limitsOf returns the limits of all probes of a node together. Only nodes that do not answer need
// the time; patiently, a step may also be slow to start.
func limitsOf(c *decide.Config, patiently bool) limits {
	all := decide.Probes * c.ProbeTime()
	if patiently {
		return limits{all, max(all, 6*time.Second)}
	}
	return limits{all, all}
}

// faultsOf runs probe for some nodes, 64 at a time, and returns their faults.
func faultsOf(nodes []string, probe func(node string) string) map[string]string {
	var mu sync.Mutex
	var wg sync.WaitGroup
	faults, slots := map[string]string{}, make(chan struct{}, 64)
	for _, n := range nodes {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if why := probe(n); why != "" {
				mu.Lock()
				defer mu.Unlock()
				faults[n] = why
			}
		})
	}
	wg.Wait()
	return faults
}

// examine finds out which nodes are dead, and why.
func (s *setup) examine(ctx context.Context, a decide.Examine) map[string]string {
	lim := limitsOf(&s.cfg, a.Patient)
	known, rest := map[string]string{}, s.cfg.Nodes
	if s.cfg.Job != nil {
		known = s.bySlurm(ctx)
	}
	rest = slices.DeleteFunc(slices.Clone(rest), func(n string) bool {
		if known[n] == "" && slices.Contains(a.Silent, n) {
			known[n] = "has fallen silent"
		}
		return known[n] != ""
	})
	faults := faultsOf(rest, func(n string) string {
		return s.probe(ctx, n, slices.Contains(a.Closely, n) || slices.Contains(a.Dead, n), lim)
	})
	for n, why := range known {
		faults[n] = why
	}
	s.blameNone(ctx, faults, a.Dead, lim)
	return faults
}

// bySlurm returns the faults of nodes that Slurm reports.
func (s *setup) bySlurm(ctx context.Context) map[string]string {
	held, quick := s.cfg.Nodes, slurm.Client{Timeout: 2 * time.Second}
	var states []slurm.NodeState
	var wg sync.WaitGroup
	wg.Go(func() {
		if info, err := quick.ShowJob(ctx, s.cfg.Job.ID); err == nil && len(info.Nodes) > 0 {
			held = info.Nodes
		}
	})
	wg.Go(func() {
		var err error
		if states, err = quick.NodeStates(ctx, s.cfg.Nodes); err != nil {
			s.log.say("warning: %v", err)
		}
	})
	wg.Wait()
	faults := map[string]string{}
	for _, st := range states {
		switch {
		case st.Usable():
		case !st.Responding:
			faults[st.Name] = "does not answer Slurm"
		default:
			faults[st.Name] = strings.TrimSpace("is " + st.State + " " + st.Reason)
		}
	}
	for _, n := range s.cfg.Nodes {
		if !slices.Contains(held, n) {
			faults[n] = "is no longer part of the job"
		}
	}
	return faults
}

// startsNothing begins the fault of a node on which a step fails.
const startsNothing = "starts nothing"

// blameNone clears nodes on which no step starts if none does on a node that lives either, that
// of this command for one: then it is Slurm, not they.
func (s *setup) blameNone(ctx context.Context, faults map[string]string, dead []string, lim limits) {
	blamed := func(n string) bool { return strings.HasPrefix(faults[n], startsNothing) }
	if !slices.ContainsFunc(s.cfg.Nodes, blamed) {
		return
	}
	at := slices.IndexFunc(s.cfg.Nodes, s.here)
	if at < 0 {
		at = slices.IndexFunc(s.cfg.Nodes, func(n string) bool { return faults[n] == "" })
	}
	if at >= 0 {
		quick := slurm.Client{Timeout: lim.step}
		if err := quick.Probe(ctx, s.cfg.Nodes[at]); err == nil {
			return
		}
	}
	s.log.say("Slurm starts nothing on any node, so no node is excluded")
	for _, n := range s.cfg.Nodes {
		if blamed(n) && !slices.Contains(dead, n) {
			delete(faults, n)
		}
	}
}

// probe describes the fault of a node, "" if it has none. Connecting tells a dead
// node from a live one at once; a frozen one still accepts connections, so that a
// suspect must also run something.
func (s *setup) probe(ctx context.Context, node string, suspect bool, lim limits) string {
	if s.here(node) {
		return ""
	}
	addr := cmp.Or(s.addrs[node], node)
	port := 22 // whether anything listens is no matter
	if s.cfg.Job != nil && s.conf.SlurmdPort > 0 {
		port = s.conf.SlurmdPort
	}
	c, err := dialPatiently(ctx, net.JoinHostPort(addr, strconv.Itoa(port)), lim.connect)
	switch {
	case err == nil:
		_ = c.Close()
	case errors.As(err, new(*net.DNSError)), errors.Is(err, syscall.ECONNREFUSED) && s.cfg.Job == nil:
		return ""
	case errors.Is(err, syscall.ECONNREFUSED):
		return "runs no slurmd"
	default:
		return "does not answer"
	}
	if !suspect || s.cfg.Job == nil {
		return ""
	}
	quick := slurm.Client{Timeout: lim.step}
	if err := quick.Probe(ctx, node); err != nil {
		if errors.Is(err, slurm.ErrTimeout) {
			return fmt.Sprintf("%s within %v", startsNothing, lim.step)
		}
		return startsNothing + ": " + err.Error()
	}
	return ""
}

// dialPatiently connects, as often as a node is probed: a link that is away for seconds is
// no dead node, and TCP itself would try again only after one, three and seven seconds. A
// machine that refuses is there.
func dialPatiently(ctx context.Context, addr string, patience time.Duration) (net.Conn, error) {
	try := patience / decide.Probes
	for end := time.Now().Add(patience - try/2); ; {
		begin := time.Now()
		d := net.Dialer{Timeout: try}
		c, err := d.DialContext(ctx, "tcp", addr)
		var unknown *net.DNSError
		if err == nil || errors.As(err, &unknown) || errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(end) {
			return c, err
		}
		if sleep.For(ctx, try/4-time.Since(begin)) != nil { // an error that came at once
			return nil, err
		}
	}
}
