//go:build !mpi_openmpi

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#include "neutral.h"

/*
 * Stands before UCX's function of that name, because symbols of the program come
 * before those of its libraries. It passes every call on, but inside an
 * MPI_Finalize that would hang in it: see hangs in open.go.
 */
void *ucp_disconnect_nb(void *endpoint)
{
	void *(*own)(void *), *ucp;
	if (hfmpi_skip_disconnect) return NULL; /* nothing is left to wait for */
	own = dlsym(RTLD_NEXT, "ucp_disconnect_nb");
	if (own == NULL && (ucp = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD)) != NULL) {
		own = dlsym(ucp, "ucp_disconnect_nb");
		dlclose(ucp); /* whoever calls has it open */
	}
	return own != NULL ? own(endpoint) : NULL;
}
