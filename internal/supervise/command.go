package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-hpc/holdfast/slurm"
)

// launcherKind is the kind of command that starts the ranks.
type launcherKind string

const (
	launchPlain   launcherKind = "none" // the program itself: one rank
	launchSrun    launcherKind = "srun"
	launchOpenMPI launcherKind = "Open MPI's mpirun"
	launchMPICH   launcherKind = "MPICH's mpiexec"
)

// command is the user's command line, taken apart as far as restarts need it.
type command struct {
	kind   launcherKind
	name   string
	opts   []string // of the launcher
	prog   []string // the program and its arguments; for mpirun all that is not taken out of opts
	tasks  int      // -n; 0 = not given
	nodes  int      // -N; 0 = not given
	each   int      // --ntasks-per-node; 0 = not given
	cpus   int      // -c; 0 = not given
	plugin string   // --mpi
	layout bool     // -m was given: how tasks lie on nodes is the user's
	picks  bool     // the nodes or their order are the user's
	// the words before the program are not to be changed: it is copied to the nodes, or a list of programs
	bound   bool
	before  []string // that stands before the program: start-rank
	hosts   []string // of mpirun
	count   int      // where prog has the value of mpirun's -n; 0 = nowhere
	at      int      // where prog has the program itself
	several bool     // programs in one command
}

// kindOf identifies a launcher by its name, and mpirun by the target of its link.
func kindOf(name string) launcherKind {
	base := filepath.Base(name)
	mpi := strings.HasPrefix(base, "mpirun") || strings.HasPrefix(base, "mpiexec") // a program may be called hydra
	switch base {
	case "srun":
		return launchSrun
	case "mpirun", "mpiexec":
		if path, err := exec.LookPath(name); err == nil {
			if real, err := filepath.EvalSymlinks(path); err == nil {
				base = filepath.Base(real)
			}
		}
	}
	switch {
	case mpi && (strings.Contains(base, "mpich") || strings.Contains(base, "hydra")):
		return launchMPICH
	case base == "mpirun", base == "mpiexec", base == "mpirun.openmpi", base == "mpiexec.openmpi", base == "orterun",
		base == "prterun":
		return launchOpenMPI
	}
	return launchPlain
}

