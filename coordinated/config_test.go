package coordinated

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/config"
)

// clean removes what the environment says of checkpoints, and goes to an empty
// directory.
func clean(t *testing.T) string {
	t.Helper()
	for _, s := range settings {
		t.Setenv(s.Var(), "")
	}
	for _, name := range []string{config.FileVar, "SLURM_JOB_NAME", "SLURM_JOB_END_TIME"} {
		t.Setenv(name, "")
	}
	dir := t.TempDir()
	t.Chdir(dir)
	return dir
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestConfigPrecedence: flag over variable over file over default, each told.
func TestConfigPrecedence(t *testing.T) {
	clean(t)
	write(t, config.File, "local: /a\nglobal: /b\ninterval: 5m\nmtbf: 24h\nflush_rate: 2GiB\nkeep: 3\n"+
		"signals:\n  checkpoint: [USR1, HUP]\n  stop: []\ncontrol:\n  peer_timeout: 9s\nmetrics: /m\n")
	t.Setenv("HOLDFAST_GLOBAL", "/c")
	t.Setenv("HOLDFAST_INTERVAL", "6m")
	c := ReadConfig("")
	if err := c.Set("interval", "7m", "-interval"); err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	o := c.Options()
	if o.Local != "/a" || o.Global != "/c" || o.Interval != 7*time.Minute || o.MTBF != 24*time.Hour ||
		o.FlushRate != 2<<30 || o.Keep != 3 || o.PeerTimeout != 9*time.Second || o.MetricsDir != "/m" ||
		o.MetricsListen != "" ||
		!slices.Equal(o.CheckpointSignals, []os.Signal{syscall.SIGUSR1, syscall.SIGHUP}) || o.StopSignals == nil ||
		len(o.StopSignals) != 0 {
		t.Errorf("got %+v", o)
	}
	sources := map[string]string{}
	for _, v := range c.Values() {
		sources[v.Key] = v.Source
	}
	for key, want := range map[string]string{"local": config.File, "global": "HOLDFAST_GLOBAL", "interval": "-interval",
		"redundancy": "default"} {
		if sources[key] != want {
			t.Errorf("%s comes from %q, want %q", key, sources[key], want)
		}
	}
}

// TestConfigRefuses: every mistake names the key, where it stands and what is
// allowed, and one error has all of them.
func TestConfigRefuses(t *testing.T) {
	for _, c := range []struct {
		file string
		want []string
	}{
		{"intervall: 5m", []string{"intervall", config.File, "do you mean interval?"}},
		{"controll:\n  interface: ib0", []string{"controll.interface", "do you mean control.interface?"}},
		{"peer_timeout: 1s", []string{"peer_timeout", "do you mean control.peer_timeout?"}},
		{"checkpoint_interval: 5m", []string{"do you mean interval?"}},
		{"redundency: partner:1", []string{"do you mean redundancy?"}},
		{"lokal: /x", []string{"do you mean local?"}},
		{"mtfb: 5m", []string{"do you mean mtbf?"}},
		{"peer_timeot: 1s", []string{"do you mean control.peer_timeout?"}},
		{"stripes: 4", []string{"stripes: holdfast.yaml: this setting is gone: run lfs setstripe"}},
		{"metrics:\n  dir: /x", []string{"metrics.dir", "this setting is gone: use metrics, with the directory"}},
		{"metrics: here", []string{"metrics", "an absolute directory, or an address"}},
		{"events: /x", []string{"events", "on or off"}},
		{"zzz: 1", []string{"zzz", "'holdfast config --all' lists them"}},
		{"interval: 300", []string{"interval", "no unit", "a duration such as 90s"}},
		{"interval: -5m", []string{"interval", "negative"}},
		{"compress: maybe", []string{"compress", `"maybe"`, "true or false"}},
		{"keep: 1", []string{"keep", "2 or more"}},
		{"keep: 0", []string{"keep", "2 or more"}}, // 0 means all elsewhere
		{"cut_timeout: 0s", []string{"cut_timeout", "more than 0"}},
		{"control:\n  peer_timeout: 0s", []string{"control.peer_timeout", "more than 0"}},
		{"epoch: -1", []string{"epoch", "0 or more"}},
		{"flush_rate: fast", []string{"flush_rate", "500M or 2GiB"}},
		{"redundancy: mirror", []string{"redundancy", "partner:K or parity:D+P"}},
		{"signals:\n  stop: [KILL]", []string{"signals.stop", `unknown signal "KILL"`}},
		{"local: [", []string{config.File}},
		{"log: loud", []string{"log", `"loud"`, "debug, info, warn or error"}},
		{"mtbf: x\nfresh: y", []string{"mtbf", "fresh"}},
	} {
		clean(t)
		write(t, config.File, c.file+"\n")
		err := ReadConfig("").Err()
		if err == nil {
			t.Errorf("%q: no error", c.file)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: got %q, want %q in it", c.file, err, want)
			}
		}
		o := FromEnv()
		if verr := o.validate(); verr == nil || verr.Error() != err.Error() {
			t.Errorf("%q: Open would say %v, want %v", c.file, verr, err)
		}
	}
}

