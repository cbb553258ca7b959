package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hpc/holdfast/coordinated"
	"github.com/holdfast-hpc/holdfast/mpiwrap"
	"github.com/holdfast-hpc/holdfast/test/schema"
	"github.com/holdfast-hpc/holdfast/test/testbuf"
)

// victim is the program that TestRun starts: one simulated rank, which dies, fails or
// stops as VICTIM says.
func victim() {
	if os.Getenv("VICTIM") == "stuck" {
		time.Sleep(time.Hour) // until it is killed
	}
	world := mpiwrap.Single()
	ctx := context.Background()
	ck, err := coordinated.Open(ctx, world, coordinated.FromEnv())
	check := func(err error) {
		if err != nil && !errors.Is(err, coordinated.ErrStop) {
			fmt.Fprintln(os.Stderr, "victim:", err)
			os.Exit(9)
		}
	}
	check(err)
	step := 0
	check(ck.Protect("step", &step))
	_, err = ck.Restore(ctx)
	check(err)
	born := step
	mode := os.Getenv("VICTIM")
	if mode == "hopeless" {
		os.Exit(4)
	}
	if mode == "abort" || mode == "deny" {
		ck.Abort(errors.New("no such input"))
		os.Exit(map[string]int{"abort": 9, "deny": 0}[mode])
	}
	for err == nil && step < 60 {
		step++
		time.Sleep(5 * time.Millisecond) // the work
		if step%10 == 0 {
			check(ck.Request(ctx))
		}
		if err = ck.Point(ctx); err == nil && step%10 == 0 {
			if err = ck.Point(ctx); err == nil { // a signal may have come meanwhile
				check(ck.Wait(ctx, "global"))
			}
		}
		check(err)
		if mode == "ahead" && step == 30 && err == nil {
			check(syscall.Kill(os.Getpid(), syscall.SIGTERM))
		}
		if mode == "crash" && step == 25 && born == 0 {
			os.Exit(7)
		}
		for (mode == "wait" || mode == "ahead") && step == 30 && err == nil {
			time.Sleep(5 * time.Millisecond) // until a signal
			err = ck.Point(ctx)
		}
	}
	check(ck.Close())
	if mode == "slow" {
		time.Sleep(time.Second) // more work
	}
	if mode == "hang" {
		select {}
	}
	if mode == "ahead" || mode == "behind" {
		dir := os.Getenv("HOLDFAST_GLOBAL")
		check(os.WriteFile(filepath.Join(dir, "closed"), nil, 0o644))
		for _, err := os.Stat(filepath.Join(dir, "go")); err != nil; _, err = os.Stat(filepath.Join(dir, "go")) {
			time.Sleep(5 * time.Millisecond)
		}
	}
	if err != nil {
		os.Exit(3)
	}
	if mode == "code" {
		os.Exit(5)
	}
}

// victimEnv is for a victim of one mode outside of Slurm; it returns its global
// directory.
func victimEnv(t *testing.T, mode string) string {
	t.Helper()
	dir := t.TempDir()
	for name, value := range map[string]string{
		"SLURM_JOB_ID": "", "VICTIM": mode, "HOLDFAST_GLOBAL": dir, "HOLDFAST_LOCAL": "",
		"HOLDFAST_CONTROL_INTERFACE":    "127.0.0.1",
		"HOLDFAST_CONTROL_PEER_TIMEOUT": "1m", // a program without a core for seconds is not dead
	} {
		t.Setenv(name, value)
	}
	return dir
}

var accounted = regexp.MustCompile(
	`computing again \d+\.\d\d s after the death: notice \d+\.\d\d, relaunch \d+\.\d\d, ` +
		`fetch \d+\.\d\d, restore \d+\.\d\d; epoch 2 from global`)

// jsonLine is a line of the log of run --json; the program writes others.
var jsonLine = regexp.MustCompile(`(?m)^[{].*\n`)

