/* corners.c - what programs may do with messages, and few do: errors, requests
 * that are asked, cancelled and freed, types and communicators that are freed
 * under way, absolute addresses, matched messages, generalized requests. Each
 * rank has its messages in flight before it receives them. A second argument
 * is for MPI_THREAD_MULTIPLE. Says how many checks failed. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 60000, GRACE = 4 };

static int me, to, from, bad, handled;
static MPI_Comm comm;

#define CHECK(x)                                                               \
  do {                                                                         \
    if (!(x)) {                                                                \
      printf("rank %d: line %d: %s\n", me, __LINE__, #x);                      \
      bad++;                                                                   \
    }                                                                          \
  } while (0)

static void handler(MPI_Comm *c, int *error, ...) {
  handled += *c != MPI_COMM_NULL && *error != MPI_SUCCESS;
}

static int class_of(int rc) {
  int class = rc;
  MPI_Error_class(rc, &class);
  return class;
}

/* All messages have been sent; a layer that drains has most of them. */
static void in_flight(void) {
  for (int i = 0; i < GRACE; i++) {
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

static MPI_Request send_as(const int *data, int n, int tag) {
  MPI_Request r;
  MPI_Isend(data, n, MPI_INT, to, tag, comm, &r);
  return r;
}

static void check_status(const MPI_Status *st, int tag, int n, int line) {
  int count, cancelled;
  MPI_Get_count(st, MPI_INT, &count);
  MPI_Test_cancelled(st, &cancelled);
  if (st->MPI_SOURCE != from || st->MPI_TAG != tag || count != n || cancelled) {
    printf("rank %d: line %d: %d ints of tag %d from %d, not %d of %d\n", me,
           line, count, st->MPI_TAG, st->MPI_SOURCE, n, tag);
    bad++;
  }
}

#define STATUS(st, tag, n) check_status(st, tag, n, __LINE__)

enum {
  WAIT,
  TEST,
  WAITALL,
  TESTALL,
  IGNORED,
  WAITANY,
  TESTANY,
  WAITSOME,
  TESTSOME,
  WAYS
};

/* finish ends two requests in one of many ways, and returns the errors of each.
 */
static void finish(int how, MPI_Request r[2], int class[2]) {
  MPI_Status st[2];
  int rc = MPI_SUCCESS, flag = 0, n = 0, which[2];
  for (int done = 0; done < 2; done += n) {
    n = 1;
    which[0] = done;
    flag = 0;
    do {
      switch (how) {
      case WAIT:
        rc = MPI_Wait(&r[done], st);
        break;
      case TEST:
        rc = MPI_Test(&r[done], &flag, st);
        break;
      case WAITANY:
        rc = MPI_Waitany(2, r, which, st);
        break;
      case TESTANY:
        rc = MPI_Testany(2, r, which, &flag, st);
        break;
      case WAITSOME:
        rc = MPI_Waitsome(2, r, &n, which, st);
        break;
      case TESTSOME:
        rc = MPI_Testsome(2, r, &n, which, st);
        flag = n > 0;
        break;
      case TESTALL:
        rc = MPI_Testall(2, r, &flag, st);
        break;
      default:
        rc = MPI_Waitall(2, r, how == IGNORED ? MPI_STATUSES_IGNORE : st);
      }
    } while (
        rc == MPI_SUCCESS && !flag &&
        (how == TEST || how == TESTANY || how == TESTALL || how == TESTSOME));
    if (how == WAITALL || how == TESTALL || how == IGNORED) {
      n = 2;
      which[0] = 0;
      which[1] = 1;
    }
    for (int i = 0; i < n; i++) {
      class[which[i]] = class_of(class_of(rc) != MPI_ERR_IN_STATUS ? rc
                                 : how == IGNORED                  ? 0
                                                  : st[i].MPI_ERROR);
    }
    CHECK(how != IGNORED || class_of(rc) == MPI_ERR_IN_STATUS);
  }
}

/* One of two messages is too long for its receive: an error of that one, raised
 * once, whatever call returns it. MPICH leaves the other one pending; Open
 * MPI's MPI_Waitall does not tell a program that wants statuses of the error of
 * a persistent receive. */
static void too_long(int how, int persistent, int which) {
  const int out[LARGE] = {me};
  int in[2][2], class[2] = {MPI_SUCCESS, MPI_SUCCESS};
  MPI_Request r[2], s[2];
  for (int i = 0; i < 2; i++) {
    s[i] = send_as(out, i != which ? 1 : how == WAIT ? LARGE : 3, i);
  }
  in_flight();
  handled = 0;
  for (int i = 0; i < 2; i++) {
    const int source = i == 0 ? from : MPI_ANY_SOURCE;
    if (persistent) {
      MPI_Recv_init(in[i], 2, MPI_INT, source, i, comm, &r[i]);
      MPI_Start(&r[i]);
    } else {
      MPI_Irecv(in[i], 2, MPI_INT, source, i, comm, &r[i]);
    }
  }
  finish(how, r, class);
  CHECK(handled == 1);
  CHECK(how == IGNORED || (class[which] == MPI_ERR_TRUNCATE &&
                           class[1 - which] != MPI_ERR_TRUNCATE));
  for (int i = 0; i < 2; i++) {
    if (r[i] != MPI_REQUEST_NULL && !persistent) {
      MPI_Wait(&r[i], MPI_STATUS_IGNORE);
    } else if (r[i] != MPI_REQUEST_NULL) {
      MPI_Request_free(&r[i]);
    }
  }
  CHECK(in[1 - which][0] == from);
  MPI_Waitall(2, s, MPI_STATUSES_IGNORE);
}

static void errors(void) {
  for (int how = 0; how < WAYS; how++) {
    too_long(how, 0, how % 2);
    if (how == WAIT || how == IGNORED || how == WAITANY || how == WAITSOME) {
      too_long(how, 1, 1 - how % 2);
    }
  }
}

/* A call with a wrong argument receives nothing. The next one gets what it
 * would have got. */
static void wrong_arguments(void) {
  int out[3] = {me, me + 1, me + 2}, in = -1, flag;
  MPI_Request r = MPI_REQUEST_NULL, s[3];
  MPI_Message message;
  MPI_Status st;
  for (int i = 0; i < 3; i++) {
    s[i] = send_as(&out[i], 1, i);
  }
  in_flight();
  handled = 0;
  CHECK(class_of(MPI_Recv(&in, -1, MPI_INT, from, 2, comm, &st)) ==
        MPI_ERR_COUNT);
  CHECK(class_of(MPI_Recv(&in, 1, MPI_DATATYPE_NULL, from, MPI_ANY_TAG, comm,
                          &st)) == MPI_ERR_TYPE);
  CHECK(class_of(MPI_Irecv(&in, -1, MPI_INT, from, 1, comm, &r)) ==
        MPI_ERR_COUNT);
  CHECK(class_of(MPI_Sendrecv(out, 1, MPI_INT, to, 0, &in, -1, MPI_INT, from, 0,
                              comm, &st)) == MPI_ERR_COUNT);
  CHECK(class_of(MPI_Sendrecv_replace(out, 1, MPI_INT, to, -5, from, 0, comm,
                                      &st)) == MPI_ERR_TAG);
  MPI_Recv(&in, 1, MPI_INT, from, MPI_ANY_TAG, comm, &st);
  STATUS(&st, 0, 1);
  CHECK(in == from);
  MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &message, &st);
  CHECK(class_of(MPI_Mrecv(&in, -1, MPI_INT, &message, &st)) == MPI_ERR_COUNT);
  CHECK(class_of(MPI_Imrecv(&in, -1, MPI_INT, &message, &r)) == MPI_ERR_COUNT);
  CHECK(handled == 7);
  MPI_Mrecv(&in, 1, MPI_INT, &message, &st);
  STATUS(&st, 1, 1);
  CHECK(in == from + 1);
  MPI_Recv(&in, 1, MPI_INT, from, MPI_ANY_TAG, comm, &st);
  STATUS(&st, 2, 1);
  CHECK(in == from + 2);
  MPI_Waitall(3, s, MPI_STATUSES_IGNORE);
  CHECK(class_of(MPI_Sendrecv(out, 1, MPI_INT, to, 0, &in, 1, MPI_INT, from, -5,
                              comm, &st)) == MPI_ERR_TAG);
  CHECK(class_of(MPI_Sendrecv(out, 1, MPI_INT, to, 0, &in, 1, MPI_INT, 1000000,
                              0, comm, &st)) == MPI_ERR_RANK);
  in_flight();
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &st);
  CHECK(!flag); /* nor did one send anything */
  MPI_Barrier(comm);
}

