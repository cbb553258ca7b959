package cl

// Name is CL_DEVICE_NAME.
func (d *Device) Name() string { return d.text(0x102b) }

// Vendor is CL_DEVICE_VENDOR.
func (d *Device) Vendor() string { return d.text(0x102c) }

// DriverVersion is CL_DRIVER_VERSION.
func (d *Device) DriverVersion() string { return d.text(0x102d) }

// Profile is CL_DEVICE_PROFILE.
func (d *Device) Profile() string { return d.text(0x102e) }

// Version is CL_DEVICE_VERSION.
func (d *Device) Version() string { return d.text(0x102f) }

// Extensions is CL_DEVICE_EXTENSIONS.
func (d *Device) Extensions() string { return d.text(0x1030) }

// OpenCLCVersion is CL_DEVICE_OPENCL_C_VERSION.
func (d *Device) OpenCLCVersion() string { return d.text(0x103d) }

// BuiltInKernels is CL_DEVICE_BUILT_IN_KERNELS.
func (d *Device) BuiltInKernels() string { return d.text(0x103f) }

// AddressBits is CL_DEVICE_ADDRESS_BITS.
func (d *Device) AddressBits() int { return int(d.number(0x100d)) }

// GlobalMemCachelineSize is CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE, in bytes.
func (d *Device) GlobalMemCachelineSize() int { return int(d.number(0x101d)) }

// GlobalMemCacheSize is CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, in bytes.
func (d *Device) GlobalMemCacheSize() int { return int(d.number(0x101e)) }

// MaxClockFrequency is CL_DEVICE_MAX_CLOCK_FREQUENCY, in MHz.
func (d *Device) MaxClockFrequency() int { return int(d.number(0x100c)) }

// MaxComputeUnits is CL_DEVICE_MAX_COMPUTE_UNITS.
func (d *Device) MaxComputeUnits() int { return int(d.number(0x1002)) }

// MaxConstantArgs is CL_DEVICE_MAX_CONSTANT_ARGS.
func (d *Device) MaxConstantArgs() int { return int(d.number(0x1021)) }

// MaxReadImageArgs is CL_DEVICE_MAX_READ_IMAGE_ARGS.
func (d *Device) MaxReadImageArgs() int { return int(d.number(0x100e)) }

// MaxSamplers is CL_DEVICE_MAX_SAMPLERS.
func (d *Device) MaxSamplers() int { return int(d.number(0x1018)) }

// MaxWorkItemDimensions is CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS.
func (d *Device) MaxWorkItemDimensions() int { return int(d.number(0x1003)) }

// MaxWriteImageArgs is CL_DEVICE_MAX_WRITE_IMAGE_ARGS.
func (d *Device) MaxWriteImageArgs() int { return int(d.number(0x100f)) }

// MemBaseAddrAlign is CL_DEVICE_MEM_BASE_ADDR_ALIGN, in bits.
func (d *Device) MemBaseAddrAlign() int { return int(d.number(0x1019)) }

// Image2DMaxWidth is CL_DEVICE_IMAGE2D_MAX_WIDTH, in pixels.
func (d *Device) Image2DMaxWidth() int { return int(d.number(0x1011)) }

// Image2DMaxHeight is CL_DEVICE_IMAGE2D_MAX_HEIGHT, in pixels.
func (d *Device) Image2DMaxHeight() int { return int(d.number(0x1012)) }

// Image3DMaxWidth is CL_DEVICE_IMAGE3D_MAX_WIDTH, in pixels.
func (d *Device) Image3DMaxWidth() int { return int(d.number(0x1013)) }

// Image3DMaxHeight is CL_DEVICE_IMAGE3D_MAX_HEIGHT, in pixels.
func (d *Device) Image3DMaxHeight() int { return int(d.number(0x1014)) }

// Image3DMaxDepth is CL_DEVICE_IMAGE3D_MAX_DEPTH, in pixels.
func (d *Device) Image3DMaxDepth() int { return int(d.number(0x1015)) }

// ImageMaxBufferSize is CL_DEVICE_IMAGE_MAX_BUFFER_SIZE, in pixels.
func (d *Device) ImageMaxBufferSize() int { return int(d.number(0x1040)) }

// ImageMaxArraySize is CL_DEVICE_IMAGE_MAX_ARRAY_SIZE.
func (d *Device) ImageMaxArraySize() int { return int(d.number(0x1041)) }

// MaxParameterSize is CL_DEVICE_MAX_PARAMETER_SIZE, in bytes.
func (d *Device) MaxParameterSize() int { return int(d.number(0x1017)) }

// MaxWorkGroupSize is CL_DEVICE_MAX_WORK_GROUP_SIZE.
func (d *Device) MaxWorkGroupSize() int { return int(d.number(0x1004)) }

// ProfilingTimerResolution is CL_DEVICE_PROFILING_TIMER_RESOLUTION, in nanoseconds.
func (d *Device) ProfilingTimerResolution() int { return int(d.number(0x1025)) }

// NativeVectorWidthChar is CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR.
func (d *Device) NativeVectorWidthChar() int { return int(d.number(0x1036)) }

