/* veloc/defs.h - constants of veloc.h and veloc.hpp, with VeloC's names and values. */
#ifndef VELOC_DEFS_H
#define VELOC_DEFS_H

/* Results of the calls of veloc.h. */
#ifndef VELOC_SUCCESS
#define VELOC_SUCCESS (0)
#endif
#ifndef VELOC_FAILURE
#define VELOC_FAILURE (-1)
#endif

/* Room for the result of VELOC_Route_file, its end mark included. */
#define VELOC_MAX_NAME (1024)

/* Which regions VELOC_Checkpoint_selective saves: all, those that are listed, or all others. */
#define VELOC_CKPT_ALL (0)
#define VELOC_CKPT_SOME (1)
#define VELOC_CKPT_REST (2)

/* Which regions VELOC_Recover_selective reads. */
#define VELOC_RECOVER_ALL (0)
#define VELOC_RECOVER_SOME (1)
#define VELOC_RECOVER_REST (2)

/* Event for client_t::register_observer: a checkpoint has ended on this rank. */
#define VELOC_OBSERVE_CKPT_END (0)

#endif
