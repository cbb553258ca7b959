// lengths in C++: see lengths.c.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>
#include <vector>

#include <holdfast.hpp>

namespace {

std::int64_t seed;

std::int64_t mix(std::int64_t k, std::int64_t t, std::int64_t i)
{
    std::int64_t h = seed;
    for (std::int64_t of : {std::int64_t{hf_rank()}, k, t, i})
        h = (h * 1103 + of * 7919 + 12345) % 65521;
    return h;
}

struct state {
    std::int64_t step = 0;
    std::vector<double> a;
    std::vector<std::int32_t> b;
    std::string s;

    void fill()
    {
        const auto length = [&](std::int64_t k) { return static_cast<std::size_t>(mix(k, step / 3, -1) % 40); };
        a.resize(length(0));
        b.resize(length(1));
        s.resize(length(2));
        for (std::size_t i = 0; i < a.size(); i++)
            a[i] = static_cast<double>(mix(0, step, static_cast<std::int64_t>(i)));
        for (std::size_t i = 0; i < b.size(); i++)
            b[i] = static_cast<std::int32_t>(mix(1, step, static_cast<std::int64_t>(i)));
        for (std::size_t i = 0; i < s.size(); i++)
            s[i] = static_cast<char>(mix(2, step, static_cast<std::int64_t>(i)) % 256);
    }
};

} // namespace

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    seed = std::atoll(argv[1]);
    const auto until = std::atoll(argv[2]), at = std::atoll(argv[3]);
    state now;
    try {
        holdfast::session hf;
        hf.protect("step", now.step);
        hf.protect("a", now.a);
        hf.protect("b", now.b);
        hf.protect("s", now.s);
        if (hf.restore()) {
            state want = now;
            want.fill();
            if (want.a != now.a || want.b != now.b || want.s != now.s) {
                std::printf("lengths: wrong at step %lld\n", static_cast<long long>(now.step));
                return 4;
            }
        }
        std::printf("lengths: begins at step %lld\n", static_cast<long long>(now.step));
        for (;; now.step++) {
            now.fill();
            (void)(now.step == at ? hf.checkpoint() : hf.point());
            if (now.step >= until)
                break;
        }
        hf.wait();
        std::printf("lengths: ends at step %lld\n", static_cast<long long>(now.step));
        std::fflush(stdout);
        if (argc > 5)
            _exit(0);
    } catch (const holdfast::error &e) {
        std::fprintf(stderr, "lengths: %s\n", e.what());
        return 1;
    }
}
