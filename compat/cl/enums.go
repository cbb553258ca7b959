package cl

import "fmt"

// DeviceType is a set of kinds of devices.
type DeviceType uint

// The values of DeviceType.
const (
	DeviceTypeDefault     DeviceType = 1 << 0
	DeviceTypeCPU         DeviceType = 1 << 1
	DeviceTypeGPU         DeviceType = 1 << 2
	DeviceTypeAccelerator DeviceType = 1 << 3
	DeviceTypeAll         DeviceType = 0xFFFFFFFF
)

// String names the bits that are set.
func (v DeviceType) String() string {
	return bits(int(v), "None",
		"Default",
		"CPU",
		"GPU",
		"Accelerator",
	)
}

// FPConfig is what a device can do with floating-point numbers.
type FPConfig int

// The values of FPConfig.
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
func (v FPConfig) String() string {
	return bits(int(v), "",
		"Denorm",
		"InfNaN",
		"RoundToNearest",
		"RoundToZero",
		"RoundToInf",
		"FMA",
		"SoftFloat",
		"CorrectlyRoundedDivideSqrt",
	)
}

// LocalMemType says where a device's local memory is.
type LocalMemType int

// The values of LocalMemType.
const (
	LocalMemTypeNone   LocalMemType = 0
	LocalMemTypeLocal  LocalMemType = 1
	LocalMemTypeGlobal LocalMemType = 2
)

// String names the value.
func (v LocalMemType) String() string {
	return pick(int(v), "Unknown",
		"None",
		"Local",
		"Global",
	)
}

// ExecCapability is what a device can run.
type ExecCapability int

// The values of ExecCapability.
const (
	ExecCapabilityKernel       ExecCapability = 1 << 0
	ExecCapabilityNativeKernel ExecCapability = 1 << 1
)

// String names the bits that are set.
func (v ExecCapability) String() string {
	return bits(int(v), "",
		"Kernel",
		"NativeKernel",
	)
}

// MemCacheType says what cache a device's global memory has.
type MemCacheType int

// The values of MemCacheType.
const (
	MemCacheTypeNone           MemCacheType = 0
	MemCacheTypeReadOnlyCache  MemCacheType = 1
	MemCacheTypeReadWriteCache MemCacheType = 2
)

// String names the value.
func (v MemCacheType) String() string {
	return pick(int(v), fmt.Sprintf("Unknown(%x)", int(v)),
		"None",
		"ReadOnly",
		"ReadWrite",
	)
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

// MapFlag says what mapped memory is used for. With MapFlagWriteInvalidateRegion
// the mapped bytes are undefined before they are written.
type MapFlag int

// The values of MapFlag.
const (
	MapFlagRead                  MapFlag = 1 << 0
	MapFlagWrite                 MapFlag = 1 << 1
	MapFlagWriteInvalidateRegion MapFlag = 1 << 2
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

// String names the value.
func (v ChannelOrder) String() string {
	return pick(int(v)-4272, fmt.Sprintf("Unknown(%x)", int(v)),
		"R",
		"A",
		"RG",
		"RA",
		"RGB",
		"RGBA",
		"BGRA",
		"ARGB",
		"Intensity",
		"Luminance",
		"Rx",
		"RGx",
		"RGBx",
		"Depth",
		"DepthStencil",
	)
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

// String names the value.
func (v ChannelDataType) String() string {
	return pick(int(v)-4304, fmt.Sprintf("Unknown(%x)", int(v)),
		"SNormInt8",
		"SNormInt16",
		"UNormInt8",
		"UNormInt16",
		"UNormShort565",
		"UNormShort555",
		"UNormInt101010",
		"SignedInt8",
		"SignedInt16",
		"SignedInt32",
		"UnsignedInt8",
		"UnsignedInt16",
		"UnsignedInt32",
		"HalfFloat",
		"Float",
		"UNormInt24",
	)
}

// ProfilingInfo is a time that is taken of a command.
type ProfilingInfo int

// The values of ProfilingInfo.
const (
	ProfilingInfoCommandQueued ProfilingInfo = 0x1280
	ProfilingInfoCommandSubmit ProfilingInfo = 0x1281
	ProfilingInfoCommandStart  ProfilingInfo = 0x1282
	ProfilingInfoCommandEnd    ProfilingInfo = 0x1283
)

// CommmandExecStatus is how far a command has come. The name is spelled as in the original.
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
	CommandQueueOutOfOrderExecModeEnable CommandQueueProperty = 1 << 0
	CommandQueueProfilingEnable          CommandQueueProperty = 1 << 1
)