// TestConfigOrder: of several mistakes those with a remedy come first, and a missing directory comes with the variable
// that was probably meant for it.
func TestConfigOrder(t *testing.T) {
	clean(t)
	write(t, config.File, "aaa: 1\nintervall: 5m\nkeep: many\n")
	err := ReadConfig("").Err()
	if got := strings.Split(err.Error(), "\n"); len(got) != 3 || !strings.Contains(got[0], "do you mean interval?") ||
		!strings.Contains(got[1], "keep") || !strings.Contains(got[2], "aaa") {
		t.Errorf("got %q", got)
	}
	clean(t)
	t.Setenv("HOLDFAST_GLOBEL", "/x")
	o := FromEnv()
	const want = "checkpoints; HOLDFAST_GLOBEL is set, but Holdfast has no such variable, do you mean HOLDFAST_GLOBAL?"
	if err := o.validate(); err == nil || !strings.HasPrefix(err.Error(), "no directory for checkpoints") ||
		!strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want it to end with %q", err, want)
	}
	clean(t)
	t.Setenv("HOLDFAST_GLOBAL", t.TempDir())
	t.Setenv("HOLDFAST_GLOBAL_EVERY", "3")
	o = FromEnv()
	if err := o.validate(); err == nil || strings.Contains(err.Error(), "GlobalEvery") {
		t.Errorf("got %v, want it in words of the environment", err)
	}
}

