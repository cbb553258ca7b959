/* driver.h - the part of the driver's interface that the library uses, as its makers document it. */
#ifndef HF_CUDA_DRIVER_H
#define HF_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct CUfunc_st *CUfunction;
typedef struct CUkern_st *CUkernel;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUextMemory_st *CUexternalMemory;

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_NOT_SUPPORTED = 801
};

/* A stream by a number. */
enum { CU_STREAM_LEGACY = 1, CU_STREAM_PER_THREAD = 2 };

enum { CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10 };

enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2, CU_MEMORYTYPE_ARRAY = 3 };

enum {
	CU_POINTER_ATTRIBUTE_CONTEXT = 1,
	CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
	CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
	CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
	CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
	CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
	CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 13
};

enum {
	CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
	CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
	CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 110,
	CU_DEVICE_ATTRIBUTE_MPS_ENABLED = 133
};

enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 };

enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1 };

enum { CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1 };

enum { CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0 };

enum { CU_MEMHOSTALLOC_PORTABLE = 1 };

enum { CU_STREAM_NON_BLOCKING = 1 };

enum { CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };

enum {
	CUDA_ARRAY3D_LAYERED = 1,
	CUDA_ARRAY3D_CUBEMAP = 4,
	CUDA_ARRAY3D_SPARSE = 0x40,
	CUDA_ARRAY3D_DEFERRED_MAPPING = 0x80
};

enum { CU_LIMIT_MALLOC_HEAP_SIZE = 2 };

typedef struct {
	int type, id;
} CUmemLocation;

typedef struct {
	CUmemLocation location;
	int flags;
} CUmemAccessDesc;

typedef struct {
	int type, requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	unsigned char compressionType, gpuDirectRDMACapable;
	unsigned short usage;
	unsigned char reserved[4];
} CUmemAllocationProp;

typedef struct {
	unsigned char bytes[16];
} CUuuid;

typedef struct {
	unsigned timeoutMs, reserved0;
	uint64_t reserved1[7];
} CUcheckpointLockArgs;

typedef struct {
	CUuuid oldUuid, newUuid;
} CUcheckpointGpuPair;

typedef struct {
	CUcheckpointGpuPair *gpuPairs;
	unsigned gpuPairsCount;
	char reserved[44];
	uint64_t reserved1;
} CUcheckpointRestoreArgs;

typedef struct {
	char reserved[64];
} CUipcMemHandle;

typedef struct {
	size_t Width, Height;
	int Format;
	unsigned NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
	size_t Width, Height, Depth;
	int Format;
	unsigned NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

typedef struct {
	size_t srcXInBytes, srcY, srcZ, srcLOD;
	int srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	CUarray srcArray;
	void *reserved0;
	size_t srcPitch, srcHeight;
	size_t dstXInBytes, dstY, dstZ, dstLOD;
	int dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	CUarray dstArray;
	void *reserved1;
	size_t dstPitch, dstHeight;
	size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

typedef struct {
	unsigned char pool[88]; /* its properties */
	const void *access;
	size_t access_count, bytes;
	CUdeviceptr at;
} CUDA_MEM_ALLOC_NODE_PARAMS;

typedef struct {
	int type, reserved[3];
	union {
		long long all[29];
		CUDA_MEM_ALLOC_NODE_PARAMS alloc;
	};
	long long more;
} CUgraphNodeParams;

_Static_assert(sizeof(CUDA_MEM_ALLOC_NODE_PARAMS) == 120, "as the driver reads it");
_Static_assert(sizeof(CUgraphNodeParams) == 256, "as the driver reads it");
_Static_assert(sizeof(CUDA_MEMCPY3D) == 200, "as the driver reads it");
_Static_assert(sizeof(CUDA_ARRAY3D_DESCRIPTOR) == 40, "as the driver reads it");
_Static_assert(sizeof(CUmemAllocationProp) == 32, "as the driver reads it");
_Static_assert(sizeof(CUcheckpointLockArgs) == 64, "as the driver reads it");
_Static_assert(sizeof(CUcheckpointRestoreArgs) == 64, "as the driver reads it");

CUresult cuInit(unsigned flags);
CUresult cuDriverGetVersion(int *version);
CUresult cuGetErrorName(CUresult error, const char **name);
CUresult cuGetExportTable(const void **table, const void *id);
CUresult cuGetProcAddress(const char *name, void **address, int version, uint64_t flags);
CUresult cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *status);

CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetName(char *name, int length, CUdevice device);
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer);
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuDevicePrimaryCtxReset(CUdevice device);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device);
CUresult cuCtxCreate_v4(CUcontext *context, void *params, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuCtxAttach(CUcontext *context, unsigned flags);
CUresult cuCtxDetach(CUcontext context);
CUresult cuGreenCtxCreate(CUgreenCtx *green, const void *part, CUdevice device, unsigned flags);
CUresult cuGreenCtxDestroy(CUgreenCtx green);
CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned flags, int priority);
CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green);
CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuCtxPopCurrent_v2(CUcontext *context);
CUresult cuCtxSynchronize(void);
CUresult cuCtxSetLimit(int limit, size_t value);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags);

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args);
CUresult cuCheckpointProcessCheckpoint(int pid, void *args);
CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args);
CUresult cuCheckpointProcessUnlock(int pid, void *args);

CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes);
CUresult cuMemAllocPitch_v2(CUdeviceptr *at, size_t *pitch, size_t width, size_t height, unsigned element);
CUresult cuMemAllocManaged(CUdeviceptr *at, size_t bytes, unsigned flags);
CUresult cuMemFree_v2(CUdeviceptr at);
CUresult cuMemAllocAsync(CUdeviceptr *at, size_t bytes, CUstream stream);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *at, size_t bytes, CUstream stream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *at, size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *at, size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr at, CUstream stream);
CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned flags);
CUresult cuMemAllocHost_v2(void **at, size_t bytes);
CUresult cuMemFreeHost(void *at);
CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags);
CUresult cuMemHostUnregister(void *at);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr at);
CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr at);
CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr at);
CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr at);
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *bytes);
CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop, int option);
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *at);
CUresult cuMemExportToShareableHandle(
	void *shared, CUmemGenericAllocationHandle handle, int type, unsigned long long flags);
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr at, size_t bytes, int type, unsigned long long flags);
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr at);
CUresult cuIpcOpenEventHandle(CUevent *event, CUipcMemHandle handle);

CUresult cuMemAddressReserve(
	CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes);
CUresult cuMemCreate(
	CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared, int type);
CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const void *prop);
CUresult cuMemMap(
	CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count);
CUresult cuMemUnmap(CUdeviceptr at, size_t bytes);
CUresult cuIpcOpenMemHandle(CUdeviceptr *at, CUipcMemHandle handle, unsigned flags);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *at, CUipcMemHandle handle, unsigned flags);
CUresult cuIpcCloseMemHandle(CUdeviceptr at);
CUresult cuMemPoolExportToShareableHandle(void *shared, CUmemoryPool pool, int type, unsigned long long flags);
CUresult cuMemPoolImportPointer(CUdeviceptr *at, CUmemoryPool pool, void *data);
CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *at, CUexternalMemory memory, const void *buffer);

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor);
CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor);
CUresult cuArrayDestroy(CUarray array);
CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels);
CUresult cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray of, unsigned level);
CUresult cuMipmappedArrayDestroy(CUmipmappedArray array);

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy);
CUresult cuMemsetD8_v2(CUdeviceptr at, unsigned char value, size_t bytes);
CUresult cuMemsetD32_v2(CUdeviceptr at, unsigned value, size_t words);
CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream);

CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *at, size_t *bytes, CUmodule module, const char *name);
CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes);
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel);
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *bytes);
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name);
CUresult cuLibraryUnload(CUlibrary library);
CUresult cuLibraryGetGlobal(CUdeviceptr *at, size_t *bytes, CUlibrary library, const char *name);
CUresult cuLibraryGetManaged(CUdeviceptr *at, size_t *bytes, CUlibrary library, const char *name);
CUresult cuLaunchKernel(CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
	unsigned blockY, unsigned blockZ, unsigned shared, CUstream stream, void **params, void **extra);

CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamQuery(CUstream stream);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
CUresult cuStreamBeginCapture(CUstream stream);
CUresult cuStreamBeginCapture_ptsz(CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode);
CUresult cuStreamBeginCaptureToGraph(
	CUstream stream, CUgraph graph, const void *dependencies, const void *edges, size_t count, int mode);
CUresult cuStreamBeginCaptureToGraph_ptsz(
	CUstream stream, CUgraph graph, const void *dependencies, const void *edges, size_t count, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph);
CUresult cuStreamIsCapturing(CUstream stream, int *status);
CUresult cuEventCreate(CUevent *event, unsigned flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventQuery(CUevent event);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult cuGraphCreate(CUgraph *graph, unsigned flags);
CUresult cuGraphAddMemAllocNode(
	CUgraphNode *node, CUgraph graph, const void *dependencies, size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params);
CUresult cuGraphAddNode(
	CUgraphNode *node, CUgraph graph, const void *dependencies, size_t count, CUgraphNodeParams *params);
CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const void *dependencies, const void *edges, size_t count,
	CUgraphNodeParams *params);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuGraphDestroy(CUgraph graph);

#endif
