package readme

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// A line of a page is run here, by the test that elsewhere names, or nowhere for the reason that it gives.
var elsewhere = []struct{ line, by string }{
	{`^holdfast (verify|repair|copy|ls|show|keep|prune|flush|config|man|export \S+( [a-z]+)? --from)\b`, "here"},
	{`^holdfast export .* gpu/`, "cmd/holdfast/internal/epochs/export_test.go TestExportVerb"},
	{`^holdfast image`, "test/opencl/image_test.go TestImaged"},
	{`holdfast run --image|^export HOLDFAST_INTERVAL=1h|^kill -TERM %1`, "test/opencl/runimage_test.go TestRunImages"},
	{`^holdfast node`, "test/node/daemons_test.go TestDaemonEnvironment"},
	{`^export HOLDFAST_METRICS`, "test/e2e/observe_test.go TestStatusMetricsReport"},
	{`^HOLDFAST_CUDA_CHECK|>without.txt`, "test/cuda/cuda_test.go TestRollBacks"},
	{`^holdfast report`, "cmd/holdfast/internal/jobs/report_test.go TestReport"},
	{`^(bin/)?holdfast request`, "cmd/holdfast/internal/jobs/request_test.go TestRequestWaits"},
	{`^holdfast status`, "cmd/holdfast/internal/jobs/status_test.go TestStatusText"},
	{`holdfast doctor`, "cmd/holdfast/doctor_test.go TestDoctor"},
	{`^holdfast run (--cuda|.* --cuda)|^holdfast (pause|resume)|^holdfast migrate (\$!|\d|/)`,
		"test/cuda/command_test.go TestRunCUDA"},
	{`^holdfast run -- mpirun`, "test/mpilayer/run_test.go TestRunPreloads"},
	{`holdfast run --spares|^for n in |^export HOLDFAST_DEVICE=key=|^(exec )?srun .*gpud`,
		"test/slurm/remote_test.go TestServerDies"},
	{`srun|sbatch|slurm/`, "test/slurm/run_test.go TestDeaths"},
	{`^holdfast (gpud|migrate|balance)`, "test/remote/cluster_test.go TestAcrossNodes"},
	{`^HOLDFAST_DEVICE=remote|^\./nbody -device remote`, "test/remote/remote_test.go TestMovedAtRandomMoments"},
	{`^holdfast bench (gpu|remote|opencl|apps).*(cuda|nvidia)|^export OCL_ICD_FILENAMES`, "it needs a GPU of NVIDIA"},
	{`^holdfast bench`, "bench/cmd/holdfast-bench/commands_test.go TestEverySuite"},
	{`^go (-C bench )?test .*(-bench|-timeout)`, "it measures for minutes"},
	{`^make (demo|test)`, "it is the suite itself, or takes minutes"},
	{`^make `, "test/readme/readme_test.go TestTargets"},
	{`^(export OCL_ICD_VENDORS|\./program &)`, "test/opencl/start_test.go TestStart"},
	{`criu`, "it builds CRIU"},
	{`^LD_PRELOAD=.*cuda|^export LD_PRELOAD=.*cuda|^export HOLDFAST_CUDA`, "test/cuda/pause_test.go TestPause"},
	{`-lholdfast-mpi|libholdfast-mpi`, "test/mpilayer/run_test.go TestRunPreloads"},
	{`veloc`, "test/veloc/veloc_test.go TestInstalled"},
	{`^(export HOLDFAST_GLOBAL|mpirun -n 2 bin/hello|kill -9)`, "test/readme/readme_test.go TestFirstCheckpoint"},
	{`^(mpicc|mpicxx|mpifort|src=|mpirun|mkdir|module|kill -USR1)`, "test/node/install_test.go TestInstall"},
}

// shellLines returns the commands of a page: lines of blocks of sh, and indented ones that begin with a word of a
// shell.
func shellLines(page string) (lines []string) {
	text := regexp.MustCompile(`(?m)^holdfast run: .*$`).ReplaceAllString(page, "")
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllStringSubmatch(text, -1) {
		lines = append(lines, strings.Split(strings.ReplaceAll(m[1], "\\\n", " "), "\n")...)
	}
	command := regexp.MustCompile(`^    ((bin/)?holdfast [a-z]+ |[A-Z_]+=\S+ |\./|` +
		`(make|mpi[a-z]+|srun|sbatch|export|exec|go|kill|mkdir|module) )`)
	for _, line := range indent.FindAllString(fence.ReplaceAllString(text, ""), -1) {
		if command.MatchString(line) {
			lines = append(lines, line)
		}
	}
	for i, line := range lines {
		line, _, _ = strings.Cut(line, " #")
		lines[i] = strings.TrimSpace(line)
	}
	return lines
}

// way returns how a line is run: "here", a file and a test, or why it is not; "" for a line that no entry has.
func way(line string) string {
	for _, e := range elsewhere {
		if regexp.MustCompile(e.line).MatchString(line) {
			return e.by
		}
	}
	return ""
}