// TestStray: a variable that is misspelt is named, and those of other parts of
// Holdfast are not.
func TestStray(t *testing.T) {
	clean(t)
	got := ReadConfig("").Stray([]string{"HOLDFAST_INTERVALL=5m", "HOLDFAST_GLOBAL=/x", "HOLDFAST_DEVICE=pocl",
		"HOLDFAST_GPUD_KEY=/k",
		"HOLDFAST_METRICS_DIR=/m", "HOLDFAST_XYZZY=1", "HOME=/root", "HOLDFAST_PEER_TIMEOUT=3s"})
	want := []string{"HOLDFAST_INTERVALL is set, but Holdfast has no such variable, do you mean HOLDFAST_INTERVAL?",
		"HOLDFAST_METRICS_DIR is set, but this setting is gone: use metrics, with the directory",
		"HOLDFAST_PEER_TIMEOUT is set, but Holdfast has no such variable, do you mean HOLDFAST_CONTROL_PEER_TIMEOUT?",
		"HOLDFAST_XYZZY is set, but Holdfast has no such variable"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, s := range settings {
		if gone := config.Removed(s.Key); gone != "" {
			t.Errorf("%s is a setting, and %s", s.Key, gone)
		}
	}
}

// TestConfigServer: a job goes on past keys that were settings of holdfast gpud, and says what stands in their place.
func TestConfigServer(t *testing.T) {
	dir := clean(t)
	write(t, config.File, "local: "+dir+"\ngpud:\n  silence: 9s\n")
	c := ReadConfig("")
	want := config.File + " has gpud.silence, but this setting is gone: use the flag --timeout of holdfast gpud"
	if got := c.Stray(nil); c.Check() != nil || !slices.Equal(got, []string{want}) {
		t.Errorf("got %v and %q, want a warning", c.Check(), got)
	}
}

func TestConfigFiles(t *testing.T) {
	dir := clean(t)
	if err := ReadConfig("").Err(); err != nil {
		t.Errorf("without a file: %v", err)
	}
	if err := ReadConfig("missing.yaml").Err(); err == nil || !strings.Contains(err.Error(), "missing.yaml") {
		t.Errorf("a file that is named and missing: %v", err)
	}
	other := filepath.Join(dir, "other.yaml")
	write(t, other, "job: from-other\n")
	t.Setenv(config.FileVar, other)
	if c := ReadConfig(""); c.Options().Job != "from-other" || c.File != other {
		t.Errorf("got job %q of file %q", c.Options().Job, c.File)
	}
	if err := ReadConfig("").Set("nothing", "1", "-nothing"); err == nil {
		t.Error("an unknown key was set")
	}
}

// TestConfigDevice: the device can stand in the file, with its servers and their
// key, and a variable wins.
func TestConfigDevice(t *testing.T) {
	clean(t)
	write(t, config.File, "device: [remote=node7:7478, silence=20s, cuda:1]\ngpud:\n  key: /k\n")
	o := ReadConfig("").Options()
	if d := o.Device; d.Remote != "node7:7478" || d.Silence != 20*time.Second || d.Kind != "cuda" || d.Index != 1 ||
		d.KeyFile != "/k" {
		t.Errorf("got %+v", d)
	}
	t.Setenv("HOLDFAST_DEVICE", "remote=a:1,key=/own,pocl")
	if d := ReadConfig("").Options().Device; d.Remote != "a:1" || d.KeyFile != "/own" {
		t.Errorf("got %+v", d)
	}
	t.Setenv("HOLDFAST_DEVICE", "cuda:x")
	if err := ReadConfig("").Err(); err == nil || !strings.Contains(err.Error(), "HOLDFAST_DEVICE") {
		t.Errorf("got %v, want the variable named", err)
	}
}

func TestConfigMaxShadow(t *testing.T) {
	for text, want := range map[string]int64{"none": -1, "1MiB": 1 << 20, "1000": 1000} {
		var opt Options
		if err := setMaxShadow(&opt, text); err != nil || opt.MaxShadow != want {
			t.Errorf("max_shadow %s: %d, %v", text, opt.MaxShadow, err)
		}
	}
	if err := setMaxShadow(&Options{}, "some"); err == nil {
		t.Error("max_shadow some is understood")
	}
}

// TestLogLevel: the key log decides which lines the log has, whether its Logger would take them or not; without it the
// Logger does.
func TestLogLevel(t *testing.T) {
	for _, c := range []struct {
		key, want string
		own       slog.Level
	}{
		{"", "IWE", slog.LevelInfo},
		{"", "E", slog.LevelError},
		{"", "DIWE", slog.LevelDebug},
		{"debug", "DIWE", slog.LevelInfo},
		{"info", "IWE", slog.LevelInfo},
		{"warn", "WE", slog.LevelInfo},
		{"error", "E", slog.LevelDebug},
	} {
		clean(t)
		t.Setenv("HOLDFAST_LOG", c.key)
		t.Setenv("HOLDFAST_GLOBAL", t.TempDir())
		var out bytes.Buffer
		o := FromEnv()
		o.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: c.own}))
		if err := o.validate(); err != nil {
			t.Fatal(err)
		}
		log := o.Logger.With("rank", 0).WithGroup("g")
		log.Debug("x")
		log.Info("x")
		log.Warn("x")
		log.Error("x")
		var got strings.Builder
		for line := range strings.Lines(out.String()) {
			_, level, _ := strings.Cut(line, "level=")
			got.WriteByte(level[0])
		}
		if got.String() != c.want {
			t.Errorf("log %q of a Logger of level %v: %q, want %q", c.key, c.own, got.String(), c.want)
		}
	}
}

