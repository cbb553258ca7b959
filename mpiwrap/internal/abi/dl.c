//go:build !mpi_openmpi && !mpi_mpich

#include <dlfcn.h>
#include <stdio.h>

#include "neutral.h"
#include "open.h"

static void hfmpi_say(char *err, int cap, const char *text)
{
	snprintf(err, cap, "%s", text != NULL ? text : "unknown reason");
}

/* Older Open MPI plugins need the library's symbols to be global. */
int hfmpi_open(const char *name, int mapped_only, char *err, int cap)
{
	void *dl = dlopen(name, RTLD_NOW | RTLD_GLOBAL | (mapped_only ? RTLD_NOLOAD : 0));
	if (dl == NULL) {
		hfmpi_say(err, cap, dlerror());
		return -1;
	}
	const char *missing;
	if (dlsym(dl, "ompi_mpi_comm_world") != NULL)
		missing = hfmpi_openmpi_bind(dl);
	else
		missing = hfmpi_mpich_bind(dl);
	if (missing == NULL) hfmpi_handle = dl;
	if (missing == NULL) return dlsym(dl, "ompi_mpi_comm_world") != NULL ? HF_KIND_OPENMPI : HF_KIND_MPICH;
	snprintf(err, cap, "%s has no %s; an MPI 3.1 library is needed", name, missing);
	return -1;
}