// linesRun: each command of the users' pages and of --help runs in a test. Those that only read and copy checkpoints
// run here, on the directories of a job of three nodes, with the holdfast of a folder.
func linesRun(t *testing.T, bin string) {
	texts := map[string][]string{}
	for name, page := range pages(t) {
		if name == "README.md" || filepath.Dir(name) == "docs" {
			texts[name] = shellLines(page)
		}
	}
	helps, err := filepath.Glob(root + "/cmd/holdfast/internal/*/help/*.txt")
	top, _ := filepath.Glob(root + "/cmd/holdfast/help/*.txt") // the pattern is right
	helps = append(helps, top...)
	if err != nil || len(helps) < 15 {
		t.Fatalf("%d help texts: %v", len(helps), err)
	}
	for _, file := range helps {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range regexp.MustCompile(`(?m)^  holdfast [a-z]+ .*$`).FindAllString(string(text), -1) {
			texts[filepath.Base(file)] = append(texts[filepath.Base(file)], strings.TrimSpace(line))
		}
	}
	here := 0
	for name, lines := range texts {
		site := sync.OnceValue(func() site { return newSite(t, bin) })
		for _, line := range lines {
			by := way(line)
			file, test, _ := strings.Cut(by, " ")
			switch {
			case line == "" || strings.HasPrefix(line, "#"):
			case by == "":
				t.Errorf("%s: no test runs %q, and lines_test.go gives no reason", name, line)
			case by == "here":
				here++
				if out, err := site().run(line); err != nil {
					t.Errorf("%s: %s: %v: %s", name, line, err, out)
				}
			case strings.HasSuffix(file, "_test.go"):
				if !strings.Contains(read(t, file), "func "+test+"(") {
					t.Errorf("%s: %q: there is no test %s", name, line, by)
				}
			default:
				if missing := unknownNames(t, line); len(missing) > 0 {
					t.Errorf("%s: %q: there is no %q", name, line, missing)
				}
			}
		}
	}
	if here < 15 {
		t.Errorf("%d lines were run, want 15 at least", here)
	}
	site := newSite(t, bin)
	if _, err := site.run("holdfast verify /lustre/me/nothing"); err == nil || way("rm -rf /lustre") != "" {
		t.Error("a line that fails and a line of no test pass")
	}
	for line, n := range map[string]int{"go test ./slurm -run 'TestNone|TestTemporary' -timeout 1m": 1,
		"holdfast bench gpu --gib 4 --colour red": 1, "make demon": 1, "sh scripts/criu.sh /tmp": 0} {
		if missing := unknownNames(t, line); len(missing) != n {
			t.Errorf("%s: found %q", line, missing)
		}
	}
}

// unknownNames reports the tests, flags, targets and scripts that a line names and the repository lacks: a line that no
// test runs has at least these.
func unknownNames(t *testing.T, line string) (missing []string) {
	in := func(names []string, pattern, form string) {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			missing = append(missing, pattern)
			return
		}
		var all strings.Builder
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
		for _, name := range names {
			if !regexp.MustCompile(fmt.Sprintf(form, name)).MatchString(all.String()) {
				missing = append(missing, name)
			}
		}
	}
	words := strings.Fields(strings.ReplaceAll(line, "'", ""))
	switch {
	case words[0] == "go":
		folder := map[bool]string{true: "bench/"}[words[1] == "-C"]
		for i, w := range words {
			switch {
			case strings.HasPrefix(w, "./"):
				folder += w[2:]
			case (w == "-run" || w == "-bench") && words[i+1] != "^$":
				in(strings.Split(words[i+1], "|"), folder+"/*_test.go", `(?m)^func (Test|Benchmark)?\w*%s`)
			}
		}
	case words[0] == "make":
		in(words[1:], "Makefile", `(?m)^%s:`)
	case words[0] == "sh":
		in(nil, words[1], "")
	case strings.HasPrefix(line, "holdfast bench"):
		for _, w := range words {
			if name, ok := strings.CutPrefix(w, "--"); ok {
				in([]string{name}, "bench/cmd/holdfast-bench/*.go", `"%s"`)
			}
		}
	}
	return missing
}

// A site has the checkpoints of a job of three nodes at the places that the pages name.
type site struct {
	dir, bin string
}

func newSite(t *testing.T, bin string) site {
	t.Helper()
	s := site{t.TempDir(), bin}
	for _, set := range []string{"v2", "v2-items"} {
		from, to := filepath.Join(root, "storage/internal/format/testdata", set), filepath.Join(s.dir, set)
		copies := map[string]string{"global": "lustre/me/ckpt"}
		for n := range 3 {
			node := fmt.Sprintf("n%d", n)
			copies[node+"/local"] = "nodes/" + node + "/ckpt"
			copies[node+"/partner"] = "nodes/" + node + "/ckpt/partner"
			copies[node+"/parity"] = "nodes/" + node + "/ckpt/parity"
		}
		for what, place := range copies {
			if err := os.CopyFS(filepath.Join(to, place), os.DirFS(filepath.Join(from, what))); err != nil {
				t.Fatal(err)
			}
		}
		for _, place := range []string{"archive", "scratch/me", "man"} {
			if err := os.MkdirAll(filepath.Join(to, place), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

// run runs a line with the site's directories, and an epoch and names that its checkpoints have.
func (s site) run(line string) (out []byte, err error) {
	dir := filepath.Join(s.dir, "v2")
	if strings.Contains(line, "cells") {
		dir = filepath.Join(s.dir, "v2-items")
	}
	line, _, _ = strings.Cut(line, " && ")
	line = strings.NewReplacer(" /lustre/", " "+dir+"/lustre/", " /nodes/", " "+dir+"/nodes/",
		" s3://", " "+dir+"/", " /scratch/", " "+dir+"/scratch/", " /tmp/", " "+dir+"/",
		" DIR", " "+dir+"/lustre/me/ckpt", " 120", " 2", " energy ", " layout ").Replace(line)
	cmd := exec.Command("bash", "-c", line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+s.bin+":"+os.Getenv("PATH"), "HOLDFAST_GLOBAL="+dir+"/lustre/me/ckpt")
	return cmd.CombinedOutput()
}