/* Requests whose messages are there are asked, cancelled in vain, freed and
 * waited for again. */
static void asked(void) {
  int out[6], in[6], flag = 0;
  MPI_Request r[6], s[6];
  MPI_Status st;
  for (int i = 0; i < 6; i++) {
    out[i] = me + i;
    in[i] = -1;
    s[i] = send_as(&out[i], 1, i);
  }
  in_flight();
  for (int i = 0; i < 6; i += 2) {
    MPI_Irecv(&in[i], 2, MPI_INT, MPI_ANY_SOURCE, i, comm, &r[i]);
    MPI_Recv_init(&in[i + 1], 2, MPI_INT, from, i + 1, comm, &r[i + 1]);
    MPI_Request_get_status(r[i + 1], &flag, &st);
    CHECK(flag && st.MPI_SOURCE == MPI_ANY_SOURCE);
    MPI_Start(&r[i + 1]);
  }
  for (int i = 0; i < 2; i++) {
    for (int k = flag = 0; k < 2 || !flag; k++) {
      MPI_Request_get_status(r[i], &flag, &st);
    }
    STATUS(&st, i, 1);
  }
  for (int i = 0; i < 4; i++) {
    if (i >= 2) {
      MPI_Cancel(&r[i]);
    }
    MPI_Wait(&r[i], &st);
    STATUS(&st, i, 1);
    CHECK(in[i] == from + i);
  }
  MPI_Wait(&r[3], &st); /* it is inactive */
  CHECK(st.MPI_SOURCE == MPI_ANY_SOURCE);
  MPI_Request_free(&r[4]);
  MPI_Request_free(&r[5]);
  MPI_Waitall(6, s, MPI_STATUSES_IGNORE);
  in_flight();
  MPI_Barrier(comm);
  CHECK(in[4] == from + 4 && in[5] == from + 5);
  for (int i = 0; i < 2;
       i++) { /* none comes for the first start of the persistent one */
    MPI_Start(&r[1]);
    s[0] = i == 0 ? MPI_REQUEST_NULL : send_as(&out[5], 1, 1);
    i == 0 ? MPI_Cancel(&r[1]) : 0;
    MPI_Wait(&r[1], &st);
    MPI_Test_cancelled(&st, &flag);
    CHECK(flag == (i == 0) && in[1] == from + (i == 0 ? 1 : 5));
    MPI_Wait(&s[0], MPI_STATUS_IGNORE);
    in_flight();
  }
  MPI_Request_free(&r[1]);
  MPI_Request_free(&r[3]);
}

