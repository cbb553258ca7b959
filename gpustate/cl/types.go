package cl

import (
	"fmt"
	"sort"
	"strings"
)

// DeviceType is a set of kinds of devices.
type DeviceType uint

// The kinds of devices.
const (
	DeviceTypeDefault     DeviceType = 1 << 0
	DeviceTypeCPU         DeviceType = 1 << 1
	DeviceTypeGPU         DeviceType = 1 << 2
	DeviceTypeAccelerator DeviceType = 1 << 3
	DeviceTypeAll         DeviceType = 0xFFFFFFFF
)

// String names the types that are set, "None" if no type is.
func (dt DeviceType) String() string {
	s := bits(int(dt), map[int]string{2: "CPU", 4: "GPU", 8: "Accelerator", 1: "Default"})
	if s == "" {
		return "None"
	}
	return s
}

// FPConfig is what a device can do with floating-point numbers.
type FPConfig int

// The abilities of FPConfig.
const (
	FPConfigDenorm                     FPConfig = 1 << 0
	FPConfigInfNaN                     FPConfig = 1 << 1
	FPConfigRoundToNearest             FPConfig = 1 << 2
	FPConfigRoundToZero                FPConfig = 1 << 3
	FPConfigRoundToInf                 FPConfig = 1 << 4
	FPConfigFMA                        FPConfig = 1 << 5
	FPConfigSoftFloat                  FPConfig = 1 << 6
	FPConfigCorrectlyRoundedDivideSqrt FPConfig = 1 << 7
)

// String names the bits that are set.
func (c FPConfig) String() string {
	return bits(int(c), map[int]string{1: "Denorm", 2: "InfNaN", 4: "RoundToNearest", 8: "RoundToZero",
		16: "RoundToInf", 32: "FMA", 64: "SoftFloat", 128: "CorrectlyRoundedDivideSqrt"})
}

// bits names the bits that are set, lowest first.
func bits(v int, names map[int]string) string {
	var order []int
	for bit := range names {
		if v&bit != 0 {
			order = append(order, bit)
		}
	}
	sort.Ints(order)
	parts := make([]string, len(order))
	for i, bit := range order {
		parts[i] = names[bit]
	}
	return strings.Join(parts, "|")
}

// LocalMemType says where a device's local memory is.
type LocalMemType int

// The values of LocalMemType.
const (
	LocalMemTypeNone   LocalMemType = 0
	LocalMemTypeLocal  LocalMemType = 1
	LocalMemTypeGlobal LocalMemType = 2
)

// String names the type.
func (t LocalMemType) String() string {
	return pick(int(t), map[int]string{0: "None", 1: "Local", 2: "Global"}, "Unknown")
}

func pick(v int, names map[int]string, other string) string {
	if s, ok := names[v]; ok {
		return s
	}
	return other
}

// ExecCapability is what a device can run.
type ExecCapability int

// The values of ExecCapability.
const (
	ExecCapabilityKernel       ExecCapability = 1
	ExecCapabilityNativeKernel ExecCapability = 2
)

// String names the bits that are set.
func (ec ExecCapability) String() string {
	return bits(int(ec), map[int]string{1: "Kernel", 2: "NativeKernel"})
}

// MemCacheType says what cache a device's global memory has.
type MemCacheType int

// The values of MemCacheType.
const (
	MemCacheTypeNone           MemCacheType = 0
	MemCacheTypeReadOnlyCache  MemCacheType = 1
	MemCacheTypeReadWriteCache MemCacheType = 2
)

// String names the type, or gives its number.
func (ct MemCacheType) String() string {
	return pick(int(ct), map[int]string{0: "None", 1: "ReadOnly", 2: "ReadWrite"}, fmt.Sprintf("Unknown(%x)", int(ct)))
}

// MemFlag says how a memory object is used and made.
type MemFlag int

// The values of MemFlag.
const (
	MemReadWrite     MemFlag = 1 << 0
	MemWriteOnly     MemFlag = 1 << 1
	MemReadOnly      MemFlag = 1 << 2
	MemUseHostPtr    MemFlag = 1 << 3
	MemAllocHostPtr  MemFlag = 1 << 4
	MemCopyHostPtr   MemFlag = 1 << 5
	MemHostWriteOnly MemFlag = 1 << 7
	MemHostReadOnly  MemFlag = 1 << 8
	MemHostNoAccess  MemFlag = 1 << 9
)

// MemObjectType is the kind of a memory object.
type MemObjectType int

// The values of MemObjectType.
const (
	MemObjectTypeBuffer        MemObjectType = 0x10F0
	MemObjectTypeImage2D       MemObjectType = 0x10F1
	MemObjectTypeImage3D       MemObjectType = 0x10F2
	MemObjectTypeImage2DArray  MemObjectType = 0x10F3
	MemObjectTypeImage1D       MemObjectType = 0x10F4
	MemObjectTypeImage1DArray  MemObjectType = 0x10F5
	MemObjectTypeImage1DBuffer MemObjectType = 0x10F6
)

// MapFlag says what mapped memory is used for.
type MapFlag int

// The values of MapFlag. With MapFlagWriteInvalidateRegion the mapped bytes are
// undefined before they are written.
const (
	MapFlagRead                  MapFlag = 1
	MapFlagWrite                 MapFlag = 2
	MapFlagWriteInvalidateRegion MapFlag = 4
)

// ChannelOrder is the order of the channels of a pixel.
type ChannelOrder int

