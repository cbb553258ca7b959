package slurm

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

var lostServer = regexp.MustCompile(`GPU server (\S+) is lost`)

// TestServerDies: ranks compute on devices of holdfast gpud, which runs as steps of
// their job on two spare nodes. The server that they use is killed, or its node
// dies: they learn it at once, and holdfast run starts them again from their newest
// epoch, on the other server.
func TestServerDies(t *testing.T) {
	t.Parallel()
	b := newBed(t, 4)
	b.Install(t, module+"apps/transpose")
	program := []string{b.bin + "/transpose", "-size", "300x200", "-rounds", "2000"}
	env := []string{"RUSTICL_ENABLE=llvmpipe", "POCL_MAX_PTHREAD_COUNT=1", patient}
	there, here := b.dir(t, "served")
	k := b.start(t, append(env, "HOLDFAST_DEVICE=pocl"), append(program, "-ranks", "1", "-out", there+"/want")...)
	if code := k.wait(); code != 0 {
		t.Fatalf("undisturbed run: exit %d\n%s", code, k.output())
	}
	want := read(t, here+"/want", k.output())
	for mpi, c := range []struct {
		name    string
		die     []string // verb of the test bed
		silence string   // until a dead node is noticed
		notice  time.Duration
	}{
		{"process", []string{"run-on", "n3", "pkill", "-9", "-x", "holdfast"}, "60s", 50 * time.Second},
		{"node", []string{"kill", "n3"}, "5s", 30 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := &job{bed: b, mpi: mpi, want: want}
			j.there, j.here = b.dir(t, "served-"+c.name)
			if err := os.Mkdir(j.here+"/ckpt", 0o755); err != nil {
				t.Fatal(err)
			}
			// The first start stays at the end, should it come there before the death.
			app := "#!/bin/sh\n[ -e " + j.there + "/go ] || export HOLDFAST_APPS_HOLD=1\nexec " +
				strings.Join(program, " ") + " -v -out " + j.there + "/result\n"
			if err := os.WriteFile(j.here+"/app", []byte(app), 0o755); err != nil {
				t.Fatal(err)
			}
			key := j.there + "/key"
			script := "#!/bin/bash\nfor n in n3 n4; do\n\tlog=" + j.there + "/gpud-$n\n" +
				"\tsrun --overlap --mpi=none --unbuffered -N1 -n1 -w $n " + b.bin +
				"/holdfast gpud --listen eth0:7478 --key " + key + " --device pocl > $log 2>&1 &\n" +
				"\tuntil grep -q 'listens at' $log; do sleep 0.1; done\ndone\n" +
				"exec " + b.bin + "/holdfast run --spares 2 -- " +
				strings.Join(append(b.srun(mpi, 2, nil), j.there+"/app"), " ") + "\n"
			device := fmt.Sprintf("HOLDFAST_DEVICE=key=%s,silence=%s,remote=n3:7478,remote=n4:7478,pocl", key,
				c.silence)
			j.sbatch(t, script, []string{"-N4", "--no-kill", "-t", "10"},
				append(env, device, "HOLDFAST_GLOBAL="+j.there+"/ckpt", "HOLDFAST_INTERVAL=200ms"), nil)
			poll(t, "two epochs", nil, j.log, func() bool { return newest(j.log(), "global") >= 2 })
			if err := os.WriteFile(j.here+"/go", nil, 0o644); err != nil {
				t.Fatal(err)
			}
			died := time.Now()
			b.Verb(t, c.die...)
			poll(t, "the loss of the server", nil, j.log, func() bool { return lostServer.MatchString(j.log()) })
			if took := time.Since(died); took > c.notice {
				t.Errorf("noticed %v after the death", took)
			}
			j.ends(t)
			m := accounts.FindStringSubmatch(j.log())
			if m == nil || m[5] == "" || m[5] == "1" {
				t.Errorf("it did not continue from the second epoch or a later one: %v", m)
			}
			if m := lostServer.FindStringSubmatch(j.log()); !strings.HasPrefix(m[1], "n3:") {
				t.Errorf("the error names %s, not the server that died", m[1])
			}
			if t.Log("\n" + j.decisions()); t.Failed() {
				t.Log(j.log())
			}
		})
	}
}
