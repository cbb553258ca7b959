#!/usr/bin/env python3
"""workers: rank 0 hands out tasks, and gives each worker the next one when its answer comes.

Tasks and answers are on their way at any moment, and no two ranks come to their points equally often: libholdfast-mpi,
which `holdfast run` puts before MPI, keeps the messages in flight. The lines for Holdfast are those with hf.

    usage: workers.py TASKS [MILLISECONDS]

    export HOLDFAST_GLOBAL=$(mktemp -d)
    holdfast run -- mpirun -n 4 python3 workers.py 3000 2 &
    sleep 5; holdfast request --wait $HOLDFAST_GLOBAL       # takes a checkpoint
    pkill -9 -n -f workers.py                               # a rank dies: all start again, and continue
"""

import sys
import time

import numpy as np
from mpi4py import MPI

import holdfast

STOP = -1


def work(task, ms):
    time.sleep(ms / 1000)
    return float(task) ** 0.5


def hand_out(comm, tasks):
    answers = np.zeros(tasks)
    given, taken = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)

    def give(worker):
        more = given[0] < tasks
        comm.send(int(given[0]) if more else STOP, worker)
        given[0] += more

    with holdfast.Session(comm) as hf:
        hf.protect("answers", answers)
        hf.protect("given", given)
        hf.protect("taken", taken)
        if not hf.restore():
            for worker in range(1, comm.size):
                give(worker)
        print(f"workers: begins with {taken[0]} answers", flush=True)
        while taken[0] < tasks:
            if hf.point():
                sys.exit(75)
            worker, task, answer = comm.recv()
            answers[task] = answer
            taken[0] += 1
            give(worker)
    print(f"workers: sum {answers.sum()}", flush=True)


def take(comm, ms):
    with holdfast.Session(comm) as hf:
        hf.restore()
        while True:
            if hf.point():
                sys.exit(75)
            task = comm.recv(source=0)
            if task == STOP:
                return
            comm.send((comm.rank, task, work(task, ms)), 0)


def main(tasks, ms=0):
    comm = MPI.COMM_WORLD
    if comm.rank == 0:
        hand_out(comm, tasks)
    else:
        take(comm, ms)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    main(int(sys.argv[1]), *map(float, sys.argv[2:]))
