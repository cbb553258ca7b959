package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/child"
)

// CRIU is an installed CRIU.
type CRIU struct {
	Path, Version string
}

// FindCRIU finds one and asks for its version: the file that is given, else the one in PATH or beside it.
func FindCRIU(ctx context.Context, given string) (c CRIU, err error) {
	if c.Path = given; given == "" {
		for _, name := range []string{"criu", "/usr/local/sbin/criu", "/usr/sbin/criu"} {
			if c.Path, err = exec.LookPath(name); err == nil {
				break
			}
		}
		if err != nil {
			return CRIU{}, errors.New("there is no criu in PATH: scripts/criu.sh builds one")
		}
	}
	out, err := exec.CommandContext(ctx, c.Path, "--version").Output()
	if err != nil {
		return c, fmt.Errorf("%s --version: %w", c.Path, err)
	}
	var major, minor int
	for line := range strings.Lines(string(out)) {
		if v, found := strings.CutPrefix(line, "Version:"); found {
			c.Version = strings.TrimSpace(v)
			_, _ = fmt.Sscanf(c.Version, "%d.%d", &major, &minor) // else it is too old
		}
	}
	if major < 4 || major == 4 && minor < 1 {
		return c, fmt.Errorf("%s is of version %q, and 4.1 is needed: older ones fail on Linux 6.13 and later; "+
			"scripts/criu.sh builds a newer one", c.Path, c.Version)
	}
	return c, nil
}

// Check asks CRIU, and has it image and restore a process, which takes some 0.1 s. Its error names the missing parts of
// the kernel or the rights.
func (c CRIU) Check(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, c.Path, "check").CombinedOutput()
	if err != nil {
		return fmt.Errorf("criu check: %w: %s", err, cmp.Or(reasons(string(out)),
			strings.Join(strings.Fields(string(out)), " ")))
	}
	return c.try(ctx)
}

// try images and restores a process that sleeps.
func (c CRIU) try(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "holdfast-criu-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sleep", "600")
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Setsid: true}
	p, err := child.Start(cmd)
	if err != nil {
		return err
	}
	if err = c.dump(dir, p.PID(), nil, nil); err != nil {
		return err
	}
	cancel()
	<-p.Ended
	// It becomes a child of this process.
	if err := c.command(dir, []string{"restore", "--restore-detached", "--restore-sibling"}).run(); err != nil {
		return err
	}
	err = syscall.Kill(p.PID(), syscall.SIGKILL)
	_, werr := syscall.Wait4(p.PID(), nil, 0, nil)
	return errors.Join(err, werr)
}

// ghostLimit is the size of files without a name that CRIU saves, such as shared memory of MPI. Its own is 1 MiB.
const ghostLimit = "1G"

// dump has CRIU write the images of a process into a folder. It is left alone when this command is interrupted: a
// process that it has in its hands would not survive its end. It has the files open meanwhile.
func (c CRIU) dump(dir string, pid int, sockets []uint64, with []*os.File) error {
	args := []string{"dump", "--leave-running", "--ghost-limit", ghostLimit, "--tree", strconv.Itoa(pid)}
	for _, s := range sockets {
		args = append(args, "--external", fmt.Sprintf("unix[%d]", s))
	}
	d := c.command(dir, args)
	d.files = with
	return d.run()
}

type command struct {
	CRIU
	dir   string
	args  []string
	files []*os.File // from descriptor 3 on
}

func (c CRIU) command(dir string, args []string) *command {
	return &command{c, dir, append(args, "--images-dir", dir, "--log-file", logFile, "-v2", "--shell-job",
		"--ext-unix-sk", "--file-locks", "--manage-cgroups=ignore"), nil}
}

const logFile = "criu.log"

// run runs it. The error has CRIU's reasons.
func (c *command) run() error {
	said, err := os.Create(filepath.Join(c.dir, "criu.out"))
	if err != nil {
		return err
	}
	defer said.Close()
	cmd := exec.Command(c.Path, c.args...)
	cmd.ExtraFiles = c.files
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's signals are not for it
	if err = cmd.Run(); err == nil {
		return nil
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() { // its log has no reason
		return fmt.Errorf("criu %s: %w", c.args[0], err)
	}
	b, _ := os.ReadFile(filepath.Join(c.dir, logFile)) // it may not have come that far
	why := reasons(string(b))
	if why == "" {
		b, _ = os.ReadFile(said.Name())
		why = strings.Join(strings.Fields(string(b)), " ")
	}
	return fmt.Errorf("criu %s: %w: %s", c.args[0], err, cmp.Or(why, "it does not say why"))
}

// noLimit is a line that CRIU writes as an error, and goes on, if it lacks CAP_SYS_RESOURCE.
const noLimit = "rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted"

// isTaken reports whether CRIU did not get the number of a process or a thread since another one has it.
func isTaken(said string) bool {
	return strings.Contains(said, "Unable to create a thread: -17") || // EEXIST
		strings.Contains(said, "Can't fork for ") && strings.Contains(said, ": File exists")
}

// reasons returns the first errors that CRIU has written.
func reasons(log string) string {
	var all []string
	for line := range strings.Lines(log) {
		if _, text, found := strings.Cut(line, "Error ("); found {
			_, text, _ = strings.Cut(text, "): ")
			text, _, _ = strings.Cut(text, ", consider using") // an option of CRIU
			if text = strings.TrimSpace(text); text != noLimit {
				all = append(all, text)
			}
		}
	}
	return strings.Join(all[:min(len(all), 3)], "; ")
}
