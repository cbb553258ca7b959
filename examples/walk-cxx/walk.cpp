// walk moves random walkers over a square lattice, a step to one of four sides at a time, and prints their mean
// squared distance <r^2>, which is the number of steps.
//
// Each rank has walkers of its own. What it needs to continue are their places, a std::vector of structures, and the
// state of its random numbers. Killed and started again, under this MPI or another, it prints what it would have.
//
//     usage: walk WALKERS STEPS [FILE [MILLISECONDS]]
//
// FILE takes <r^2> after each step, as doubles; MILLISECONDS is the least time of a step, to watch it run.
// docs/LANGUAGES.md says how to build it.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <holdfast_mpi.hpp>

namespace {

struct walker {
    std::int32_t x, y;
};

struct walk {
    explicit walk(int walkers, int steps, int rank) : at(walkers), distance(steps), random(1000003u * (rank + 1u)) {}

    // Moves all walkers, and returns the sum of their squared distances.
    double step()
    {
        double sum = 0;
        for (walker &w : at) {
            const auto side = random() >> 62; // the engine itself: distributions differ between libraries
            w.x += side == 0 ? 1 : side == 1 ? -1 : 0;
            w.y += side == 2 ? 1 : side == 3 ? -1 : 0;
            sum += double(w.x) * w.x + double(w.y) * w.y;
        }
        return sum;
    }

    std::int32_t now = 0;
    std::vector<walker> at;
    std::vector<double> distance; // <r^2> after each step
    std::mt19937_64 random;
};

// Returns the exit code.
int run(int argc, char **argv)
{
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int walkers = std::atoi(argv[1]), steps = std::atoi(argv[2]);
    const std::chrono::milliseconds pause(argc > 4 ? std::atoi(argv[4]) : 0);
    walk w(walkers, steps, rank);
    auto hf = holdfast::open(MPI_COMM_WORLD); // after what it protects: it ends before that

    hf.protect("now", w.now);
    hf.protect("walkers", w.at);
    hf.protect("distance", w.distance);
    hf.protect("random", w.random);
    hf.restore();
    if (rank == 0)
        std::cout << "walk: begins at step " << w.now << std::endl;
    for (; w.now < steps; w.now++) {
        if (hf.point())
            return 75; // the session waits until the checkpoint is at all levels
        const double mine = w.step();
        double all = 0;
        MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        w.distance[w.now] = all / (double(walkers) * size);
        std::this_thread::sleep_for(pause);
    }
    hf.finalize(); // throws if the last checkpoint is not at all levels
    if (rank == 0 && argc > 3) {
        std::ofstream f(argv[3], std::ios::binary);
        const auto bytes = static_cast<std::streamsize>(w.distance.size() * sizeof(double));
        if (!f.write(reinterpret_cast<const char *>(w.distance.data()), bytes).flush())
            throw std::runtime_error(std::string("cannot write ") + argv[3]);
    }
    if (rank == 0)
        std::cout << "walk: ends at step " << w.now << ", <r^2> = " << w.distance.back() << std::endl;
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 5 || std::atoi(argv[1]) < 1 || std::atoi(argv[2]) < 1) {
        std::cerr << "usage: walk WALKERS STEPS [FILE [MILLISECONDS]]\n";
        return 2;
    }
    try {
        holdfast::start(); // before MPI: it may start a process
        MPI_Init(&argc, &argv);
        const int code = run(argc, argv);
        MPI_Finalize();
        return code;
    } catch (const std::exception &e) {
        std::cerr << "walk: " << e.what() << std::endl;
        int begun = 0;
        MPI_Initialized(&begun);
        if (begun != 0)
            MPI_Abort(MPI_COMM_WORLD, 1); // the other ranks end, too
        return 1;
    }
}
