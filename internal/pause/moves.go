package pause

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// Moves say which GPU takes the place of which.
type Moves struct {
	text    string            // as people write it
	to      map[string]string // Own: whatever one GPU a process uses
	machine []string          // all GPUs of this node, as far as nvidia-smi tells
}

// Own is the key of a Moves for whatever one GPU a process uses.
const Own = ""

// ParseMoves reads GPU, or OLD=NEW,OLD=NEW: numbers as nvidia-smi gives them, or UUIDs.
func ParseMoves(ctx context.Context, text string) (*Moves, error) {
	all, failed := gpus(ctx)
	return parseMoves(text, all, failed)
}

// MovesOn reads the same for each node of a run by itself, when that is known.
func MovesOn(text string) *Moves { return &Moves{text: text} }

func (m *Moves) on(d *door) (*Moves, error) {
	if m == nil || d.machine == nil {
		return m, nil
	}
	var failed error
	if d.machine.NoGPUs != "" {
		failed = errors.New(d.machine.NoGPUs)
	}
	return parseMoves(m.text, d.machine.GPUs, failed)
}

func parseMoves(text string, all []string, failed error) (*Moves, error) {
	m := &Moves{text: text, to: map[string]string{}, machine: all}
	find := func(text string) (string, error) { return uuid(text, all, failed) }
	for part := range strings.SplitSeq(text, ",") {
		from, to, pair := strings.Cut(part, "=")
		if !pair {
			from, to = Own, part
		}
		var err error
		if from != Own {
			if from, err = find(from); err != nil {
				return nil, err
			}
		}
		if to, err = find(to); err != nil {
			return nil, err
		}
		if _, twice := m.to[from]; twice {
			return nil, fmt.Errorf("%q names a GPU twice", text)
		}
		m.to[from] = to
	}
	return m, nil
}

// gpus returns the UUIDs of this node's GPUs, in the order of their numbers.
func gpus(ctx context.Context) (all []string, err error) {
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader").Output()
	if err != nil {
		return nil, fmt.Errorf("ask nvidia-smi for this node's GPUs: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		id, err := parseUUID(strings.TrimSpace(line))
		if err != nil {
			return nil, fmt.Errorf("nvidia-smi: %w", err)
		}
		all = append(all, id)
	}
	return all, nil
}

func parseUUID(text string) (string, error) {
	digits := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(text, "GPU-"), "-", ""))
	if b, err := hex.DecodeString(digits); err != nil || len(b) != 16 || !strings.HasPrefix(text, "GPU-") {
		return "", fmt.Errorf("%q is no UUID of a GPU", text)
	}
	return digits, nil
}

func uuid(text string, all []string, failed error) (string, error) {
	if strings.HasPrefix(text, "GPU-") {
		return parseUUID(text)
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < 0:
		return "", fmt.Errorf("%q is neither the number of a GPU nor its UUID, see nvidia-smi -L", text)
	case failed != nil:
		return "", fmt.Errorf("GPU %d: %w; give its UUID instead", n, failed)
	case n >= len(all):
		return "", fmt.Errorf("there is no GPU %d, see nvidia-smi -L", n)
	}
	return all[n], nil
}

// lines returns the commands for a process, the second for the case that the first is refused. The driver wants to know
// about each device of the node, even if the process sees only some. A device whose place another takes goes to that
// one's.
func (m *Moves) lines(devices []device) ([]string, error) {
	if m == nil {
		return []string{"resume"}, nil
	}
	to, err := m.resolve(devices)
	if err != nil {
		return nil, err
	}
	seen := make([]string, len(devices))
	for i, d := range devices {
		seen[i] = d.uuid
	}
	all := slices.Clone(seen)
	for _, id := range m.machine {
		if !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	line, err := permute(all, to)
	if err != nil || len(all) == len(seen) {
		return []string{line}, err
	}
	second, err := permute(seen, to)
	return []string{line, second}, err
}

// held returns where the devices go that a process uses, those also that stay, as OLD=NEW,OLD=NEW.
func (m *Moves) held(devices []device) (string, error) {
	lines, err := m.lines(devices)
	if err != nil {
		return "", err
	}
	pairs := strings.Split(strings.TrimPrefix(lines[0], "resume "), ",")
	return strings.Join(slices.DeleteFunc(pairs, func(pair string) bool {
		return !slices.ContainsFunc(devices, func(d device) bool { return d.used && strings.HasPrefix(pair, d.uuid) })
	}), ","), nil
}

// resolve says where each device goes that the process sees and that moves.
func (m *Moves) resolve(devices []device) (map[string]string, error) {
	to := map[string]string{}
	for from, next := range m.to {
		if from == Own {
			used := slices.DeleteFunc(slices.Clone(devices), func(d device) bool { return !d.used })
			if len(used) != 1 {
				return nil, fmt.Errorf("it uses %d GPUs: say which goes where, as OLD=NEW", len(used))
			}
			from = used[0].uuid
		}
		if slices.ContainsFunc(devices, func(d device) bool { return d.uuid == from }) { // else another process's
			to[from] = next
		}
	}
	return to, nil
}

func permute(devices []string, moves map[string]string) (string, error) {
	to := map[string]string{}
	for _, d := range devices {
		to[d] = d
	}
	for from, next := range moves {
		if _, known := to[next]; known && moves[next] == "" {
			to[next] = from
		}
		to[from] = next
	}
	taken := map[string]bool{}
	var pairs []string
	for _, d := range devices {
		if taken[to[d]] {
			return "", fmt.Errorf("two of its GPUs would be %s", to[d])
		}
		taken[to[d]] = true
		pairs = append(pairs, d+"="+to[d])
	}
	return "resume " + strings.Join(pairs, ","), nil
}
