package node

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/holdfast-hpc/holdfast/internal/child"
)

// ReadyFile is the descriptor at which a daemon in the background reports that clients can
// connect, or why not.
const ReadyFile = 3

const readyWord = "ready"

// Background starts args, which is the command line of a daemon with the descriptor
// ReadyFile, and returns when it is ready. The daemon is not reported to this program's
// parent as a child, has a session of its own, and keeps only standard error.
func Background(args []string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the node daemon: %w", err)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	daemon, err := child.Start(cmd)
	_ = w.Close() // the daemon has its own
	if err != nil {
		return fmt.Errorf("start the node daemon: %w", errors.Join(err, r.Close()))
	}
	reply, err := io.ReadAll(io.LimitReader(r, 4096))
	_ = r.Close() // it was read to its end
	switch text := strings.TrimSpace(string(reply)); {
	case err != nil:
		return fmt.Errorf("start the node daemon: %w", err)
	case text == readyWord:
		return nil
	case text == "":
		return fmt.Errorf("the node daemon ended at once: %w", daemon.Wait())
	default:
		return errors.New(text)
	}
}

// ReportReady reports to the caller of Background that the daemon is ready, or why not.
// ErrTaken counts as ready.
func ReportReady(err error) {
	f := os.NewFile(ReadyFile, "ready")
	text := readyWord
	if err != nil && !errors.Is(err, ErrTaken) {
		text = err.Error()
	}
	_, _ = io.WriteString(f, text+"\n") // the reader may have exited
	_ = f.Close()                       // as above
}
