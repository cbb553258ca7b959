package config

import (
	"fmt"
	"strings"
)

func groups(values []Value) [][]Value {
	var out [][]Value
	for i, v := range values {
		if i == 0 || v.Group != values[i-1].Group {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], v)
	}
	return out
}

// Wrap breaks a text into lines of at most width letters, where it has words that short. Each begins with indent.
func Wrap(text, indent string, width int) string {
	var b strings.Builder
	at := 0
	for _, word := range strings.Fields(text) {
		switch {
		case at == 0:
			at = len(indent)
			b.WriteString(indent)
		case at+1+len(word) > width:
			at = len(indent)
			b.WriteString("\n" + indent)
		default:
			at++
			b.WriteString(" ")
		}
		b.WriteString(word)
		at += len(word)
	}
	if at > 0 {
		b.WriteString("\n")
	}
	return b.String()
}

// pageWidth is that of texts for terminals.
const pageWidth = 78

// InForce has a line for each key with its value, in groups. A key whose value is not the default says where that
// comes from.
func InForce(values []Value) string {
	var b strings.Builder
	for i, g := range groups(values) {
		fmt.Fprintf(&b, "%s%s\n", strings.Repeat("\n", min(i, 1)), title(g[0].Group))
		for _, v := range g {
			fmt.Fprintf(&b, "  %-20s  %s\n", v.Key, v.inForce())
		}
	}
	return b.String()
}

func (v *Value) inForce() string {
	if v.Source == "default" || v.Value == "" {
		return v.Default
	}
	return v.Value + ", from " + v.Source
}

// Explain describes a key, the values that are allowed, and the value in force.
func (v *Value) Explain() string {
	const indent = "      "
	last := indent + "In force: " + v.inForce() + "\n"
	if v.Error != "" {
		last = Wrap(v.Error, indent, pageWidth)
	}
	return fmt.Sprintf("  %-20s  %s\n", v.Key, v.Env) + Wrap(sentence(v.Help), indent, pageWidth) +
		Wrap(fmt.Sprintf("Default: %s. It may be %s.", v.Default, v.Allowed), indent, pageWidth) + last
}

// ExplainAll explains all keys, in groups, and the variables that are no keys.
func ExplainAll(values []Value) string {
	var b strings.Builder
	for _, g := range groups(values) {
		b.WriteString(title(g[0].Group) + "\n\n")
		for _, v := range g {
			b.WriteString(v.Explain() + "\n")
		}
	}
	b.WriteString("Variables that are no keys\n")
	for _, v := range Variables {
		b.WriteString("\n" + v.Explain())
	}
	return b.String()
}

// Explain describes the use of a variable.
func (v *Variable) Explain() string {
	return "  " + v.Name + "\n" + Wrap(sentence(v.Help), "      ", pageWidth)
}

func title(group string) string { return strings.ToUpper(group[:1]) + group[1:] }

func sentence(help string) string { return title(help) + "." }

// Example returns a configuration file in which every key is a comment.
func Example(values []Value) string {
	var b strings.Builder
	b.WriteString(`# Settings of a job. Save the file as holdfast.yaml in the folder where the job starts, or name it in
# HOLDFAST_CONFIG. Remove the # before the keys that you set. A variable such as HOLDFAST_INTERVAL wins over its key
# here. "holdfast config" shows what is in force.
#
# Most jobs need these:
#
#   global: /lustre/me/checkpoints     # a directory that all nodes see; it must exist
#   local: /scratch/me/checkpoints     # one on the node's own disk
#   mtbf: 24h                          # how often the job fails, which chooses the interval
`)
	for _, g := range groups(values) {
		fmt.Fprintf(&b, "\n## %s\n", title(g[0].Group))
		for _, v := range g {
			b.WriteString("\n" + Wrap(sentence(v.Help)+" Default: "+v.Default+". It may be "+v.Allowed+".", "# ", 100))
			b.WriteString("#" + v.Key + ":\n")
		}
	}
	return b.String()
}
