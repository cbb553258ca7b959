package node

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// installed is a tree that `make install` has made for another place: nothing in it may know where
// it was made.
type installed struct{ prefix string }

func install(t *testing.T) installed {
	t.Helper()
	dest := filepath.Join(t.TempDir(), "dest")
	must(t, "make", "-s", "-C", "../..", "install", "BIN="+built.dir, "LIB="+built.lib, "PREFIX=/opt/holdfast",
		"DESTDIR="+dest)
	prefix := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(filepath.Join(dest, "opt/holdfast"), prefix); err != nil {
		t.Fatal(err)
	}
	return installed{prefix}
}

func (i installed) path(elem ...string) string {
	return filepath.Join(append([]string{i.prefix}, elem...)...)
}

// environ returns the environ of a job, in which nothing leads to the installed command.
func (i installed) environ(t *testing.T) []string {
	return append(environ(t, t.TempDir()), "HOLDFAST_BIN=", "PATH=/usr/bin:/bin")
}

// static is environ for programs that know no place beside which the command could lie.
func (i installed) static(t *testing.T) []string {
	return append(i.environ(t), "HOLDFAST_BIN="+i.path("bin/holdfast"))
}

// flags returns what pkg-config has for a module, as a shell takes it apart.
func (i installed) flags(t *testing.T, args ...string) []string {
	t.Helper()
	const script = `all=$(pkg-config "$@") && eval "set -- $all" && printf '%s\n' "$@"`
	c := exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
	c.Env = append(os.Environ(), "PKG_CONFIG_PATH="+i.path("lib/pkgconfig"))
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("pkg-config %v: %v\n%s", args, err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// compile compiles sources in a folder of their own.
func (i installed) compile(t *testing.T, compiler string, module string, sources ...string) string {
	t.Helper()
	dir := t.TempDir()
	out := filepath.Join(dir, "program")
	args := append(sources, i.flags(t, "--cflags", "--libs", module)...)
	c := exec.Command(compiler, append(args, "-o", out)...)
	c.Dir = dir
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, text)
	}
	return out
}

// TestInstall builds programs with what was installed, in each way that there is, and runs them.
func TestInstall(t *testing.T) {
	i := install(t)
	want := heatInC(t)
	t.Run("library", func(t *testing.T) { checkSoname(t, i) })
	t.Run("pages", func(t *testing.T) { checkPages(t, i) })
	t.Run("the rest", func(t *testing.T) { checkRest(t, i) })
	t.Run("cmake", func(t *testing.T) { buildWithCMake(t, i, want) })
	t.Run("pkg-config", func(t *testing.T) { buildWithPkgConfig(t, i, want) })
	t.Run("module", func(t *testing.T) { useModule(t, i) })
	t.Run("wheel", func(t *testing.T) { makeWheel(t, i, want) })
	t.Run("recipe", func(t *testing.T) {
		must(t, "python3", "-c", "import ast; ast.parse(open('../../packaging/spack/holdfast/package.py').read())")
	})
	t.Run("START.md", func(t *testing.T) { buildThePage(t, i) })
}

// release returns the version that the command reports: that of holdfast.h, as its own test checks.
func release(t *testing.T, i installed) string {
	t.Helper()
	return strings.Fields(must(t, i.path("bin/holdfast"), "--version"))[2]
}

