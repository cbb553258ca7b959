package supervise

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/coordinated/control"
	"github.com/holdfast-hpc/holdfast/internal/supervise/decide"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// setup is made before the first start, and does not change after it.
type setup struct {
	opt       Options
	cmd       *command
	log       *log
	client    slurm.Client
	conf      slurm.Config
	prog      coordinated.Options // as the program will read them
	addrs     map[string]string   // of nodes
	tasks     int                 // ranks with all nodes; 0 where only mpirun knows
	libraries string              // for the ranks, with colons; empty: they go without
	auditor   string              // library for preload.Audit of the ranks; empty: none
	fewer     bool                // nodes than the job had before it was requeued
	cfg       decide.Config
}

// prepare reads the job, checks the options against it, and makes the necessary directories on the nodes.
func prepare(ctx context.Context, opt Options) (*setup, error) {
	cmd, err := parseCommand(opt.Command)
	if err != nil {
		return nil, err
	}
	s := &setup{opt: opt, cmd: cmd, log: &log{w: opt.Stderr, json: opt.JSON},
		prog: coordinated.FromEnv()}
	if opt.Images != nil {
		if cmd.kind != launchPlain {
			return nil, errors.New("--image is for one process: give the program itself, without " + cmd.name)
		}
		s.prog.Global, s.prog.Local, s.opt.Messages = opt.Images.Dir, "", MessagesOff
		s.opt.Lead = cmp.Or(s.opt.Lead, s.prog.DeadlineLead)
	}
	s.cfg = decide.Config{Images: opt.Images != nil, CUDA: opt.CUDA, Limits: s.opt.Limits, Recovers: cmd.recovers(),
		PeerTimeout: cmp.Or(s.prog.PeerTimeout, control.DefaultPeerTimeout),
		StopSignals: s.prog.StopSignals, Global: s.prog.Global != ""}
	if err := s.readJob(ctx); err != nil {
		return nil, err
	}
	if err := s.size(); err != nil {
		return nil, err
	}
	if err := s.nodeLocal(ctx); err != nil {
		return nil, err
	}
	s.cfg.Here = slices.DeleteFunc(slices.Clone(s.cfg.Nodes), func(n string) bool { return !s.here(n) })
	if err := s.findLibraries(ctx); err != nil {
		return nil, err
	}
	s.cfg.Local, s.cfg.Grace = s.prog.Local != "", cmp.Or(s.prog.Grace, s.conf.KillWait)
	return s, nil
}

// readJob finds out the nodes, and the properties of a Slurm job that concern checkpoints.
func (s *setup) readJob(ctx context.Context) error {
	job, ok, err := slurm.FromEnv(os.Getenv)
	switch {
	case err != nil:
		return err
	case ok:
		s.cfg.Job, s.cfg.Requeue = &job, s.opt.Requeue || s.prog.Requeue
		s.cfg.Memory = s.recall()
		if err := s.askSlurm(ctx); err != nil {
			return err
		}
	case s.opt.Requeue:
		return fmt.Errorf("--requeue: this is not a Slurm job; start it from a batch script, or leave the flag out")
	case s.cmd.kind == launchSrun && s.opt.Spares > 0:
		return fmt.Errorf("--spares: srun outside a job gets nodes of its own; use it inside sbatch or salloc")
	}
	for _, h := range s.cmd.hosts {
		if !slices.Contains(s.cfg.Nodes, h) {
			s.cfg.Nodes = append(s.cfg.Nodes, h)
		}
	}
	return nil
}

// askSlurm asks Slurm about the job. A missing answer is a warning: the program can run without.
func (s *setup) askSlurm(ctx context.Context) error {
	c, job := &s.cfg, s.cfg.Job
	if s.cmd.kind == launchSrun || len(s.cmd.hosts) == 0 && s.cmd.kind != launchPlain {
		c.Nodes = slices.Clone(job.Nodes)
	}
	warn := func(err error) {
		if err != nil {
			s.log.say("warning: %v", err)
		}
	}
	var err error
	if s.conf, err = s.client.Config(ctx); errors.Is(err, slurm.ErrNoSlurm) {
		return fmt.Errorf("this is Slurm job %s, but %w; put them into PATH", job.ID, err)
	}
	warn(err)
	s.addrs, err = s.client.NodeAddrs(ctx, job.Nodes)
	warn(err)
	info, err := s.client.ShowJob(ctx, job.ID)
	if warn(err); err != nil { // a controller with too much to do, as when many jobs start at once
		info.Partition, info.MayRequeue = job.Partition, true
		info.End, _ = s.client.Deadline(ctx, job.ID) // from the environment, or a second try
	}
	if s.cmd.kind == launchSrun && len(c.Nodes) == 0 { // SLURM_JOB_NODELIST is missing
		c.Nodes = info.Nodes
	}
	c.Deadline = info.End
	c.GraceTime, err = s.client.GraceTime(ctx, info.Partition)
	warn(err)
	if c.Requeue && !info.MayRequeue {
		s.log.say("warning: --requeue: job %s was submitted with --no-requeue, or the site does not requeue; it "+
			"ends after the final checkpoint: submit it again", job.ID)
	}
	if w, ok, err := s.client.ScriptWarning(ctx, job.ID); err == nil && ok {
		c.Warning = w
	}
	return nil
}

