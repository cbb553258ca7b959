package doctor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/vfs"
	"github.com/holdfast-hpc/holdfast/slurm"
)

// The tasks of a node, and the beginnings of the lines with which it answers: some MPI libraries and shells write lines
// of their own.
const (
	partWrite  = "write"
	partRead   = "read"
	partRemove = "remove"
	partMark   = "holdfast-node"
)

// nodeFile returns the file that a node writes. Starts of jobs clear away files of this kind.
func nodeFile(token, node string) string { return fmt.Sprintf(".holdfast-doctor-%s.%s", token, node) }

// NodePart does one node's part of Nodes: it writes this node's file to a directory, or says whose it sees there, or
// removes its own. nodes is a list as slurm.FoldNodes writes it. A fault of the directory is an answer, not an error.
func NodePart(out io.Writer, node, part, dir, token, nodes string) error {
	own := filepath.Join(dir, nodeFile(token, node))
	switch part {
	case partWrite:
		text := ""
		if err := writeNode(dir, own); err != nil {
			text = " " + strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		_, err := fmt.Fprintf(out, "%s %s%s\n", partMark, node, text)
		return err
	case partRead:
		names, err := slurm.ExpandNodes(nodes)
		if err != nil {
			return err
		}
		for _, n := range names {
			if _, err := os.Stat(filepath.Join(dir, nodeFile(token, n))); err != nil {
				continue // another node's judgement needs no reason
			}
			if _, err := fmt.Fprintf(out, "%s %s %s\n", partMark, node, n); err != nil {
				return err
			}
		}
		return nil
	case partRemove:
		if err := os.Remove(own); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return fmt.Errorf("doctor: part %q of a node: it is %s, %s or %s", part, partWrite, partRead, partRemove)
}

func writeNode(dir, own string) error {
	if err := (vfs.OS{}).CheckDir(dir, true); err != nil {
		return err
	}
	f, err := vfs.OS{}.Create(own, false)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), vfs.OS{}.SyncDir(dir))
}