// The values of ChannelOrder.
const (
	ChannelOrderR            ChannelOrder = 0x10B0
	ChannelOrderA            ChannelOrder = 0x10B1
	ChannelOrderRG           ChannelOrder = 0x10B2
	ChannelOrderRA           ChannelOrder = 0x10B3
	ChannelOrderRGB          ChannelOrder = 0x10B4
	ChannelOrderRGBA         ChannelOrder = 0x10B5
	ChannelOrderBGRA         ChannelOrder = 0x10B6
	ChannelOrderARGB         ChannelOrder = 0x10B7
	ChannelOrderIntensity    ChannelOrder = 0x10B8
	ChannelOrderLuminance    ChannelOrder = 0x10B9
	ChannelOrderRx           ChannelOrder = 0x10BA
	ChannelOrderRGx          ChannelOrder = 0x10BB
	ChannelOrderRGBx         ChannelOrder = 0x10BC
	ChannelOrderDepth        ChannelOrder = 0x10BD
	ChannelOrderDepthStencil ChannelOrder = 0x10BE
)

var channelOrders = map[int]string{0x10B0: "R", 0x10B1: "A", 0x10B2: "RG", 0x10B3: "RA", 0x10B4: "RGB",
	0x10B5: "RGBA", 0x10B6: "BGRA", 0x10B7: "ARGB", 0x10B8: "Intensity", 0x10B9: "Luminance",
	0x10BA: "Rx", 0x10BB: "RGx", 0x10BC: "RGBx", 0x10BD: "Depth", 0x10BE: "DepthStencil"}

// String names the order, or gives its number.
func (co ChannelOrder) String() string {
	return pick(int(co), channelOrders, fmt.Sprintf("Unknown(%x)", int(co)))
}

// ChannelDataType is the type of one channel of a pixel.
type ChannelDataType int

// The values of ChannelDataType.
const (
	ChannelDataTypeSNormInt8      ChannelDataType = 0x10D0
	ChannelDataTypeSNormInt16     ChannelDataType = 0x10D1
	ChannelDataTypeUNormInt8      ChannelDataType = 0x10D2
	ChannelDataTypeUNormInt16     ChannelDataType = 0x10D3
	ChannelDataTypeUNormShort565  ChannelDataType = 0x10D4
	ChannelDataTypeUNormShort555  ChannelDataType = 0x10D5
	ChannelDataTypeUNormInt101010 ChannelDataType = 0x10D6
	ChannelDataTypeSignedInt8     ChannelDataType = 0x10D7
	ChannelDataTypeSignedInt16    ChannelDataType = 0x10D8
	ChannelDataTypeSignedInt32    ChannelDataType = 0x10D9
	ChannelDataTypeUnsignedInt8   ChannelDataType = 0x10DA
	ChannelDataTypeUnsignedInt16  ChannelDataType = 0x10DB
	ChannelDataTypeUnsignedInt32  ChannelDataType = 0x10DC
	ChannelDataTypeHalfFloat      ChannelDataType = 0x10DD
	ChannelDataTypeFloat          ChannelDataType = 0x10DE
	ChannelDataTypeUNormInt24     ChannelDataType = 0x10DF
)

var channelDataTypes = map[int]string{0x10D0: "SNormInt8", 0x10D1: "SNormInt16", 0x10D2: "UNormInt8",
	0x10D3: "UNormInt16", 0x10D4: "UNormShort565", 0x10D5: "UNormShort555", 0x10D6: "UNormInt101010",
	0x10D7: "SignedInt8", 0x10D8: "SignedInt16", 0x10D9: "SignedInt32", 0x10DA: "UnsignedInt8",
	0x10DB: "UnsignedInt16", 0x10DC: "UnsignedInt32", 0x10DD: "HalfFloat", 0x10DE: "Float", 0x10DF: "UNormInt24"}

// String names the type, or gives its number.
func (ct ChannelDataType) String() string {
	return pick(int(ct), channelDataTypes, fmt.Sprintf("Unknown(%x)", int(ct)))
}

// ImageFormat is the format of a pixel.
type ImageFormat struct {
	ChannelOrder    ChannelOrder
	ChannelDataType ChannelDataType
}

// ImageDescription says what an image is like. Images of arrays, of buffers and
// with mip levels are ErrUnsupported.
type ImageDescription struct {
	Type                            MemObjectType
	Width, Height, Depth            int
	ArraySize, RowPitch, SlicePitch int
	NumMipLevels, NumSamples        int
	Buffer                          *MemObject
}

// ProfilingInfo is a moment in the life of a command.
type ProfilingInfo int

// The moments of ProfilingInfo.
const (
	ProfilingInfoCommandQueued ProfilingInfo = 0x1280
	ProfilingInfoCommandSubmit ProfilingInfo = 0x1281
	ProfilingInfoCommandStart  ProfilingInfo = 0x1282
	ProfilingInfoCommandEnd    ProfilingInfo = 0x1283
)

// CommmandExecStatus is how far a command has come. The name is spelled as in
// the original.
type CommmandExecStatus int

// The values of CommmandExecStatus.
const (
	CommmandExecStatusComplete  CommmandExecStatus = 0
	CommmandExecStatusRunning   CommmandExecStatus = 1
	CommmandExecStatusSubmitted CommmandExecStatus = 2
	CommmandExecStatusQueued    CommmandExecStatus = 3
)

// CommandQueueProperty says how a queue works.
type CommandQueueProperty int

// The values of CommandQueueProperty.
const (
	CommandQueueOutOfOrderExecModeEnable CommandQueueProperty = 1
	CommandQueueProfilingEnable          CommandQueueProperty = 2
)
