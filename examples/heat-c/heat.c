/* heat solves the heat equation du/dt = a (d2u/dx2 + d2u/dy2) on a square with fixed borders, by explicit steps.
 *
 * The grid of n x n cells is cut into blocks, one for each rank, each with a border of one cell that holds its
 * neighbours' cells. A step exchanges the borders and computes
 *
 *     u'[i][j] = u[i][j] + r (u[i-1][j] + u[i+1][j] + u[i][j-1] + u[i][j+1] - 4 u[i][j]),   r = a dt / dx^2 <= 1/4
 *
 * so that the result is the same, bit by bit, for any number of ranks. It is checkpointed with Holdfast: kill it,
 * start it again, also under another MPI or with another number of ranks, and the result is what it would have been.
 *
 *     usage: heat N STEPS [FILE [MILLISECONDS]]
 *
 * FILE takes the grid, row by row, as doubles; MILLISECONDS is the least time of a step, to watch it run.
 */
#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <holdfast_mpi.h>

enum { UP, DOWN, LEFT, RIGHT };

struct block {
    MPI_Comm grid;
    int n;                     /* cells of the whole grid in each direction */
    int rows, cols;            /* of this block, without its border */
    int row0, col0;            /* place of its first cell */
    int neighbour[4];
    MPI_Datatype column;
    double *u, *next;          /* (rows+2) x (cols+2) */
};

