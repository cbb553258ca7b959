/* launch.h - the launcher of this process, and the node daemon of its job. */
#ifndef HF_LAUNCH_H
#define HF_LAUNCH_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A variable of the environment; NULL if it is not set, or empty. */
const char *hf_environ(const char *name);

/* Writes a name that all processes of one launch have, and no other launch at this time: that of the launcher's own
 * namespace, of the step of Slurm, or of the parent process. */
void hf_launch_name(char *to, size_t room);

/* Connects to the node daemon of a key, of which 64 bytes count; flags are of the socket. Returns the socket, or -1 and
 * errno: EPERM if another user has taken the name. */
int hf_dial(const char *key, int flags, pid_t *daemon);

#ifdef __cplusplus
}
#endif

#endif
