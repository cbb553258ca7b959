package doctor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate"
	"github.com/holdfast-hpc/holdfast/internal/image"
	"github.com/holdfast-hpc/holdfast/internal/preload"
)

func lookDevices(ctx context.Context, r *report) {
	status, _ := os.ReadFile("/proc/self/status") // without it no right is known
	r.lookImages(ctx, string(status), image.CRIU.Check)
	wanted, asked := r.device()
	infos, err := gpustate.Devices()
	if err != nil || len(infos) == 0 {
		r.add("devices", "any", ifAsked(asked), fmt.Sprintf("none, and programs that use none need none: %v", err),
			"install the GPU's driver, or PoCL (pocl-opencl-icd) to compute on the CPU; OCL_ICD_VENDORS may name a "+
				"directory of .icd files")
		return
	}
	gpus := 0
	for _, i := range infos {
		name := fmt.Sprintf("%s: %s", i.Kind, i.Name)
		if err := tryDevice(i); err != nil {
			r.add("devices", name, Failed, err.Error(), "look at the driver: clinfo, nvidia-smi, dmesg; choose "+
				"another device with HOLDFAST_DEVICE")
			continue
		}
		if i.Type == "gpu" || i.Kind == "cuda" {
			gpus++
		}
		r.add("devices", name, OK, fmt.Sprintf("%s; %.1f GiB; a buffer was written and read back", i.Platform,
			float64(i.GlobalBytes)/(1<<30)), "")
	}
	if slices.ContainsFunc(infos, func(i gpustate.Info) bool { return i.Kind == "cuda" }) {
		version, _ := os.ReadFile("/proc/driver/nvidia/version") // not under WSL
		if self, err := os.Executable(); err == nil {
			r.lookPause(self, string(version))
		}
	}
	if gpus == 0 {
		r.add("devices", "GPU", ifAsked(asked && (wanted.Kind == "cuda" || wanted.Type == "gpu")),
			"no GPU: programs compute on the CPU", "on a GPU node look for its driver")
	}
}

// device returns the device of this machine that the settings ask for, if they ask for one.
func (r *report) device() (gpustate.Select, bool) {
	s, err := gpustate.ParseSelect(r.Device)
	return s, err == nil && r.Device != "" && !strings.Contains(r.Device, "remote=")
}

func ifAsked(asked bool) State {
	if asked {
		return Failed
	}
	return Note
}

func tryDevice(i gpustate.Info) (err error) {
	dev, err := gpustate.Open(gpustate.Select{Kind: i.Kind, Platform: i.Platform, Name: i.Name, PCI: i.PCI})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	q, err := dev.Queue("doctor")
	if err != nil {
		return err
	}
	want := bytes.Repeat([]byte("holdfast"), 1<<16)
	b, err := dev.Buffer("doctor", len(want))
	if err != nil {
		return err
	}
	got := make([]byte, len(want))
	if err := errors.Join(q.Write(b, 0, want), q.Read(b, 0, got)); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return errors.New("a buffer reads back bytes other than those written")
	}
	return nil
}

// driverVersion finds the number in /proc/driver/nvidia/version.
var driverVersion = regexp.MustCompile(`Kernel Module[^\n]*? (\d+)\.\d+`)

// lookPause checks whether CUDA programs can be paused and moved here: the library must be there, and the driver must
// be able to take a checkpoint.
func (r *report) lookPause(self, version string) {
	found := cmp.Or(preload.Beside(self, filepath.Join("holdfast", "cuda", preload.CUDA)),
		preload.Beside(self, preload.CUDA))
	if found == "" {
		r.add("devices", "pause", Note, fmt.Sprintf("%s is not installed with %s: holdfast run --cuda and holdfast "+
			"pause cannot be used", preload.CUDA, self), "make cuda builds it, make install puts it there")
		return
	}
	m := driverVersion.FindStringSubmatch(version)
	if m == nil {
		return // no NVIDIA driver of the usual kind, so the answer is not known
	}
	n, _ := strconv.Atoi(m[1]) // the expression has digits alone
	has := fmt.Sprintf("%s; the driver is %d", found, n)
	switch {
	case n < 570:
		r.add("devices", "pause", Note, has+": holdfast pause needs 570 or newer", "update the driver")
	case n < 580:
		r.add("devices", "pause", OK, has+": programs can be paused, to move them needs 580", "")
	default:
		r.add("devices", "pause", OK, has+": CUDA programs can be paused and moved", "")
	}
}
