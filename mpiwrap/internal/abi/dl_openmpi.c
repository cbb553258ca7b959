//go:build !mpi_openmpi && !mpi_mpich

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "neutral.h"
#include "table_openmpi.h"
typedef hfmpi_table_status MPI_Status;
#include "functions.h"

#define PFX(name) hfmpi_openmpi_##name

/* The objects whose addresses are the predefined handles. */
#define X(type, name, symbol) void *name;
static struct { HF_SYMBOLS(X) } hfmpi_openmpi_sym;
#undef X
#define HF_SYMBOL_VALUE(type, name, symbol) ((type)hfmpi_openmpi_sym.name)

#include "dl.h"
#include "body.h"
#include "open.h"

const char *hfmpi_openmpi_bind(void *dl)
{
#define X(type, name, symbol) \
	if ((hfmpi_openmpi_sym.name = dlsym(dl, #symbol)) == NULL) return #symbol;
	HF_SYMBOLS(X)
#undef X
	const char *missing = hfmpi_openmpi_bind_functions(dl);
	if (missing == NULL) hfmpi_lib = &hfmpi_openmpi_calls;
	return missing;
}
