package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/internal/preload"
)

// languages is the area of further needs of programs in C, C++, Fortran and Python.
const languages = "languages"

func lookLanguages(ctx context.Context, r *report) {
	self, err := os.Executable()
	if err != nil {
		r.add(languages, "command", Failed, err.Error(), "")
		return
	}
	r.lookCommand(self)
	r.lookLibrary(ctx, self)
	r.lookLayer(ctx, self)
	r.lookPython(ctx)
}

func (r *report) lookCommand(self string) {
	const check, remedy = "command", "module load holdfast, or set HOLDFAST_BIN to the path of the command"
	if named := os.Getenv(config.BinVar); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			r.add(languages, check, Failed, config.BinVar+": "+err.Error(), remedy)
			return
		}
		r.add(languages, check, OK, "programs start "+path+" (HOLDFAST_BIN)", "")
		return
	}
	path, err := exec.LookPath("holdfast")
	switch {
	case err != nil:
		r.add(languages, check, Note, "holdfast is not in PATH: only programs whose libholdfast was installed with it "+
			"find it", remedy)
	case !same(path, self):
		r.add(languages, check, Note, path+" is the first in PATH, and this is "+self, "if programs are to start "+
			"this one, put it first, or set HOLDFAST_BIN")
	default:
		r.add(languages, check, OK, "programs start "+path, "")
	}
}

func same(a, b string) bool {
	one, err := os.Stat(a)
	other, otherErr := os.Stat(b)
	return err == nil && otherErr == nil && os.SameFile(one, other)
}

// lookLibrary looks for libholdfast where the dynamic linker does, and beside the command.
func (r *report) lookLibrary(ctx context.Context, self string) {
	const check, name = "libholdfast", "libholdfast.so.0"
	if path, by := preload.Find(ctx, name); path != "" {
		r.add(languages, check, OK, path+", by "+by, "")
		return
	}
	if path := preload.Beside(self, name); path != "" {
		r.add(languages, check, OK, path+"; programs built by CMake or pkg-config find it there, others need "+
			"LD_LIBRARY_PATH", "")
		return
	}
	r.add(languages, check, Note, "not found: programs in C, C++, Fortran and Python need it", "make install, then "+
		"module load holdfast, or set LD_LIBRARY_PATH")
}

// pythonTime bounds a check of Python: importing is slow on shared file systems.
const pythonTime = 30 * time.Second

// worldSize prints each rank's number of ranks.
const worldSize = "from mpi4py import MPI; print('size', MPI.COMM_WORLD.Get_size(), MPI.Get_library_version())"

func (r *report) lookPython(ctx context.Context) {
	const python = "python3"
	if _, err := exec.LookPath(python); err != nil {
		r.add(languages, "Python", Skipped, "no python3 in PATH", "")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pythonTime)
	defer cancel()
	loads := exec.CommandContext(ctx, python, "-c", "from holdfast import _library; _library.load()")
	if out, err := loads.CombinedOutput(); err != nil {
		r.add(languages, "Python", Note, "python3 cannot import holdfast: "+lastLine(string(out)),
			"module load holdfast, or set PYTHONPATH to lib/holdfast/python of the installation")
	} else {
		r.add(languages, "Python", OK, "python3 imports holdfast and its library", "")
	}
	if err := exec.CommandContext(ctx, python, "-c", "import mpi4py").Run(); err != nil {
		r.add(languages, "mpi4py", Skipped, "python3 has none: programs in Python have one process", "")
		return
	}
	l, err := mpirun.InPath()
	if err != nil {
		r.add(languages, "mpi4py", Skipped, "no mpirun in PATH that is Open MPI's or MPICH's", "")
		return
	}
	out, err := l.Job(2, pythonTime, python, "-c", worldSize).Output(ctx)
	r.judgeMPI4py(l.Title, out, err)
}

// judgeMPI4py judges the output of two ranks of Python, started by mpirun.
func (r *report) judgeMPI4py(title, out string, err error) {
	const check, remedy = "mpi4py", "load the module of the MPI that mpi4py was built with, or build mpi4py for this " +
		"one: pip install --no-binary=mpi4py mpi4py"
	switch {
	case err != nil:
		r.add(languages, check, Warning, fmt.Sprintf("mpirun of %s cannot start two ranks of Python: %s", title,
			firstLine(err.Error())), remedy)
	case strings.Count(out, "size 2 ") == 2:
		r.add(languages, check, OK, "2 ranks with mpirun of "+title, "")
	default:
		r.add(languages, check, Warning, fmt.Sprintf("mpirun is of %s, mpi4py of another MPI: each rank is alone (%s)",
			title, firstLine(out)), remedy)
	}
}
