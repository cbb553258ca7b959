/* ends.c - a program that uses a GPU and ends without another call of the driver, once it has read a line. */
#include <stdio.h>

#include "driver.h"

int main(void) {
	CUcontext context;
	CUdeviceptr at;
	int e = (int)cuInit(0);

	e = e != 0 ? e : (int)cuDevicePrimaryCtxRetain(&context, 0);
	e = e != 0 ? e : (int)cuCtxPushCurrent_v2(context);
	e = e != 0 ? e : (int)cuMemAlloc_v2(&at, 4096);
	(void)getchar();
	printf("ends: %d\n", e);
	return e;
}
