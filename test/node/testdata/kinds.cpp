// kinds protects variables of many types. The first start fills them and takes a checkpoint, the second restores them
// and compares. Errors come as exceptions.
#include <array>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <holdfast.hpp>

namespace {

void expect(bool holds, const std::string &what)
{
    if (holds)
        return;
    std::printf("kinds: wrong: %s\n", what.c_str());
    std::exit(4);
}

template <class F> void expect_error(int code, const std::string &word, F f)
{
    try {
        f();
    } catch (const holdfast::error &e) {
        expect(e.code() == code && std::strstr(e.what(), word.c_str()) != nullptr, e.what());
        return;
    }
    expect(false, "no error of " + word);
}

enum class colour : unsigned short { red, green };

struct particle {
    double x[3];
    int id;
};

struct view { // as std::span
    double *at;
    std::size_t n;
    double *data() const { return at; }
    std::size_t size() const { return n; }
};

struct state {
    int i = 0;
    bool b = false;
    colour c = colour::red;
    std::complex<double> z;
    double matrix[2][3] = {};
    std::array<std::uint64_t, 2> a{};
    std::vector<float> v = std::vector<float>(9);
    std::vector<double> u = std::vector<double>(3), next = std::vector<double>(3);
    std::string s;
    std::vector<particle> particles;
    double behind[4] = {};
    std::vector<particle> cells = std::vector<particle>(6); // a global array of 2 x 2, with a ghost before each row
    std::array<long, 2> same{};

    void fill()
    {
        i = -3;
        b = true;
        c = colour::green;
        z = {1.5, -2};
        matrix[1][2] = 6;
        a = {1, std::uint64_t(1) << 63};
        v.assign(4, 2.5f);
        u = {1, 2, 3};
        s = "hello";
        particles.assign(2, {});
        particles[1] = {{1, 2, 3}, 7};
        behind[3] = 4;
        std::vector<particle>(6).swap(cells);
        for (int k = 0; k < 6; k++)
            cells[k].id = k;
        same = {1, 2};
    }

    void compare() const
    {
        expect(i == -3 && b && c == colour::green && z == std::complex<double>(1.5, -2), "numbers");
        expect(matrix[1][2] == 6 && matrix[0][0] == 0 && a[0] == 1 && a[1] == std::uint64_t(1) << 63, "arrays");
        expect(v == std::vector<float>(4, 2.5f) && s == "hello", "containers");
        expect(u == std::vector<double>{1, 2, 3}, "a vector that was swapped");
        expect(particles.size() == 2 && particles[1].x[2] == 3 && particles[1].id == 7 && particles[0].id == 0,
               "structures");
        expect(behind[3] == 4, "a view");
        for (int k = 0; k < 6; k++)
            expect(cells[k].id == (k % 3 == 0 ? 0 : k), "a global array of structures");
        expect(same[1] == 2, "a replicated value");
    }
};

struct list { // of any length
    std::list<int> items;
    int saved = 0;

    void save(std::ostream &to)
    {
        saved++;
        const auto head = to.tellp();
        to << "?    ";
        for (int i : items)
            to << i << ' ';
        const auto end = to.tellp();
        to.seekp(head); // how many there were is known now
        to << items.size();
        to.seekp(0, std::ios::end);
        expect(to.tellp() == end && end > head, "a seek to the end of what is written");
    }

    void load(std::istream &from)
    {
        std::size_t n = 0;
        from >> n;
        const auto first = from.tellg();
        items.clear();
        for (int i; from >> i;)
            items.push_back(i);
        from.clear();
        from.seekg(first);
        int again = 0;
        expect(n == items.size() && (n == 0 || (from >> again && again == items.front())), "a seek in what was read");
    }
};

// Goes back to checkpoints with a name in the same process.
void go_back(holdfast::session &hf, state &st, list &l)
{
    st.i = 5;
    st.v.assign(4, 1);
    hf.checkpoint("main", 5);
    st.i = 6;
    st.v.assign(6, 2);
    hf.checkpoint("main", 6, {"i", "v"});
    hf.wait();
    expect(hf.durable() && hf.find("main") == 6 && hf.find("main", 5) == 5 && !hf.find("other"), "versions");
    st.i = 0;
    st.v.resize(1);
    l.items.clear();
    {
        auto old = hf.begin_restart("main", 6);
        expect(old.count("v") == 6u && old.count("i") == 1u && !old.count("u"), "what version 6 holds");
        st.v.resize(*old.count("v"));
        old.recover({"v"});
    }
    expect(st.i == 0 && st.v == std::vector<float>(6, 2), "a part of version 6");
    expect_error(HF_E_FAILED, "main", [&] { hf.restart("main", 7); });
    st.v.resize(4);
    hf.restart("main", 5);
    expect(st.i == 5 && st.v == std::vector<float>(4, 1) && l.items.size() == 3, "version 5");
}

} // namespace

int main()
{
    state st;
    list l;
    bool bad = false;
    holdfast::session hf(0, 1, [](void *all, const void *mine, std::size_t bytes) {
        std::memcpy(all, mine, bytes);
        return 0;
    });

    hf.protect("i", st.i);
    hf.protect("b", st.b);
    hf.protect("c", st.c);
    hf.protect("z", st.z);
    hf.protect("matrix", st.matrix);
    hf.protect("a", st.a);
    hf.protect("v", st.v);
    hf.protect("u", st.u);
    hf.protect("s", st.s);
    hf.protect("particles", st.particles);
    hf.protect("behind", view{st.behind, 4});
    hf.protect("list", [&](std::ostream &to) { bad ? throw std::logic_error("bad") : l.save(to); },
               [&](std::istream &from) { l.load(from); });
    hf.protect_replicated("same", st.same);
    hf.protect_global("cells", st.cells, {2, 2}, {{{0, 0}, {2, 2}, {0, 1}}});
    expect_error(HF_E_ARG, "element 127", [&] {
        hf.protect_global("cells", st.particles, {2, 2}, {{{0, 0}, {2, 2}}});
    });
    expect_error(HF_E_ARG, "another call", [&] { hf.protect("same", st.same); });
    expect_error(HF_E_ARG, "name", [&] { hf.protect("", st.i); });
    expect_error(HF_E_FAILED, "another type", [&] { hf.protect("i", st.z); });
    hf.protect("i", st.i);
    if (hf.restore()) {
        st.compare();
        expect(l.items == std::list<int>{3, 1, 4}, "a list by functions");
        std::puts("kinds: the same");
        return 0;
    }
    st.fill();
    std::vector<float>(1000).swap(st.v); // other memory, and more of it
    st.v.assign(4, 2.5f);
    st.v.shrink_to_fit();
    st.next = {1, 2, 3};
    st.u = {9, 9, 9};
    std::swap(st.u, st.next); // the protected vector has the other's memory now
    l.items = {3, 1, 4};
    for (int i = 0; i < 100; i++)
        expect(!hf.point(), "nobody asked to stop");
    expect(l.saved == 0, "points without a checkpoint do not save");
    bad = true;
    try {
        expect(!hf.checkpoint(), "nobody asked to stop");
        expect(false, "an exception of save is lost");
    } catch (const std::logic_error &) {
        bad = false;
    }
    expect(!hf.checkpoint(), "nobody asked to stop");
    hf.wait("global");
    hf.checkpoint("main", 4);
    hf.unprotect("same");
    hf.unprotect("cells");
    go_back(hf, st, l);
    st.fill();
    l.items = {3, 1, 4};
    st.u.assign(100000, 1); // the end of the session does not read what was freed
    std::puts("kinds: saved");
}
