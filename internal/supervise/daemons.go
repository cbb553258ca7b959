package supervise

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/holdfast-hpc/holdfast/internal/random"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// daemons are those of the nodes, for a program that uses libholdfast: one step of the job, or one
// process of this machine, that the starts of the program have in common. They live as long as
// this process holds their standard input open, and the ranks that are there then.
type daemons struct {
	proc   *child.Process
	hold   io.Closer
	logger *log
}

// daemonsReady bounds how long the first start waits for them. Where one is not there by then
// the first rank on its node starts one.
const daemonsReady = 15 * time.Second

// startDaemons starts them; nil without --daemons and without --cuda on several nodes, or if they cannot be started.
func (r *run) startDaemons(ctx context.Context) (*daemons, error) {
	elsewhere := slices.ContainsFunc(r.cfg.Nodes, func(n string) bool { return !r.here(n) })
	if !r.opt.Daemons && (!r.opt.CUDA || !elsewhere) {
		return nil, nil
	}
	if os.Getenv(config.NodeKeyVar) == "" {
		key := "run." + random.Text() // that no other run has
		if r.cfg.Job != nil {
			key = "job." + r.cfg.Job.ID + "." + random.Text()
		}
		if err := os.Setenv(config.NodeKeyVar, key); err != nil {
			return nil, err
		}
	}
	daemon := []string{r.opt.Self, "node", "--stay", "--json=" + strconv.FormatBool(r.opt.JSON),
		"--watch=" + strconv.FormatBool(r.opt.Watch)}
	nodes, line := 1, daemon
	switch {
	case r.cfg.Job != nil && r.cmd.kind != launchPlain && len(r.cfg.Nodes) > 0:
		nodes = len(r.cfg.Nodes)
		n := strconv.Itoa(nodes)
		line = append([]string{"srun", "--overlap", "--mpi=none", "-Q", "-K0", "--no-kill", "-N" + n, "-n" + n,
			"--ntasks-per-node=1", "-w", slurm.FoldNodes(r.cfg.Nodes)}, daemon...)
	case elsewhere:
		r.log.say("warning: --daemons: this is not a Slurm job, so the first rank on each node starts its daemon")
		return nil, nil
	}
	ready := make(chan string, nodes)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, config.SupervisorVar+"=")
	})
	if r.opt.CUDA { // the daemons are hands
		cmd.Env = append(cmd.Env, config.HandsVar+"="+r.supervisorValue())
	}
	cmd.Stderr = r.opt.Stderr
	cmd.Stdout = &child.Lines{Each: func(line []byte) {
		if host, ok := strings.CutPrefix(string(line), wire.ReadyLine); ok && len(ready) < nodes {
			ready <- host
		}
	}}
	hold, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	d := &daemons{hold: hold, logger: r.log}
	if d.proc, err = child.Start(cmd); err != nil {
		return nil, fmt.Errorf("start the node daemons: %w", err)
	}
	d.await(ctx, ready, nodes)
	return d, nil
}

// await waits until all are ready, up to a limit.
func (d *daemons) await(ctx context.Context, ready <-chan string, nodes int) {
	late := time.After(daemonsReady)
	var hosts []string
	for len(hosts) < nodes {
		select {
		case host := <-ready:
			hosts = append(hosts, host)
			continue
		case <-d.proc.Ended:
		case <-late:
		case <-ctx.Done():
		}
		d.logger.say("warning: %d of %d node daemons are ready; on the other nodes the first rank starts one",
			len(hosts), nodes)
		return
	}
	slices.Sort(hosts)
	const most = 8
	more := ""
	if len(hosts) > most {
		hosts, more = hosts[:most], fmt.Sprintf(" and %d more", nodes-most)
	}
	d.logger.say("node daemons are ready: %s%s", strings.Join(hosts, ", "), more)
}

// stop lets them end, and waits until their epochs are written; limit bounds that.
func (d *daemons) stop(limit time.Duration) {
	if d == nil {
		return
	}
	_ = d.hold.Close() // they may have ended
	select {
	case <-d.proc.Ended:
		return
	case <-time.After(limit):
	}
	d.logger.say("warning: the node daemons have not ended within %v, and are killed", limit)
	d.proc.Signal(syscall.SIGKILL)
	<-d.proc.Ended
}