/* Types are freed as soon as receives have them, and say absolute addresses. */
static void types(void) {
  const int out[3] = {me, me + 1, me + 2}, lengths[2] = {1, 2};
  int in[8], count;
  MPI_Aint where[2];
  MPI_Datatype vector, here;
  MPI_Request r[3], s[4];
  MPI_Status st;
  memset(in, 0xff, sizeof in);
  for (int i = 0; i < 4; i++) {
    s[i] = send_as(out, i < 2 ? 2 : 3, i);
  }
  in_flight();
  MPI_Type_vector(2, 1, 2, MPI_INT, &vector);
  MPI_Type_commit(&vector);
  MPI_Irecv(in, 1, vector, from, 0, comm, &r[0]);
  MPI_Recv_init(in + 1, 1, vector, from, 1, comm, &r[1]);
  MPI_Type_free(&vector);
  MPI_Type_contiguous(3, MPI_CHAR, &vector); /* it may have the handle */
  in_flight();
  MPI_Start(&r[1]);
  MPI_Get_address(&in[5], &where[0]);
  MPI_Get_address(&in[6], &where[1]);
  MPI_Type_create_hindexed(2, lengths, where, MPI_INT, &here);
  MPI_Type_commit(&here);
  MPI_Irecv(MPI_BOTTOM, 1, here, MPI_ANY_SOURCE, 2, comm, &r[2]);
  MPI_Waitall(3, r, MPI_STATUSES_IGNORE);
  CHECK(in[0] == from && in[1] == from && in[2] == from + 1 &&
        in[3] == from + 1 && in[4] == -1);
  CHECK(in[5] == from && in[6] == from + 1 && in[7] == from + 2);
  in[5] = me + 70;
  MPI_Sendrecv_replace(MPI_BOTTOM, 1, here, to, 4, MPI_ANY_SOURCE, 3, comm,
                       &st);
  STATUS(&st, 3, 3);
  MPI_Get_elements(&st, here, &count);
  CHECK(count == 3 && in[5] == from && in[6] == from + 1 && in[7] == from + 2);
  MPI_Recv(in, 3, MPI_INT, from, 4, comm, &st);
  STATUS(&st, 4, 3);
  CHECK(in[0] == from + 70);
  MPI_Request_free(&r[1]);
  MPI_Type_free(&vector);
  MPI_Type_free(&here);
  MPI_Waitall(4, s, MPI_STATUSES_IGNORE);
}