// TestEventsRefused: events are logged beside the checkpoints, and nowhere else.
func TestEventsRefused(t *testing.T) {
	if o := (Options{Local: "/l", Events: "/elsewhere"}); o.validate() == nil {
		t.Error("a directory for events was accepted")
	}
}

// TestOff: what switches checkpoints off, and what only leaves a level out.
func TestOff(t *testing.T) {
	for _, c := range []struct {
		name, file, local, global string
		off, has                  string // what has checkpoints has this directory
	}{
		{name: "global", global: "off", off: "HOLDFAST_GLOBAL=off"},
		{name: "local", local: "off", off: "HOLDFAST_LOCAL=off"},
		{name: "both", local: "off", global: "off", off: "HOLDFAST_LOCAL=off, HOLDFAST_GLOBAL=off"},
		{name: "file", file: "global: off\n", off: "holdfast.yaml: global: off"},
		{name: "over the file", file: "global: /a\n", global: "off", off: "HOLDFAST_GLOBAL=off"},
		{name: "local only", file: "global: /a\n", local: "/b", global: "off", has: "/b"},
		{name: "global only", file: "global: /a\n", local: "off", has: "/a"},
		{name: "a directory of this name", local: "./off", has: "./off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			clean(t)
			write(t, config.File, c.file)
			t.Setenv("HOLDFAST_LOCAL", c.local)
			t.Setenv("HOLDFAST_GLOBAL", c.global)
			o := FromEnv()
			if got := o.Off(); got != c.off || o.Local+o.Global != c.has {
				t.Errorf("off by %q with %q and %q, want %q with %q", got, o.Local, o.Global, c.off, c.has)
			}
			if err := o.validate(); err != nil {
				t.Error(err)
			}
		})
	}
	o := Options{Global: "off"}
	if got := o.Off(); got != "Global=off" {
		t.Errorf("an option is off by %q", got)
	}
	clean(t)
	o = FromEnv()
	if err := o.validate(); err == nil || !strings.Contains(err.Error(), "HOLDFAST_GLOBAL=off") {
		t.Errorf("without directories: %v", err)
	}
}

// TestEveryRefused: paces that mean nothing, or of levels that are not in use.
func TestEveryRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"GlobalEvery":     {Local: "/l", Global: "/g", GlobalEvery: Every{Epochs: 2, Time: 1}},
		"RedundancyEvery": {Local: "/l", Global: "/g", RedundancyEvery: Every{Epochs: 2}},
	} {
		var bad *OptionError
		if err := o.validate(); !errors.As(err, &bad) || bad.Name != want {
			t.Errorf("%s: got %v", want, err)
		}
	}
	for text, want := range map[string]string{"4": "every 4 epochs", "10m": "every 10m0s", "0": "every epoch",
		"1": "every epoch"} {
		t.Setenv("HOLDFAST_GLOBAL_EVERY", text)
		c := ReadConfig("")
		var o Options
		c.keys.Apply(&o)
		if got := o.GlobalEvery.String(); got != want || c.Err() != nil {
			t.Errorf("%s: got %s, %v", text, got, c.Err())
		}
	}
	t.Setenv("HOLDFAST_GLOBAL_EVERY", "-3")
	if err := ReadConfig("").Err(); err == nil || !strings.Contains(err.Error(), "negative") {
		t.Errorf("got %v", err)
	}
}

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
