/* Entry points of absent features: each returns OpenCL's own error, and none is missing in the table. */
#include "hfcl.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

/* none gives no object, and why. */
static void *none(cl_int code, cl_int *errcode_ret) {
	if (errcode_ret != NULL) {
		*errcode_ret = code;
	}
	return NULL;
}

/* Features that a proxy cannot have, or that are not there yet. */

CL_API_ENTRY cl_int CL_API_CALL clEnqueueNativeKernel(cl_command_queue command_queue,
	void(CL_CALLBACK *user_func)(void *), void *args, size_t cb_args, cl_uint num_mem_objects, const cl_mem *mem_list,
	const void **args_mem_loc, cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event) {
	return hfcl_is(command_queue, QUEUE) ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE;
}

CL_API_ENTRY cl_int CL_API_CALL clCreateSubDevices(cl_device_id in_device,
	const cl_device_partition_property *properties, cl_uint num_devices, cl_device_id *out_devices,
	cl_uint *num_devices_ret) {
	return hfcl_is(in_device, DEVICE) ? CL_INVALID_VALUE : CL_INVALID_DEVICE; /* no way to partition one */
}

CL_API_ENTRY cl_program CL_API_CALL clCreateProgramWithBuiltInKernels(cl_context context, cl_uint num_devices,
	const cl_device_id *device_list, const char *kernel_names, cl_int *errcode_ret) {
	cl_int rc = !hfcl_is(context, CONTEXT) ? CL_INVALID_CONTEXT
		: num_devices == 0                 ? CL_INVALID_VALUE
										   : hfcl_check_devices(context, num_devices, device_list);
	return none(rc == CL_SUCCESS ? CL_INVALID_VALUE : rc, errcode_ret); /* there is no kernel of any name */
}

/* OpenCL 2.0 and later, which the devices do not claim to have. */

CL_API_ENTRY cl_mem CL_API_CALL clCreatePipe(cl_context context, cl_mem_flags flags, cl_uint pipe_packet_size,
	cl_uint pipe_max_packets, const cl_pipe_properties *properties, cl_int *errcode_ret) {
	return none(hfcl_is(context, CONTEXT) ? CL_INVALID_OPERATION : CL_INVALID_CONTEXT, errcode_ret);
}

CL_API_ENTRY cl_int CL_API_CALL clGetPipeInfo(
	cl_mem pipe, cl_pipe_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	return CL_INVALID_MEM_OBJECT; /* there are no pipes */
}

CL_API_ENTRY void *CL_API_CALL clSVMAlloc(cl_context context, cl_svm_mem_flags flags, size_t size, cl_uint alignment) {
	return NULL;
}

