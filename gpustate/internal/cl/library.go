package cl

/*
#include "table.h"
*/
import "C"

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/internal/sigguard"
)

// libraryFiles are tried in order.
var libraryFiles = []string{"libOpenCL.so.1", "libOpenCL.so"}

// Library is OpenCL on this machine. The zero value is ready; the library is
// opened at the first use.
type Library struct {
	once  sync.Once
	err   error
	found []found
}

// System is the OpenCL of this process.
var System = &Library{}

// Property returns a property of the device by its number in the specification, nil
// if the device lacks it.
func (l *Library) Property(index int, what uint32) []byte {
	if l.load() != nil || index < 0 || index >= len(l.found) {
		return nil
	}
	return deviceBytes(l.found[index].device, what)
}

// PlatformText returns a text of the platform that the device belongs to.
func (l *Library) PlatformText(index int, what uint32) string {
	if l.load() != nil || index < 0 || index >= len(l.found) {
		return ""
	}
	return platformString(l.found[index].platform, what)
}

// found is one device that the platforms list.
type found struct {
	platform, device handle
	info             driver.Info
	version          int // OpenCL version of the device times 10
}

// Kind is "opencl".
func (l *Library) Kind() string { return "opencl" }

// Devices lists the devices of all platforms, in the loader's order.
func (l *Library) Devices() ([]driver.Info, error) {
	if err := l.load(); err != nil {
		return nil, err
	}
	infos := make([]driver.Info, len(l.found))
	for i, f := range l.found {
		infos[i] = f.info
	}
	return infos, nil
}

// Open makes a context on one device.
func (l *Library) Open(index int) (driver.Device, error) {
	if err := l.load(); err != nil {
		return nil, err
	}
	if index < 0 || index >= len(l.found) {
		return nil, fmt.Errorf("open OpenCL device %d: there are %d", index, len(l.found))
	}
	return openDevice(l.found[index])
}

func (l *Library) load() error {
	l.once.Do(func() { l.err = sigguard.Around(l.discover) })
	return l.err
}

// nvidia is the platform of NVIDIA's driver.
const nvidia = "NVIDIA CUDA"

// ourselves is the platform that libholdfast-opencl is: its devices are those that this
// package lists, of a process that would load it again.
const ourselves = "Holdfast"

func (l *Library) discover() error {
	var err error
	for _, file := range libraryFiles {
		if err = openLibrary(file); err == nil {
			break
		}
	}
	if err != nil {
		return driver.NoLibrary("OpenCL", libraryFiles, err)
	}
	platforms, err := list("clGetPlatformIDs", func(n C.uint32_t, to *handle, found *C.uint32_t) status {
		return C.hfcl_clGetPlatformIDs(n, to, found)
	})
	if err != nil {
		return err
	}
	for _, p := range platforms {
		if platformString(p, platformName) == ourselves {
			continue
		}
		devices, err := list("clGetDeviceIDs", func(n C.uint32_t, to *handle, found *C.uint32_t) status {
			return C.hfcl_clGetDeviceIDs(p, allDevices, n, to, found)
		})
		if err != nil {
			return fmt.Errorf("devices of OpenCL platform %q: %w", platformString(p, platformName), err)
		}
		for _, d := range devices {
			f := describe(p, d)
			f.info.Index = len(l.found)
			l.found = append(l.found, f)
		}
	}
	return nil
}

// Property numbers of the specification.
const (
	platformName = 0x0902
	allDevices   = 0xFFFFFFFF

	deviceType         = 0x1000
	deviceMaxGroup     = 0x1004
	deviceMaxAlloc     = 0x1010
	deviceImage2DWidth = 0x1011 // 2D height and the three of 3D follow
	deviceImageSupport = 0x1016
	deviceBaseAlign    = 0x1019
	deviceMaxLayers    = 0x1041
	deviceGlobalMem    = 0x101F
	deviceLocalMem     = 0x1023
	deviceQueueProps   = 0x102A
	deviceName         = 0x102B
	deviceVendor       = 0x102C
	driverVersion      = 0x102D
	deviceVersion      = 0x102F
	deviceExtensions   = 0x1030
	deviceDoubleConfig = 0x1032
	deviceHostUnified  = 0x1035
	deviceSVM          = 0x1053
	deviceIL           = 0x105B
	deviceUUID         = 0x106A
	devicePCI          = 0x410F // cl_khr_pci_bus_info
	devicePCIBusNV     = 0x4008 // slot and domain follow
)

