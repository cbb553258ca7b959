package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/internal/random"
	"github.com/holdfast-hpc/holdfast/slurm"
	"github.com/holdfast-hpc/holdfast/storage"
)

// Nodes checks the common needs of several nodes of a job: a global directory that all of them see, and a local one
// that each has for itself. Every node writes a small file into both, then looks for those of the others; they are
// removed at the end. o.Self runs NodePart.
//
// Each part is one step of the job on all nodes, so that no node waits for another, and no node looks for
// a name before it is there: a network file system would remember that it was absent.
func Nodes(ctx context.Context, o Options, nodes []string) []Finding {
	r := &report{Options: o}
	lookConfig(ctx, r)
	for _, level := range []struct{ name, dir string }{{"local", o.Local}, {"global", o.Global}} {
		if level.dir == "" {
			r.add(nodesArea, level.name, Skipped, "not set", "")
			continue
		}
		if storage.IsObjectStore(level.dir) {
			r.add(nodesArea, level.name, Skipped, "an object store; run 'holdfast doctor' on a node to try it", "")
			continue
		}
		r.lookNodes(ctx, level.name, level.dir, nodes)
	}
	return r.findings
}

const nodesArea = "nodes"

// errNoNodes reports that there are no nodes to look at.
var errNoNodes = errors.New("no Slurm allocation with nodes to look at; use it inside salloc or sbatch")

// JobNodes returns the nodes of the Slurm job that this process is in.
func JobNodes() ([]string, error) {
	job, ok, err := slurm.FromEnv(os.Getenv)
	if err == nil && (!ok || len(job.Nodes) == 0) {
		err = errNoNodes
	}
	return job.Nodes, err
}

const nodeTimeout = checkTimeout

func (r *report) part(ctx context.Context, part, dir, token string, nodes []string) (map[string][]string, error) {
	c := slurm.Client{Timeout: nodeTimeout}
	lines, err := c.OutputOfAll(ctx, nodes, append(slices.Clone(r.Self), part, dir, token, slurm.FoldNodes(nodes))...)
	said := map[string][]string{}
	for line := range strings.Lines(lines) {
		word := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(word) >= 2 && word[0] == partMark {
			said[word[1]] = append(said[word[1]], strings.Join(word[2:], " "))
		}
	}
	return said, err
}

func (r *report) lookNodes(ctx context.Context, level, dir string, nodes []string) {
	token := random.Text()
	defer func() {
		// Even if ctx has ended.
		if _, err := r.part(context.WithoutCancel(ctx), partRemove, dir, token, nodes); err != nil {
			r.add(nodesArea, level+": files", Warning, err.Error(), "remove "+filepath.Join(dir, nodeFile(token, "*"))+
				" on every node")
		}
	}()
	wrote, err := r.part(ctx, partWrite, dir, token, nodes)
	var saw map[string][]string
	if err == nil {
		saw, err = r.part(ctx, partRead, dir, token, nodes)
	}
	if err != nil {
		r.add(nodesArea, level, Failed, err.Error(), "the nodes must run holdfast: put it at the same path on all of "+
			"them; 'sinfo -N' shows nodes that are down")
		return
	}
	if r.broken(level, dir, nodes, wrote) {
		return
	}
	if storage.TraitsOf(level).Shared {
		r.judgeGlobal(dir, nodes, saw)
	} else {
		r.judgeLocal(dir, nodes, saw)
	}
}

func (r *report) broken(level, dir string, nodes []string, wrote map[string][]string) (any bool) {
	for _, n := range nodes {
		said := wrote[n]
		if len(said) == 1 && said[0] == "" {
			continue
		}
		any = true
		why := "no answer"
		if len(said) > 0 {
			why = strings.Join(said, "; ")
		}
		r.add(nodesArea, level+" on "+n, Failed, why, "make "+dir+" on node "+n+
			", writable for you, before the job starts")
	}
	return any
}

// judgeGlobal names the nodes that do not see the files of others.
func (r *report) judgeGlobal(dir string, nodes []string, saw map[string][]string) {
	var blind []string
	for _, n := range nodes {
		seen := func(other string) bool { return slices.Contains(saw[n], other) }
		if missing := slices.DeleteFunc(slices.Clone(nodes), seen); len(missing) > 0 {
			blind = append(blind, fmt.Sprintf("%s does not see what %s wrote", n, strings.Join(missing, ", ")))
		}
	}
	if len(blind) > 0 {
		r.add(nodesArea, "global", Failed, fmt.Sprintf("%s is not shared: %s", dir, strings.Join(blind, "; ")),
			"name a directory of a file system that all nodes mount, or set none and use local with partner or parity")
		return
	}
	r.add(nodesArea, "global", OK, fmt.Sprintf("each of %d nodes sees what the others write to %s", len(nodes), dir),
		"")
}

// judgeLocal names nodes that share a directory which should be each one's own.
func (r *report) judgeLocal(dir string, nodes []string, saw map[string][]string) {
	for _, n := range nodes {
		for _, other := range saw[n] {
			if other != n {
				r.add(nodesArea, "local", Warning,
					fmt.Sprintf("node %s sees what %s writes to %s: it is not each node's own, and is lost as a whole",
						n, other, dir),
					"set local to a directory on the node's own disk, such as one below /scratch or $TMPDIR")
				return
			}
		}
	}
	r.add(nodesArea, "local", OK, fmt.Sprintf("each of %d nodes can write to a %s of its own", len(nodes), dir), "")
}
