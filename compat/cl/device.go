package cl

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/holdfast-hpc/holdfast/gpustate"
)

// Platform is an OpenCL platform that has devices.
type Platform struct {
	name  string
	first gpustate.Info // its first device
}

// Device is an OpenCL device of this machine.
type Device struct {
	info gpustate.Info
}

// GetPlatforms lists the platforms that have devices. Without OpenCL on this machine the error names the libraries that
// were tried.
func GetPlatforms() ([]*Platform, error) {
	infos, err := gpustate.CLDevices()
	if err != nil {
		return nil, err
	}
	var list []*Platform
	for _, i := range infos {
		if len(list) == 0 || list[len(list)-1].name != i.Platform {
			list = append(list, &Platform{name: i.Platform, first: i})
		}
	}
	return list, nil
}

// GetDevices lists the devices of a platform, or of the first one if it is nil.
func GetDevices(platform *Platform, deviceType DeviceType) ([]*Device, error) {
	if platform == nil {
		all, err := GetPlatforms()
		if err != nil {
			return nil, err
		}
		if len(all) == 0 {
			return nil, ErrInvalidPlatform
		}
		platform = all[0]
	}
	infos, err := gpustate.CLDevices()
	if err != nil {
		return nil, err
	}
	var list []*Device
	for _, i := range infos {
		d := &Device{info: i}
		if i.Platform == platform.name && (deviceType == DeviceTypeAll || d.Type()&deviceType != 0) {
			list = append(list, d)
		}
	}
	if list == nil {
		return nil, ErrDeviceNotFound
	}
	return list, nil
}

// GetDevices lists the platform's devices.
func (p *Platform) GetDevices(deviceType DeviceType) ([]*Device, error) {
	return GetDevices(p, deviceType)
}

func (p *Platform) text(what uint32) string { return gpustate.CLPlatformInfo(p.first, what) }

// Profile is CL_PLATFORM_PROFILE.
func (p *Platform) Profile() string { return p.text(0x0900) }

// Version is CL_PLATFORM_VERSION.
func (p *Platform) Version() string { return p.text(0x0901) }

// Name is CL_PLATFORM_NAME.
func (p *Platform) Name() string { return p.name }

// Vendor is CL_PLATFORM_VENDOR.
func (p *Platform) Vendor() string { return p.text(0x0903) }

// Extensions is CL_PLATFORM_EXTENSIONS.
func (p *Platform) Extensions() string { return p.text(0x0904) }

// Info is gpustate's description of the device.
func (d *Device) Info() gpustate.Info { return d.info }

func (d *Device) bytes(what uint32) []byte { return gpustate.CLDeviceInfo(d.info, what) }

func (d *Device) text(what uint32) string {
	s, _, _ := strings.Cut(string(d.bytes(what)), "\x00")
	return s
}

// number returns a property of 4 or 8 bytes, 0 if the device lacks it.
func (d *Device) number(what uint32) int64 {
	switch b := d.bytes(what); len(b) {
	case 4:
		return int64(binary.NativeEndian.Uint32(b))
	case 8:
		return int64(binary.NativeEndian.Uint64(b))
	}
	return 0
}

// MaxWorkItemSizes is CL_DEVICE_MAX_WORK_ITEM_SIZES.
func (d *Device) MaxWorkItemSizes() []int {
	b := d.bytes(0x1005)
	sizes := make([]int, len(b)/8)
	for i := range sizes {
		sizes[i] = int(binary.NativeEndian.Uint64(b[8*i:]))
	}
	return sizes
}

// ParentDevice is nil: devices are not divided.
func (d *Device) ParentDevice() *Device { return nil }

// one checks that a list names exactly one device.
func one(devices []*Device) (*Device, error) {
	switch len(devices) {
	case 0:
		return nil, ErrInvalidValue
	case 1:
		return devices[0], nil
	}
	return nil, errors.Join(ErrUnsupported, errors.New("cl: a context of several devices: make one context for each"))
}
