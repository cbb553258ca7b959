/* veloc.h - VeloC's calls, on Holdfast.
 *
 * Programs that are written for VeloC compile with this header and link libveloc-client as they are:
 *
 *     mpicc program.c -lveloc-client
 *
 * Checkpoints are taken and stored by Holdfast (docs/NODE.md), verified when they are read, and listed and checked by
 * its tools. docs/PORTING.md lists the differences from VeloC call by call.
 *
 * All calls return VELOC_SUCCESS or VELOC_FAILURE unless they say otherwise; the failure, its cause and the remedy go
 * to standard error, or to the file that the configuration's log_prefix names. Calls that are collective are made by
 * all ranks of the communicator, in the same order, and fail on all of them alike. One thread at a time may be in the
 * library. */
#ifndef VELOC_H
#define VELOC_H

#include <stddef.h>
#include <string.h>

#include "veloc/comm.h"
#include "veloc/defs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Begins. VELOC_Init is collective over comm, after MPI_Init. VELOC_Init_single is for one process by itself, with or
 * without MPI; id separates it from others that use the same directories. cfg_file names the configuration; "" or NULL
 * means that the VELOC_* variables have it all. */
#ifndef VELOC_WITHOUT_MPI
VELOC_LOCAL int VELOC_Init(MPI_Comm comm, const char *cfg_file);
#endif
int VELOC_Init_single(unsigned int id, const char *cfg_file);

/* Ends. Collective. Checkpoints that are under way become durable at all levels first, also with drain 0. */
int VELOC_Finalize(int drain);

/* Makes count elements of base_size bytes at ptr region `id` of later checkpoints. Local. The same id again gives a new
 * place or size. A region with a name is part of the checkpoints of that name; those without are part of
 * checkpoints that have no region of their own name. */
int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base_size);
int VELOC_Region_protect(int id, void *ptr, size_t count, size_t base_size, const char *name);

/* Ends the protection of a region, or of all. Local. */
int VELOC_Mem_unprotect(int id);
int VELOC_Region_unprotect(int id, const char *name);
int VELOC_Mem_clear(void);
int VELOC_Region_clear(const char *name);

/* File mode: the path, below the configuration's scratch, where this rank writes its file between
 * VELOC_Checkpoint_begin and VELOC_Checkpoint_end, and reads it between VELOC_Restart_begin and VELOC_Restart_end.
 * That of the first file depends on name, version and rank; another `original` in the same checkpoint is another
 * file. A restart may call a single file as it likes, and several as they were called. routed has room for
 * VELOC_MAX_NAME bytes. Local. */
int VELOC_Route_file(const char *original, char *routed);

/* Removes this rank's files of checkpoints `name` below scratch. The checkpoints stay. Local. */
int VELOC_Cleanup(const char *name);

/* Begins a checkpoint. The name consists of letters, digits, '_' and '.', the version is 0 or more; a version that is
 * there already is replaced. */
int VELOC_Checkpoint_begin(const char *name, int version);

/* Saves regions, with the contents that they have now: those that mode says. May be called several times in a
 * checkpoint. Local. */
int VELOC_Checkpoint_selective(int mode, int *ids, int id_count);
int VELOC_Checkpoint_mem(void);

/* Ends the checkpoint. Collective. It counts if success is not 0 on any rank, and all have saved something. In mode
 * sync it returns when the checkpoint is durable, in mode async when its contents are copied. */
int VELOC_Checkpoint_end(int success);

/* Waits until the last checkpoint is durable, and returns whether it is. Collective. */
int VELOC_Checkpoint_wait(void);

/* VELOC_SUCCESS when VELOC_Checkpoint_wait would not wait, else VELOC_FAILURE. Local. */
int VELOC_Checkpoint_finished(void);

/* VELOC_Checkpoint_wait, _begin, _mem and _end. Collective. */
int VELOC_Checkpoint(const char *name, int version);

/* Returns the newest version of checkpoints `name` that all ranks can restore: of all with version 0, else of those up
 * to version. VELOC_FAILURE if there is none, or version is negative. Collective. */
int VELOC_Restart_test(const char *name, int version);

/* Begins to restore: reads the checkpoint and verifies all of it, on all ranks, before anything is handed out.
 * Collective. */
int VELOC_Restart_begin(const char *name, int version);

/* Copies the saved data into the protected regions of the same ids, selected by mode. Fails, and changes nothing, if
 * one is not protected or smaller than the saved data. Local. */
int VELOC_Recover_selective(int mode, int *ids, int id_count);
int VELOC_Recover_mem(void);
int VELOC_Restart_mem(void); /* VELOC_Recover_mem, by the name that VeloC's manual has for it */

/* Bytes that were saved of region id; -1 if it was not saved. Local. */
int VELOC_Recover_size(int id);

/* Ends the restore. Local. */
int VELOC_Restart_end(int success);

/* VELOC_Restart_begin, VELOC_Recover_mem and VELOC_Restart_end. Collective. */
int VELOC_Restart(const char *name, int version);

/* VELOC_Init, for a communicator that is described. It takes comm over. Programs without this header (Fortran,
 * Python by ctypes) call the VELOC_Init that the library exports: it finds Open MPI, MPICH or an MPI with the ABI
 * of MPICH or of the standard in the process. Fortran passes the communicator by value, as an integer(c_int). */
int veloc_init_comm(const struct veloc_comm *comm, const char *cfg_file);

#ifndef VELOC_WITHOUT_MPI
VELOC_LOCAL int VELOC_Init(MPI_Comm comm, const char *cfg_file) {
	struct veloc_comm c;

	return veloc_comm_of(comm, &c) != 0 ? veloc_init_comm(NULL, cfg_file) : veloc_init_comm(&c, cfg_file);
}
#endif

#ifdef __cplusplus
}
#endif
#endif
