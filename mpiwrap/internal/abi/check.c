//go:build mpi_openmpi || mpi_mpich

#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "neutral.h"

int hfmpi_check(char *err, int cap, int *checked);
#define HF_DIRECT
#ifdef OPEN_MPI
#include "table_openmpi.h"
#else
#include "table_mpich.h"
#endif
#include "functions.h"

/* A prototype that differs from the header's is a compile error here. */
#pragma GCC diagnostic error "-Wincompatible-pointer-types"
#define X(name, params) int (*const hfmpi_proto_##name) params = MPI_##name;
HF_MPI(X)
#undef X

static int hfmpi_bad(char *err, int cap, const char *what, long long got, long long want)
{
	snprintf(err, cap, "%s: the table says %lld, mpi.h says %lld", what, got, want);
	return 1;
}

int hfmpi_check(char *err, int cap, int *checked)
{
	*checked = 0;
#define X(name, value) \
	if (++*checked, (value) != MPI_##name) return hfmpi_bad(err, cap, #name, value, MPI_##name);
	HF_CONSTANTS(X)
#undef X
#define X(name, value) \
	if (++*checked, (void *)(intptr_t)(value) != (void *)MPI_##name) \
		return hfmpi_bad(err, cap, #name, value, (long long)(intptr_t)MPI_##name);
	HF_POINTERS(X)
#undef X
#ifdef OPEN_MPI
#define X(type, name, symbol) \
	if (++*checked, (type)(void *)&symbol != MPI_##name) \
		return hfmpi_bad(err, cap, #name, (long long)(intptr_t)&symbol, (long long)(intptr_t)MPI_##name);
#else
#define X(type, name, value) \
	if (++*checked, (type)(value) != MPI_##name) return hfmpi_bad(err, cap, #name, value, MPI_##name);
#endif
	HF_SYMBOLS(X)
#undef X
#define SAME(what, a, b) \
	if (++*checked, (a) != (b)) return hfmpi_bad(err, cap, what, (long long)(a), (long long)(b))
#define FIELD(f) SAME("offset of " #f, offsetof(hfmpi_table_status, f), offsetof(MPI_Status, f))
	SAME("size of MPI_Status", sizeof(hfmpi_table_status), sizeof(MPI_Status));
	FIELD(MPI_SOURCE);
	FIELD(MPI_TAG);
	FIELD(MPI_ERROR);
#ifdef OPEN_MPI
	FIELD(_cancelled);
	FIELD(_ucount);
#define HANDLE(t) SAME("size of " #t, sizeof(void *), sizeof(t))
	SAME("size of MPI_Aint", sizeof(ptrdiff_t), sizeof(MPI_Aint));
#else
	FIELD(count_lo);
	FIELD(count_hi_and_cancelled);
#define HANDLE(t) SAME("size of " #t, sizeof(int), sizeof(t))
	SAME("size of MPI_Aint", sizeof(long), sizeof(MPI_Aint));
#endif
	HANDLE(MPI_Comm);
	HANDLE(MPI_Request);
	HANDLE(MPI_Message);
	HANDLE(MPI_Info);
	HANDLE(MPI_Errhandler);
	HANDLE(MPI_Datatype);
	HANDLE(MPI_Op);
	HANDLE(MPI_Group);
	HANDLE(MPI_Win);
	return 0;
}
