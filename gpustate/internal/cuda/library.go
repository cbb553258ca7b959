package cuda

/*
#include "table.h"
*/
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/internal/sigguard"
)

// cudaFiles and nvrtcFiles are tried in order.
var (
	cudaFiles  = []string{"libcuda.so.1"}
	nvrtcFiles = []string{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"}
)

// Library is CUDA on this machine. The zero value is ready; the libraries are
// opened at the first use.
type Library struct {
	once  sync.Once
	err   error
	infos []driver.Info
}

// Kind is "cuda".
func (l *Library) Kind() string { return "cuda" }

// Devices lists the devices that CUDA_VISIBLE_DEVICES leaves, in the driver's
// order.
func (l *Library) Devices() ([]driver.Info, error) {
	l.once.Do(func() { l.err = sigguard.Around(l.discover) })
	return l.infos, l.err
}

// Open takes hold of a device's primary context.
func (l *Library) Open(index int) (driver.Device, error) {
	infos, err := l.Devices()
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= len(infos) {
		return nil, fmt.Errorf("open CUDA device %d: there are %d", index, len(infos))
	}
	return openDevice(infos[index])
}

func (l *Library) discover() error {
	err := open("CUDA", cudaFiles, func(name *C.char) *C.char { return C.hfcu_cu_open(name) })
	if err != nil {
		return err
	}
	if err := check("cuInit", C.hfcu_cuInit(0)); err != nil {
		return fmt.Errorf("start CUDA: %w", err)
	}
	var n C.int
	if err := check("cuDeviceGetCount", C.hfcu_cuDeviceGetCount(&n)); err != nil {
		return err
	}
	for i := range int(n) {
		dev, err := deviceAt(i)
		if err != nil {
			return err
		}
		l.infos = append(l.infos, describe(i, dev))
	}
	return nil
}

// Attribute numbers of the driver API.
const (
	attrMaxThreads    = 1
	attrSharedBytes   = 8
	attrIntegrated    = 18
	attrTexture1D     = 21
	attrTexture2D     = 22 // width, height
	attrTexture3D     = 24 // width, height, depth
	attrLayers2D      = 29
	attrLayers1D      = 43
	attrMajor         = 75
	attrMinor         = 76
	attrManagedMemory = 83
)

// attribute returns a device property, 0 if the driver does not know it.
func attribute(dev, what int) int {
	var v C.int
	if C.hfcu_cuDeviceGetAttribute(&v, C.int(what), C.int(dev)) != 0 {
		return 0
	}
	return int(v)
}

// deviceText gives a text that a call writes for a device.
func deviceText(dev int, call func(to *C.char, n, dev C.int) status) string {
	b := make([]byte, 256)
	call((*C.char)(unsafe.Pointer(&b[0])), C.int(len(b)), C.int(dev))
	return text(b)
}

func describe(index, dev int) driver.Info {
	name := deviceText(dev, func(to *C.char, n, dev C.int) status { return C.hfcu_cuDeviceGetName(to, n, dev) })
	pci := deviceText(dev, func(to *C.char, n, dev C.int) status { return C.hfcu_cuDeviceGetPCIBusId(to, n, dev) })
	var v C.int
	var total C.size_t
	C.hfcu_cuDriverGetVersion(&v)
	C.hfcu_cuDeviceTotalMem_v2(&total, C.int(dev))
	arch := fmt.Sprintf("sm_%d%d", attribute(dev, attrMajor), attribute(dev, attrMinor))
	i := driver.Info{
		Kind: "cuda", Platform: "CUDA", Vendor: "NVIDIA Corporation",
		Name: name, Version: fmt.Sprintf("%d.%d", v/1000, v%1000/10),
		Type: "gpu", Index: index, PCI: strings.ToLower(pci), Arch: arch,
		GlobalBytes: int64(total), MaxAllocBytes: int64(total),
		LocalBytes: int64(attribute(dev, attrSharedBytes)), SubAlign: 256,
		MaxGroup: attribute(dev, attrMaxThreads),
		FP64:     true, Images: true, Shared: attribute(dev, attrManagedMemory) != 0,
		HostMemory: attribute(dev, attrIntegrated) != 0, Lazy: true,
		MaxImage1D: attribute(dev, attrTexture1D),
		MaxImage2D: [2]int{attribute(dev, attrTexture2D), attribute(dev, attrTexture2D+1)},
		MaxImage3D: [3]int{attribute(dev, attrTexture3D), attribute(dev, attrTexture3D+1),
			attribute(dev, attrTexture3D+2)},
		MaxLayers: min(attribute(dev, attrLayers1D), attribute(dev, attrLayers2D)),
	}
	u := make([]byte, 16) // the identity of the card, or of the part of it that is ours
	p := (*C.uchar)(unsafe.Pointer(&u[0]))
	if C.hfcu_cuDeviceGetUuid_v2(p, C.int(dev)) == 0 || C.hfcu_cuDeviceGetUuid(p, C.int(dev)) == 0 {
		i.UUID = fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
	}
	return i
}

// nvrtc opens the run-time compiler once.
var nvrtc = sync.OnceValue(func() error {
	files := nvrtcFiles
	for _, root := range []string{os.Getenv("CUDA_HOME"), os.Getenv("CUDA_PATH"), "/usr/local/cuda"} {
		if root == "" {
			continue
		}
		for _, f := range nvrtcFiles {
			files = append(files[:len(files):len(files)], filepath.Join(root, "lib64", f))
		}
	}
	return open("NVRTC", files, func(name *C.char) *C.char { return C.hfcu_rtc_open(name) })
})
