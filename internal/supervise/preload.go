package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/job"
	"github.com/holdfast-hpc/holdfast/internal/preload"
)

// Messages is whether libholdfast-mpi stands before the MPI of the ranks.
type Messages int

// A program in Go counts its messages itself, and a rank without MPI never asks the library for anything: so it is
// there unless somebody says no.
const (
	MessagesAuto Messages = iota // if it is installed and can
	MessagesOn                   // and report the reason if not
	MessagesOff
)

// findLibraries finds those for the ranks, and puts them on the launcher's command line.
func (s *setup) findLibraries(ctx context.Context) error {
	s.findLayer(ctx)
	if s.opt.CUDA {
		cuda := preload.Beside(s.opt.Self, filepath.Join("holdfast", "cuda", preload.CUDA))
		if cuda = cmp.Or(cuda, preload.Beside(s.opt.Self, preload.CUDA)); cuda == "" {
			return fmt.Errorf("--cuda: %s is not installed with %s; make cuda builds it, make install puts it there",
				preload.CUDA, s.opt.Self)
		}
		if s.opt.Audit {
			s.auditor = cuda
			s.cmd.preload(preload.Audit, cuda, os.Getenv(preload.Audit))
		} else {
			s.libraries = strings.TrimSuffix(cuda+":"+s.libraries, ":")
		}
	}
	for _, path := range filepath.SplitList(s.libraries) {
		if strings.ContainsAny(path, " \t\n") {
			return fmt.Errorf("%s cannot be preloaded, because the dynamic linker takes %s apart at spaces: install "+
				"Holdfast in a directory without one, or give --messages=false", path, preload.Var)
		}
	}
	if s.libraries != "" {
		s.cmd.preload(preload.Var, s.libraries, os.Getenv(preload.Var))
	}
	return nil
}

// findLayer finds the library that stands before MPI.
func (s *setup) findLayer(ctx context.Context) {
	if s.opt.Messages == MessagesOff {
		return
	}
	s.libraries = preload.Beside(s.opt.Self, preload.Layer)
	if s.libraries == "" {
		s.libraries, _ = preload.Find(ctx, preload.Layer)
	}
	if s.libraries == "" {
		if s.opt.Messages == MessagesOn {
			s.log.say("warning: %s is neither beside %s nor where the dynamic linker looks: the program runs without "+
				"it", preload.Layer, s.opt.Self)
		}
		return
	}
	program := s.cmd.name
	if s.cmd.kind != launchPlain && s.cmd.at < len(s.cmd.prog) {
		program = s.cmd.prog[s.cmd.at]
	}
	if err := preload.Refused(program); err != nil {
		s.libraries = ""
		if !errors.Is(err, preload.ErrGo) || s.opt.Messages == MessagesOn {
			s.log.say("%s runs without libholdfast-mpi: %v", program, err)
		}
	}
}

// preload has mpirun set the variable for the ranks only. before is the ranks' value without that, unless the command
// line has one.
func (c *command) preload(variable, layer, before string) {
	var flag []string
	switch c.kind {
	case launchOpenMPI:
		flag = []string{"-x", variable + "=" + preload.With(layer, before)}
	case launchMPICH:
		flag = []string{"-genv", variable, preload.With(layer, before)}
	default:
		return
	}
	own := false
	c.prog = slices.Clone(c.prog)
	for i := 0; i+1 < c.at; i++ {
		name, value, given := strings.Cut(c.prog[i+1], "=")
		option := strings.TrimLeft(c.prog[i], "-")
		switch {
		case !strings.HasPrefix(c.prog[i], "-") || name != variable:
		case option == "x" && !given:
			c.prog[i+1], own = flag[1], true
		case option == "x":
			c.prog[i+1], own = variable+"="+preload.With(layer, value), true
		case (option == "env" || option == "genv") && i+2 < c.at:
			c.prog[i+2], own = preload.With(layer, c.prog[i+2]), own || option == "genv"
		}
	}
	if !own {
		c.prog = append(flag, c.prog...)
		c.at += len(flag)
		if c.count > 0 {
			c.count += len(flag)
		}
	}
}

// layerVars returns the variables that have the ranks paused, and that put the libraries into those which no mpirun
// starts.
func (s *setup) layerVars() (vars []string) {
	if s.opt.CUDA && os.Getenv(config.CUDAPauseVar) == "" {
		vars = append(vars, config.CUDAPauseVar+"=on")
	}
	if s.auditor != "" && (s.cmd.kind == launchPlain || s.cmd.kind == launchSrun) {
		vars = append(vars, preload.Audit+"="+preload.With(s.auditor, os.Getenv(preload.Audit)))
	}
	switch {
	case s.libraries == "":
	case s.cmd.kind == launchPlain:
		vars = append(vars, preload.Var+"="+preload.With(s.libraries, os.Getenv(preload.Var)))
	case s.cmd.kind == launchSrun && s.cmd.before != nil:
		vars = append(vars, config.PreloadVar+"="+s.libraries)
	case s.cmd.kind == launchSrun && (s.opt.Messages == MessagesOn || s.opt.CUDA && !s.opt.Audit):
		s.log.say("warning: the ranks start without these libraries: holdfast start-rank cannot stand before them, as "+
			"the command is not on all nodes, or the program is copied to them; give srun --export=ALL,%s=%s",
			preload.Var, s.libraries)
	}
	return vars
}

// announceTime bounds how long the start of a program is held up by telling of it.
const announceTime = 2 * time.Second

// StartRank stands before the program on srun's command line. It tells Run that the program
// starts on this node, and becomes the program: the connection stays open in it, so that its
// end tells of the program's, long before Open and without any help of the program's. One
// process of each node does so. The program's MPI gets libholdfast-mpi in front if Run says so.
func StartRank(ctx context.Context, line []string) error {
	path, err := exec.LookPath(line[0])
	if err != nil {
		return fmt.Errorf("start the program: %w", err)
	}
	if id := os.Getenv("SLURM_LOCALID"); id == "0" {
		announce(ctx)
	}
	if layer := os.Getenv(config.PreloadVar); layer != "" {
		if err := os.Setenv(preload.Var, preload.With(layer, os.Getenv(preload.Var))); err != nil {
			return err
		}
	}
	return fmt.Errorf("start %s: %w", path, syscall.Exec(path, line, os.Environ()))
}

// announce opens the connection. Without it the program runs all the same.
func announce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	c, err := job.Announce(ctx, os.Getenv(config.SupervisorVar), os.Getenv("SLURMD_NODENAME"),
		os.Getenv("SLURM_STEP_ID"))
	if err != nil {
		return
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { // a copy that the program keeps: it is not closed on exec
			_, _ = syscall.Dup(int(fd)) // without it holdfast run takes the program for ended before Open
		})
	}
}
