package apps

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-hpc/holdfast/apps/matmul/matfile"
	"github.com/holdfast-hpc/holdfast/apps/nbody/bodies"
	"github.com/holdfast-hpc/holdfast/apps/nbody/gravity"
	"github.com/holdfast-hpc/holdfast/bench"
)

// Places to restart at that are not the name of a device.
const (
	placeSame = "same" // its place before
	placeSwap = "swap" // the GPUs in reversed order
)

// moves stops the program at a checkpoint, restarts it at every place of Options.Moves, and
// compares the results with that of an uninterrupted run.
func (m *measured) moves(ctx context.Context) error {
	result := func(name string) string { return filepath.Join(m.dir, name+"-"+m.app.out) }
	m.Step("%s: uninterrupted run, for comparison", m.app.name)
	if _, _, err := m.run(ctx, m.app, start{work: 1, out: result("undisturbed")}); err != nil {
		return err
	}
	t, _, err := m.run(ctx, m.app, start{work: 1, directory: "moved", fresh: true, stopAfter: m.app.half,
		out: result("stopped")})
	if err != nil {
		return err
	}
	if _, err := os.Stat(result("stopped")); err == nil {
		return fmt.Errorf("%s: ended before it could be stopped at step %d", m.app.name, t.Last)
	}
	for _, place := range m.o.Moves {
		m.Step("%s: restart, %s", m.app.name, place)
		st := start{work: 1, directory: "moved", out: result("moved")}
		switch place {
		case placeSame:
		case placeSwap:
			st.visible = reversed(m.o.Ranks)
		default:
			st.device = place
		}
		t, _, err := m.run(ctx, m.app, st)
		if err != nil {
			return fmt.Errorf("restart, %s: %w", place, err)
		}
		if t.RestoredEpoch == 0 {
			return fmt.Errorf("%s, %s: did not continue from its checkpoint", m.app.name, place)
		}
		apart, bound, err := m.compare(result("undisturbed"), st.out, place)
		if err != nil {
			return err
		}
		m.Add(m.movedRows(place, t, apart, bound)...)
	}
	return nil
}

// reversed lists the devices 0 to n-1 backwards.
func reversed(n int) string {
	var all []string
	for i := range n {
		all = append(all, strconv.Itoa(n-1-i))
	}
	return strings.Join(all, ",")
}

func (m *measured) movedRows(place string, t *Times, apart, bound float64) []bench.Row {
	took := bench.Row{Case: m.caseName(), Metric: fmt.Sprintf("restart, %s (%s): build+restore", place, t.Device),
		Unit: "s"}
	result := bench.Row{Case: m.caseName(), Metric: fmt.Sprintf("restart, %s: result apart from an undisturbed one",
		place)}
	return []bench.Row{took.Of(bench.Samples{t.Build + t.Restore}, nil, nil), result.Of(bench.Samples{apart}, nil,
		bench.AtMost(bound))}
}

// compare returns how far two results are apart and how far they may be: not at all, unless another
// kind of device has computed in floating point.
func (m *measured) compare(a, b, place string) (apart, bound float64, err error) {
	x, err := os.ReadFile(a)
	if err != nil {
		return 0, 0, err
	}
	y, err := os.ReadFile(b)
	if err != nil {
		return 0, 0, err
	}
	if slices.Equal(x, y) {
		return 0, 0, nil
	}
	if place == placeSame || place == placeSwap || m.app.apart == nil {
		return 1, 0, nil
	}
	return m.app.apart(a, b, m.big)
}

// bodiesApart compares results of nbody: the largest difference of a coordinate,
// and gravity.Divergence.
func bodiesApart(a, b string, big bool) (apart, bound float64, err error) {
	n, steps := nbodySize(big), stepCount(nbodySteps, 1)
	first, err := readBodies(a)
	if err != nil {
		return 0, 0, err
	}
	second, err := readBodies(b)
	if err != nil {
		return 0, 0, err
	}
	begin, err := bodies.Plummer(n, 1)
	if err != nil {
		return 0, 0, err
	}
	if len(first.Pos) != len(second.Pos) || len(first.Pos) != len(begin.Pos) {
		return 0, 0, fmt.Errorf("%s and %s have %d and %d bodies", a, b, first.Len(), second.Len())
	}
	for i := range first.Pos {
		apart = math.Max(apart, math.Abs(float64(first.Pos[i])-float64(second.Pos[i])))
	}
	const dt, eps = 0.001, 0.05 // nbody's own defaults
	return apart, gravity.Divergence(1, eps, begin.Pos, steps, dt), nil
}

func readBodies(name string) (*bodies.System, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return bodies.Read(f)
}

// productsApart compares results of matmul: the largest difference of an element, and the difference that rounding
// allows for numbers from -1 to 1 (see matmul -help).
func productsApart(a, b string, big bool) (apart, bound float64, err error) {
	x, err := matfile.Open(a)
	if err != nil {
		return 0, 0, err
	}
	y, err := matfile.Open(b)
	if err != nil {
		return 0, 0, err
	}
	if len(x.Data) != len(y.Data) {
		return 0, 0, fmt.Errorf("%s and %s have %d and %d elements", a, b, len(x.Data), len(y.Data))
	}
	for i, v := range x.Data {
		apart = math.Max(apart, math.Abs(v-y.Data[i]))
	}
	_, k, panel := matmulSize(big)
	terms := float64(stepCount(matmulRepeats, 1) * k)
	return apart, 2 * (terms*(1+1/float64(panel)) + 2) * math.Ldexp(1, -24) * terms, nil
}