// NativeVectorWidthShort is CL_DEVICE_NATIVE_VECTOR_WIDTH_SHORT.
func (d *Device) NativeVectorWidthShort() int { return int(d.number(0x1037)) }

// NativeVectorWidthInt is CL_DEVICE_NATIVE_VECTOR_WIDTH_INT.
func (d *Device) NativeVectorWidthInt() int { return int(d.number(0x1038)) }

// NativeVectorWidthLong is CL_DEVICE_NATIVE_VECTOR_WIDTH_LONG.
func (d *Device) NativeVectorWidthLong() int { return int(d.number(0x1039)) }

// NativeVectorWidthFloat is CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT.
func (d *Device) NativeVectorWidthFloat() int { return int(d.number(0x103a)) }

// NativeVectorWidthDouble is CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE.
func (d *Device) NativeVectorWidthDouble() int { return int(d.number(0x103b)) }

// NativeVectorWidthHalf is CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF.
func (d *Device) NativeVectorWidthHalf() int { return int(d.number(0x103c)) }

// PreferredVectorWidthChar is CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR.
func (d *Device) PreferredVectorWidthChar() int { return int(d.number(0x1006)) }

// PreferredVectorWidthShort is CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT.
func (d *Device) PreferredVectorWidthShort() int { return int(d.number(0x1007)) }

// PreferredVectorWidthInt is CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT.
func (d *Device) PreferredVectorWidthInt() int { return int(d.number(0x1008)) }

// PreferredVectorWidthLong is CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG.
func (d *Device) PreferredVectorWidthLong() int { return int(d.number(0x1009)) }

// PreferredVectorWidthFloat is CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT.
func (d *Device) PreferredVectorWidthFloat() int { return int(d.number(0x100a)) }

// PreferredVectorWidthDouble is CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE.
func (d *Device) PreferredVectorWidthDouble() int { return int(d.number(0x100b)) }

// PreferredVectorWidthHalf is CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF.
func (d *Device) PreferredVectorWidthHalf() int { return int(d.number(0x1034)) }

// LocalMemSize is CL_DEVICE_LOCAL_MEM_SIZE, in bytes.
func (d *Device) LocalMemSize() int64 { return d.number(0x1023) }

// MaxConstantBufferSize is CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE, in bytes.
func (d *Device) MaxConstantBufferSize() int64 { return d.number(0x1020) }

// MaxMemAllocSize is CL_DEVICE_MAX_MEM_ALLOC_SIZE, in bytes.
func (d *Device) MaxMemAllocSize() int64 { return d.number(0x1010) }

// GlobalMemSize is CL_DEVICE_GLOBAL_MEM_SIZE, in bytes.
func (d *Device) GlobalMemSize() int64 { return d.number(0x101f) }

// ImageSupport is CL_DEVICE_IMAGE_SUPPORT.
func (d *Device) ImageSupport() bool { return d.number(0x1016) != 0 }

// ErrorCorrectionSupport is CL_DEVICE_ERROR_CORRECTION_SUPPORT.
func (d *Device) ErrorCorrectionSupport() bool { return d.number(0x1024) != 0 }

// EndianLittle is CL_DEVICE_ENDIAN_LITTLE.
func (d *Device) EndianLittle() bool { return d.number(0x1026) != 0 }

// Available is CL_DEVICE_AVAILABLE.
func (d *Device) Available() bool { return d.number(0x1027) != 0 }

// CompilerAvailable is CL_DEVICE_COMPILER_AVAILABLE.
func (d *Device) CompilerAvailable() bool { return d.number(0x1028) != 0 }

// HostUnifiedMemory is CL_DEVICE_HOST_UNIFIED_MEMORY.
func (d *Device) HostUnifiedMemory() bool { return d.number(0x1035) != 0 }

// LinkerAvailable is CL_DEVICE_LINKER_AVAILABLE.
func (d *Device) LinkerAvailable() bool { return d.number(0x103e) != 0 }

// Type is CL_DEVICE_TYPE.
func (d *Device) Type() DeviceType { return DeviceType(d.number(0x1000)) }

// DoubleFPConfig is CL_DEVICE_DOUBLE_FP_CONFIG, 0 without double precision.
func (d *Device) DoubleFPConfig() FPConfig { return FPConfig(d.number(0x1032)) }

// HalfFPConfig is CL_DEVICE_HALF_FP_CONFIG, 0 without half precision.
func (d *Device) HalfFPConfig() FPConfig { return FPConfig(d.number(0x1033)) }

// LocalMemType is CL_DEVICE_LOCAL_MEM_TYPE.
func (d *Device) LocalMemType() LocalMemType { return LocalMemType(d.number(0x1022)) }

// ExecutionCapabilities is CL_DEVICE_EXECUTION_CAPABILITIES.
func (d *Device) ExecutionCapabilities() ExecCapability { return ExecCapability(d.number(0x1029)) }

// GlobalMemCacheType is CL_DEVICE_GLOBAL_MEM_CACHE_TYPE.
func (d *Device) GlobalMemCacheType() MemCacheType { return MemCacheType(d.number(0x101c)) }
