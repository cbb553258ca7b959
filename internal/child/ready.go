package child

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// firstExtra is the descriptor of the first of exec.Cmd's ExtraFiles.
const firstExtra = 3

const readyWord = "ready"

// StartReady starts a child that goes on in a session of its own, and returns when the child has called TellReady with
// the descriptor fd, which is among those of cmd.ExtraFiles. The error that the child tells has its text alone.
func StartReady(cmd *exec.Cmd, fd int) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd.ExtraFiles = slices.Insert(cmd.ExtraFiles, fd-firstExtra, w)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	p, err := Start(cmd)
	_ = w.Close() // the child has its own
	if err != nil {
		return err
	}
	said, err := io.ReadAll(io.LimitReader(r, 4096))
	switch text := strings.TrimSpace(string(said)); {
	case err != nil:
		return err
	case text == readyWord:
		return nil
	case text == "":
		what := filepath.Base(cmd.Args[0]) + " " + strings.Join(cmd.Args[1:min(2, len(cmd.Args))], "")
		if err := p.Wait(); err != nil {
			return fmt.Errorf("%s ended before it was ready: %w", what, err)
		}
		return fmt.Errorf("%s ended before it was ready", what)
	default:
		return errors.New(text)
	}
}

// TellReady reports to the caller of StartReady that this process is ready, or why not. It closes fd.
func TellReady(fd int, err error) {
	text := readyWord
	if err != nil {
		text = err.Error()
	}
	f := os.NewFile(uintptr(fd), "ready")
	_, _ = io.WriteString(f, text+"\n") // the reader may have exited
	_ = f.Close()                       // as above
}
