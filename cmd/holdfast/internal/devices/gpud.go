package devices

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/units"
)

// gpudFlags are the flags of gpud besides gpud.Options.
type gpudFlags struct {
	opt     gpud.Options
	quota   verb.Size
	devices []string
	metrics string
	grace   time.Duration
	status  string
}

func newGpud() *cobra.Command {
	var o gpudFlags
	cmd := newVerb("gpud", "offer this node's devices to programs on this and other nodes", cobra.NoArgs,
		func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd); err != nil {
				return err
			}
			if o.status != "" {
				return o.showStatus(cmd)
			}
			return o.serve(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		})
	f := cmd.Flags()
	f.StringArrayVar(&o.opt.Listen, "listen", nil, "`ADDRESS` to listen at; may be repeated (default: "+
		defaultSocket()+")")
	verb.KeyFlag(cmd, "key", "gpud.key")
	f.StringArrayVar(&o.devices, "device", nil, "`DEVICE` to offer, such as cuda or pocl; may be repeated "+
		"(default: all)")
	f.Var(&o.quota, "quota", "limit of device memory for one program, such as 8GiB (default: none)")
	f.DurationVar(&o.opt.Timeout, "timeout", 0, "time after which to drop a program whose node does not answer, that "+
		"does not read what it is sent, or that is stopped (default: 15s for its node, 30s to read, never if stopped)")
	f.IntVar(&o.opt.MaxClients, "max-clients", 0, "limit of programs at the same time (default: 256)")
	f.BoolVar(&o.opt.TrustSources, "trust-sources", false, "build programs with any compiler options, and with any "+
		"file of this node that they include; their processes can then read all files of their user")
	f.StringVar(&o.opt.User, "user", "", "`USER` that programs' processes run as; only root can set it (default: the "+
		"server's)")
	f.StringArrayVar(&o.opt.WorkerDirs, "worker-dir", nil, "directory `DIR` that programs' processes may use "+
		"besides devices, libraries and caches; may be repeated")
	f.BoolVar(&o.opt.Unconfined, "unconfined", false, "do not confine programs' processes: they reach all files and "+
		"processes that their user can, and the server's environment")
	f.StringArrayVar(&o.opt.Peers, "peer", nil, "`SERVER` to move programs to on TERM and USR1; may be repeated")
	f.DurationVar(&o.grace, "grace", 20*time.Second, "how long TERM waits for programs to end")
	f.StringVar(&o.metrics, "metrics", "", "serve metrics in the format of Prometheus over HTTP at `HOST:PORT`")
	f.StringVar(&o.status, "status", "", "show devices and programs of the server at `ADDRESS`")
	cli.JSON(f, "with --status: write JSON", gpud.Status{})
	cli.Group(f, "What is served, and where", "device", "listen", "metrics")
	cli.Group(f, "Who may use it, and for what", "key", "user", "worker-dir", "trust-sources", "unconfined")
	cli.Group(f, "Limits", "max-clients", "quota", "timeout")
	cli.Group(f, "At the end", "peer", "grace")
	cli.Group(f, "Instead of serving", "status", "json")
	return cmd
}

// workerVerb is the verb of a process that serves one program.
const workerVerb = "gpud-worker"

// socketDir returns where gpud listens when nothing is said: the user's runtime
// directory or, without one, a directory of the user's own in the temporary directory.
func socketDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return dir
	}
	return filepath.Join(os.TempDir(), "holdfast-"+strconv.Itoa(os.Getuid()))
}

func defaultSocket() string { return "unix:" + filepath.Join(socketDir(), "holdfast-gpud.sock") }

func (o *gpudFlags) complete(cmd *cobra.Command) error {
	var err error
	if o.opt.KeyFile, err = keyFile(cmd); err != nil {
		return err
	}
	for _, stray := range coordinated.ReadConfig("").Stray(os.Environ()) {
		if strings.Contains(strings.ToLower(stray), "gpud") { // the server ignores it, so do not rely on it
			err = errors.Join(err, errors.New(stray))
		}
	}
	if err != nil {
		return err
	}
	o.opt.Quota = int64(o.quota)
	if len(o.opt.Listen) == 0 {
		o.opt.Listen = []string{defaultSocket()}
		if o.status == "" {
			if err := gpud.SocketDir(socketDir()); err != nil {
				return err
			}
		}
	}
	var offered []gpustate.Select
	for _, text := range o.devices {
		s, err := gpustate.ParseSelect(text)
		if err != nil || s.Remote != "" {
			return fmt.Errorf("--device %q: want a device of this node: %w", text, errors.Join(err))
		}
		offered = append(offered, s)
	}
	if offered != nil {
		o.opt.Offer = func(i gpustate.Info) bool {
			return slices.ContainsFunc(offered, func(s gpustate.Select) bool { return s.Matches(i) })
		}
	}
	return nil
}

