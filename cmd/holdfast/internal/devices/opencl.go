package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud"
	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/opencl"
)

func newOpenCL() *cobra.Command {
	var background bool
	var resume int
	cmd := newVerb("opencl", "serve an OpenCL program that runs as it is, for libholdfast-opencl", cobra.NoArgs,
		func(cmd *cobra.Command, _ []string) error {
			if background {
				return openclInBackground()
			}
			// it ends with its program: batch systems warn all processes of a step, and the program
			// may want to take a checkpoint then
			signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
			return serveOpenCL(context.WithoutCancel(cmd.Context()), resume)
		})
	cmd.Hidden = true
	cmd.Flags().BoolVar(&background, "background", false, "leave a process behind that serves the program")
	cmd.Flags().IntVar(&resume, "resume", 0, "serve a paused program, of which there are so many files")
	return cmd
}

// openclInBackground starts the server as no child of the program, in a session of its own.
func openclInBackground() error {
	control := os.NewFile(opencl.ControlFile, "control")
	if control == nil {
		return errors.New("opencl: there is no program: libholdfast-opencl starts this command")
	}
	// No process that this one starts may have the program's open files: a server that stays would keep their
	// locks, and the ends of their pipes.
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, f := range open {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	cmd := exec.Command("/proc/self/exe", "opencl")
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{control}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	_, err = child.Start(cmd)
	return err
}

// indexed is a selection that names one device by a number.
var indexed = regexp.MustCompile(`:\d+$|#`)

func serveOpenCL(ctx context.Context, files int) error {
	// a server that this command starts must not have them
	for fd := range opencl.FirstFile + files - opencl.ReadyFile {
		syscall.CloseOnExec(opencl.ReadyFile + fd)
	}
	control := os.NewFile(opencl.ControlFile, "control")
	c, err := net.FileConn(control)
	if err != nil {
		return fmt.Errorf("opencl: no connection to a program: %w; libholdfast-opencl starts this command", err)
	}
	_ = control.Close() // c has its own
	u, ok := c.(*net.UnixConn)
	if !ok {
		return errors.New("opencl: descriptor 3 is no Unix socket")
	}
	// the loader that the program was started with would find the vendor library again
	for _, v := range []string{"OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OPENCL_LAYERS"} {
		_ = os.Unsetenv(v) // the name is valid
	}
	// Some systems list their platforms there.
	ours := func(file string) bool { return strings.HasPrefix(filepath.Base(file), "libholdfast-opencl") }
	others := strings.Join(slices.DeleteFunc(filepath.SplitList(os.Getenv("OCL_ICD_FILENAMES")), ours),
		string(filepath.ListSeparator))
	_ = os.Unsetenv("OCL_ICD_FILENAMES") // as above
	if others != "" {
		_ = os.Setenv("OCL_ICD_FILENAMES", others)
	}
	if v := os.Getenv(config.OpenCLVendorsVar); v != "" {
		_ = os.Setenv("OCL_ICD_VENDORS", v) // as above
	}
	opt := opencl.Options{Next: func(files []*os.File, devices string) error {
		return opencl.ServePaused(files, devices, nil, os.Stderr)
	}, Leave: func() { os.Exit(0) }}
	if os.Getenv(config.OpenCLLogVar) != "" {
		opt.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	text := os.Getenv(gpustate.DeviceEnv)
	if text == "" {
		if text, err = defaultServer(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "holdfast opencl: %v; the program cannot be moved: it has its device here\n", err)
		}
	}
	opt.Select, err = gpustate.ParseSelect(text)
	opt.One = indexed.MatchString(text)
	if files > 0 {
		return resumeOpenCL(ctx, u, opt, files, err)
	}
	if err != nil {
		return err
	}
	return opencl.Serve(ctx, u, opt)
}

// resumeOpenCL serves a paused program, and tells the command before this one when, or why not.
func resumeOpenCL(ctx context.Context, u *net.UnixConn, opt opencl.Options, n int, err error) error {
	var files []*os.File
	for i := range n {
		files = append(files, os.NewFile(uintptr(opencl.FirstFile+i), "of a paused program"))
	}
	serves := false
	if err == nil {
		err = opencl.Resume(ctx, u, opt, files, func() {
			serves = true
			child.TellReady(opencl.ReadyFile, nil)
		})
	}
	if err != nil && !serves {
		child.TellReady(opencl.ReadyFile, err)
		return nil
	}
	return err
}

// defaultServer returns the selection of this user's server on this node, which it starts when
// there is none.
func defaultServer(ctx context.Context) (string, error) {
	sel := "remote=" + defaultSocket()
	err := answers(ctx)
	switch {
	case err == nil:
		return sel, nil
	case errors.As(err, new(*gpustate.VersionError)) || errors.Is(err, gpustate.ErrKey):
		return "", err // it is there
	}
	if err := gpud.SocketDir(socketDir()); err != nil {
		return "", err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer null.Close()
	// its programs are this user's own, so their sources are trusted like any other command
	cmd := exec.Command("/proc/self/exe", "gpud", "--trust-sources")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, null, null
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir, cmd.Env = "/", absolute(os.Environ()) // it stays, and keeps no file system busy
	server, err := child.Start(cmd)
	if err != nil {
		return "", err
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if answers(ctx) == nil { // this one, or another that was faster
			return sel, nil
		}
		select {
		case <-server.Ended:
			if err := answers(ctx); err != nil {
				return "", fmt.Errorf("holdfast gpud did not start, run it by hand to see why: %w", err)
			}
			return sel, nil
		case <-time.After(20 * time.Millisecond):
		}
	}
	return "", errors.New("holdfast gpud does not answer")
}

// absolute returns an environment whose names of files are good in every directory.
func absolute(env []string) []string {
	env = slices.Clone(env)
	for i, e := range env {
		name, value, _ := strings.Cut(e, "=")
		files := []string{gpustate.KeyEnv, "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "OCL_ICD_VENDORS"}
		if slices.Contains(files, name) && strings.Contains(value, "/") {
			if file, err := filepath.Abs(value); err == nil {
				env[i] = name + "=" + file
			}
		}
	}
	return env
}

// answers asks whether this user's server on this node is there.
func answers(ctx context.Context) error {
	key, err := gpustate.DefaultKeyFile()
	if err != nil {
		return err
	}
	a, err := gpud.DialStatus(ctx, defaultSocket(), key)
	if err != nil {
		return err
	}
	return a.Close()
}
