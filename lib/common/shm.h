/* shm.h - memory that processes share, and descriptors that pass between them. */
#ifndef HF_SHM_H
#define HF_SHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Takes a descriptor and returns it as one that is none of the program's standard files: a program that began without
 * them would write into it. -1 and errno: that cannot be. */
int hf_own_fd(int fd);

/* A file of zeros in memory, whose size is sealed; -1 and errno. */
int hf_memfd(const char *name, size_t bytes);

/* Whether a descriptor holds that number of bytes: memory beyond its end cannot be touched. */
bool hf_fd_holds(int fd, uint64_t bytes);

/* mmap of a whole file, NULL and errno if it fails. */
void *hf_map(int fd, size_t bytes, int prot, int how);

/* Sends a byte, with a descriptor unless fd is -1; it fails if the other side has ended. */
bool hf_pass_fd(int sock, char what, int fd);

/* Receives a message and its descriptors, *n of them, which the caller closes. Returns the result of recvmsg; *cut
 * tells that the message or its descriptors had no room. */
enum { HF_MOST_FDS = 2 };
ssize_t hf_receive(int sock, void *to, size_t room, int fds[HF_MOST_FDS], int *n, bool *cut);

#endif