CL_API_ENTRY void CL_API_CALL clSVMFree(cl_context context, void *svm_pointer) {}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueSVMFree(cl_command_queue command_queue, cl_uint num_svm_pointers,
	void *svm_pointers[],
	void(CL_CALLBACK *pfn_free_func)(
		cl_command_queue queue, cl_uint num_svm_pointers, void *svm_pointers[], void *user_data),
	void *user_data, cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event) {
	return hfcl_is(command_queue, QUEUE) ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE;
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueSVMMemcpy(cl_command_queue command_queue, cl_bool blocking_copy, void *dst_ptr,
	const void *src_ptr, size_t size, cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
	cl_event *event) {
	return hfcl_is(command_queue, QUEUE) ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE;
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueSVMMemFill(cl_command_queue command_queue, void *svm_ptr, const void *pattern,
	size_t pattern_size, size_t size, cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
	cl_event *event) {
	return hfcl_is(command_queue, QUEUE) ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE;
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueSVMMap(cl_command_queue command_queue, cl_bool blocking_map,
	cl_map_flags flags, void *svm_ptr, size_t size, cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
	cl_event *event) {
	return hfcl_is(command_queue, QUEUE) ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE;
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueSVMUnmap(cl_command_queue command_queue, void *svm_ptr,
	cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event) {
	return hfcl_is(command_queue, QUEUE) ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE;
}

CL_API_ENTRY cl_int CL_API_CALL clSetKernelArgSVMPointer(cl_kernel kernel, cl_uint arg_index, const void *arg_value) {
	return hfcl_is(kernel, KERNEL) ? CL_INVALID_OPERATION : CL_INVALID_KERNEL;
}

CL_API_ENTRY cl_int CL_API_CALL clSetKernelExecInfo(
	cl_kernel kernel, cl_kernel_exec_info param_name, size_t param_value_size, const void *param_value) {
	return hfcl_is(kernel, KERNEL) ? CL_INVALID_OPERATION : CL_INVALID_KERNEL;
}

CL_API_ENTRY cl_program CL_API_CALL clCreateProgramWithIL(
	cl_context context, const void *il, size_t length, cl_int *errcode_ret) {
	return none(hfcl_is(context, CONTEXT) ? CL_INVALID_OPERATION : CL_INVALID_CONTEXT, errcode_ret);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueSVMMigrateMem(cl_command_queue command_queue, cl_uint num_svm_pointers,
	const void **svm_pointers, const size_t *sizes, cl_mem_migration_flags flags, cl_uint num_events_in_wait_list,
	const cl_event *event_wait_list, cl_event *event) {
	return hfcl_is(command_queue, QUEUE) ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE;
}

CL_API_ENTRY cl_int CL_API_CALL clGetDeviceAndHostTimer(
	cl_device_id device, cl_ulong *device_timestamp, cl_ulong *host_timestamp) {
	return hfcl_is(device, DEVICE) ? CL_INVALID_OPERATION : CL_INVALID_DEVICE;
}

CL_API_ENTRY cl_int CL_API_CALL clGetHostTimer(cl_device_id device, cl_ulong *host_timestamp) {
	return hfcl_is(device, DEVICE) ? CL_INVALID_OPERATION : CL_INVALID_DEVICE;
}

CL_API_ENTRY cl_int CL_API_CALL clGetKernelSubGroupInfo(cl_kernel kernel, cl_device_id device,
	cl_kernel_sub_group_info param_name, size_t input_value_size, const void *input_value, size_t param_value_size,
	void *param_value, size_t *param_value_size_ret) {
	return hfcl_is(kernel, KERNEL) ? CL_INVALID_OPERATION : CL_INVALID_KERNEL;
}

CL_API_ENTRY cl_int CL_API_CALL clSetDefaultDeviceCommandQueue(
	cl_context context, cl_device_id device, cl_command_queue command_queue) {
	return hfcl_is(context, CONTEXT) ? CL_INVALID_OPERATION : CL_INVALID_CONTEXT;
}

CL_API_ENTRY cl_int CL_API_CALL clSetProgramSpecializationConstant(
	cl_program program, cl_uint spec_id, size_t spec_size, const void *spec_value) {
	return hfcl_is(program, PROGRAM) ? CL_INVALID_OPERATION : CL_INVALID_PROGRAM;
}

/* Sharing with OpenGL and EGL. */

CL_API_ENTRY cl_mem CL_API_CALL clCreateFromGLBuffer(
	cl_context context, cl_mem_flags flags, cl_GLuint bufobj, cl_int *errcode_ret) {
	return none(CL_INVALID_OPERATION, errcode_ret);
}

CL_API_ENTRY cl_mem CL_API_CALL clCreateFromGLTexture2D(cl_context context, cl_mem_flags flags, cl_GLenum target,
	cl_GLint miplevel, cl_GLuint texture, cl_int *errcode_ret) {
	return none(CL_INVALID_OPERATION, errcode_ret);
}

CL_API_ENTRY cl_mem CL_API_CALL clCreateFromGLTexture3D(cl_context context, cl_mem_flags flags, cl_GLenum target,
	cl_GLint miplevel, cl_GLuint texture, cl_int *errcode_ret) {
	return none(CL_INVALID_OPERATION, errcode_ret);
}

CL_API_ENTRY cl_mem CL_API_CALL clCreateFromGLRenderbuffer(
	cl_context context, cl_mem_flags flags, cl_GLuint renderbuffer, cl_int *errcode_ret) {
	return none(CL_INVALID_OPERATION, errcode_ret);
}

CL_API_ENTRY cl_mem CL_API_CALL clCreateFromGLTexture(cl_context context, cl_mem_flags flags, cl_GLenum target,
	cl_GLint miplevel, cl_GLuint texture, cl_int *errcode_ret) {
	return none(CL_INVALID_OPERATION, errcode_ret);
}

CL_API_ENTRY cl_int CL_API_CALL clGetGLObjectInfo(
	cl_mem memobj, cl_gl_object_type *gl_object_type, cl_GLuint *gl_object_name) {
	return CL_INVALID_OPERATION;
}

CL_API_ENTRY cl_int CL_API_CALL clGetGLTextureInfo(cl_mem memobj, cl_gl_texture_info param_name,
	size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	return CL_INVALID_OPERATION;
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueAcquireGLObjects(cl_command_queue command_queue, cl_uint num_objects,
	const cl_mem *mem_objects, cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event) {
	return CL_INVALID_OPERATION;
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueReleaseGLObjects(cl_command_queue command_queue, cl_uint num_objects,
	const cl_mem *mem_objects, cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event) {
	return CL_INVALID_OPERATION;
}

CL_API_ENTRY cl_int CL_API_CALL clGetGLContextInfoKHR(const cl_context_properties *properties,
	cl_gl_context_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	return CL_INVALID_OPERATION;
}

CL_API_ENTRY cl_event CL_API_CALL clCreateEventFromGLsyncKHR(cl_context context, cl_GLsync sync, cl_int *errcode_ret) {
	return none(CL_INVALID_OPERATION, errcode_ret);
}

CL_API_ENTRY cl_mem CL_API_CALL clCreateFromEGLImageKHR(cl_context context, CLeglDisplayKHR egldisplay,
	CLeglImageKHR eglimage, cl_mem_flags flags, const cl_egl_image_properties_khr *properties, cl_int *errcode_ret) {
	return none(CL_INVALID_OPERATION, errcode_ret);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueAcquireEGLObjectsKHR(cl_command_queue command_queue, cl_uint num_objects,
	const cl_mem *mem_objects, cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event) {
	return CL_INVALID_OPERATION;
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueReleaseEGLObjectsKHR(cl_command_queue command_queue, cl_uint num_objects,
	const cl_mem *mem_objects, cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event) {
	return CL_INVALID_OPERATION;
}

CL_API_ENTRY cl_event CL_API_CALL clCreateEventFromEGLSyncKHR(
	cl_context context, CLeglSyncKHR sync, CLeglDisplayKHR display, cl_int *errcode_ret) {
	return none(CL_INVALID_OPERATION, errcode_ret);
}

CL_API_ENTRY cl_int CL_API_CALL clCreateSubDevicesEXT(cl_device_id in_device,
	const cl_device_partition_property_ext *properties, cl_uint num_entries, cl_device_id *out_devices,
	cl_uint *num_devices) {
	return CL_INVALID_OPERATION;
}
