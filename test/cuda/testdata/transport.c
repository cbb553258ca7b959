/* transport.c - a library that moves messages, by the name of its file: NCCL or NVSHMEM. */
#include "driver.h"

/* Memory for itself. It calls ncclMemAlloc too, as NCCL may. */
int buffer(CUdeviceptr *at, size_t bytes);

/* Memory that the program asks for. */
int ncclMemAlloc(CUdeviceptr *at, size_t bytes);

int ncclMemAlloc(CUdeviceptr *at, size_t bytes) {
	int e = (int)cuMemAlloc_v2(at, bytes);

	__asm__ volatile(""); /* no tail call: this function has to be among those that called the driver */
	return e;
}

int buffer(CUdeviceptr *at, size_t bytes) {
	int e = ncclMemAlloc(at, bytes);

	__asm__ volatile("");
	return e;
}