// serve runs the server; ctx ends with the first TERM.
func (o *gpudFlags) serve(ctx context.Context, stdout, stderr io.Writer) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	o.opt.Logger = slog.New(slog.NewTextHandler(stderr, nil))
	// the binary that runs, whatever is at its path by now
	o.opt.Worker = []string{"/proc/self/exe", workerVerb}
	var web net.Listener
	if o.metrics != "" {
		var err error
		if web, err = net.Listen("tcp", o.metrics); err != nil {
			return fmt.Errorf("--metrics: %w", err)
		}
		defer web.Close()
	}
	s, err := gpud.New(o.opt)
	if err != nil {
		return err
	}
	for _, d := range s.Devices() {
		fmt.Fprintln(stdout, "gpud: offers", d)
	}
	for _, a := range s.Addrs() {
		fmt.Fprintln(stdout, "gpud: listens at", a)
	}
	if web != nil {
		h := &http.Server{Handler: s.Metrics(), ReadHeaderTimeout: 5 * time.Second}
		go func() { _ = h.Serve(web) }()
		defer h.Close()
		fmt.Fprintf(stdout, "gpud: metrics at http://%s/metrics\n", web.Addr())
	}
	over, end := context.WithCancel(context.Background())
	defer end()
	served := make(chan error, 1)
	go func() { served <- s.Serve(over) }()
	for {
		select {
		case err := <-served:
			return err
		case sig := <-signals:
			if sig == syscall.SIGUSR1 {
				go o.moveAway(over, s)
			}
		case <-ctx.Done():
			go o.drain(over, s)
			return o.last(signals, served, end)
		}
	}
}

// last waits for the end of a server that leaves; another TERM ends it at once.
func (o *gpudFlags) last(signals <-chan os.Signal, served <-chan error, end func()) error {
	first := true
	for {
		select {
		case err := <-served:
			return err
		case sig := <-signals:
			if sig == syscall.SIGUSR1 {
				continue
			}
			if !first {
				end()
			}
			first = false // the signal that ended ctx arrives here too
		}
	}
}

func (o *gpudFlags) drain(ctx context.Context, s *gpud.Server) {
	ctx, cancel := context.WithTimeout(ctx, o.grace)
	defer cancel()
	s.Drain()
	if len(o.opt.Peers) > 0 {
		o.moveAway(ctx, s)
	}
	s.Leave(ctx)
}

func (o *gpudFlags) moveAway(ctx context.Context, s *gpud.Server) {
	list, err := s.Evacuate(ctx)
	if err != nil {
		o.opt.Logger.Error("evacuate", "err", err)
	}
	for _, m := range list {
		if m.Err != "" {
			o.opt.Logger.Error("program stays", "id", m.Client, "err", m.Err)
		} else {
			o.opt.Logger.Info("program moved", "id", m.Client, "to", m.To)
		}
	}
}

// dial is gpud.DialStatus or gpud.DialAdmin.
type dial func(ctx context.Context, addr, keyFile string) (*gpud.Admin, error)

func statusOf(ctx context.Context, dial dial, addr, keyFile string) (gpud.Status, error) {
	a, err := dial(ctx, addr, keyFile)
	if err != nil {
		return gpud.Status{}, err
	}
	defer a.Close()
	return a.Status(ctx)
}

func (o *gpudFlags) showStatus(cmd *cobra.Command) error {
	st, err := statusOf(cmd.Context(), gpud.DialStatus, o.status, o.opt.KeyFile)
	if err != nil {
		return err
	}
	if cli.AsJSON(cmd) {
		return cli.JSONLines(cmd.OutOrStdout(), []gpud.Status{st})
	}
	w := cmd.OutOrStdout()
	drains := ""
	if st.Draining {
		drains = ", takes no new programs"
	}
	fmt.Fprintf(w, "server %s at %s%s\n\n", st.Server, strings.Join(st.Addrs, " "), drains)
	rows := [][]string{{"DEVICE", "NAME", "MEMORY", "USED", "UNFINISHED", "PROGRAMS"}}
	for _, d := range st.Devices {
		rows = append(rows, []string{strconv.Itoa(d.Index), d.Name, units.Bytes(d.TotalBytes), units.Bytes(d.UsedBytes),
			strconv.FormatInt(d.Unfinished, 10), strconv.FormatInt(d.Clients, 10)})
	}
	if err := cli.Table(w, rows); err != nil {
		return err
	}
	fmt.Fprintln(w)
	rows = [][]string{{"PROGRAM", "NAME", "HOST", "PID", "DEVICE", "USED", "UNFINISHED", "COMMANDS", "LABEL"}}
	for _, c := range st.Clients {
		rows = append(rows, []string{strconv.FormatUint(c.ID, 10), c.Program, c.Host, strconv.Itoa(c.PID),
			strconv.Itoa(c.Device),
			units.Bytes(c.UsedBytes), strconv.FormatInt(c.Unfinished, 10), strconv.FormatInt(c.Commands, 10), c.Label})
	}
	return cli.Table(w, rows)
}
