/* The table that the loader calls through, and the names by which it finds the library. */
#include "hfcl.h"

#pragma GCC diagnostic ignored "-Wpedantic" /* entries of Direct3D are declared as void * */

static void *no_object(void) { return NULL; }

static cl_int no_sharing(void) { return CL_INVALID_OPERATION; }

static const struct _cl_icd_dispatch dispatch = {
	.clGetPlatformIDs = clIcdGetPlatformIDsKHR,
	.clGetPlatformInfo = clGetPlatformInfo,
	.clGetDeviceIDs = clGetDeviceIDs,
	.clGetDeviceInfo = clGetDeviceInfo,
	.clCreateContext = clCreateContext,
	.clCreateContextFromType = clCreateContextFromType,
	.clRetainContext = clRetainContext,
	.clReleaseContext = clReleaseContext,
	.clGetContextInfo = clGetContextInfo,
	.clCreateCommandQueue = clCreateCommandQueue,
	.clRetainCommandQueue = clRetainCommandQueue,
	.clReleaseCommandQueue = clReleaseCommandQueue,
	.clGetCommandQueueInfo = clGetCommandQueueInfo,
	.clSetCommandQueueProperty = clSetCommandQueueProperty,
	.clCreateBuffer = clCreateBuffer,
	.clCreateImage2D = clCreateImage2D,
	.clCreateImage3D = clCreateImage3D,
	.clRetainMemObject = clRetainMemObject,
	.clReleaseMemObject = clReleaseMemObject,
	.clGetSupportedImageFormats = clGetSupportedImageFormats,
	.clGetMemObjectInfo = clGetMemObjectInfo,
	.clGetImageInfo = clGetImageInfo,
	.clCreateSampler = clCreateSampler,
	.clRetainSampler = clRetainSampler,
	.clReleaseSampler = clReleaseSampler,
	.clGetSamplerInfo = clGetSamplerInfo,
	.clCreateProgramWithSource = clCreateProgramWithSource,
	.clCreateProgramWithBinary = clCreateProgramWithBinary,
	.clRetainProgram = clRetainProgram,
	.clReleaseProgram = clReleaseProgram,
	.clBuildProgram = clBuildProgram,
	.clUnloadCompiler = clUnloadCompiler,
	.clGetProgramInfo = clGetProgramInfo,
	.clGetProgramBuildInfo = clGetProgramBuildInfo,
	.clCreateKernel = clCreateKernel,
	.clCreateKernelsInProgram = clCreateKernelsInProgram,
	.clRetainKernel = clRetainKernel,
	.clReleaseKernel = clReleaseKernel,
	.clSetKernelArg = clSetKernelArg,
	.clGetKernelInfo = clGetKernelInfo,
	.clGetKernelWorkGroupInfo = clGetKernelWorkGroupInfo,
	.clWaitForEvents = clWaitForEvents,
	.clGetEventInfo = clGetEventInfo,
	.clRetainEvent = clRetainEvent,
	.clReleaseEvent = clReleaseEvent,
	.clGetEventProfilingInfo = clGetEventProfilingInfo,
	.clFlush = clFlush,
	.clFinish = clFinish,
	.clEnqueueReadBuffer = clEnqueueReadBuffer,
	.clEnqueueWriteBuffer = clEnqueueWriteBuffer,
	.clEnqueueCopyBuffer = clEnqueueCopyBuffer,
	.clEnqueueReadImage = clEnqueueReadImage,
	.clEnqueueWriteImage = clEnqueueWriteImage,
	.clEnqueueCopyImage = clEnqueueCopyImage,
	.clEnqueueCopyImageToBuffer = clEnqueueCopyImageToBuffer,
	.clEnqueueCopyBufferToImage = clEnqueueCopyBufferToImage,
	.clEnqueueMapBuffer = clEnqueueMapBuffer,
	.clEnqueueMapImage = clEnqueueMapImage,
	.clEnqueueUnmapMemObject = clEnqueueUnmapMemObject,
	.clEnqueueNDRangeKernel = clEnqueueNDRangeKernel,
	.clEnqueueTask = clEnqueueTask,
	.clEnqueueNativeKernel = clEnqueueNativeKernel,
	.clEnqueueMarker = clEnqueueMarker,
	.clEnqueueWaitForEvents = clEnqueueWaitForEvents,
	.clEnqueueBarrier = clEnqueueBarrier,
	.clGetExtensionFunctionAddress = clGetExtensionFunctionAddress,
	.clCreateFromGLBuffer = clCreateFromGLBuffer,
	.clCreateFromGLTexture2D = clCreateFromGLTexture2D,
	.clCreateFromGLTexture3D = clCreateFromGLTexture3D,
	.clCreateFromGLRenderbuffer = clCreateFromGLRenderbuffer,
	.clGetGLObjectInfo = clGetGLObjectInfo,
	.clGetGLTextureInfo = clGetGLTextureInfo,
	.clEnqueueAcquireGLObjects = clEnqueueAcquireGLObjects,
	.clEnqueueReleaseGLObjects = clEnqueueReleaseGLObjects,
	.clGetGLContextInfoKHR = clGetGLContextInfoKHR,
	.clSetEventCallback = clSetEventCallback,
	.clCreateSubBuffer = clCreateSubBuffer,
	.clSetMemObjectDestructorCallback = clSetMemObjectDestructorCallback,
	.clCreateUserEvent = clCreateUserEvent,
	.clSetUserEventStatus = clSetUserEventStatus,
	.clEnqueueReadBufferRect = clEnqueueReadBufferRect,
	.clEnqueueWriteBufferRect = clEnqueueWriteBufferRect,
	.clEnqueueCopyBufferRect = clEnqueueCopyBufferRect,
	.clCreateSubDevicesEXT = clCreateSubDevicesEXT,
	.clRetainDeviceEXT = clRetainDevice,
	.clReleaseDeviceEXT = clReleaseDevice,
	.clCreateEventFromGLsyncKHR = clCreateEventFromGLsyncKHR,
	.clCreateSubDevices = clCreateSubDevices,
	.clRetainDevice = clRetainDevice,
	.clReleaseDevice = clReleaseDevice,
	.clCreateImage = clCreateImage,
	.clCreateProgramWithBuiltInKernels = clCreateProgramWithBuiltInKernels,
	.clCompileProgram = clCompileProgram,
	.clLinkProgram = clLinkProgram,
	.clUnloadPlatformCompiler = clUnloadPlatformCompiler,
	.clGetKernelArgInfo = clGetKernelArgInfo,
	.clEnqueueFillBuffer = clEnqueueFillBuffer,
	.clEnqueueFillImage = clEnqueueFillImage,
	.clEnqueueMigrateMemObjects = clEnqueueMigrateMemObjects,
	.clEnqueueMarkerWithWaitList = clEnqueueMarkerWithWaitList,
	.clEnqueueBarrierWithWaitList = clEnqueueBarrierWithWaitList,
	.clGetExtensionFunctionAddressForPlatform = clGetExtensionFunctionAddressForPlatform,
	.clCreateFromGLTexture = clCreateFromGLTexture,
	.clCreateFromEGLImageKHR = clCreateFromEGLImageKHR,
	.clEnqueueAcquireEGLObjectsKHR = clEnqueueAcquireEGLObjectsKHR,
	.clEnqueueReleaseEGLObjectsKHR = clEnqueueReleaseEGLObjectsKHR,
	.clCreateEventFromEGLSyncKHR = clCreateEventFromEGLSyncKHR,
	.clCreateCommandQueueWithProperties = clCreateCommandQueueWithProperties,
	.clCreatePipe = clCreatePipe,
	.clGetPipeInfo = clGetPipeInfo,
	.clSVMAlloc = clSVMAlloc,
	.clSVMFree = clSVMFree,
	.clEnqueueSVMFree = clEnqueueSVMFree,
	.clEnqueueSVMMemcpy = clEnqueueSVMMemcpy,
	.clEnqueueSVMMemFill = clEnqueueSVMMemFill,
	.clEnqueueSVMMap = clEnqueueSVMMap,
	.clEnqueueSVMUnmap = clEnqueueSVMUnmap,
	.clCreateSamplerWithProperties = clCreateSamplerWithProperties,
	.clSetKernelArgSVMPointer = clSetKernelArgSVMPointer,
	.clSetKernelExecInfo = clSetKernelExecInfo,
	.clGetKernelSubGroupInfoKHR = clGetKernelSubGroupInfo,
	.clCloneKernel = clCloneKernel,
	.clCreateProgramWithIL = clCreateProgramWithIL,
	.clEnqueueSVMMigrateMem = clEnqueueSVMMigrateMem,
	.clGetDeviceAndHostTimer = clGetDeviceAndHostTimer,
	.clGetHostTimer = clGetHostTimer,
	.clGetKernelSubGroupInfo = clGetKernelSubGroupInfo,
	.clSetDefaultDeviceCommandQueue = clSetDefaultDeviceCommandQueue,
	.clSetProgramReleaseCallback = clSetProgramReleaseCallback,
	.clSetProgramSpecializationConstant = clSetProgramSpecializationConstant,
	.clCreateBufferWithProperties = clCreateBufferWithProperties,
	.clCreateImageWithProperties = clCreateImageWithProperties,
	.clSetContextDestructorCallback = clSetContextDestructorCallback,
	.clCreateFromD3D10BufferKHR = no_object,
	.clCreateFromD3D10Texture2DKHR = no_object,
	.clCreateFromD3D10Texture3DKHR = no_object,
	.clCreateFromD3D11BufferKHR = no_object,
	.clCreateFromD3D11Texture2DKHR = no_object,
	.clCreateFromD3D11Texture3DKHR = no_object,
	.clCreateFromDX9MediaSurfaceKHR = no_object,
	.clGetDeviceIDsFromD3D10KHR = no_sharing,
	.clEnqueueAcquireD3D10ObjectsKHR = no_sharing,
	.clEnqueueReleaseD3D10ObjectsKHR = no_sharing,
	.clGetDeviceIDsFromD3D11KHR = no_sharing,
	.clEnqueueAcquireD3D11ObjectsKHR = no_sharing,
	.clEnqueueReleaseD3D11ObjectsKHR = no_sharing,
	.clGetDeviceIDsFromDX9MediaAdapterKHR = no_sharing,
	.clEnqueueAcquireDX9MediaSurfacesKHR = no_sharing,
	.clEnqueueReleaseDX9MediaSurfacesKHR = no_sharing,
};

/* The lower files know this one and the receiver by pointers that it fills in when the library is loaded. */
__attribute__((constructor)) static void fill_in(void) {
	hfcl_platform.o.dispatch = &dispatch;
	hfcl_receiver = hfcl_receive_all;
}

CL_API_ENTRY void *CL_API_CALL clGetExtensionFunctionAddress(const char *name) {
	if (name == NULL) {
		return NULL;
	}
	if (strcmp(name, "clIcdGetPlatformIDsKHR") == 0) {
		return (void *)clIcdGetPlatformIDsKHR;
	}
	if (strcmp(name, "holdfastCapture") == 0) {
		return (void *)hfcl_capture;
	}
	if (strcmp(name, "holdfastRestore") == 0) {
		return (void *)hfcl_restore;
	}
	return strcmp(name, "clGetPlatformInfo") == 0 ? (void *)clGetPlatformInfo : NULL;
}

CL_API_ENTRY void *CL_API_CALL clGetExtensionFunctionAddressForPlatform(cl_platform_id p, const char *name) {
	return hfcl_is(p, PLATFORM) ? clGetExtensionFunctionAddress(name) : NULL;
}
