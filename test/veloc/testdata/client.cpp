// client uses the C++ class: two named checkpoints, call-backs, an observer, a restart in the same process and in
// another. usage: client CONFIG write|read
#include <mpi.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "include/veloc.hpp" // as in tests of VeloC

static int rank, bad;

#define TRUE(what)                                                                                                     \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            std::cerr << "client: rank " << rank << ", line " << __LINE__ << ": " #what << std::endl;                  \
            bad++;                                                                                                     \
        }                                                                                                              \
    } while (0)

static void save(const std::map<int, double> &m, std::ostream &out)
{
    uint64_t n = m.size();
    out.write(reinterpret_cast<const char *>(&n), sizeof n);
    for (const auto &e : m) {
        out.write(reinterpret_cast<const char *>(&e.first), sizeof e.first);
        out.write(reinterpret_cast<const char *>(&e.second), sizeof e.second);
    }
}

static bool load(std::map<int, double> &m, std::istream &in)
{
    uint64_t n = 0;
    in.read(reinterpret_cast<char *>(&n), sizeof n);
    m.clear();
    for (; n > 0 && in; n--) {
        int k = 0;
        double v = 0;
        in.read(reinterpret_cast<char *>(&k), sizeof k);
        in.read(reinterpret_cast<char *>(&v), sizeof v);
        m[k] = v;
    }
    return !in.fail();
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    {
        std::unique_ptr<veloc::client_t> ckpt(veloc::get_client(MPI_COMM_WORLD, argv[1]));
        std::map<int, double> table;
        std::vector<double> values(1000 + static_cast<size_t>(rank));
        int ended = 0, last = -1;
        TRUE(ckpt->mem_protect(0, values.data(), values.size(), sizeof values[0]));
        TRUE(ckpt->mem_protect(1, [&](std::ostream &out) { save(table, out); },
                               [&](std::istream &in) { return load(table, in); }));
        TRUE(ckpt->mem_protect(0, values.data(), 2, sizeof values[0], "small"));
        TRUE(ckpt->register_observer(VELOC_OBSERVE_CKPT_END, [&](const std::string &name, int version) {
            ended += name == "large" || name == "small";
            last = version;
        }));
        if (argc > 2 && std::string(argv[2]) == "write") {
            for (int v = 1; v <= 3; v++) {
                values[0] = v + 0.5;
                values.back() = -v - rank;
                table[v * 100 + rank] = v;
                TRUE(ckpt->checkpoint("large", v));
                TRUE(ckpt->checkpoint_begin("small", v * 10) && ckpt->checkpoint_mem() && ckpt->checkpoint_end(true));
                TRUE(ckpt->checkpoint_wait() && ckpt->checkpoint_finished());
            }
            TRUE(ended == 6 && last == 30);
            table.clear();
        }
        TRUE(ckpt->restart_test("large", 0) == 3 && ckpt->restart_test("large", 2) == 2);
        TRUE(ckpt->restart_test("small", 29) == 20);
        TRUE(ckpt->restart("large", 2));
        TRUE(table.size() == 2 && table[200 + rank] == 2 && values[0] == 2.5 && values.back() == -2 - rank);
        TRUE(ckpt->restart_begin("small", 30));
        TRUE(ckpt->recover_size(0) == 16 && ckpt->recover_size(1) == 0);
        TRUE(ckpt->recover_mem(VELOC_RECOVER_SOME, {0}) && ckpt->restart_end(true));
        TRUE(values[0] == 3.5 && values.back() == -2 - rank);
        TRUE(ckpt->restart("large", 3) && table.size() == 3);
        ckpt->mem_clear();
        TRUE(ckpt->mem_protect(0, values.data(), values.size(), sizeof values[0]));
        TRUE(ckpt->mem_protect(1, [](std::ostream &) {}, [](std::istream &) { return false; }));
        TRUE(!ckpt->restart("large", 3)); // its deserializer has failed
        TRUE(ckpt->mem_protect(1, [](std::ostream &) { if (rank == 0) throw 7; }, [](std::istream &) { return true; }));
        TRUE(!ckpt->checkpoint("large", 4)); // not on the ranks alone whose serializer has thrown something
        TRUE(ckpt->restart_test("large", 0) == 3);
        TRUE(ckpt->route_file("x").find("large") != std::string::npos);
        std::unique_ptr<veloc::client_t> other(veloc::get_client(MPI_COMM_WORLD, argv[1])); // shares the connection
        values[0] = 77;
        TRUE(other->mem_protect(0, values.data(), 10, sizeof values[0]));
        TRUE(other->checkpoint("other", 1) && other->checkpoint_wait());
        TRUE(ckpt->restart_begin("small", 20));
        TRUE(other->restart("other", 1)); // ends that restart
        TRUE(!ckpt->recover_mem() && values[0] == 77);
        values[0] = 0;
        ckpt.reset();
        TRUE(other->restart_test("other", 0) == 1 && other->restart("other", 1) && values[0] == 77);
        bool thrown = false;
        try {
            veloc::get_client(MPI_COMM_WORLD, "/nonexistent");
        } catch (const std::exception &e) {
            thrown = true;
        }
        TRUE(thrown);
    }
    MPI_Finalize();
    if (bad == 0 && rank == 0)
        std::cout << "client: all as it should be" << std::endl;
    return bad != 0;
}