func describe(p, d handle) found {
	version := versionOf(text(d, deviceVersion))
	f := found{platform: p, device: d, version: version, info: driver.Info{
		Kind: "opencl", Platform: platformString(p, platformName),
		Vendor: text(d, deviceVendor), Name: text(d, deviceName),
		Version:     text(d, driverVersion),
		GlobalBytes: property(d, deviceGlobalMem), MaxAllocBytes: property(d, deviceMaxAlloc),
		LocalBytes: property(d, deviceLocalMem), SubAlign: int(property(d, deviceBaseAlign) / 8),
		MaxGroup: int(property(d, deviceMaxGroup)),
		IL:       text(d, deviceIL),
		FP64:     property(d, deviceDoubleConfig) != 0,
		Images:   property(d, deviceImageSupport) != 0,
	}}
	i := &f.info
	i.Arch = strings.Join([]string{i.Platform, i.Name, i.Version, text(d, deviceVersion)}, "/")
	// With NVIDIA's driver (580) an argument that has once held an SVM pointer takes no buffer any more: launches end
	// with CL_INVALID_KERNEL_ARGS. A mapped buffer is as fast there, and read and written twice as fast.
	i.Shared = version >= 20 && property(d, deviceSVM)&1 != 0 && i.Platform != nvidia
	// Commands of Oclgrind's out-of-order queues overtake barriers.
	i.OutOfOrder = property(d, deviceQueueProps)&1 != 0 && i.Platform != "Oclgrind"
	switch t := property(d, deviceType); {
	case t&4 != 0 && t&2 == 0:
		i.Type = "gpu"
	case t&2 != 0:
		i.Type = "cpu" // also simulators, which claim every type
	default:
		i.Type = "accelerator"
	}
	// An event costs NVIDIA's driver a third of a launch. Other platforms are
	// known by the events alone to tell which command failed.
	i.Lazy = i.Platform == nvidia
	i.HostMemory = i.Type == "cpu" || property(d, deviceHostUnified) != 0
	if i.Images {
		i.MaxImage2D = [2]int{int(property(d, deviceImage2DWidth)), int(property(d, deviceImage2DWidth+1))}
		i.MaxImage1D = i.MaxImage2D[0]
		i.MaxLayers = int(property(d, deviceMaxLayers))
		for k := range i.MaxImage3D {
			i.MaxImage3D[k] = int(property(d, uint32(deviceImage2DWidth+2+k)))
		}
	}
	identify(d, i)
	return f
}

// identify fills in the identity of one card among several of the same model.
func identify(d handle, i *driver.Info) {
	ext := text(d, deviceExtensions)
	if u := deviceBytes(d, deviceUUID); strings.Contains(ext, "cl_khr_device_uuid") && len(u) == 16 {
		i.UUID = fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
	}
	if b := deviceBytes(d, devicePCI); strings.Contains(ext, "cl_khr_pci_bus_info") && len(b) == 16 {
		w := binary.NativeEndian
		i.PCI = fmt.Sprintf("%04x:%02x:%02x.%x", w.Uint32(b), w.Uint32(b[4:]), w.Uint32(b[8:]), w.Uint32(b[12:]))
	} else if strings.Contains(ext, "cl_nv_device_attribute_query") {
		i.PCI = fmt.Sprintf("%04x:%02x:%02x.0", property(d, devicePCIBusNV+2),
			property(d, devicePCIBusNV), property(d, devicePCIBusNV+1)>>3)
	}
}

// property returns a numeric device property, 0 if the device lacks it.
func property(d handle, what uint32) int64 {
	switch b := deviceBytes(d, what); len(b) {
	case 4:
		return int64(binary.NativeEndian.Uint32(b))
	case 8:
		return int64(binary.NativeEndian.Uint64(b))
	}
	return 0
}

func text(d handle, what uint32) string { return cstring(deviceBytes(d, what)) }

// cstring returns the text before the first NUL, without surrounding space.
func cstring(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return strings.TrimSpace(string(b))
}

// versionOf is ten times the version in "OpenCL 3.0 ...".
func versionOf(s string) int {
	var major, minor int
	_, _ = fmt.Sscanf(s, "OpenCL %d.%d", &major, &minor) // without one it is 0
	return 10*major + minor
}
