package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

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
	var err error
	for _, file := range cudaFiles {
		if err = openCUDA(file); err == nil {
			break
		}
	}
	if err != nil {
		return &driver.LibraryError{API: "CUDA", Files: cudaFiles, Err: err}
	}
	if err := start(); err != nil {
		return fmt.Errorf("start CUDA: %w", err)
	}
	n, err := deviceCount()
	if err != nil {
		return err
	}
	for i := range n {
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

func describe(index, dev int) driver.Info {
	arch := fmt.Sprintf("sm_%d%d", attribute(dev, attrMajor), attribute(dev, attrMinor))
	v := driverVersion()
	i := driver.Info{
		Kind: "cuda", Platform: "CUDA", Vendor: "NVIDIA Corporation",
		Name: deviceName(dev), Version: fmt.Sprintf("%d.%d", v/1000, v%1000/10),
		Type: "gpu", Index: index, PCI: devicePCI(dev), Arch: arch,
		GlobalBytes: totalBytes(dev), MaxAllocBytes: totalBytes(dev),
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
	if u := deviceUUID(dev); u != nil {
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
	var err error
	for _, f := range files {
		if err = openNVRTC(f); err == nil {
			return nil
		}
	}
	return &driver.LibraryError{API: "NVRTC", Files: files, Err: err}
})
