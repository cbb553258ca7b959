package slurm

import (
	"context"
	"regexp"
	"strings"
)

// SrunOptions asks srun for its options, by name without hyphens, long and short. The value says
// whether an option takes its value from the next word; one that takes none, or only one that
// is attached, does not.
func (c *Client) SrunOptions(ctx context.Context) (map[string]bool, error) {
	out, err := c.ask(ctx, "srun", "--help")
	if err != nil {
		return nil, err
	}
	return parseSrunHelp(out), nil
}

var srunOption = regexp.MustCompile(`^\s+(?:-(\w), )?--([a-z][a-z0-9-]*)(\[?=?)`)

func parseSrunHelp(out string) map[string]bool {
	options := map[string]bool{}
	for line := range strings.Lines(out) {
		m := srunOption.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		short, long := m[1], m[2]
		takes := m[3] == "="
		options[long] = takes
		if short != "" {
			options[short] = takes
		}
	}
	// The help of 22.05 shows these without their values, and one that may only be attached with it.
	for name, takes := range map[string]bool{"container": true, "bcast": false} {
		if _, ok := options[name]; ok {
			options[name] = takes
		}
	}
	return options
}
