package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/node"
	"github.com/holdfast-hpc/holdfast/internal/node/wire"
	"github.com/spf13/cobra"
)

// sayReady tells whoever started the daemon that it is ready.
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

func newNode() *cobra.Command {
	var key string
	var wait time.Duration
	var background, tell, stay, asJSON bool
	var dir string
	var starter int
	cmd := &cobra.Command{
		Use:   "node",
		Short: "take the checkpoints of this node's ranks of a program in C or another language",
		Long:  help("node"),
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir != "" {
				if err := os.Chdir(dir); err != nil {
					return err
				}
			}
			checkpoints := coordinated.FromEnv()
			if off := checkpoints.Off(); off != "" {
				if !background && !tell {
					fmt.Fprintf(cmd.ErrOrStderr(), "holdfast node: the program runs without checkpoints, and needs no "+
						"daemon: %s\n", off)
				}
				return cli.Code(wire.ExitOff)
			}
			if key = cmp.Or(key, os.Getenv(config.NodeKeyVar)); key == "" {
				return fmt.Errorf("which job is this daemon for? set %s to a name, for it and for the program",
					config.NodeKeyVar)
			}
			if background {
				self, err := os.Executable()
				if err != nil {
					return err
				}
				return node.Background([]string{self, "node", "--tell", "--key", key, "--wait", wait.String(),
					"--starter", strconv.Itoa(starter), "--json=" + strconv.FormatBool(asJSON)})
			}
			said := func(error) {}
			var until chan struct{}
			if tell {
				var once sync.Once
				said = func(err error) { once.Do(func() { node.SayReady(err) }) }
			}
			if stay {
				until = make(chan struct{})
				go func() {
					_, _ = io.Copy(io.Discard, cmd.InOrStdin()) // its end is what counts
					close(until)
				}()
				said = func(err error) { sayReady(cmd.OutOrStdout(), err) }
			}
			if asJSON {
				checkpoints.Logger = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
			}
			opt := node.Options{Key: key, Wait: wait, Starter: starter, Checkpoints: checkpoints,
				Ready: func() { said(nil) }, Logger: checkpoints.Log(), Until: until}
			// TERM is for the agents.
			err := node.Run(context.WithoutCancel(cmd.Context()), opt)
			if errors.Is(err, node.ErrTaken) {
				if !tell {
					opt.Logger.Warn("holdfast node: "+err.Error()+"; this one ends", "key", key)
				}
				said(err)
				return nil
			}
			if tell && err != nil {
				said(err)
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&key, "key", "", "name of the job; empty: that of "+config.NodeKeyVar)
	fs.DurationVar(&wait, "wait", time.Minute, "how long to wait for the first rank")
	fs.BoolVar(&background, "background", false, "return when ranks can connect, and leave the daemon running")
	fs.BoolVar(&asJSON, "json", false, "write the log as JSON, an object a line")
	fs.BoolVar(&stay, "stay", false, "serve one start of the program after the other, until standard input ends")
	fs.BoolVar(&tell, "tell", false, "say at descriptor 3 that ranks can connect")
	fs.IntVar(&starter, "starter", 0, "process that the daemon is for: do not wait for a rank when it has ended")
	fs.StringVar(&dir, "chdir", "", "directory to work in: that of the daemon which has died")
	_ = fs.MarkHidden("chdir")   // as below
	_ = fs.MarkHidden("tell")    // it is there
	_ = fs.MarkHidden("starter") // as above
	return cmd
}
