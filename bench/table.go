package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// Write writes rows as JSON, an object a line, or as a table.
func Write(w io.Writer, rows []Row, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		for _, r := range rows {
			if err := enc.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CASE\tMETRIC\tVALUE\tUNIT\tBASELINE\tRATIO\tGOAL\tMET\tRUNS\tSPREAD")
	for _, r := range rows {
		if r.Skipped != "" {
			fmt.Fprintf(t, "%s\t%s\tskipped: %s\n", r.Case, r.Metric, r.Skipped)
			continue
		}
		met := "-"
		if r.Met != nil {
			met = map[bool]string{true: "yes", false: "NO"}[*r.Met]
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%.0f %%\n", r.Case, r.Metric, number(&r.Value), r.Unit,
			number(r.Baseline), number(r.Ratio), number(r.Goal), met, r.Runs, 100*r.Spread)
	}
	return t.Flush()
}

func number(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'g', 4, 64)
}

// Read reads the JSON that Write wrote. Errors begin with the name of the file.
func Read(in io.Reader, name string) (rows []Row, err error) {
	s := bufio.NewScanner(in)
	for at := 1; s.Scan(); at++ {
		var r Row
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, at, err)
		}
		if r.Suite == "" || r.Metric == "" {
			return nil, fmt.Errorf("%s, line %d: not a result of holdfast bench --json", name, at)
		}
		rows = append(rows, r)
	}
	return rows, s.Err()
}

// noisy is the noise of a baseline above which something else must have used the machine.
const noisy = 0.25

// Noise warns of rows whose baselines differ much from run to run; it is empty if there are none.
func Noise(rows []Row) string {
	loud := 0
	for _, r := range rows {
		if r.noise > noisy {
			loud++
		}
	}
	if loud == 0 {
		return ""
	}
	return fmt.Sprintf("the baselines of %d of %d figures vary by more than %.0f %%: something else is using "+
		"the machine; stop it, or raise --runs",
		loud, len(rows), 100*noisy)
}