static void leave(const char *what)
{
    fprintf(stderr, "heat: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Ends the program unless Holdfast was content. */
static int check(int code)
{
    if (code < 0)
        leave(hf_error());
    return code;
}

/* First cell of the part-th of so many parts of n cells. */
static int part_begin(int n, int part, int parts) { return (int)((int64_t)n * part / parts); }

static double *cell(double *u, const struct block *b, int row, int col)
{
    return &u[(size_t)row * (size_t)(b->cols + 2) + (size_t)col];
}

static void make_block(struct block *b, int n)
{
    int size, dims[2] = {0, 0}, periods[2] = {0, 0}, at[2], rank;
    size_t cells;

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &b->grid);
    MPI_Comm_rank(b->grid, &rank);
    MPI_Cart_coords(b->grid, rank, 2, at);
    MPI_Cart_shift(b->grid, 0, 1, &b->neighbour[UP], &b->neighbour[DOWN]);
    MPI_Cart_shift(b->grid, 1, 1, &b->neighbour[LEFT], &b->neighbour[RIGHT]);
    b->n = n;
    b->row0 = part_begin(n, at[0], dims[0]);
    b->col0 = part_begin(n, at[1], dims[1]);
    b->rows = part_begin(n, at[0] + 1, dims[0]) - b->row0;
    b->cols = part_begin(n, at[1] + 1, dims[1]) - b->col0;
    MPI_Type_vector(b->rows, 1, b->cols + 2, MPI_DOUBLE, &b->column);
    MPI_Type_commit(&b->column);
    cells = (size_t)(b->rows + 2) * (size_t)(b->cols + 2);
    b->u = calloc(cells, sizeof(double));
    b->next = calloc(cells, sizeof(double));
    if (b->u == NULL || b->next == NULL)
        leave("no memory for the grid");
}

/* A hot square in the middle, and a slope that makes every cell another one. */
static void begin(struct block *b)
{
    int i, j;

    for (i = 1; i <= b->rows; i++)
        for (j = 1; j <= b->cols; j++) {
            int row = b->row0 + i - 1, col = b->col0 + j - 1;
            int hot = row > b->n / 3 && row < 2 * b->n / 3 && col > b->n / 3 && col < 2 * b->n / 3;
            *cell(b->u, b, i, j) = (hot ? 100.0 : 0.0) + 0.01 * row + 0.003 * col;
        }
}

/* Says which cells of the grid this rank has, and that its border is not to be saved: any number of ranks can then
 * restore them. */
static void protect(struct block *b)
{
    const int64_t size[2] = {b->n, b->n};
    const hf_box box = {.start = {b->row0, b->col0}, .count = {b->rows, b->cols}, .low = {1, 1}, .high = {1, 1}};

    check(hf_protect_global("u", b->u, (size_t)(b->rows + 2) * (size_t)(b->cols + 2), HF_DOUBLE, 2, size, &box, 1));
}

static void exchange(struct block *b)
{
    const int rows = b->rows, cols = b->cols;

    MPI_Sendrecv(cell(b->u, b, 1, 1), cols, MPI_DOUBLE, b->neighbour[UP], 0, cell(b->u, b, rows + 1, 1), cols,
                 MPI_DOUBLE, b->neighbour[DOWN], 0, b->grid, MPI_STATUS_IGNORE);
    MPI_Sendrecv(cell(b->u, b, rows, 1), cols, MPI_DOUBLE, b->neighbour[DOWN], 1, cell(b->u, b, 0, 1), cols,
                 MPI_DOUBLE, b->neighbour[UP], 1, b->grid, MPI_STATUS_IGNORE);
    MPI_Sendrecv(cell(b->u, b, 1, 1), 1, b->column, b->neighbour[LEFT], 2, cell(b->u, b, 1, cols + 1), 1, b->column,
                 b->neighbour[RIGHT], 2, b->grid, MPI_STATUS_IGNORE);
    MPI_Sendrecv(cell(b->u, b, 1, cols), 1, b->column, b->neighbour[RIGHT], 3, cell(b->u, b, 1, 0), 1, b->column,
                 b->neighbour[LEFT], 3, b->grid, MPI_STATUS_IGNORE);
}

static void step(struct block *b)
{
    const double r = 0.2;
    size_t cells = (size_t)(b->rows + 2) * (size_t)(b->cols + 2), k;
    int i, j;

    exchange(b);
    for (i = 1; i <= b->rows; i++)
        for (j = 1; j <= b->cols; j++)
            *cell(b->next, b, i, j) = *cell(b->u, b, i, j) + r * (*cell(b->u, b, i - 1, j) + *cell(b->u, b, i + 1, j) +
                                      *cell(b->u, b, i, j - 1) + *cell(b->u, b, i, j + 1) - 4 * *cell(b->u, b, i, j));
    for (k = 0; k < cells; k++) /* u stays where it is protected */
        b->u[k] = b->next[k];
}

/* Rank 0 takes the blocks and writes the grid. */
static void save(struct block *b, const char *name)
{
    int rank, size, other, i, place[4] = {b->row0, b->col0, b->rows, b->cols};
    size_t n = (size_t)b->n;
    double *mine = malloc((size_t)b->rows * (size_t)b->cols * sizeof(double) + 1), *grid = NULL;
    FILE *f;

    if (mine == NULL)
        leave("no memory for the result");
    MPI_Comm_rank(b->grid, &rank);
    MPI_Comm_size(b->grid, &size);
    for (i = 0; i < b->rows * b->cols; i++)
        mine[i] = *cell(b->u, b, 1 + i / b->cols, 1 + i % b->cols);
    if (rank != 0) {
        MPI_Send(place, 4, MPI_INT, 0, 0, b->grid);
        MPI_Send(mine, b->rows * b->cols, MPI_DOUBLE, 0, 1, b->grid);
        free(mine);
        return;
    }
    grid = malloc(n * n * sizeof(double));
    mine = realloc(mine, n * n * sizeof(double));
    if (grid == NULL || mine == NULL)
        leave("no memory for the result");
    for (other = 0; other < size; other++) {
        if (other > 0) {
            MPI_Recv(place, 4, MPI_INT, other, 0, b->grid, MPI_STATUS_IGNORE);
            MPI_Recv(mine, place[2] * place[3], MPI_DOUBLE, other, 1, b->grid, MPI_STATUS_IGNORE);
        }
        for (i = 0; i < place[2] * place[3]; i++)
            grid[(size_t)(place[0] + i / place[3]) * n + (size_t)(place[1] + i % place[3])] = mine[i];
    }
    f = fopen(name, "wb");
    if (f == NULL || fwrite(grid, sizeof(double), n * n, f) != n * n || fclose(f) != 0)
        leave("cannot write the result");
    free(grid);
    free(mine);
}

int main(int argc, char **argv)
{
    struct block b;
    int32_t now = 0, steps;
    int rank, stop = 0;
    long pause;

    if (argc < 3 || argc > 5 || atoi(argv[1]) < 1) {
        fprintf(stderr, "usage: heat N STEPS [FILE [MILLISECONDS]]\n");
        return 2;
    }
    check(hf_start()); /* before MPI: it may start a process */
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    make_block(&b, atoi(argv[1]));
    steps = (int32_t)atoi(argv[2]);
    pause = argc > 4 ? atol(argv[4]) : 0;
    begin(&b);

    check(hf_elastic());
    check(hf_init_mpi(MPI_COMM_WORLD));
    check(hf_protect_replicated("step", &now, 1, HF_INT32));
    protect(&b);
    check(hf_restore());
    if (rank == 0)
        printf("heat: begins at step %d\n", (int)now);
    fflush(stdout);
    for (; now < steps; now++) {
        if ((stop = hf_point()) == HF_STOP)
            break;
        check(stop == HF_E_DAEMON ? HF_OK : stop); /* the daemon has died, and another takes its place */
        step(&b);
        if (pause > 0) {
            struct timespec t = {pause / 1000, pause % 1000 * 1000000};
            nanosleep(&t, NULL);
        }
    }
    if (stop != HF_STOP && argc > 3)
        save(&b, argv[3]);
    if (rank == 0)
        printf("heat: ends at step %d\n", (int)now);
    check(hf_finalize());
    MPI_Type_free(&b.column);
    MPI_Comm_free(&b.grid);
    free(b.u);
    free(b.next);
    MPI_Finalize();
    return stop == HF_STOP ? 75 : 0;
}
