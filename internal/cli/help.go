package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpColumns is the width of the texts in help/*.txt.
const helpColumns = 90

// groupOf is the annotation of a flag that has the heading above it in help.
const groupOf = "holdfast_group"

// Group puts flags of a command below a heading in its help and on its manual page. The flags without one come last.
// In a command with groups the flags have the order in which they were declared.
func Group(f *pflag.FlagSet, heading string, names ...string) {
	f.SortFlags = false
	for _, name := range names {
		if err := f.SetAnnotation(name, groupOf, []string{heading}); err != nil {
			panic(err) // a misspelt name
		}
	}
}

// A flagGroup holds the flags below one heading, which is empty if the command has no groups.
type flagGroup struct {
	heading string
	flags   *pflag.FlagSet
}

func groups(c *cobra.Command) (list []flagGroup) {
	own := c.LocalFlags()
	rest := newGroup("", own.SortFlags)
	own.VisitAll(func(f *pflag.Flag) {
		heading := strings.Join(f.Annotations[groupOf], "")
		if heading == "" {
			rest.flags.AddFlag(f)
			return
		}
		i := slices.IndexFunc(list, func(g flagGroup) bool { return g.heading == heading })
		if i < 0 {
			i = len(list)
			list = append(list, newGroup(heading, false))
		}
		list[i].flags.AddFlag(f)
	})
	if list != nil {
		rest.heading = "Other"
	}
	return append(list, rest)
}

func newGroup(heading string, sorted bool) flagGroup {
	g := flagGroup{heading, pflag.NewFlagSet("", pflag.ContinueOnError)}
	g.flags.SortFlags = sorted
	return g
}

// flagUsages writes the flags of a command for its help, in lines that fit a terminal.
func flagUsages(c *cobra.Command) string {
	var b strings.Builder
	for _, g := range groups(c) {
		if usages := g.flags.FlagUsagesWrapped(helpColumns); usages != "" {
			if g.heading != "" {
				b.WriteString("\n " + g.heading + "\n")
			}
			b.WriteString(usages)
		}
	}
	return strings.Trim(b.String(), "\n")
}

// setHelp gives a command and those below it help in groups and short lines.
func setHelp(root *cobra.Command) {
	cobra.AddTemplateFunc("flagUsages", flagUsages)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Short = "show the help of a command"
			show := c.Run
			c.Run, c.RunE = nil, func(c *cobra.Command, args []string) error {
				if of, rest, err := root.Find(args); err == nil && of.HasSubCommands() && len(rest) > 0 {
					return of.Args(of, rest) // there is no such command
				}
				show(c, args)
				return nil
			}
		case "completion":
			c.Short = "write the completion script of a shell"
		}
	}
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(),
		"{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{flagUsages .}}", 1))
}
