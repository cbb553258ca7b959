/* inflight.c - messages that are in flight at every call: wildcards, probes,
 * derived types, persistent requests, large messages, a communicator of its
 * own. Says how many checks failed. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int me, n, bad;

#define CHECK(x)                                                               \
  do {                                                                         \
    if (!(x)) {                                                                \
      printf("rank %d: line %d: %s\n", me, __LINE__, #x);                      \
      bad++;                                                                   \
    }                                                                          \
  } while (0)

static void wildcards(MPI_Comm comm, MPI_Datatype vec, int round, int to,
                      int from) {
  double a[60], b[60];
  MPI_Request r[4];
  MPI_Status st, all[4];
  int c;
  for (int i = 0; i < 60; i++) {
    a[i] = me * 1000 + i + round;
    b[i] = -1;
  }
  MPI_Isend(a, 1, vec, to, 7, comm, &r[0]);
  MPI_Isend(a, 3, MPI_DOUBLE, to, 8, comm, &r[1]);
  MPI_Isend(a + 3, 5, MPI_DOUBLE, to, 7, comm, &r[2]);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Probe(MPI_ANY_SOURCE, 8, comm, &st);
  MPI_Get_count(&st, MPI_DOUBLE, &c);
  CHECK(c == 3 && st.MPI_SOURCE == from && st.MPI_TAG == 8);
  MPI_Recv(b, 1, vec, MPI_ANY_SOURCE, 7, comm, &st);
  MPI_Get_count(&st, vec, &c);
  CHECK(c == 1 && st.MPI_SOURCE == from && st.MPI_TAG == 7);
  for (int i = 0; i < 50; i++) {
    CHECK(b[i] == (i % 5 < 2 ? from * 1000 + i + round : -1));
  }
  MPI_Irecv(b, 10, MPI_DOUBLE, from, MPI_ANY_TAG, comm, &r[3]);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Waitall(4, r, all);
  MPI_Get_count(&all[3], MPI_DOUBLE, &c);
  CHECK(c == 3 && all[3].MPI_TAG == 8 && all[3].MPI_SOURCE == from &&
        b[0] == from * 1000 + round);

  MPI_Message message;
  MPI_Mprobe(from, 7, comm, &message, &st);
  MPI_Get_count(&st, MPI_DOUBLE, &c);
  CHECK(c == 5);
  MPI_Mrecv(b, 5, MPI_DOUBLE, &message, &st);
  CHECK(st.MPI_SOURCE == from && st.MPI_TAG == 7 &&
        b[0] == from * 1000 + 3 + round);
}

static void large(MPI_Comm comm, int to, int from) {
  enum { N = 100000 };
  static double out[N], in[N];
  MPI_Request r[2];
  for (int i = 0; i < N; i++) {
    out[i] = i + me;
    in[i] = -1;
  }
  MPI_Isend(out, N, MPI_DOUBLE, to, 9, comm, &r[1]);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Irecv(in, N, MPI_DOUBLE, from, 9, comm, &r[0]);
  MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
  for (int i = 0; i < N; i += 777) {
    CHECK(in[i] == i + from);
  }
}

static void persistent(int to, int from) {
  int in = -1, index;
  MPI_Request p[2];
  MPI_Status st;
  MPI_Recv_init(&in, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &p[0]);
  MPI_Send_init(&me, 1, MPI_INT, to, 3, MPI_COMM_WORLD, &p[1]);
  for (int k = 0; k < 4; k++) {
    in = -1;
    if (k % 2) {
      MPI_Start(&p[1]);
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Start(&p[0]);
    } else {
      MPI_Startall(2, p);
    }
    for (int done = 0; done < 2; done++) {
      MPI_Waitany(2, p, &index, &st);
      CHECK(index == 1 || (st.MPI_SOURCE == from && st.MPI_TAG == 3));
    }
    CHECK(in == from);
  }
  MPI_Request_free(&p[0]);
  MPI_Request_free(&p[1]);
}

static void exchanges(int to, int from) {
  int x = me, y = -1;
  MPI_Status st;
  MPI_Request r;
  MPI_Sendrecv(&x, 1, MPI_INT, to, 1, &y, 1, MPI_INT, from, 1, MPI_COMM_WORLD,
               &st);
  CHECK(y == from && st.MPI_SOURCE == from);
  MPI_Isend(&y, 1, MPI_INT, to, 4, MPI_COMM_WORLD,
            &r); /* waits there while others come */
  MPI_Sendrecv_replace(&x, 1, MPI_INT, to, 2, from, 2, MPI_COMM_WORLD,
                       MPI_STATUS_IGNORE);
  CHECK(x == from);
  MPI_Recv(&y, 1, MPI_INT, from, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  CHECK(y == (from + n - 1) % n);
  MPI_Wait(&r, MPI_STATUS_IGNORE);
}

