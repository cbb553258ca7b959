package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/node"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/holdfast-hpc/holdfast/internal/pause"
	"github.com/spf13/cobra"
)

// tellFile is the descriptor at which a daemon with --tell says that clients can connect, or why not.
const tellFile = 3

func sayReady(w io.Writer, err error) {
	if err != nil {
		return
	}
	host, herr := os.Hostname()
	if herr != nil {
		host = "unknown"
	}
	fmt.Fprintf(w, "%s%s, process %d\n", wire.ReadyLine, host, os.Getpid())
}

type nodeFlags struct {
	key, dir               string
	wait                   time.Duration
	background, tell, stay bool
	watch                  bool
	starter                int
}

// logLine is a line of the log of holdfast node --json, which goes to standard error.
type logLine struct {
	Time    time.Time      `json:"time"`     // when it was written
	Level   string         `json:"level"`    // DEBUG, INFO, WARN or ERROR
	Message string         `json:"msg"`      // text of the line
	Rest    map[string]any `json:",unknown"` // facts about it, each a field
}

func newNode() *cobra.Command {
	var o nodeFlags
	cmd := newVerb("node", "take the checkpoints of this node's ranks for libholdfast", cobra.NoArgs,
		func(cmd *cobra.Command, _ []string) error { return o.run(cmd) })
	fs := cmd.Flags()
	fs.StringVar(&o.key, "key", "", "`NAME` of the job (default: "+config.NodeKeyVar+")")
	fs.DurationVar(&o.wait, "wait", time.Minute, "how long to wait for the first rank")
	fs.BoolVar(&o.background, "background", false, "return when ranks can connect, and leave the daemon running")
	cli.JSON(fs, "write the log as JSON, an object a line", logLine{})
	fs.BoolVar(&o.stay, "stay", false, "serve each start of the program, until standard input ends")
	fs.BoolVar(&o.watch, "watch", false, "look at ranks that take no checkpoints, too: of holdfast run --watch")
	fs.BoolVar(&o.tell, "tell", false, "say at descriptor 3 that ranks can connect")
	fs.IntVar(&o.starter, "starter", 0, "process that the daemon is for: do not wait for a rank when it has ended")
	fs.StringVar(&o.dir, "chdir", "", "directory to work in: that of the daemon which has died")
	_ = fs.MarkHidden("chdir")   // as below
	_ = fs.MarkHidden("watch")   // it is there
	_ = fs.MarkHidden("tell")    // it is there
	_ = fs.MarkHidden("starter") // as above
	return cmd
}

// run is the daemon, or starts it in the background.
func (o *nodeFlags) run(cmd *cobra.Command) error {
	if o.dir != "" {
		if err := os.Chdir(o.dir); err != nil {
			return err
		}
	}
	checkpoints := coordinated.FromEnv()
	if off := checkpoints.Off(); off != "" && !o.watch {
		if !o.background && !o.tell {
			fmt.Fprintf(cmd.ErrOrStderr(), "holdfast node: the program runs without checkpoints, and needs no "+
				"daemon: %s\n", off)
		}
		return cli.Code(wire.ExitOff)
	}
	key := cmp.Or(o.key, os.Getenv(config.NodeKeyVar))
	if key == "" {
		return fmt.Errorf("which job is this daemon for? set %s to a name, for it and for the program",
			config.NodeKeyVar)
	}
	if o.background {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		daemon := exec.Command(self, "node", "--tell", "--key", key, "--wait", o.wait.String(),
			"--starter", strconv.Itoa(o.starter), "--json="+strconv.FormatBool(cli.AsJSON(cmd)))
		daemon.Stderr = os.Stderr
		return child.StartReady(daemon, tellFile)
	}
	said := func(error) {}
	var until chan struct{}
	if o.tell {
		var once sync.Once
		said = func(err error) {
			if errors.Is(err, node.ErrTaken) {
				err = nil // clients can connect to that daemon
			}
			once.Do(func() { child.TellReady(tellFile, err) })
		}
	}
	if o.stay {
		until = make(chan struct{})
		go func() {
			_, _ = io.Copy(io.Discard, cmd.InOrStdin()) // only its end counts
			close(until)
		}()
		said = func(err error) { sayReady(cmd.OutOrStdout(), err) }
	}
	if cli.AsJSON(cmd) {
		checkpoints.Logger = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
	}
	opt := node.Options{Key: key, Wait: o.wait, Starter: o.starter, Checkpoints: checkpoints,
		Ready: func() { said(nil) }, Logger: checkpoints.Log(), Until: until}
	ctx := context.WithoutCancel(cmd.Context()) // TERM is for the agents
	defer o.hands(ctx, opt.Logger)()
	err := node.Run(ctx, opt)
	if errors.Is(err, node.ErrTaken) {
		if !o.tell {
			opt.Logger.Warn("holdfast node: "+err.Error()+"; this one ends", "key", key)
		}
		said(err)
		return nil
	}
	if o.tell && err != nil {
		said(err)
	}
	return err
}

// hands lets the holdfast run --cuda that has started the daemon reach the ranks of this node.
func (o *nodeFlags) hands(ctx context.Context, log *slog.Logger) (stop func()) {
	supervisor := os.Getenv(config.HandsVar)
	if supervisor == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		err := pause.Serve(ctx, supervisor, pause.NodeName(), os.Getenv("SLURM_JOB_ID") != "")
		if err != nil && ctx.Err() == nil {
			log.Warn("holdfast node: the ranks of this node cannot be paused", "error", err)
		}
	}()
	return cancel
}
