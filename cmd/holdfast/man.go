package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newMan() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "man DIR",
		Short: "write the manual pages",
		Long: `man writes a manual page for each command (holdfast.1, holdfast-ls.1 and so on) to a
directory, which it makes if necessary. 'make man' writes them to bin/man/man1;
'man -M bin/man holdfast-ls' then shows one.

Exit codes: 0 written; 2 could not write.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			setExamples(root)
			header := &doc.GenManHeader{Title: "HOLDFAST", Section: "1", Source: "Holdfast", Manual: "Holdfast"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return err
			}
			pages, err := filepath.Glob(filepath.Join(args[0], "holdfast*.1"))
			if err != nil {
				return err
			}
			if asJSON {
				return jsonLines(cmd.OutOrStdout(), pages)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d pages in %s\n", len(pages), args[0])
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the name of each page as JSON")
	return cmd
}

// setExamples indents the examples in the helps of a command and those below it by
// as much as a page wants for lines that stay as they are. They stand behind an
// empty line.
func setExamples(c *cobra.Command) {
	lines := strings.Split(c.Long, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "  ") {
			lines[i] = "  " + l
		}
	}
	c.Long = strings.Join(lines, "\n")
	for _, sub := range c.Commands() {
		setExamples(sub)
	}
}