func parseCommand(args []string) (*command, error) {
	c := &command{kind: kindOf(args[0]), name: args[0]}
	var err error
	switch c.kind {
	case launchSrun:
		err = c.parseSrun(args[1:])
	case launchOpenMPI, launchMPICH:
		err = c.parseMpirun(args[1:])
	default:
		c.prog = args[1:]
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return c, nil
}

// The options of srun (22.05 to 24.11) that take no value, or only one that is
// attached. All others take one.
var srunFlags = strings.Fields(`E H h K k l O Q s u v V X Z I
	preserve-env hold help usage version no-kill kill-on-bad-exit label overcommit overlap quiet oversubscribe share
	unbuffered verbose disable-status no-allocate immediate multi-prog pty quit-on-interrupt reboot spread-job
	send-libs use-min-nodes contiguous exact exclusive resv-ports compress bcast nice propagate whole
	export-file-none interactive treewidth-none async`)

func (c *command) parseSrun(args []string) error {
	for i := 0; i < len(args); i++ {
		a := args[i]
		if !strings.HasPrefix(a, "-") || a == "-" {
			c.prog = args[i:]
			break
		}
		if a == "--" {
			c.prog = args[i+1:]
			break
		}
		name, value, attached := splitOption(a)
		c.opts = append(c.opts, a)
		if !attached && !slices.Contains(srunFlags, name) {
			if i++; i == len(args) {
				return fmt.Errorf("option %s has no value", a)
			}
			value = args[i]
			if isProgram(name, value) {
				return fmt.Errorf("option %s: %s would be its value, and is a program; write -- before the program", a,
					value)
			}
			c.opts = append(c.opts, value)
		}
		if err := c.noteSrun(name, value); err != nil {
			return fmt.Errorf("option %s: %w", a, err)
		}
	}
	if len(c.prog) == 0 {
		return fmt.Errorf("no program")
	}
	if slices.Contains(c.prog, ":") {
		return fmt.Errorf("several programs joined by \":\" cannot be started again on other nodes; use srun " +
			"--multi-prog")
	}
	return nil
}

// isProgram reports whether the would-be value of an option is a program in a directory: srun may be newer, and its
// option have no value.
func isProgram(option, value string) bool {
	_, err := exec.LookPath(value)
	return err == nil && len(option) > 1 && strings.Contains(value, "/") &&
		!slices.Contains([]string{"prolog", "epilog", "task-prolog", "task-epilog", "input"}, option)
}

// splitOption takes "--name=value" and "-nvalue" apart.
func splitOption(a string) (name, value string, attached bool) {
	if long, ok := strings.CutPrefix(a, "--"); ok {
		return strings.Cut(long, "=")
	}
	name, value = a[1:2], a[2:]
	if slices.Contains(srunFlags, name) {
		return name, "", false // -vv, -K1: no value follows
	}
	return name, strings.TrimPrefix(value, "="), value != ""
}

func (c *command) noteSrun(name, value string) error {
	var to *int
	switch name {
	case "n", "ntasks":
		to = &c.tasks
	case "N", "nodes":
		value, _, _ = strings.Cut(value, "-") // least of a range
		to = &c.nodes
	case "ntasks-per-node":
		to = &c.each
	case "c", "cpus-per-task":
		to = &c.cpus
	case "mpi":
		c.plugin = value
	case "m", "distribution":
		c.layout = true
		c.picks = c.picks || strings.HasPrefix(value, "arbitrary")
	case "het-group", "pack-group":
		if value != "0" {
			return fmt.Errorf("the parts of a heterogeneous job cannot be started again on other nodes; use its " +
				"first part, or a job of one kind of nodes")
		}
	case "multi-prog", "bcast", "container", "container-image":
		c.bound = true
		c.several = c.several || name == "multi-prog"
	case "w", "nodelist", "x", "exclude", "r", "relative", "F", "nodefile":
		c.picks = true
	}
	if to == nil {
		return nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is not a number of 1 or more", value)
	}
	*to = n
	return nil
}

// onNodes returns the srun command line for ranks on given nodes, leaving out others.
// Later options win over earlier ones, so the user's stay as they are.
func (c *command) onNodes(nodes, out []string, tasks, allocated int) []string {
	each := (tasks + len(nodes) - 1) / len(nodes)
	line := append([]string{c.name}, c.opts...)
	line = append(line, "--overlap", "-N", strconv.Itoa(len(nodes)), "-n", strconv.Itoa(tasks), "-w",
		slurm.FoldNodes(nodes))
	if len(out) > 0 {
		line = append(line, "-x", slurm.FoldNodes(out))
	}
	if !c.layout {
		line = append(line, "--ntasks-per-node="+strconv.Itoa(each))
	}
	if allocated > 0 && each*max(c.cpus, 1) > allocated {
		line = append(line, "--overcommit")
	}
	return append(line, c.program()...)
}

func (c *command) program() []string { return append(slices.Clone(c.before), c.prog...) }

// parseMpirun takes the options that name machines out of the command line.
func (c *command) parseMpirun(args []string) error {
	for i := 0; i < len(args); i++ {
		a := args[i]
		name := strings.TrimLeft(a, "-")
		if !strings.HasPrefix(a, "-") {
			if c.skipValue(args, i) {
				c.prog = append(c.prog, a)
				continue
			}
			c.at = len(c.prog)
			c.prog = append(c.prog, args[i:]...)
			break
		}
		value := ""
		if i+1 < len(args) {
			value = args[i+1]
		}
		switch name {
		case "host", "hosts", "H":
			for h := range strings.SplitSeq(value, ",") {
				if name, _, _ := strings.Cut(strings.TrimSpace(h), ":"); name != "" {
					c.hosts = append(c.hosts, name)
				}
			}
			i++
			continue
		case "hostfile", "machinefile", "machine", "f", "default-hostfile":
			hosts, err := readHosts(value)
			if err != nil {
				return err
			}
			c.hosts = append(c.hosts, hosts...)
			i++
			continue
		case "ppn", "npernode", "N":
			n, err := strconv.Atoi(value)
			if err != nil {
				return fmt.Errorf("option %s: %q is not a number", a, value)
			}
			c.each = n
			i++
			continue
		case "n", "np", "c":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 {
				return fmt.Errorf("option %s: %q is not a number of 1 or more", a, value)
			}
			c.tasks += n // several programs: the ranks of all
			c.count = len(c.prog) + 1
		}
		c.prog = append(c.prog, a)
	}
	c.several = slices.Contains(c.prog, ":")
	return nil
}

// The options of mpirun that take one value; -mca and its kin take two.
var (
	oneValue = strings.Fields("n np c x wdir wd path map-by rank-by bind-to prefix output-filename timeout tune am " +
		"cpu-set cpu-list rf rankfile launcher launcher-exec bootstrap bootstrap-exec rmk iface genvlist envlist " +
		"genvnone env-none bind-to-none map umask exitcodes topolib prepend-pattern outfile-pattern errfile-pattern " +
		"preload-files report-uri stdin")
	twoValues = strings.Fields("mca gmca pmca prtemca genv env")
)

// skipValue reports whether args[i] belongs to the option before it.
func (c *command) skipValue(args []string, i int) bool {
	is := func(at int, names []string) bool {
		return at >= 0 && strings.HasPrefix(args[at], "-") && slices.Contains(names, strings.TrimLeft(args[at], "-"))
	}
	return is(i-1, oneValue) || is(i-1, twoValues) || is(i-2, twoValues)
}

// recovers reports whether the options let Open MPI's mpirun continue without a rank that
// died; it ends with code 0 then.
func (c *command) recovers() bool {
	told := func(s string) bool {
		return strings.Contains(s, "enable-recovery") || strings.Contains(s, "orte_enable_recovery")
	}
	return c.kind == launchOpenMPI && (slices.ContainsFunc(c.prog, told) || slices.ContainsFunc(os.Environ(), told))
}

// readHosts reads the names in the hostfile of either MPI: "n1 slots=4" or "n1:4".
func readHosts(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("hostfile: %w", err)
	}
	var hosts []string
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) > 0 {
			name, _, _ := strings.Cut(words[0], ":")
			hosts = append(hosts, name)
		}
	}
	return hosts, nil
}

