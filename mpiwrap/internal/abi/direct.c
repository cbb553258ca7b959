//go:build mpi_openmpi || mpi_mpich

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "neutral.h"
#include "open.h"
#define HF_DIRECT
#ifdef OPEN_MPI
#include "table_openmpi.h"
#define HF_KIND HF_KIND_OPENMPI
#else
#include "table_mpich.h"
#define HF_KIND HF_KIND_MPICH
#endif
#include "functions.h"

#define PFX(name) hfmpi_direct_##name
#define P(name) MPI_##name
#define K(name) MPI_##name
#include "body.h"

int hfmpi_open(const char *name, int mapped_only, char *err, int cap)
{
	(void)name, (void)mapped_only, (void)err, (void)cap;
	hfmpi_lib = &hfmpi_direct_calls;
	return HF_KIND;
}
