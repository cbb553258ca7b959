#!/usr/bin/env python3
"""heat solves the heat equation du/dt = a (d2u/dx2 + d2u/dy2) on a square with fixed borders, by explicit steps.

The grid of n x n cells is cut into blocks, one for each rank, each with a border of one cell that holds its
neighbours' cells. A step exchanges the borders and computes

    u'[i,j] = u[i,j] + r (u[i-1,j] + u[i+1,j] + u[i,j-1] + u[i,j+1] - 4 u[i,j]),   r = a dt / dx^2 <= 1/4

so that the result is the same, bit by bit, for any number of ranks, and that of examples/heat-c. It is checkpointed
with Holdfast: kill it, start it again, also under another MPI or with another number of ranks, and the result is the
same as without.

    usage: heat.py N STEPS [FILE [MILLISECONDS]]

FILE takes the grid, row by row, as doubles; MILLISECONDS is the least time of a step, to watch it run.

    export HOLDFAST_GLOBAL=$(mktemp -d)
    mpirun -n 4 python3 heat.py 200 1000 result 20 &
    sleep 5; holdfast request --wait $HOLDFAST_GLOBAL       # takes a checkpoint
    kill -9 $!                                              # the crash
    mpirun -n 3 python3 heat.py 200 1000 result             # continues
"""

import sys
import time

import numpy as np
from mpi4py import MPI

import holdfast

R = 0.2


class Block:
    """This rank's part of the grid."""

    def __init__(self, comm, n):
        self.grid = comm.Create_cart(MPI.Compute_dims(comm.size, 2))
        self.n = n
        self.up, self.down = self.grid.Shift(0, 1)
        self.left, self.right = self.grid.Shift(1, 1)
        (rows, cols), (row, col) = self.grid.dims, self.grid.coords
        self.row, self.rows = part(n, row, rows)
        self.col, self.cols = part(n, col, cols)
        self.u = np.zeros((self.rows + 2, self.cols + 2))

    def begin(self):
        """A hot square in the middle, and a slope that makes every cell another one."""
        row = self.row + np.arange(self.rows)[:, np.newaxis]
        col = self.col + np.arange(self.cols)[np.newaxis, :]
        n = self.n
        hot = (row > n // 3) & (row < 2 * n // 3) & (col > n // 3) & (col < 2 * n // 3)
        self.u[1:-1, 1:-1] = np.where(hot, 100.0, 0.0) + 0.01 * row + 0.003 * col

    def exchange(self):
        u = self.u
        self.shift(u[1, 1:-1], self.up, u[-1, 1:-1], self.down)
        self.shift(u[-2, 1:-1], self.down, u[0, 1:-1], self.up)
        self.shift(u[1:-1, 1], self.left, u[1:-1, -1], self.right)
        self.shift(u[1:-1, -2], self.right, u[1:-1, 0], self.left)

    def shift(self, mine, dest, other, source):
        """Sends a row or column to one neighbour, and takes that of the one opposite."""
        got = np.ascontiguousarray(other)
        if got is other:
            got = other.copy()
        self.grid.Sendrecv(np.ascontiguousarray(mine), dest, recvbuf=got, source=source)
        other[:] = got

    def step(self):
        self.exchange()
        u = self.u
        middle = u[1:-1, 1:-1]
        middle += R * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * middle)

    def save(self, name):
        """Rank 0 takes the blocks and writes the grid."""
        blocks = self.grid.gather((self.row, self.col, self.u[1:-1, 1:-1].copy()))
        if self.grid.rank != 0:
            return
        whole = np.empty((self.n, self.n))
        for row, col, block in blocks:
            whole[row : row + block.shape[0], col : col + block.shape[1]] = block
        whole.tofile(name)


def part(n, i, parts):
    """First cell, and number of cells, of the i-th of so many parts of n."""
    return n * i // parts, n * (i + 1) // parts - n * i // parts


def main(n, steps, name=None, ms=0):
    comm = MPI.COMM_WORLD
    b = Block(comm, n)
    b.begin()
    with holdfast.Session(comm, elastic=True) as hf:
        hf.protect_global("u", b.u[1:-1, 1:-1], (n, n), (b.row, b.col))
        todo = hf.steps(steps)
        hf.restore()
        if comm.rank == 0:
            print(f"heat: begins at step {todo.now}", flush=True)
        for _ in todo:  # a final checkpoint ends the program here, with exit code 75
            b.step()
            time.sleep(ms / 1000)
        if name:
            b.save(name)
        if comm.rank == 0:
            print(f"heat: ends at step {todo.now}", flush=True)


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:4], *map(float, sys.argv[4:]))