func (s *setup) size() error {
	c, have := &s.cfg, len(s.cfg.Nodes)
	s.fewerNodes(have)
	spares := s.opt.Spares
	if have == 0 {
		if spares > 0 {
			return fmt.Errorf("--spares %d: there are no nodes to keep: no Slurm job, and neither --host nor "+
				"--hostfile is given", spares)
		}
		return nil
	}
	if spares < 0 || spares >= have {
		return fmt.Errorf("--spares %d: the job has %d nodes; ask for more nodes or keep fewer", spares, have)
	}
	if least := s.opt.MinNodes; least > have { // a requeue would change nothing
		return fmt.Errorf("--min-nodes %d: the job has %d nodes; ask for more nodes, or for fewer at least", least,
			have)
	}
	c.Width = have - spares
	if n := s.cmd.nodes; n > 0 {
		if n > c.Width && !s.fewer {
			return fmt.Errorf("%d nodes for the program and %d spare ones are more than the %d of the job", n, spares,
				have)
		}
		c.Width = min(n, c.Width)
	}
	s.tasks = s.ranks()
	if !s.fewer {
		c.Memory.Width, c.Memory.Tasks = c.Width, s.tasks
	}
	if err := s.full(); err != nil {
		return err
	}
	if s.cmd.kind != launchSrun {
		return nil
	}
	if each := s.cmd.each; each > 0 && !s.cmd.layout && s.tasks%c.Width != 0 && c.Full.On(c.Width) == 0 {
		s.log.say("warning: %d ranks do not divide evenly among %d nodes, and srun takes --ntasks-per-node %d as an "+
			"upper limit; give it -N %d, or -n %d, where parity or equal nodes matter",
			s.tasks, c.Width, each, (s.tasks+each-1)/each, c.Width*each)
	}
	if s.cmd.plugin == "none" && s.tasks > 1 {
		return fmt.Errorf("srun --mpi=none starts no MPI: every rank would be alone; use --mpi=pmix for Open MPI, " +
			"--mpi=pmi2 for MPICH")
	}
	return nil
}

// ranks returns how many the program has with all of its nodes; 0 where only the launcher knows. It does not
// change with the nodes: without layouts a checkpoint is restored on as many ranks as took it.
func (s *setup) ranks() int {
	c, each := &s.cfg, s.cmd.each
	srun := s.cmd.kind == launchSrun
	if each == 0 && srun {
		each, _ = strconv.Atoi(os.Getenv("SLURM_NTASKS_PER_NODE")) // none is 0
	}
	switch {
	case s.cmd.tasks > 0:
		return s.cmd.tasks
	case s.fewer && c.Memory.Tasks > 0:
		return c.Memory.Tasks
	case each > 0 || !srun:
		return each * c.Width
	case c.Job != nil && c.Job.Tasks > 0 && s.cmd.nodes == 0 && s.opt.Spares == 0:
		return c.Job.Tasks
	}
	return c.Width
}

// full notes the size of the program when nothing is missing, and checks --min-ranks against it.
func (s *setup) full() error {
	c, least := &s.cfg, s.opt.MinRanks
	if least == 0 {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("--min-ranks %d: %s", least, fmt.Sprintf(format, args...))
	}
	c.Full = decide.Full{Nodes: max(c.Memory.Width, c.Width), Ranks: s.tasks}
	switch {
	case s.cmd.several:
		return refuse("the command starts several programs, whose ranks cannot be counted anew; leave the flag out")
	case s.tasks == 0:
		return refuse("the number of ranks is not known; give %s -n", s.cmd.name)
	case least > s.tasks:
		return refuse("the program has %d ranks; give that many or fewer", s.tasks)
	}
	return nil
}

// fewerNodes adapts a job that comes back from the queue with fewer nodes than it had: Slurm takes
// a dead node out of a job with --no-kill and requeues it with the rest. Spare nodes go first.
func (s *setup) fewerNodes(have int) {
	if have == 0 || s.cfg.Job == nil || s.cfg.Job.Restarts == 0 {
		return
	}
	want := cmp.Or(s.cmd.nodes, s.cfg.Memory.Width, 1)
	if want+s.opt.Spares <= have {
		return
	}
	s.fewer, s.opt.Spares = true, max(have-want, 0)
	s.log.say("the job has come back with %d nodes: %d for the program, %d spare", have, min(want, have), s.opt.Spares)
}

func (s *setup) here(node string) bool {
	name, err := os.Hostname()
	return err == nil && name == node || s.cfg.Job != nil && node == s.cfg.Job.NodeName
}

const memoryName = "holdfast.run.json"

// memory is the record at global of what a run has learned.
func (s *setup) memory() storage.Record {
	return storage.Record{Dir: s.prog.Global, Name: memoryName, Foreign: s.prog.AllowForeign}
}

// recall reads the memory of an earlier run at global, as far as it concerns this job.
func (s *setup) recall() (m decide.Memory) {
	if s.prog.Global != "" {
		if b, err := s.memory().Read(context.Background()); err != nil || json.Unmarshal(b, &m) != nil {
			m = decide.Memory{}
		}
	}
	if job := s.cfg.Job.ID; m.Job != job {
		return decide.Memory{Epoch: m.Epoch, Seconds: m.Seconds, Job: job}
	}
	return m
}

// save keeps it, in a Slurm job with a global directory.
func (s *setup) save(m decide.Memory) {
	if b, err := json.Marshal(m); err == nil && s.prog.Global != "" && s.cfg.Job != nil {
		_ = s.memory().Write(context.Background(), append(b, '\n')) // a hint, no more
	}
}

// adviseMPI says which launcher and MPI go together when a program did not come
// up under srun.
func (s *setup) adviseMPI() {
	if s.cmd.kind == launchSrun {
		s.log.say("the program did not reach Open under srun --mpi=%s; Open MPI needs --mpi=pmix and MPICH "+
			"--mpi=pmi2, if 'srun --mpi=list' has them",
			cmp.Or(s.cmd.plugin, os.Getenv("SLURM_MPI_TYPE"), "the site's default"))
	}
}
