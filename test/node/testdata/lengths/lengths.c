/* lengths has arrays whose lengths and contents are a function of the step, the rank and a seed. It restores, compares
 * all with that function, computes up to a step with a checkpoint at some, and leaves without hf_finalize or with it.
 *
 *     lengths SEED UNTIL CHECKPOINT-AT ask|follow|plain|WRONG [die]
 *
 * ask: the program asks for the lengths before hf_restore; follow: the library gives arrays their lengths. Those in
 * C++, Python and Fortran do the same by the means of their languages. plain: it does neither. WRONG is what rank 1
 * declares of a replicated value that others do not: name, type or length; ranks stay after the error. */
#include <holdfast.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int64_t seed, step, same[4];
static double *a;
static int32_t *b;
static unsigned char *s;
static size_t na, nb, ns;
static int stays; /* after an error, until it is killed: the end of a rank is an error of the others */

static int64_t mix(int64_t k, int64_t t, int64_t i)
{
    const int64_t of[4] = {hf_rank(), k, t, i};
    int64_t h = seed;

    for (int j = 0; j < 4; j++)
        h = (h * 1103 + of[j] * 7919 + 12345) % 65521;
    return h;
}

static size_t length(int64_t k) { return (size_t)(mix(k, step / 3, -1) % 40); }

static void check(int code)
{
    if (code < 0) {
        fprintf(stderr, "lengths: %s\n", hf_error());
        if (stays)
            pause();
        exit(1);
    }
}

static void expect(int holds, const char *what)
{
    if (!holds) {
        printf("lengths: wrong at step %lld: %s\n", (long long)step, what);
        exit(4);
    }
}

/* Room for at least one byte, so that nothing has address 0. */
static void *room(void *at, size_t n, size_t bytes) { return realloc(at, n * bytes + 1); }

static void *resize_a(size_t n, void *arg) { return (void)arg, a = room(a, na = n, sizeof *a); }
static void *resize_b(size_t n, void *arg) { return (void)arg, b = room(b, nb = n, sizeof *b); }
static void *resize_s(size_t n, void *arg) { return (void)arg, s = room(s, ns = n, 1); }

static void protect(int follow)
{
    if (follow) {
        check(hf_protect_resizable("a", a, na, HF_DOUBLE, 1, resize_a, NULL));
        check(hf_protect_resizable("b", b, nb, HF_INT32, 1, resize_b, NULL));
        check(hf_protect_resizable("s", s, ns, HF_BYTE, 1, resize_s, NULL));
    } else {
        check(hf_protect("a", a, na, HF_DOUBLE));
        check(hf_protect("b", b, nb, HF_INT32));
        check(hf_protect("s", s, ns, HF_BYTE));
    }
}

static void fill(void)
{
    resize_a(length(0), NULL);
    resize_b(length(1), NULL);
    resize_s(length(2), NULL);
    for (size_t i = 0; i < na; i++)
        a[i] = (double)mix(0, step, (int64_t)i);
    for (size_t i = 0; i < nb; i++)
        b[i] = (int32_t)mix(1, step, (int64_t)i);
    for (size_t i = 0; i < ns; i++)
        s[i] = (unsigned char)(mix(2, step, (int64_t)i) % 256);
}

static void compare(void)
{
    expect(na == length(0) && nb == length(1) && ns == length(2), "a length");
    for (size_t i = 0; i < na; i++)
        expect(a[i] == (double)mix(0, step, (int64_t)i), "a");
    for (size_t i = 0; i < nb; i++)
        expect(b[i] == (int32_t)mix(1, step, (int64_t)i), "b");
    for (size_t i = 0; i < ns; i++)
        expect(s[i] == mix(2, step, (int64_t)i) % 256, "s");
}

/* A replicated value of which rank 1 says something else. */
static void disagree(const char *how)
{
    const int other = hf_rank() == 1;

    stays = 1;
    check(hf_protect_replicated(other && strcmp(how, "name") == 0 ? "elsewhere" : "same", same,
                                other && strcmp(how, "length") == 0 ? 3 : 4,
                                other && strcmp(how, "type") == 0 ? HF_UINT64 : HF_INT64));
}

int main(int argc, char **argv)
{
    const int64_t until = argc > 2 ? atoll(argv[2]) : 0, at = argc > 3 ? atoll(argv[3]) : -1;
    const char *how = argc > 4 ? argv[4] : "follow";
    const int ask = strcmp(how, "ask") == 0, plain = strcmp(how, "plain") == 0;

    seed = argc > 1 ? atoll(argv[1]) : 1;
    check(hf_init(NULL));
    if (!ask && !plain && strcmp(how, "follow") != 0)
        disagree(how);
    if (ask && hf_rank() != 1) { /* the other ranks wait in hf_restore */
        hf_type type = HF_BYTE;
        check(hf_saved("a", &na, &type));
        expect(na == 0 || type == HF_DOUBLE, "the type of a");
        check(hf_saved("b", &nb, NULL));
        check(hf_saved("s", &ns, NULL));
        expect(hf_saved("none", NULL, NULL) == HF_OK, "an array that nobody saved");
    }
    a = room(NULL, na, sizeof *a);
    b = room(NULL, nb, sizeof *b);
    s = room(NULL, ns, 1);
    check(hf_protect("step", &step, 1, HF_INT64));
    const int follow = !plain && (!ask || hf_rank() == 1);
    protect(follow);
    const int restored = hf_restore();
    check(restored);
    if (restored == HF_RESTORED)
        compare();
    printf("lengths: begins at step %lld\n", (long long)step);
    for (;; step++) {
        fill();
        protect(follow);
        if (step == at)
            check(hf_checkpoint(NULL, 0));
        else
            check(hf_point());
        if (step >= until)
            break;
    }
    check(hf_wait(NULL));
    printf("lengths: ends at step %lld\n", (long long)step);
    fflush(stdout);
    if (argc > 5)
        _exit(0);
    check(hf_finalize());
    return 0;
}