func checkSoname(t *testing.T, i installed) {
	if out := must(t, "readelf", "-d", i.path("lib/libholdfast.so")); !strings.Contains(out, "[libholdfast.so.0]") {
		t.Errorf("another soname than libholdfast.so.0:\n%s", out)
	}
	version := release(t, i)
	if got := strings.TrimSpace(must(t, "env", "PKG_CONFIG_PATH="+i.path("lib/pkgconfig"), "pkg-config", "--modversion",
		"holdfast")); got != version {
		t.Errorf("pkg-config has version %q, want %s", got, version)
	}
	for path, want := range map[string]string{
		"lib/libholdfast.so." + version:                    "",
		"share/modulefiles/holdfast/" + version:            "Holdfast " + version,
		"lib/cmake/holdfast/holdfast-config-version.cmake": `set(PACKAGE_VERSION "` + version + `"`,
	} {
		if text, err := os.ReadFile(i.path(path)); err != nil || !bytes.Contains(text, []byte(want)) {
			t.Errorf("%s has not version %s: %v", path, version, err)
		}
	}
	err := filepath.WalkDir(i.prefix, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "bin/holdfast") {
			return err
		}
		b, err := os.ReadFile(path) // a broken link fails here
		if bytes.Contains(b, []byte("@PREFIX@")) || bytes.Contains(b, []byte("/opt/holdfast")) {
			t.Errorf("%s has a path of its place, or one that was not filled in", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// checkPages wants a page for each call, without complaints of groff.
func checkPages(t *testing.T, i installed) {
	header, err := os.ReadFile("../../lib/holdfast.h")
	if err != nil {
		t.Fatal(err)
	}
	calls := regexp.MustCompile(`(?m)^(?:int|const char \*|FILE \*) ?(hf_\w+)\(`).FindAllSubmatch(header, -1)
	if len(calls) < 11 {
		t.Fatalf("%d calls in holdfast.h", len(calls))
	}
	for _, c := range calls {
		if _, err := os.Stat(i.path("share/man/man3", string(c[1])+".3")); err != nil {
			t.Errorf("%s has no manual page: add it to one in man/ (%v)", c[1], err)
		}
	}
	pages, err := filepath.Glob(i.path("share/man/man*/*"))
	if err != nil || len(pages) < len(calls)+20 {
		t.Fatalf("%d pages (%v)", len(pages), err)
	}
	// One run for all: groff names the file of a warning.
	out, err := exec.Command("groff", append([]string{"-ww", "-mandoc", "-Tutf8", "-z"}, pages...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("groff (%v):\n%s", err, out)
	}
}

// checkRest wants what a user looks for besides: scripts, documents, settings, completions.
func checkRest(t *testing.T, i installed) {
	for _, name := range []string{"holdfast/slurm/node-failure.sh", "holdfast/docs/SETTINGS.md", "holdfast/README.md",
		"holdfast/examples/CMakeLists.txt", "holdfast/examples/heat-fortran/heat.f90",
		"bash-completion/completions/holdfast", "zsh/site-functions/_holdfast",
		"fish/vendor_completions.d/holdfast.fish"} {
		if info, err := os.Stat(i.path("share", name)); err != nil || info.Size() == 0 {
			t.Errorf("%s is missing or empty (%v)", name, err)
		}
	}
	script := `. "$1" && complete -p holdfast`
	if out := must(t, "bash", "-c", script, "bash", i.path("share/bash-completion/completions/holdfast")); out == "" {
		t.Error("bash completes nothing")
	}
	c := exec.Command(i.path("bin/holdfast"), "config", "--json")
	c.Env = append(os.Environ(), "HOLDFAST_CONFIG="+i.path("share/holdfast/holdfast.yaml"), "HOLDFAST_GLOBAL=/tmp")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("the holdfast.yaml is refused: %v\n%s", err, out)
	}
}

// sameAs runs a solver on one rank.
func sameAs(t *testing.T, i installed, program string, want []byte) {
	t.Helper()
	got := filepath.Join(t.TempDir(), "got")
	launchOne(t, i.environ(t), []string{program, "48", "80", got}).mustEnd()
	if b, err := os.ReadFile(got); err != nil || !bytes.Equal(b, want) {
		t.Errorf("%s computed something else (%v)", program, err)
	}
}

func buildWithCMake(t *testing.T, i installed, want []byte) {
	dir := t.TempDir()
	must(t, "cmake", "-S", "testdata/cmake", "-B", dir, "-DEXAMPLES="+absolute("../../examples"),
		"-DVELOC="+absolute("../veloc/testdata"), "-DCMAKE_PREFIX_PATH="+i.prefix,
		"-DMPI_C_COMPILER=mpicc.mpich", "-DMPI_CXX_COMPILER=mpicxx.mpich", "-DMPI_Fortran_COMPILER=mpifort.mpich")
	must(t, "cmake", "--build", dir, "--parallel", "2")
	sameAs(t, i, filepath.Join(dir, "heat-c"), want)
	sameAs(t, i, filepath.Join(dir, "heat-fortran"), want)
	config := filepath.Join(dir, "veloc.cfg")
	keys := fmt.Appendf(nil, "scratch = %[1]s/scratch\npersistent = %[1]s/persistent\nmode = sync\n", dir)
	if err := os.WriteFile(config, keys, 0o644); err != nil {
		t.Fatal(err)
	}
	launchOne(t, i.environ(t), []string{filepath.Join(dir, "heat-veloc"), config, "mem", "20",
		filepath.Join(dir, "veloc")}).mustEnd()
	launchOne(t, i.environ(t), []string{filepath.Join(dir, "walk-cxx"), "100", "10"}).mustEnd()
	runStatic(t, i, filepath.Join(dir, "hello-cxx"))
}

// runStatic runs hello-cxx, which needs no shared library of ours.
func runStatic(t *testing.T, i installed, hello string) {
	launchOne(t, i.static(t), []string{hello, "2"}).mustEnd()
	if out, _ := exec.Command("ldd", hello).CombinedOutput(); bytes.Contains(out, []byte("libholdfast")) {
		t.Errorf("the shared library is linked:\n%s", out)
	}
}

func buildWithPkgConfig(t *testing.T, i installed, want []byte) {
	mpi := mpirun.MPICH.Name
	sources := i.flags(t, "--variable=fortrandir", "holdfast")[0]
	sameAs(t, i, i.compile(t, "mpicc."+mpi, "holdfast", absolute("../../examples/heat-c/heat.c")), want)
	sameAs(t, i, i.compile(t, "mpifort."+mpi, "holdfast-fortran", filepath.Join(sources, "holdfast_mpi.F90"),
		absolute("../../examples/heat-fortran/heat.f90")), want)
	source := absolute("../../examples/hello-cxx/hello.cpp")
	hello := i.compile(t, "g++", "holdfast", "-std=c++17", source)
	launchOne(t, i.environ(t), []string{hello, "2"}).mustEnd()
	runStatic(t, i, i.compile(t, "g++", "holdfast-static", "-std=c++17", source))
	static := filepath.Join(t.TempDir(), "hello")
	must(t, "g++", append([]string{"-std=c++17", source, "-static", "-o", static},
		i.flags(t, "--static", "--cflags", "--libs", "holdfast")...)...)
	runStatic(t, i, static)
	spaced := installed{filepath.Join(t.TempDir(), "a tree")}
	if err := os.Symlink(i.prefix, spaced.prefix); err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{"holdfast-mpi", "holdfast-static", "holdfast-fortran"} {
		spaced.compile(t, "mpicc."+mpi, module, absolute("../../examples/heat-c/heat.c"))
	}
}

// loadModule has the commands by which a shell, in which MANPATH was not set, loads the module file.
func loadModule(t *testing.T, i installed) string {
	t.Helper()
	const modules = "/usr/lib/x86_64-linux-gnu/modulecmd.tcl"
	load := exec.Command("env", "-u", "MANPATH", "tclsh", modules, "bash", "load", "holdfast")
	load.Env = append(os.Environ(), "MODULEPATH="+i.path("share/modulefiles"))
	text, err := load.Output()
	if err != nil {
		t.Fatalf("%s: %v (make setup installs it)", modules, err)
	}
	return string(text) + "\n"
}

// useModule runs what is in the paths of a shell that has loaded the module file. Its pages come before those that
// man finds without it.
func useModule(t *testing.T, i installed) {
	script := "unset MANPATH; before=$(manpath -q)\n" + loadModule(t, i) +
		`[ "$HOLDFAST_BIN" = "$(command -v holdfast)" ] && pkg-config --exists holdfast && man -w hf_point || exit 1
		case "$(manpath -q)" in
		*":$before") exec "$1" testdata/kinds.py ;;
		*) echo "man looks at $(manpath -q), without the module at $before" ;;
		esac`
	j := launchOne(t, environ(t, t.TempDir()), []string{"bash", "-c", script, "bash", python(t)})
	j.mustEnd()
	if s := j.out.String(); !strings.Contains(s, "kinds: saved") || !strings.Contains(s, i.path("share/man")) {
		t.Errorf("the module is not in force:\n%s", s)
	}
}

// makeWheel installs a wheel in an environment of its own, and runs programs there without and with mpi4py.
func makeWheel(t *testing.T, i installed, want []byte) {
	dir, p := t.TempDir(), python(t)
	must(t, "cp", "-r", "../../python", dir) // a build leaves files there
	must(t, p, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
		"--wheel-dir", dir, filepath.Join(dir, "python"))
	wheels, err := filepath.Glob(filepath.Join(dir, "holdfast-"+release(t, i)+"-py3-none-any.whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("wheels: %v (%v)", wheels, err)
	}
	venv := filepath.Join(dir, "venv")
	must(t, p, "-m", "venv", "--without-pip", "--system-site-packages", venv)
	must(t, p, "-m", "pip", "--python", venv, "install", "--quiet", "--no-index", "--no-deps", wheels[0])
	env := append(i.environ(t), "LD_LIBRARY_PATH="+i.path("lib"), "PYTHONPATH=")
	inside, got := filepath.Join(venv, "bin/python"), filepath.Join(dir, "got")
	launchOne(t, env, []string{inside, "testdata/kinds.py"}).mustEnd()
	env = append(env, "HOLDFAST_GLOBAL="+t.TempDir())
	launchOne(t, env, []string{inside, absolute("../../examples/heat-python/heat.py"), "48", "80", got}).mustEnd()
	if b, err := os.ReadFile(got); err != nil || !bytes.Equal(b, want) {
		t.Errorf("heat.py computed something else (%v)", err)
	}
}

// buildThePage compiles the programs that docs/START.md shows, as it says, where the module is loaded, and runs
// them.
func buildThePage(t *testing.T, i installed) {
	page, err := os.ReadFile("../../docs/START.md")
	if err != nil {
		t.Fatal(err)
	}
	load := loadModule(t, i)
	for language, name := range map[string]string{"c": "program.c", "cpp": "program.cpp", "fortran": "program.f90",
		"python": "program.py"} {
		_, program, found := strings.Cut(string(page), "```"+language+"\n")
		program, rest, closed := strings.Cut(program, "```\n\n")
		commands, _, ended := strings.Cut(rest, "\n\n")
		dir := t.TempDir()
		if !found || !closed || !ended {
			t.Fatalf("no program in %s", language)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(program), 0o644); err != nil {
			t.Fatal(err)
		}
		script := `mpicc() { mpicc.mpich -Wall -Werror "$@"; }
			mpicxx() { mpicxx.mpich -Wall -Werror "$@"; }
			mpifort() { mpifort.mpich -Wall -Werror "$@"; }
			mpirun() { "$PYTHON" program.py; }
			set -e; cd "$0"
			` + load + commands + "\n[ ! -f program ] || exec ./program"
		j := launchOne(t, append(i.environ(t), "PYTHON="+python(t)), []string{"bash", "-c", script, dir})
		j.mustEnd()
		if s := j.out.String(); !strings.Contains(s, "first start") {
			t.Errorf("the program in %s took no part in checkpoints:\n%s", language, s)
		}
	}
}