// onHosts returns the mpirun command line for ranks on given machines, each taking an
// equal part; 0 ranks are as many as the user's command has. Open MPI gives remote ranks only the variables
// that its options name.
func (c *command) onHosts(nodes, vars []string, ranks int) []string {
	line, prog, tasks := []string{c.name}, c.prog, c.tasks
	if ranks > 0 {
		tasks = ranks
		if c.count > 0 {
			prog = slices.Clone(c.prog)
			prog[c.count] = strconv.Itoa(ranks)
		} else {
			prog = append([]string{"-n", strconv.Itoa(ranks)}, c.prog...)
		}
	}
	if c.kind == launchOpenMPI {
		for _, v := range vars {
			if !slices.Contains(c.prog, v) {
				line = append(line, "-x", v)
			}
		}
	}
	if len(nodes) > 0 {
		each := c.each
		if tasks > 0 {
			each = max(each, (tasks+len(nodes)-1)/len(nodes))
		}
		each = max(each, 1)
		names := make([]string, len(nodes))
		for i, n := range nodes {
			names[i] = n + ":" + strconv.Itoa(each)
		}
		if c.kind == launchOpenMPI {
			line = append(line, "--host", strings.Join(names, ","), "--oversubscribe")
		} else {
			line = append(line, "-hosts", strings.Join(names, ","))
		}
	} else if c.each > 0 {
		line = append(line, map[launcherKind]string{launchOpenMPI: "-N", launchMPICH: "-ppn"}[c.kind],
			strconv.Itoa(c.each))
	}
	return append(line, prog...)
}
