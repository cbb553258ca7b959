/* behind.c - rank 0 sends two messages of one tag. Rank 1 has posted a receive,
 * which gets the first of them, and waits for it behind its point; it receives
 * the second later. In a first start rank 1 asks for a final checkpoint by
 * USR2, and both ranks kill themselves behind it. The restarted rank 1 posts
 * its receive again and prints both messages. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "holdfast_mpi.h"

static void check(int code, const char *call) {
  if (code != HF_OK) {
    printf("%s: %s\n", call, hf_error());
    exit(1);
  }
}

int main(int argc, char **argv) {
  int rank, code, first = 0, second = 0;
  MPI_Request receive = MPI_REQUEST_NULL;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  check(hf_init_mpi(MPI_COMM_WORLD), "hf_init_mpi");
  check(hf_protect("first", &first, 1, HF_INT32), "hf_protect");
  const int restored = hf_restore();
  if (rank == 1) {
    MPI_Irecv(&first, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, &receive);
  }
  if (restored == 0) {
    for (int number = 1; number <= 2 && rank == 0; number++) {
      MPI_Send(&number, 1, MPI_INT, 1, 3, MPI_COMM_WORLD);
    }
    if (rank == 1) {
      raise(SIGUSR2);
    }
    while ((code = hf_point()) != HF_STOP) {
      check(code, "hf_point");
      usleep(1000); /* the daemon has time to hear of it */
    }
    raise(SIGKILL);
  }
  if (rank == 1) {
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
    MPI_Recv(&second, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("got %d, then %d\n", first, second);
  }
  check(hf_finalize(), "hf_finalize");
  MPI_Finalize();
  return 0;
}
