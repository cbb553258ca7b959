// posted.cpp STEPS - as ring.c in C++, with the receive of the next step posted before each point, and protected.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

#include "holdfast_mpi.hpp"

namespace {

void run(int steps) {
	int rank, size;
	double in = -1;
	std::uint64_t sum = 0;
	std::int32_t step = 0;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	const int left = (rank + size - 1) % size, right = (rank + 1) % size;
	MPI_Request request = MPI_REQUEST_NULL;
	auto hf = holdfast::open(MPI_COMM_WORLD);
	hf.protect("sum", sum);
	hf.protect("step", step);
	hf.protect("in", in);
	holdfast::protect_request(hf, "next", request);
	const bool restored = hf.restore();
	std::printf("rank %d begins at step %d\n", rank, step);
	std::fflush(stdout);
	if (!restored) {
		MPI_Irecv(&in, 1, MPI_DOUBLE, left, 3, MPI_COMM_WORLD, &request);
	}
	while (step < steps) {
		if (!restored && rank == 1 && step == steps / 2) {
			std::raise(SIGUSR2);
		}
		if (!restored && rank == 1 && step > steps / 2) {
			usleep(1000); // the daemon has time to hear of it
		}
		if (step % (rank + 2) == 0 && hf.point()) {
			std::raise(SIGKILL);
		}
		const double out = rank + step;
		MPI_Send(&out, 1, MPI_DOUBLE, right, 3, MPI_COMM_WORLD);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		if (in != left + step) {
			std::printf("rank %d, step %d: got %g\n", rank, step, in);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
		sum = sum * 31 + static_cast<std::uint64_t>(in);
		step++;
		if (step < steps) {
			MPI_Irecv(&in, 1, MPI_DOUBLE, left, 3, MPI_COMM_WORLD, &request);
		}
	}
	std::printf("rank %d sum %llu\n", rank, static_cast<unsigned long long>(sum));
	hf.finalize();
}

} // namespace

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	try {
		run(argc > 1 ? std::atoi(argv[1]) : 100);
	} catch (const holdfast::error &e) {
		std::printf("%s\n", e.what());
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Finalize();
	return 0;
}
