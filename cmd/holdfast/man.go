package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/internal/cli"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/spf13/cobra"
)

func newMan() *cobra.Command {
	cmd := newVerb("man DIR", "write the manual pages", cobra.ExactArgs(1),
		func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.InitDefaultHelpCmd()
			pages := map[string]string{"man5/holdfast.yaml.5": yamlPage()}
			cli.AddPages(pages, root, func(p *cli.Page) {
				p.Section("ENVIRONMENT")
				p.Text(`Each key of \fBholdfast.yaml\fR(5) has a variable: HOLDFAST_ and the key in capitals. Besides:`)
				variables(p)
			})
			names, err := cli.WritePages(args[0], pages)
			if err != nil {
				return err
			}
			if program, err := benchProgram(); err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "holdfast: without the pages of the suites:", err)
			} else {
				more, err := benchPages(cmd.Context(), program, args[0])
				if err != nil {
					return err
				}
				names = append(names, more...)
			}
			slices.Sort(names)
			names = slices.Compact(names)
			if cli.AsJSON(cmd) {
				return cli.JSONLines(cmd.OutOrStdout(), names)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d pages in %s\n", len(names), args[0])
			return err
		})
	cli.JSON(cmd.Flags(), "write the name of each page as JSON", "")
	return cmd
}

func variables(p *cli.Page) {
	for _, v := range config.Variables {
		p.Entry(cli.Bold(v.Name), v.Help)
	}
}

// yamlPage returns the page of the configuration file, of the table that the keys are in.
func yamlPage() string {
	p := cli.NewPage("holdfast.yaml", "5", "settings of Holdfast")
	p.Section("DESCRIPTION")
	p.Text(cli.Roff(`A job takes its settings from the file that HOLDFAST_CONFIG names, otherwise from holdfast.yaml in
the working directory. It is YAML. Keys with a dot may be nested. Each key has a variable: HOLDFAST_ and the key in
capitals, with _ for the dot. A program's own flag wins over the variable, the variable over the file.`) + "\n.PP")
	p.Text(cli.Bold("holdfast config") + cli.Roff(" shows what is in force,\n") +
		cli.Bold("holdfast config --example") + cli.Roff(" writes a file in which every key is a comment."))
	group := ""
	for _, v := range coordinated.ReadConfig("").Values() {
		if v.Group != group {
			group = v.Group
			p.Section(`"` + strings.ToUpper(cli.Roff(group)) + `"`)
		}
		p.Entry(cli.Bold(v.Key), fmt.Sprintf("%s. Default: %s. It may be %s.", v.Help, v.Default, v.Allowed))
	}
	p.Section(`"VARIABLES THAT ARE NO KEYS"`)
	variables(p)
	p.Section("EXAMPLES")
	p.Paragraphs("  global: /lustre/me/checkpoints\n  mtbf: 24h\n  control:\n    interface: ib0")
	p.Section("SEE ALSO")
	p.Text(cli.Bold("holdfast-config") + "(1),\n" + cli.Bold("holdfast") + "(1)")
	return p.String()
}