/* Messages of one tag are matched, and received later than those behind them; a
 * long one comes before a short one. */
static void order(void) {
  static int large[LARGE], in[LARGE];
  int out[4], got[4], count;
  MPI_Message message[2];
  MPI_Request r[2], s[4];
  MPI_Status st;
  for (int i = 0; i < 4; i++) {
    out[i] = me + i;
    s[i] = send_as(&out[i], 1, 6);
  }
  in_flight();
  MPI_Mprobe(from, MPI_ANY_TAG, comm, &message[0], &st);
  MPI_Mprobe(MPI_ANY_SOURCE, 6, comm, &message[1], &st);
  MPI_Recv(&got[2], 1, MPI_INT, from, 6, comm, &st);
  MPI_Imrecv(&got[1], 1, MPI_INT, &message[1], &r[0]);
  MPI_Irecv(&got[3], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &r[1]);
  in_flight();
  MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
  MPI_Mrecv(&got[0], 1, MPI_INT, &message[0], &st);
  STATUS(&st, 6, 1);
  for (int i = 0; i < 4; i++) {
    CHECK(got[i] == from + i);
    MPI_Wait(&s[i], MPI_STATUS_IGNORE);
    s[i] = send_as(i % 2 == 0 ? large : out, i % 2 == 0 ? LARGE - i : i, i / 2);
  }
  in_flight();
  for (int i = 0; i < 4; i++) {
    MPI_Recv(in, LARGE, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &st);
    MPI_Get_count(&st, MPI_INT, &count);
    CHECK(st.MPI_TAG == i / 2 && count == (i % 2 == 0 ? LARGE - i : i) &&
          in[0] == (i % 2 == 0 ? 0 : from));
  }
  MPI_Waitall(4, s, MPI_STATUSES_IGNORE);
}

