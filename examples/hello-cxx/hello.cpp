// hello counts to 100, ten steps a second, and continues from its last checkpoint. It has no MPI: start one, or several
// under any launcher on one node.
//
//     g++ -std=c++17 hello.cpp -lholdfast -o hello # with the module loaded: docs/LANGUAGES.md
//     export HOLDFAST_GLOBAL=$(mktemp -d)
//     ./hello & sleep 3; kill -USR1 $!; sleep 1    # takes a checkpoint
//     kill -9 $!                                   # the crash
//     ./hello                                      # continues
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

#include <holdfast.hpp>

static int count(int steps)
{
    int step = 0;
    holdfast::session hf; // after what it protects: it ends before that

    hf.protect("step", step);
    hf.restore(); // finds nothing on a first start
    std::cout << "hello: begins at step " << step << std::endl;
    for (; step < steps; step++) {
        if (hf.point()) {
            std::cout << "hello: stopped at step " << step << std::endl;
            return 75; // what holdfast run and Slurm scripts take as: start me again
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(100)); // your work
    }
    hf.finalize(); // throws if the last checkpoint is not at all levels; without it nobody would know
    std::cout << "hello: ends at step " << step << std::endl;
    return 0;
}

int main(int argc, char **argv)
{
    try {
        return count(argc > 1 ? std::atoi(argv[1]) : 100);
    } catch (const holdfast::error &e) {
        std::cerr << "hello: " << e.what() << std::endl;
        return 1;
    }
}
