// Package images has the verb of holdfast that takes images of OpenCL and CUDA programs, and starts programs
// from them.
package images

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/cmd/holdfast/internal/verb"
	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/child"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/image"
	"github.com/holdfast-hpc/holdfast/internal/pause"
	"github.com/holdfast-hpc/holdfast/internal/units"
	"github.com/holdfast-hpc/holdfast/storage"
	"github.com/spf13/cobra"
)

//go:embed help
var texts embed.FS

var newVerb = verb.New(texts)

// Commands returns the verbs.
func Commands() []*cobra.Command {
	guard := verb.Hidden("image-guard PID DIR CRIU...", "start CRIU for image --restore", nil,
		func(_ *cobra.Command, args []string) error { return image.Guard(args) })
	guard.DisableFlagParsing = true
	return []*cobra.Command{newImage(), guard}
}

// imageRow is an image that was taken, or a program that was started from one.
type imageRow struct {
	Epoch   uint64  `json:"epoch"`               // number of the image
	PID     int     `json:"pid"`                 // process ID of the program
	Program string  `json:"program"`             // name of the program
	Bytes   int64   `json:"bytes,omitempty"`     // bytes of the image, when one was taken
	Stopped float64 `json:"stopped_s,omitempty"` // seconds for which the program stood still
	Error   string  `json:"error,omitempty"`     // why it was not done; then the rest may be empty
}

type imageFlags struct {
	dir, criu, device, gpu    string
	restore, truncate, append bool
	epoch                     uint64
	take                      image.Options
}

func newImage() *cobra.Command {
	var o imageFlags
	cmd := newVerb("image {PID | --restore} --dir DIR", "save a running OpenCL or CUDA program, and start it again",
		cobra.MaximumNArgs(1), func(cmd *cobra.Command, args []string) (err error) {
			switch {
			case o.dir == "":
				return errors.New("image needs the directory of the images: --dir DIR")
			case o.restore == (len(args) == 1):
				return errors.New("image takes the process ID of a program, or --restore")
			case o.restore && (o.take.Kill || cmd.Flags().Changed("keep") || cmd.Flags().Changed("wait")):
				return errors.New("--kill, --keep and --wait do not go with --restore")
			case !o.restore && (o.device != "" || o.gpu != "" || o.epoch != 0 || o.truncate || o.append):
				return errors.New("--device, --gpu, --epoch, --truncate and --append go with --restore")
			case o.truncate && o.append:
				return errors.New("--truncate and --append: give one of them")
			}
			pids, err := verb.Processes(args) // none with --restore
			if err == nil && !o.restore {
				err = pause.Exists(pids[0])
			}
			if err != nil {
				return err
			}
			if _, err := gpustate.ParseSelect(o.device); err != nil {
				return err
			}
			if o.take.CRIU, err = image.FindCRIU(cmd.Context(), o.criu); err != nil {
				return err
			}
			row := imageRow{}
			if o.restore {
				err = o.start(cmd, &row)
			} else {
				err = o.save(cmd, pids[0], &row)
			}
			if err != nil {
				row.Error = cli.Said(err)
				fmt.Fprintln(cmd.ErrOrStderr(), "holdfast:", row.Error)
			}
			if cli.AsJSON(cmd) {
				err = errors.Join(err, cli.JSONLines(cmd.OutOrStdout(), []imageRow{row}))
			}
			if err != nil {
				return cli.ErrBad
			}
			return nil
		})
	f := cmd.Flags()
	f.StringVar(&o.dir, "dir", "", "directory `DIR` of the images of one program")
	f.StringVar(&o.criu, "criu", "", "use `FILE` as the command criu (default: the one in PATH)")
	cli.JSON(f, "write a JSON object", imageRow{})
	f.BoolVar(&o.take.Kill, "kill", false, "end the program once its image is committed")
	f.IntVar(&o.take.Keep, "keep", 2, "number of the newest images to keep")
	f.DurationVar(&o.take.Wait, "wait", time.Minute, "how long its commands, or another image in DIR, may take to end")
	f.BoolVar(&o.restore, "restore", false, "start the program from its image, instead of saving it")
	f.StringVar(&o.device, "device", "", "`DEVICE` to start it on, as HOLDFAST_DEVICE names it (default: the same one)")
	f.StringVar(&o.gpu, "gpu", "", "`GPU` for a CUDA program, as holdfast migrate takes it (default: the same one)")
	f.Uint64Var(&o.epoch, "epoch", 0, "`EPOCH` of the image to start from (default: the newest)")
	f.BoolVar(&o.truncate, "truncate", false, "cut files of the program's output that have grown since the image")
	f.BoolVar(&o.append, "append", false, "keep what has been written to files since the image was taken, and write "+
		"behind it")
	cli.Group(f, "To save a program", "dir", "keep", "kill", "wait")
	cli.Group(f, "To start it again", "restore", "epoch", "device", "gpu", "truncate", "append")
	return cmd
}

func (o *imageFlags) save(cmd *cobra.Command, pid int, row *imageRow) error {
	served, cuda, err := image.Programs(pid)
	if err != nil {
		return err
	}
	all := append(served, cuda...)
	if strings.HasPrefix(pause.ProgramOf(pid), "holdfast") && len(all) == 1 && len(child.Children(all[0])) == 0 {
		pid = all[0] // of holdfast run
	}
	o.take.Dir = o.dir
	if o.take.Self, err = os.Executable(); err != nil {
		return err
	}
	program := pause.ProgramOf(pid) // which may end
	t, err := image.Take(cmd.Context(), pid, o.take)
	if err != nil {
		return fmt.Errorf("process %d (%s): %w", pid, program, err)
	}
	warn(cmd, t.Lacks)
	*row = imageRow{uint64(t.Epoch), pid, t.Program, t.Bytes, t.Stopped.Seconds(), ""}
	if cli.AsJSON(cmd) {
		return nil
	}
	what := "it goes on"
	if o.take.Kill {
		what = "it has ended"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "image %d of process %d (%s): %s, stopped for %.3f s; %s\n", row.Epoch, row.PID,
		row.Program, units.Bytes(row.Bytes), row.Stopped, what)
	return nil
}

func warn(cmd *cobra.Command, list []string) {
	for _, text := range list {
		fmt.Fprintf(cmd.ErrOrStderr(), "holdfast: warning: %s\n", text)
	}
}

func (o *imageFlags) start(cmd *cobra.Command, row *imageRow) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := image.Restore(cmd.Context(), image.RestoreOptions{Dir: o.dir, Epoch: storage.Epoch(o.epoch),
		Truncate: o.truncate, Append: o.append, Starter: image.Starter{CRIU: o.take.CRIU, Self: self,
			Device: o.device, GPU: o.gpu}})
	if err != nil {
		return err
	}
	warn(cmd, p.Changed)
	*row = imageRow{Epoch: uint64(p.Epoch), PID: p.PID, Program: p.Program}
	if cli.AsJSON(cmd) {
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "process %d (%s) runs from image %d\n", row.PID, row.Program, row.Epoch)
	return nil
}
