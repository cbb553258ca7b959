//go:build !mpi_openmpi && !mpi_mpich

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "neutral.h"
#include "table_mpich.h"
typedef hfmpi_table_status MPI_Status;
#include "functions.h"

#define PFX(name) hfmpi_mpich_##name
#define HF_SYMBOL_VALUE(type, name, value) ((type)(value))

#include "dl.h"
#include "body.h"
#include "open.h"

const char *hfmpi_mpich_bind(void *dl)
{
	const char *missing = hfmpi_mpich_bind_functions(dl);
	if (missing == NULL) hfmpi_lib = &hfmpi_mpich_calls;
	return missing;
}
