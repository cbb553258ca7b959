#include <dlfcn.h>
#include <limits.h>
#include <stddef.h>

#include "neutral.h"
#include "open.h"

const struct hfmpi_calls *hfmpi_lib;
int64_t hfmpi_limit = INT_MAX;
int hfmpi_skip_disconnect;

void *hfmpi_handle;

/* Asks the library by calls that it need not have. Both answer for the library as it runs, or as it was built. */
int hfmpi_takes_cuda(void)
{
	int (*query)(void) = NULL;
	*(void **)&query = dlsym(hfmpi_handle, "MPIX_Query_cuda_support");
	if (query != NULL && query() == 1) return 1;
	int (*gpu)(int type, int *supported) = NULL;
	*(void **)&gpu = dlsym(hfmpi_handle, "MPIX_GPU_query_support");
	int supported = 0;
	return gpu != NULL && gpu(0 /* MPIX_GPU_SUPPORT_CUDA */, &supported) == 0 && supported != 0;
}
