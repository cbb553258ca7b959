package gputest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/gpustate/gpud"
)

// Platform is a device to test on and the environment it is found in.
type Platform struct {
	Name   string
	Env    []string // "NAME=value", set before the process starts
	Select gpustate.Select
	// Serve is "unix" or "tcp" for a device that a server in another process
	// offers, which whoever runs the suite starts, with Serve.
	Serve string
}

const (
	poclVendor    = "/etc/OpenCL/vendors/pocl.icd"
	rusticlVendor = "/etc/OpenCL/vendors/rusticl.icd"
)

// Platforms lists what the suite knows. A machine has some of them; opening the
// others fails with a *gpustate.NoDeviceError. dir holds files that loaders
// read, for as long as the platforms are in use.
func Platforms(dir string) ([]Platform, error) {
	nvidia, none := filepath.Join(dir, "nvidia"), filepath.Join(dir, "none")
	if err := errors.Join(os.MkdirAll(nvidia, 0o755), os.MkdirAll(none, 0o755)); err != nil {
		return nil, err
	}
	// NVIDIA's OpenCL is often installed without being registered
	icd := filepath.Join(nvidia, "nvidia.icd")
	if err := os.WriteFile(icd, []byte("libnvidia-opencl.so.1\n"), 0o644); err != nil {
		return nil, err
	}
	// Each process of a platform, of which a server starts one for each client, would load all
	// vendors: with rusticl that takes ten times as long as with PoCL alone.
	var pocl []string
	if _, err := os.Stat(poclVendor); err == nil {
		pocl = []string{"OCL_ICD_VENDORS=" + poclVendor}
	}
	var rusticl []string
	if _, err := os.Stat(rusticlVendor); err == nil {
		rusticl = []string{"OCL_ICD_VENDORS=" + rusticlVendor}
	}
	list := []Platform{
		{Name: "fake", Env: []string{"OCL_ICD_VENDORS=" + none}, Select: gpustate.Select{Kind: "fake"}},
		// with lazy queues and inexact kernels, as CUDA
		{Name: "lazy", Env: []string{"OCL_ICD_VENDORS=" + none}, Select: gpustate.Select{Kind: "fake", Index: 1}},
		{Name: "pocl", Env: pocl, Select: gpustate.Select{Kind: "opencl", Platform: "Portable Computing Language"}},
		{Name: "rusticl", Env: append(rusticl, "RUSTICL_ENABLE=llvmpipe"),
			Select: gpustate.Select{Kind: "opencl", Platform: "rusticl"}},
	}
	for _, lib := range []string{"/usr/lib/oclgrind/liboclgrind-rt-icd.so",
		"/usr/lib/x86_64-linux-gnu/oclgrind/liboclgrind-rt-icd.so"} {
		if _, err := os.Stat(lib); err == nil {
			list = append(list, Platform{Name: "oclgrind", Env: []string{"OCL_ICD_VENDORS=" + lib},
				Select: gpustate.Select{Kind: "opencl", Platform: "Oclgrind"}})
			break
		}
	}
	return append(list,
		Platform{Name: "nvidia", Env: []string{"OCL_ICD_VENDORS=" + nvidia},
			Select: gpustate.Select{Kind: "opencl", Vendor: "NVIDIA"}},
		Platform{Name: "cuda", Select: gpustate.Select{Kind: "cuda"}}), nil
}

// Remote are platforms of the list behind servers, through both kinds of
// connection.
func Remote(dir string, list []Platform) []Platform {
	var far []Platform
	for _, p := range list {
		for _, serve := range map[string][]string{"fake": {"unix"}, "lazy": {"tcp"}, "pocl": {"unix", "tcp"},
			"rusticl": {"unix"}, "nvidia": {"unix"}, "cuda": {"unix", "tcp"}}[p.Name] {
			f := p
			f.Name, f.Serve = "remote:"+serve+":"+p.Name, serve
			f.Select.KeyFile = filepath.Join(dir, "gpud.key")
			if f.Select.Remote = "unix:" + filepath.Join(dir, p.Name+".sock"); serve == "tcp" {
				b, _ := os.ReadFile(addrFile(dir, f))
				f.Select.Remote = string(b)
			}
			far = append(far, f)
		}
	}
	return far
}

// addrFile returns where a server behind TCP leaves its address.
func addrFile(dir string, p Platform) string {
	return filepath.Join(dir, strings.ReplaceAll(p.Name, ":", "-")+".addr")
}

// workerArg makes the binary a worker of a server.
const workerArg = "gpud-worker"

// Serve offers the device of a remote platform until ctx ends. It calls ready
// when clients can come.
func Serve(ctx context.Context, dir string, p Platform, ready func()) error {
	sel, listen := p.Select, p.Select.Remote
	if p.Serve == "tcp" {
		listen = "127.0.0.1:0"
	}
	sel.Remote = ""
	s, err := gpud.New(gpud.Options{Listen: []string{listen}, KeyFile: p.Select.KeyFile, Offer: sel.Matches,
		Worker: []string{"/proc/self/exe", workerArg}})
	if err != nil {
		return err
	}
	if p.Serve == "tcp" {
		if err := os.WriteFile(addrFile(dir, p), []byte(s.Addrs()[0]), 0o600); err != nil {
			return err
		}
	}
	ready()
	return s.Serve(ctx)
}

// TestMatrix restores on every platform what every platform captured. The
// process that captured is killed before.
func TestMatrix(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	dir := t.TempDir()
	platforms := present(t, dir)
	results := map[string]map[string]string{}
	for _, from := range platforms {
		results[from.Name] = map[string]string{}
		file := filepath.Join(dir, from.Name+".capture")
		writeAndKill(t, from, dir, file)
		for _, to := range platforms {
			results[from.Name][to.Name] = "ok"
			for _, role := range []string{"read into objects", "read into nothing"} {
				if out, err := child(t, to, dir, role, file).CombinedOutput(); err != nil {
					results[from.Name][to.Name] = "FAILED"
					t.Errorf("%s -> %s, %s: %v\n%s", from.Name, to.Name, role, err, out)
				}
			}
		}
	}
	fmt.Print(table(platforms, results))
}

func writeAndKill(t *testing.T, p Platform, dir, file string) {
	t.Helper()
	c := child(t, p, dir, "write", file)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	written := false
	for s := bufio.NewScanner(out); s.Scan(); {
		if s.Text() == "written" {
			written = true
			_ = c.Process.Kill()
		}
	}
	err = c.Wait()
	if !written {
		t.Errorf("capture on %s: %v\n%s", p.Name, err, errs.String())
	}
}

// table returns the result for people.
func table(platforms []Platform, results map[string]map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-20s", "captured \\ restored")
	for _, p := range platforms {
		fmt.Fprintf(&b, " %-9s", p.Name)
	}
	b.WriteByte('\n')
	for _, from := range platforms {
		fmt.Fprintf(&b, "%-20s", from.Name)
		for _, to := range platforms {
			fmt.Fprintf(&b, " %-9s", results[from.Name][to.Name])
		}
		b.WriteByte('\n')
	}
	return b.String()
}