/* A communicator is freed while receives on it wait, one for a message that is
 * there and one for another. */
static void freed_comm(void) {
  const int out[2] = {me, me + 1};
  int in[2] = {-1, -1};
  MPI_Comm other, later;
  MPI_Request r[2], s[2];
  MPI_Status st[2];
  MPI_Comm_dup(comm, &other);
  MPI_Isend(&out[0], 1, MPI_INT, to, 0, other, &s[0]);
  in_flight();
  MPI_Irecv(&in[0], 1, MPI_INT, MPI_ANY_SOURCE, 0, other, &r[0]);
  MPI_Irecv(&in[1], 1, MPI_INT, MPI_ANY_SOURCE, 1, other, &r[1]);
  in_flight();
  MPI_Isend(&out[1], 1, MPI_INT, to, 1, other, &s[1]);
  MPI_Comm_free(&other);
  MPI_Comm_dup(comm, &later); /* it may have the handle */
  MPI_Waitall(2, r, st);
  STATUS(&st[0], 0, 1);
  STATUS(&st[1], 1, 1);
  CHECK(in[0] == from && in[1] == from + 1);
  MPI_Waitall(2, s, MPI_STATUSES_IGNORE);
  MPI_Comm_free(&later);
}

static int query(void *state, MPI_Status *st) {
  ++*(int *)state;
  MPI_Status_set_elements(st, MPI_INT, 7);
  MPI_Status_set_cancelled(st, 0);
  st->MPI_SOURCE = from;
  st->MPI_TAG = 9;
  return MPI_SUCCESS;
}

static int release(void *state) {
  *(int *)state += 100;
  return MPI_SUCCESS;
}

static int cancel(void *state, int complete) {
  return state == NULL && complete;
}

/* Requests of the program itself, with one from the mailbox between them. */
static void generalized(void) {
  int calls[2] = {0, 0}, in = -1, which[3], n, flag;
  MPI_Request r[3], s = send_as(&me, 1, 8);
  MPI_Status st[3];
  in_flight();
  MPI_Grequest_start(query, release, cancel, &calls[0], &r[0]);
  MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 8, comm, &r[1]);
  MPI_Grequest_start(query, release, cancel, &calls[1], &r[2]);
  MPI_Waitany(3, r, which, st);
  STATUS(&st[0], 8, 1);
  CHECK(which[0] == 1 && in == from);
  MPI_Grequest_complete(r[2]);
  MPI_Testsome(3, r, &n, which, st);
  CHECK(n == 1 && which[0] == 2);
  STATUS(&st[0], 9, 7);
  MPI_Testall(3, r, &flag, st);
  CHECK(!flag);
  MPI_Grequest_complete(r[0]);
  MPI_Waitall(3, r, st);
  STATUS(&st[0], 9, 7);
  CHECK(calls[0] == 101 && calls[1] == 101);
  MPI_Wait(&s, MPI_STATUS_IGNORE);
}

/* A receive from nobody leaves its buffer, and says that in its status. */
static void from_nobody(void) {
  int in = 5, out = 6, count = -1;
  for (int i = 0; i < 3; i++) {
    MPI_Status st = {.MPI_SOURCE = 77, .MPI_TAG = 77};
    if (i == 0) {
      MPI_Recv(&in, 1, MPI_INT, MPI_PROC_NULL, 4, comm, &st);
    } else if (i == 1) {
      MPI_Sendrecv(&out, 1, MPI_INT, MPI_PROC_NULL, 4, &in, 1, MPI_INT,
                   MPI_PROC_NULL, 4, comm, &st);
    } else {
      MPI_Sendrecv_replace(&in, 1, MPI_INT, MPI_PROC_NULL, 4, MPI_PROC_NULL, 4,
                           comm, &st);
    }
    MPI_Get_count(&st, MPI_INT, &count);
    CHECK(in == 5 && count == 0 && st.MPI_SOURCE == MPI_PROC_NULL &&
          st.MPI_TAG == MPI_ANY_TAG);
  }
}

