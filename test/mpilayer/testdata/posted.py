"""As posted.cpp, with mpi4py, whose threads want equally many points on all ranks. usage: posted.py STEPS"""

import os
import signal
import sys

import numpy as np
from mpi4py import MPI

import holdfast

sys.stdout.reconfigure(line_buffering=True)
comm = MPI.COMM_WORLD
rank, size, steps = comm.rank, comm.size, int(sys.argv[1])
left, right = (rank - 1) % size, (rank + 1) % size
total, step, received = np.zeros(1, np.uint64), np.zeros(1, np.int32), np.full(1, -1.0)
request = MPI.Request()
with holdfast.Session(comm) as hf:
    hf.protect("total", total)
    hf.protect("step", step)
    hf.protect("in", received)
    hf.protect_request("next", request)
    restored = hf.restore()
    sys.stdout.write(f"rank {rank} begins at step {step[0]}\n")
    if not restored:
        request = comm.Irecv(received, source=left, tag=3)
        hf.protect_request("next", request)
    while step[0] < steps:
        if not restored and rank == 1 and step[0] == steps // 2:
            os.kill(os.getpid(), signal.SIGUSR2)
        if hf.point():
            os.kill(os.getpid(), signal.SIGKILL)
        comm.Send(np.array([float(rank + step[0])]), dest=right, tag=3)
        request.Wait()
        if received[0] != left + step[0]:
            sys.stdout.write(f"rank {rank}, step {step[0]}: got {received[0]}\n")
            comm.Abort(1)
        total[0] = np.uint64((int(total[0]) * 31 + int(received[0])) % 2**64)
        step[0] += 1
        if step[0] < steps:
            request = comm.Irecv(received, source=left, tag=3)
            hf.protect_request("next", request)
    sys.stdout.write(f"rank {rank} sum {total[0]}\n")
