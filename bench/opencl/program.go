package opencl

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/bench"
)

//go:embed driver/driver.c
var driverSource []byte

// startLimit bounds a start of the program.
const startLimit = 5 * time.Minute

// program is the program and the server that it runs on.
type program struct {
	dir, file, vendors string
	library            string
	ownEnv, throughEnv []string
	insideEnv          []string // throughEnv without a server: the device is in the library's process

	server *bench.Server
}

// prepare compiles the program and makes both environments.
func prepare(ctx context.Context, dir string, o Options) (*program, error) {
	lib, err := bench.Library(o.Lib, "libholdfast-opencl.so")
	if err != nil {
		return nil, err
	}
	p := &program{dir: dir, file: o.Program, vendors: o.Vendors, library: filepath.Join(lib, "libholdfast-opencl.so")}
	if p.file == "" {
		if p.file, err = compile(ctx, dir); err != nil {
			return nil, err
		}
	}
	vendors, err := icd(dir, lib)
	if err != nil {
		return nil, err
	}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, "HOLDFAST_") && (name != "OCL_ICD_VENDORS" || p.vendors == "") {
			p.ownEnv = append(p.ownEnv, v)
		}
	}
	if p.vendors != "" {
		p.ownEnv = append(p.ownEnv, "OCL_ICD_VENDORS="+p.vendors)
	}
	device := "remote=" + p.address()
	if o.Device != "" {
		device += "," + o.Device
	}
	p.throughEnv = append(append([]string(nil), p.ownEnv...), "OCL_ICD_VENDORS="+vendors, "HOLDFAST_GPUD_KEY="+p.key())
	if os.Getenv(files) != "" {
		p.throughEnv = append(p.throughEnv, files+"="+p.library)
	}
	p.throughEnv = append(p.throughEnv, "HOLDFAST_DEVICE="+device)
	return p, nil
}

// files is the variable by which Khronos' loader finds libraries; if it is set it counts beside
// OCL_ICD_VENDORS, or instead.
const files = "OCL_ICD_FILENAMES"

func (p *program) address() string { return "unix:" + filepath.Join(p.dir, "gpud.sock") }
func (p *program) key() string     { return filepath.Join(p.dir, "gpud.key") }

func compile(ctx context.Context, dir string) (string, error) {
	file, err := bench.CompileC(ctx, dir, driverSource, []string{"cc", "gcc"}, "-lOpenCL")
	switch {
	case errors.Is(err, bench.ErrNoCompiler):
		return "", fmt.Errorf("%w, or give --program", err)
	case err != nil:
		return "", fmt.Errorf("compile the program, which takes Debian's ocl-icd-opencl-dev: %w", err)
	}
	return file, nil
}

// serve starts the server that holds the device.
func (p *program) serve(ctx context.Context, o Options) error {
	cmd, err := bench.Holdfast(ctx, "gpud", "--listen", p.address(), "--key", p.key(), "--trust-sources", "--grace",
		"0s")
	if err != nil {
		return err
	}
	p.throughEnv = append(p.throughEnv, "HOLDFAST_BIN="+cmd.Path)
	p.insideEnv = append(slices.Clone(p.throughEnv), "HOLDFAST_DEVICE="+cmp.Or(o.Device, "opencl"))
	if own := os.Getenv(files); own != "" { // also a list
		others := slices.DeleteFunc(strings.Split(own, ":"), func(f string) bool {
			return strings.HasPrefix(filepath.Base(f), filepath.Base(p.library))
		})
		p.insideEnv = append(p.insideEnv, files+"="+strings.Join(append(others, p.library), ":"))
	}
	if v := cmp.Or(p.vendors, os.Getenv("OCL_ICD_VENDORS")); v != "" { // the library's process leaves the program's out
		p.insideEnv = append(p.insideEnv, "HOLDFAST_OPENCL_VENDORS="+v)
	}
	cmd.Env = p.ownEnv
	p.server, err = bench.Serve(cmd, func(line string) bool { return strings.HasPrefix(line, "gpud: listens") })
	return err
}

// run runs the program once, with transfers of up to mib MiB.
func (p *program) run(ctx context.Context, env []string, o Options, mib int) (bench.Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	const loops = 2000 // of the compute-bound kernel
	word := o.Device
	if len(env) > len(p.ownEnv) { // some systems have other platforms beside those of OCL_ICD_VENDORS
		word = "holdfast"
	}
	cmd := exec.CommandContext(ctx, p.file, word, fmt.Sprint(o.Seconds), fmt.Sprint(mib), fmt.Sprint(loops))
	var text bytes.Buffer
	cmd.Env, cmd.Stderr = env, &text
	out, err := cmd.Output()
	if err != nil {
		return bench.Figures{}, fmt.Errorf("the program ended (%w): %s", err, text.String())
	}
	return bench.ReadFigures(string(out), launches, same, onCPU)
}