static int type_deleted(MPI_Datatype type, int key, void *times, void *state) {
  ++*(int *)times;
  CHECK(type != MPI_DATATYPE_NULL && key != MPI_KEYVAL_INVALID && !state);
  return MPI_SUCCESS;
}

/* The attributes of a type that is freed under way are deleted once. */
static void attributes_of_freed(void) {
  int in[2] = {0}, out[2] = {me, 3}, times = 0, key;
  MPI_Datatype pair;
  MPI_Request r, s;
  MPI_Type_contiguous(2, MPI_INT, &pair);
  MPI_Type_commit(&pair);
  MPI_Type_create_keyval(MPI_TYPE_DUP_FN, type_deleted, &key, NULL);
  MPI_Type_set_attr(pair, key, &times);
  MPI_Irecv(in, 1, pair, from, 8, comm, &r);
  MPI_Type_free(&pair);
  s = send_as(out, 2, 8);
  in_flight();
  MPI_Wait(&r, MPI_STATUS_IGNORE);
  MPI_Wait(&s, MPI_STATUS_IGNORE);
  MPI_Type_free_keyval(&key);
  CHECK(times == 1 && in[0] == from && in[1] == 3);
}

/* Persistent collectives among other requests. */
static void persistent_collectives(void) {
#if MPI_VERSION >= 4
  MPI_Request r[3];
  MPI_Status st[3];
  int sum = 0, last = me, in;
  MPI_Allreduce_init(&me, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL,
                     &r[0]);
  MPI_Bcast_init(&last, 1, MPI_INT, 0, comm, MPI_INFO_NULL, &r[1]);
  for (int i = 0; i < 2; i++) {
    last = me == 0 ? 7 + i : -1;
    sum = in = -1;
    MPI_Startall(2, r);
    MPI_Irecv(&in, 1, MPI_INT, from, 6, comm, &r[2]);
    MPI_Send(&me, 1, MPI_INT, to, 6, comm);
    CHECK(MPI_Waitall(3, r, i == 0 ? st : MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    CHECK(sum >= me + from && last == 7 + i && in == from);
  }
  MPI_Request_free(&r[0]);
  MPI_Request_free(&r[1]);
#endif
}

/* MPI_Finalize calls this one. Its message was in flight long before. */
static int last_received(MPI_Comm self, int key, void *value, void *state) {
  MPI_Status st;
  int in = -1;
  MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &st);
  STATUS(&st, 3, 1);
  CHECK(in == from && self == MPI_COMM_SELF && value == &bad && state == NULL &&
        key != MPI_KEYVAL_INVALID);
  return MPI_SUCCESS;
}

static void send_last(void) {
  int key;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, last_received, &key, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, &bad);
  MPI_Send(&me, 1, MPI_INT, to, 3, MPI_COMM_WORLD);
  in_flight();
}

int main(int argc, char **argv) {
  int n, all;
  MPI_Errhandler counts;
  MPI_Init_thread(&argc, &argv,
                  argc > 2 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &n);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  to = (me + 1) % n;
  from = (me + n - 1) % n;
  MPI_Comm_create_errhandler(handler, &counts);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, counts);
  MPI_Comm_set_errhandler(
      MPI_COMM_WORLD, counts); /* MPICH calls that of an error of a request */
  for (int round = atoi(argv[1]); round > 0; round--) {
    errors();
    wrong_arguments();
    asked();
    types();
    order();
    freed_comm();
    generalized();
    from_nobody();
    attributes_of_freed();
    persistent_collectives();
  }
  send_last();
  MPI_Comm_free(&comm);
  MPI_Reduce(&bad, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (me == 0) {
    printf("failed checks: %d\n", all);
  }
  MPI_Errhandler_free(&counts);
  MPI_Finalize();
  return bad != 0;
}
