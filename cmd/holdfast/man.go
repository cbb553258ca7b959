package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newMan() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "man DIR",
		Short: "write the manual pages",
		Long: `man writes the manual pages below a directory, which it makes if necessary: man1 has
one for each command (holdfast.1, holdfast-ls.1 and so on), man5 that of
holdfast.yaml. 'make man' writes them to bin/man; 'man -M bin/man holdfast-ls' then
shows one.

Exit codes: 0 written; 2 could not write.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.InitDefaultHelpCmd()
			pages := map[string]string{"man5/holdfast.yaml.5": yamlPage()}
			addPages(pages, root)
			names := []string{}
			for name, text := range pages {
				path := filepath.Join(args[0], name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					return err
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					return err
				}
				names = append(names, path)
			}
			if slices.Sort(names); asJSON {
				return jsonLines(cmd.OutOrStdout(), names)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%d pages in %s\n", len(names), args[0])
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the name of each page as JSON")
	return cmd
}

// addPages adds the pages of a command and of those below it.
func addPages(pages map[string]string, c *cobra.Command) {
	pages["man1/"+pageName(c)+".1"] = commandPage(c)
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			addPages(pages, sub)
		}
	}
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// A page is a manual page that is being written.
type page struct{ strings.Builder }

func newPage(name, section, short string) *page {
	p := &page{}
	fmt.Fprintf(p, ".TH %s %s \"\" \"Holdfast\" \"Holdfast\"\n.ad l\n", strings.ToUpper(name), section)
	p.section("NAME")
	p.text(name + ` \- ` + roff(short))
	return p
}

func (p *page) section(name string) { fmt.Fprintf(p, ".SH %s\n", name) }

// text writes lines that are roff already.
func (p *page) text(lines string) { fmt.Fprintln(p, lines) }

// entry writes an item of a list and what is said of it.
func (p *page) entry(item, text string) { fmt.Fprintf(p, ".TP\n%s\n%s\n", item, roff(text)) }

// roff has a text as it is.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

func bold(text string) string { return `\fB` + roff(text) + `\fR` }

// paragraphs writes the help of a command. Indented lines stay as they are, but for lists.
func (p *page) paragraphs(long string) {
	for para := range strings.SplitSeq(long, "\n\n") {
		if strings.HasPrefix(para, "  - ") {
			for line := range strings.SplitSeq(para, "\n") {
				item, begins := strings.CutPrefix(line, "  - ")
				if begins {
					p.text(".IP \\(bu 2")
				}
				p.text(roff(strings.TrimSpace(item)))
			}
			continue
		}
		p.text(".PP")
		as := false
		for line := range strings.SplitSeq(para, "\n") {
			indented := strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t")
			if indented != as {
				p.text(map[bool]string{true: ".RS 4\n.EX", false: ".EE\n.RE"}[indented])
			}
			if as = indented; indented {
				line = strings.TrimPrefix(strings.TrimPrefix(line, "\t"), "  ")
			}
			p.text(roff(line))
		}
		if as {
			p.text(".EE\n.RE")
		}
	}
}

func commandPage(c *cobra.Command) string {
	p := newPage(pageName(c), "1", c.Short)
	p.section("SYNOPSIS")
	if c.HasParent() && c.Runnable() {
		rest := strings.TrimPrefix(c.UseLine(), c.CommandPath())
		p.text(bold(c.CommandPath()) + roff(strings.ReplaceAll(rest, "[flags]", "[options]")))
	} else {
		p.text(bold(c.CommandPath()) + ` \fIcommand\fR [\fIargument\fR...]` + "\n.br\n" + bold(c.CommandPath()) +
			" [\\fIcommand\\fR] " + bold("--help"))
	}
	p.section("DESCRIPTION")
	long, exits, found := strings.Cut(c.Long, "Exit codes: ")
	p.paragraphs(strings.TrimSpace(long))
	if subs := c.Commands(); c.HasAvailableSubCommands() {
		p.section("COMMANDS")
		for _, sub := range subs {
			if sub.IsAvailableCommand() {
				p.entry(bold(pageName(sub))+"(1)", sub.Short)
			}
		}
	}
	options(p, c)
	if !c.HasParent() {
		p.section("ENVIRONMENT")
		p.text(`Each key of \fBholdfast.yaml\fR(5) has a variable: HOLDFAST_ and the key in capitals. Besides:`)
		variables(p)
	}
	if found {
		p.section("EXIT STATUS")
		p.paragraphs(exits)
	}
	p.section("SEE ALSO")
	if c.HasParent() {
		p.text(bold(pageName(c.Parent())) + "(1),")
	}
	p.text(bold("holdfast.yaml") + "(5),\n" + bold("holdfast") + "(3)")
	return p.String()
}

// options writes what a command takes, but for its help.
func options(p *page, c *cobra.Command) {
	first := true
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if first {
			p.section("OPTIONS")
			first = false
		}
		item := bold("--" + f.Name)
		if f.Shorthand != "" {
			item = bold("-"+f.Shorthand) + ", " + item
		}
		value, usage := pflag.UnquoteUsage(f)
		if value != "" {
			item += ` \fI` + roff(value) + `\fR`
		}
		none := slices.Contains([]string{"", "0", "0s", "[]", "false"}, f.DefValue)
		if !none && !strings.Contains(usage, "(default") {
			usage += " (default " + strings.Trim(f.DefValue, "[]") + ")"
		}
		p.entry(item, usage)
	})
}

func variables(p *page) {
	for _, v := range config.Variables {
		p.entry(bold(v.Name), v.Help)
	}
}

// yamlPage is the page of the configuration file, of the table that the keys are in.
func yamlPage() string {
	p := newPage("holdfast.yaml", "5", "settings of Holdfast")
	p.section("DESCRIPTION")
	p.text(roff(`A job takes its settings from the file that HOLDFAST_CONFIG names, otherwise from holdfast.yaml in the
working directory. It is YAML. Keys with a dot may be nested. Each key has a variable: HOLDFAST_ and the key in
capitals, with _ for the dot. A program's own flag wins over the variable, the variable over the file.`) + "\n.PP")
	p.text(bold("holdfast config") + roff(" shows what is in force,\n") + bold("holdfast config --example") +
		roff(" writes a file in which every key is a comment."))
	group := ""
	for _, v := range coordinated.ReadConfig("").Values() {
		if v.Group != group {
			group = v.Group
			p.section(`"` + strings.ToUpper(roff(group)) + `"`)
		}
		p.entry(bold(v.Key), fmt.Sprintf("%s. Default: %s. It may be %s.", v.Help, v.Default, v.Allowed))
	}
	p.section(`"VARIABLES THAT ARE NO KEYS"`)
	variables(p)
	p.section("EXAMPLES")
	p.paragraphs("  global: /lustre/me/checkpoints\n  mtbf: 24h\n  control:\n    interface: ib0")
	p.section("SEE ALSO")
	p.text(bold("holdfast-config") + "(1),\n" + bold("holdfast") + "(1)")
	return p.String()
}