// TestRun: a program without a launcher is started again after it died, and its
// ways to end have each their code.
func TestRun(t *testing.T) {
	for _, c := range []struct {
		name, victim string
		flags        []string
		code         int
		says         string // expression
	}{
		{"ends well", "well", nil, 0, `the program has ended`},
		{"dies once", "crash", nil, 0, accounted.String()},
		{"may not be started again", "crash", []string{"--max-restarts=0"}, 1, `giving up: .*--max-restarts`},
		{"dies each time", "hopeless", []string{"--max-restarts=3"}, 1,
			`(?s)waiting 1s: 2 runs.*waiting 2s: 3 runs.*giving up`},
		{"aborts each time", "abort", nil, 1,
			`(?s)start 3: .*giving up: the program aborted 3 times in a row with the same error.*: no such input`},
		{"aborts with code 0", "deny", nil, 1,
			`(?s)start 3: .*giving up: the program aborted 3 times in a row with the same error.*: no such input`},
		{"never comes to Open", "stuck", []string{"--start-timeout=200ms"}, 1,
			`(?s)start 2: .*not all ranks reached Open within 200ms.*giving up: the program ended`},
		{"says it as JSON", "well", []string{"--json"}, 0, `"start":1,"decision":"the program has ended"`},
		{"own code", "code", nil, 5, `launcher ended with code 5`},
		{"is slow after its end", "slow", nil, 0, `the program has ended`},
		{"hangs after its end", "hang", []string{"--end-timeout=300ms"}, 1,
			`nobody knows whether the program ended well`},
		{"is told to stop", "wait", []string{"--stall=1h", "--max-restarts=0"}, 75,
			`final checkpoint(?s).*stopped after the final checkpoint, epoch 4 at global`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := victimEnv(t, c.victim)
			var out bytes.Buffer
			errs := &testbuf.Buffer{}
			if c.victim == "wait" {
				go signalAt(t, dir)
			}
			args := append(append([]string{"run", "--interface=127.0.0.1"}, c.flags...), "--", os.Args[0])
			code := Run(t.Context(), args, &out, errs)
			if code != c.code || !regexp.MustCompile(c.says).MatchString(errs.String()) {
				t.Errorf("got code %d, want %d and %s\n%s", code, c.code, c.says, errs.String())
			}
			schema.Output(t, args, strings.Join(jsonLine.FindAllString(errs.String(), -1), ""))
		})
	}
}

// TestToldLate: a program that has closed, after a TERM of its own or at its end, is
// not sent the one that comes to this command then: it may be writing its results.
func TestToldLate(t *testing.T) {
	for _, c := range []struct {
		victim string
		code   int
		first  string // that is waited for
		says   string // expression
	}{
		{"ahead", 75, "rank 0 was sent TERM",
			`(?s)terminated: final checkpoint.*stopped after the final checkpoint, epoch \d+ at global`},
		{"behind", 0, "",
			`(?s)terminated: (final checkpoint|all ranks have called Close, so the program may end by itself)` +
				`.*the program has ended`},
	} {
		t.Run(c.victim, func(t *testing.T) {
			dir := victimEnv(t, c.victim)
			errs := &testbuf.Buffer{}
			code := make(chan int, 1)
			go func() {
				code <- Run(t.Context(), []string{"run", "--interface=127.0.0.1", "--max-restarts=0", "--", os.Args[0]},
					io.Discard, errs)
			}()
			until := func(holds func() bool) {
				for !holds() && len(code) == 0 {
					time.Sleep(5 * time.Millisecond)
				}
			}
			until(func() bool {
				_, err := os.Stat(filepath.Join(dir, "closed"))
				return err == nil && strings.Contains(errs.String(), c.first)
			})
			if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			until(func() bool { return strings.Contains(errs.String(), "terminated: ") })
			if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if got := <-code; got != c.code || !regexp.MustCompile(c.says).MatchString(errs.String()) {
				t.Errorf("got code %d, want %d and %s\n%s", got, c.code, c.says, errs)
			}
		})
	}
}

// TestRunCannotRestore: checkpoints that no start can read are not tried again and
// again.
func TestRunCannotRestore(t *testing.T) {
	dir := victimEnv(t, "well")
	errs := &testbuf.Buffer{}
	start := func() int {
		return Run(t.Context(), []string{"run", "--interface=127.0.0.1", "--", os.Args[0]}, io.Discard, errs)
	}
	if code := start(); code != 0 {
		t.Fatalf("got code %d\n%s", code, errs)
	}
	shards, err := filepath.Glob(filepath.Join(dir, "epoch-*", "rank-*"))
	if err != nil || len(shards) == 0 {
		t.Fatalf("no shards: %v", err)
	}
	for _, p := range shards {
		if err := os.Remove(p); err != nil {
			t.Fatal(err)
		}
	}
	if code := start(); code != 1 ||
		!regexp.MustCompile(`giving up: .*no rank can read the committed epoch`).MatchString(errs.String()) {
		t.Errorf("got code %d, want 1 and the reason\n%s", code, errs)
	}
}

// signalAt sends this process USR2, which means stop, when the program has its third epoch.
func signalAt(t *testing.T, dir string) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-t.Context().Done():
			return
		case <-tick.C:
		}
		if found, _ := filepath.Glob(filepath.Join(dir, "epoch-*3")); len(found) > 0 {
			if err := syscall.Kill(os.Getpid(), syscall.SIGUSR2); err != nil {
				t.Error(err)
			}
			return
		}
	}
}
