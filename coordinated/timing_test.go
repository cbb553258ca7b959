package coordinated

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated/internal/connect/connecttest"
	"github.com/holdfast-hpc/holdfast/internal/config"
	"github.com/holdfast-hpc/holdfast/internal/testbuf"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/mpiwrap/mpitest"
)

// TestTiming: settings that say nothing of the time take checkpoints at Daly's interval for a day. What the user says
// wins, and so does a program that changes what FromEnv returns.
func TestTiming(t *testing.T) {
	const byDay = "Daly's interval for mtbf 24h (default)"
	for _, c := range []struct {
		name, file, interval, mtbf string
		program                    func(*Options)
		want                       string // empty: none by the clock
	}{
		{name: "nothing", want: byDay},
		{name: "variable", interval: "10m", want: "every 10m (HOLDFAST_INTERVAL)"},
		{name: "file", file: "interval: 90s", want: "every 1m30s (interval in holdfast.yaml)"},
		{name: "mtbf wins", interval: "10m", mtbf: "2h", want: "mtbf 2h (HOLDFAST_MTBF)"},
		{name: "off", interval: "off"},
		{name: "zero", interval: "0s"},
		{name: "off wins over the file", file: "mtbf: 12h", interval: "off"},
		{name: "mtbf off", mtbf: "off"},
		{name: "mtbf off beside an interval", mtbf: "off", interval: "5s", want: "every 5s (HOLDFAST_INTERVAL)"},
		{name: "of the program", program: func(o *Options) { o.Interval = time.Hour },
			want: "every 1h (Options.Interval)"},
		{name: "not of FromEnv", program: func(o *Options) { *o = Options{} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			clean(t)
			write(t, config.File, c.file+"\n")
			t.Setenv("HOLDFAST_INTERVAL", c.interval)
			t.Setenv("HOLDFAST_MTBF", c.mtbf)
			o := FromEnv()
			if o.bad != nil {
				t.Fatal(o.bad)
			}
			if c.program != nil {
				c.program(&o)
			}
			if got := o.Timing(); !strings.HasSuffix(got, c.want) || c.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if says := o.whenTaken(); (c.want == "") != strings.HasPrefix(says, "only when asked for; none by the") {
				t.Errorf("got %q", says)
			}
		})
	}
}

// TestDefaultInterval: on virtual time, a program whose settings say nothing takes its first checkpoint after 7 minutes
// and, however cheap that was, no other before 7 more. One that never comes to a point is not asked, and not warned.
func TestDefaultInterval(t *testing.T) {
	for name, points := range map[string]bool{"points": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log testbuf.Buffer
				opt, err := memOptions()
				if err != nil {
					t.Fatal(err)
				}
				opt.fromEnv, opt.Logger = true, slog.New(slog.NewTextHandler(&log, nil))
				opt.plane = connecttest.NewNet(2).Plane
				if err := mpitest.NewWorld(2, mpitest.Options{}).Run(func(world *mpiwrap.Comm) error {
					return computeFor(world, opt, 20*time.Minute, points, t)
				}); err != nil {
					t.Fatal(err)
				}
				out := log.String()
				if !strings.Contains(out, "by the clock: the first after 6m55s") ||
					strings.Contains(out, "level=WARN") || strings.Contains(out, "level=ERROR") {
					t.Error(out)
				}
			})
		})
	}
}

// computeFor comes to a Point each second for a time, or to none.
func computeFor(world *mpiwrap.Comm, opt Options, d time.Duration, points bool, t *testing.T) error {
	ck, err := Open(context.Background(), world, opt)
	if err != nil {
		return err
	}
	if _, err := ck.Restore(context.Background()); err != nil {
		return err
	}
	var at []time.Duration
	for begun, epochs := time.Now(), 0; time.Since(begun) < d; time.Sleep(time.Second) {
		if !points {
			continue
		}
		if err := ck.Point(context.Background()); err != nil {
			return err
		}
		if n := len(ck.Stats().Epochs); n > epochs {
			epochs, at = n, append(at, time.Since(begun).Round(time.Minute))
		}
	}
	if want := 2; len(at) != want && points || len(at) != 0 && !points {
		t.Errorf("checkpoints at %v", at)
	} else if points && (at[0] != 7*time.Minute || at[1] != 14*time.Minute) {
		t.Errorf("checkpoints at %v", at)
	}
	return ck.Close()
}
