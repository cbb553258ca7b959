package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// AddPages adds the pages of a command and of those below it. More is the further text of the uppermost page.
func AddPages(pages map[string]string, c *cobra.Command, more func(*Page)) {
	pages["man1/"+pageName(c)+".1"] = commandPage(c, more)
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			AddPages(pages, sub, func(*Page) {})
		}
	}
}

// WritePages writes pages below a directory and returns their files.
func WritePages(dir string, pages map[string]string) (files []string, err error) {
	for name, text := range pages {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, err
		}
		files = append(files, path)
	}
	slices.Sort(files)
	return files, nil
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// A Page is a manual page that is being written.
type Page struct {
	strings.Builder
	begins bool // a section does
}

// NewPage begins the page of a name in a section.
func NewPage(name, section, short string) *Page {
	p := &Page{}
	fmt.Fprintf(p, ".TH %s %s \"\" \"Holdfast\" \"Holdfast\"\n.ad l\n", strings.ToUpper(name), section)
	p.Section("NAME")
	p.Text(name + ` \- ` + Roff(short))
	return p
}

// Section begins a section.
func (p *Page) Section(name string) {
	fmt.Fprintf(p, ".SH %s\n", name)
	p.begins = true
}

// Text writes lines that are roff already.
func (p *Page) Text(lines string) {
	fmt.Fprintln(p, lines)
	p.begins = false
}

// Entry writes an item of a list and its description.
func (p *Page) Entry(item, text string) { p.Text(fmt.Sprintf(".TP\n%s\n%s", item, Roff(text))) }

// Roff has a text as it is.
func Roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

// Bold returns a text in bold letters.
func Bold(text string) string { return `\fB` + Roff(text) + `\fR` }

// Paragraphs writes the help of a command. Indented lines stay as they are, but for lists.
func (p *Page) Paragraphs(long string) {
	for para := range strings.SplitSeq(long, "\n\n") {
		if strings.HasPrefix(para, "  - ") {
			for line := range strings.SplitSeq(para, "\n") {
				item, begins := strings.CutPrefix(line, "  - ")
				if begins {
					p.Text(".IP \\(bu 2")
				}
				p.Text(Roff(strings.TrimSpace(item)))
			}
			continue
		}
		if !p.begins {
			p.Text(".PP")
		}
		as := false
		for line := range strings.SplitSeq(para, "\n") {
			indented := strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t")
			if indented != as {
				p.Text(map[bool]string{true: ".RS 4\n.EX", false: ".EE\n.RE"}[indented])
			}
			if as = indented; indented {
				line = strings.TrimPrefix(strings.TrimPrefix(line, "\t"), "  ")
			}
			p.Text(Roff(line))
		}
		if as {
			p.Text(".EE\n.RE")
		}
	}
}

func commandPage(c *cobra.Command, more func(*Page)) string {
	p := NewPage(pageName(c), "1", c.Short)
	p.Section("SYNOPSIS")
	if c.HasParent() && c.Runnable() {
		rest := strings.TrimPrefix(c.UseLine(), c.CommandPath())
		p.Text(Bold(c.CommandPath()) + Roff(strings.ReplaceAll(rest, "[flags]", "[options]")))
	} else {
		p.Text(Bold(c.CommandPath()) + ` \fIcommand\fR [\fIargument\fR...]` + "\n.br\n" + Bold(c.CommandPath()) +
			" [\\fIcommand\\fR] " + Bold("--help"))
	}
	p.Section("DESCRIPTION")
	long, exits, found := strings.Cut(c.Long, "Exit codes: ")
	p.Paragraphs(strings.TrimSpace(long))
	if subs := c.Commands(); c.HasAvailableSubCommands() {
		p.Section("COMMANDS")
		for _, sub := range subs {
			if sub.IsAvailableCommand() {
				p.Entry(Bold(pageName(sub))+"(1)", sub.Short)
			}
		}
	}
	options(p, c)
	more(p)
	if found {
		p.Section("EXIT STATUS")
		p.Paragraphs(exits)
	}
	p.Section("SEE ALSO")
	if i := strings.LastIndex(c.CommandPath(), " "); i >= 0 {
		p.Text(Bold(strings.ReplaceAll(c.CommandPath()[:i], " ", "-")) + "(1),")
	}
	p.Text(Bold("holdfast.yaml") + "(5),\n" + Bold("holdfast") + "(3)")
	return p.String()
}

// options writes the flags of a command, except --help.
func options(p *Page, c *cobra.Command) {
	first := true
	for _, g := range groups(c) {
		heading := g.heading
		g.flags.VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" {
				return
			}
			if first {
				p.Section("OPTIONS")
				first = false
			}
			if heading != "" {
				p.Text(".SS " + Roff(heading))
				heading = ""
			}
			p.option(f)
		})
	}
}

func (p *Page) option(f *pflag.Flag) {
	item := Bold("--" + f.Name)
	if f.Shorthand != "" {
		item = Bold("-"+f.Shorthand) + ", " + item
	}
	value, usage := pflag.UnquoteUsage(f)
	if value != "" {
		item += ` \fI` + Roff(value) + `\fR`
	}
	none := slices.Contains([]string{"", "0", "0s", "[]", "false"}, f.DefValue)
	if !none && !strings.Contains(usage, "(default") {
		usage += " (default " + strings.Trim(f.DefValue, "[]") + ")"
	}
	p.Entry(item, usage)
}