/* too_long checks that a message which is too long for its receive is an error
 * of the communicator's handler. */
static void too_long(MPI_Comm comm, int to, int from) {
  int out[4] = {me}, in[2], class = MPI_SUCCESS;
  MPI_Request r;
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Isend(out, 4, MPI_INT, to, 5, comm, &r);
  MPI_Barrier(MPI_COMM_WORLD);
  int rc = MPI_Recv(in, 2, MPI_INT, from, 5, comm, MPI_STATUS_IGNORE);
  MPI_Error_class(rc, &class);
  CHECK(class == MPI_ERR_TRUNCATE);
  MPI_Wait(&r, MPI_STATUS_IGNORE);
}

/* A synchronous send ends when its message is received, and not before. */
static void synchronous(MPI_Comm comm, int to, int from) {
  MPI_Request r[3];
  MPI_Status all[3];
  int flag, got, index, out[3] = {me, me + 1, me + 2};
  MPI_Issend(&out[0], 1, MPI_INT, to, 21, comm, &r[0]);
  MPI_Isend(&out[1], 1, MPI_INT, to, 21, comm, &r[1]);
  MPI_Issend(&out[2], 1, MPI_INT, to, 22, comm, &r[2]);
  for (int k = 0; k < 5; k++) {
    MPI_Test(&r[0], &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
    MPI_Testall(3, r, &flag, all);
    CHECK(!flag);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Recv(&got, 1, MPI_INT, from, 21, comm, MPI_STATUS_IGNORE);
  CHECK(got == from);
  MPI_Wait(&r[0], MPI_STATUS_IGNORE);
  MPI_Test(&r[2], &flag, MPI_STATUS_IGNORE);
  CHECK(!flag);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Recv(&got, 1, MPI_INT, from, 21, comm, MPI_STATUS_IGNORE);
  CHECK(got == from + 1);
  MPI_Message message;
  MPI_Mprobe(MPI_ANY_SOURCE, 22, comm, &message, MPI_STATUS_IGNORE);
  MPI_Mrecv(&got, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
  CHECK(got == from + 2);
  MPI_Waitany(1, &r[2], &index, MPI_STATUS_IGNORE);
  MPI_Wait(&r[1], MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 1, all, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  MPI_Comm dup, half;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup);
  MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &half);
  MPI_Datatype vec;
  MPI_Type_vector(10, 2, 5, MPI_DOUBLE, &vec);
  MPI_Type_commit(&vec);
  for (int round = 0; round < rounds; round++) {
    int to = (me + 1) % n, from = (me + n - 1) % n;
    wildcards(dup, vec, round, to, from);
    exchanges(to, from);
    large(dup, to, from);
    persistent(to, from);
    too_long(dup, to, from);
    synchronous(dup, to, from);
    MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, half);
  }
  MPI_Comm_free(&dup);
  MPI_Comm_free(&half);
  MPI_Type_free(&vec);
  MPI_Reduce(&bad, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (me == 0) {
    printf("failed checks: %d\n", all);
  }
  MPI_Finalize();
  return bad != 0;
}
