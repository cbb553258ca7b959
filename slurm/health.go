package slurm

import (
	"context"
	"strings"
)

// NodeState is Slurm's view of a node.
type NodeState struct {
	Name       string
	State      string // idle, mixed, allocated, down, draining, ... in lower case, without marks
	Responding bool   // Slurm's last ping was answered
	Reason     string // why it is not in use; "" if there is none
}

// Usable reports whether a step can be started on the node: it answers, and it
// is neither down nor failing nor being switched off. A draining node of a
// running job is usable. Slurm needs its SlurmdTimeout to notice a death, so a
// node that has just died still counts as usable.
func (n NodeState) Usable() bool {
	switch n.State {
	case "down", "fail", "failing", "error", "unknown", "powered_down", "powering_down", "powering_up",
		"power_down", "power_up", "reboot", "reboot_issued", "reboot^", "future", "perfctrs":
		return false
	}
	return n.Responding
}

// NodeStates returns the states of nodes, in the order given. A node that Slurm does not list is down, with a reason
// that says so. Cost: one sinfo for all nodes.
func (c *Client) NodeStates(ctx context.Context, nodes []string) ([]NodeState, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	out, err := c.ask(ctx, "sinfo", "-h", "-a", "-N", "-n", FoldNodes(nodes), "-o", "%N|%T|%E")
	if err != nil {
		return nil, err
	}
	known := parseStates(out)
	states := make([]NodeState, len(nodes))
	for i, n := range nodes {
		s, ok := known[n]
		if !ok {
			s = NodeState{Name: n, State: "down", Reason: "Slurm does not know it"}
		}
		states[i] = s
	}
	return states, nil
}

// parseStates reads one line for each node and partition. It returns the nodes by name.
func parseStates(out string) map[string]NodeState {
	states := map[string]NodeState{}
	for line := range strings.Lines(out) {
		part := strings.SplitN(strings.TrimSpace(line), "|", 3)
		if len(part) < 2 || part[0] == "" {
			continue
		}
		// Marks behind the state: * does not respond, ~ # % power, $ maintenance, @ ^
		// reboot, ! power down, - planned.
		state := strings.ToLower(strings.TrimRight(part[1], "*~#%$@^!-+"))
		n := NodeState{Name: part[0], State: state, Responding: !strings.Contains(part[1], "*")}
		if strings.ContainsAny(part[1], "~%!") {
			n.State = "powered_down"
		}
		if len(part) == 3 && part[2] != "none" {
			n.Reason = part[2]
		}
		if _, ok := states[n.Name]; !ok {
			states[n.Name] = n
		}
	}
	return states
}
