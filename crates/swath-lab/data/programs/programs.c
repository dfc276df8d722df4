/* Programs with 16 threads after the public descriptions of PARSEC's (C. Bienia and others, The PARSEC Benchmark Suite:
 * Characterization and Architectural Implications, 2008), with inputs of their own and smaller ones.
 *
 * programs NAME; prints the milliseconds of all processors that it took. Output goes to the current directory. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "programs.h"

pthread_barrier_t barrier;

/* blackscholes: a portfolio of options, each priced by the Black-Scholes equation, again and again. */

enum { OPTIONS = 400000, PRICINGS = 40 };

static struct option {
    float spot, strike, rate, volatility, time, put, price;
} *options;

static float below(float x) { return 0.5f * erfcf(-x * 0.70710678f); }

static void *price(void *index) {
    int thread = (intptr_t)index;
    for (int run = 0; run < PRICINGS; run++)
        for (int n = from(OPTIONS, thread); n < from(OPTIONS, thread + 1); n++) {
            struct option *o = &options[n];
            float spread = o->volatility * sqrtf(o->time), later = o->strike * expf(-o->rate * o->time);
            float d1 = (logf(o->spot / o->strike) + (o->rate + o->volatility * o->volatility / 2) * o->time) / spread;
            float d2 = d1 - spread;
            o->price = o->put > 0.5f ? later * below(-d2) - o->spot * below(-d1) : o->spot * below(d1) - later * below(d2);
        }
    return NULL;
}

static void blackscholes(void) {
    uint64_t random = 1;
    options = must(malloc(OPTIONS * sizeof *options));
    for (int n = 0; n < OPTIONS; n++)
        options[n] = (struct option){ 50 + 50 * share(&random), 50 + 50 * share(&random), 0.05f, 0.1f + share(&random) / 2,
                                      0.1f + share(&random), share(&random), 0 };
    together(price);
    free(options);
}

/* streamcluster: points come in chunks; centres are opened where that saves more than it costs, with barriers. */

enum { POINTS = 16384, DIMENSIONS = 128, CHUNKS = 2, TRIES = 60 };

static float (*points)[DIMENSIONS];
static float *costs;
static int *centres;
static double *gains;

static void *cluster(void *index) {
    int thread = (intptr_t)index;
    uint64_t random = 7;
    for (int attempt = 0; attempt < TRIES; attempt++) {
        int candidate = draw(&random) % POINTS;
        double gain = 0, all = 0;
        /* Each try has a table of what would switch to the candidate. */
        unsigned char *switches = must(malloc(POINTS / THREADS + 1));
        for (int n = from(POINTS, thread), first = n; n < from(POINTS, thread + 1); n++) {
            float distance = 0;
            for (int d = 0; d < DIMENSIONS; d++) {
                float difference = points[n][d] - points[candidate][d];
                distance += difference * difference;
            }
            switches[n - first] = distance < costs[n];
            gain += distance < costs[n] ? costs[n] - distance : 0;
        }
        gains[thread * 8] = gain;
        wait_for_all();
        for (int t = 0; t < THREADS; t++)
            all += gains[t * 8];
        for (int n = from(POINTS, thread), first = n; all > 1000 && n < from(POINTS, thread + 1); n++)
            if (switches[n - first]) {
                float distance = 0;
                for (int d = 0; d < DIMENSIONS; d++) {
                    float difference = points[n][d] - points[candidate][d];
                    distance += difference * difference;
                }
                costs[n] = distance;
                centres[n] = candidate;
            }
        free(switches);
        wait_for_all();
    }
    return NULL;
}

static void streamcluster(void) {
    uint64_t random = 1;
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        points = must(malloc(POINTS * sizeof *points));
        costs = must(malloc(POINTS * sizeof *costs));
        centres = must(calloc(POINTS, sizeof *centres));
        gains = must(calloc(THREADS * 8, sizeof *gains));
        for (int n = 0; n < POINTS; n++) {
            costs[n] = 1e9;
            for (int d = 0; d < DIMENSIONS; d++)
                points[n][d] = share(&random);
        }
        together(cluster);
        free(points);
        free(costs);
        free(centres);
        free(gains);
    }
}

/* swaptions: prices by Monte Carlo along paths of forward rates; each simulation has its matrices from the heap. */

enum { SWAPTIONS = 32, TRIALS = 6000, STEPS = 11, BLOCK = 16 };

static double prices[SWAPTIONS];

static double **matrix(int rows, int columns) {
    double **to = must(malloc(rows * sizeof *to));
    to[0] = must(malloc((size_t)rows * columns * sizeof **to));
    for (int n = 1; n < rows; n++)
        to[n] = to[0] + n * columns;
    return to;
}

static void drop(double **made) {
    free(made[0]);
    free(made);
}

static void *simulate(void *index) {
    int thread = (intptr_t)index;
    for (int s = from(SWAPTIONS, thread); s < from(SWAPTIONS, thread + 1); s++) {
        uint64_t random = s + 1;
        double sum = 0;
        for (int trial = 0; trial < TRIALS; trial += BLOCK) {
            double **path = matrix(STEPS, STEPS * BLOCK), **shocks = matrix(3, STEPS * BLOCK);
            for (int factor = 0; factor < 3; factor++)
                for (int n = 0; n < STEPS * BLOCK; n++)
                    shocks[factor][n] = sqrt(-2 * log(1 - share(&random))) * cos(2 * M_PI * share(&random));
            for (int n = 0; n < STEPS * BLOCK; n++)
                path[0][n] = 0.05;
            for (int step = 1; step < STEPS; step++)
                for (int n = 0; n < STEPS * BLOCK; n++) {
                    double shock = 0;
                    for (int factor = 0; factor < 3; factor++)
                        shock += shocks[factor][n] * 0.01 * exp(-0.1 * factor * step);
                    path[step][n] = path[step - 1][n] * (1 + 0.001 * step) + shock * sqrt(1.0 / STEPS);
                }
            for (int n = 0; n < BLOCK; n++) {
                double swap = path[STEPS - 1][n * STEPS] - 0.05;
                sum += swap > 0 ? swap * exp(-path[STEPS / 2][n * STEPS]) : 0;
            }
            drop(path);
            drop(shocks);
        }
        prices[s] = sum / TRIALS;
    }
    return NULL;
}

static void swaptions(void) { together(simulate); }

/* canneal: the places of a chip's elements are swapped at random, without locks, for shorter wires. */

enum { ELEMENTS = 100000, WIRES = 5, SWAPS = 15000, COOLINGS = 8 };

static struct element {
    struct element **in, **out;
    int ins, outs, room;
    _Atomic(int) place;
} **elements;

static long wires(const struct element *e, int place) {
    long sum = 0;
    for (int n = 0; n < e->ins; n++)
        sum += labs(e->in[n]->place % 400 - place % 400) + labs(e->in[n]->place / 400 - place / 400);
    for (int n = 0; n < e->outs; n++)
        sum += labs(e->out[n]->place % 400 - place % 400) + labs(e->out[n]->place / 400 - place / 400);
    return sum;
}

static void *anneal(void *index) {
    uint64_t random = (intptr_t)index + 1;
    double temperature = 2000;
    for (int cooling = 0; cooling < COOLINGS; cooling++, temperature /= 1.5) {
        for (int n = 0; n < SWAPS; n++) {
            struct element *a = elements[draw(&random) % ELEMENTS], *b = elements[draw(&random) % ELEMENTS];
            int at = a->place, to = b->place;
            long change = wires(a, to) + wires(b, at) - wires(a, at) - wires(b, to);
            if (change < 0 || exp(-change / temperature) > share(&random)) {
                a->place = to;
                b->place = at;
            }
        }
        wait_for_all();
    }
    return NULL;
}

static void canneal(void) {
    uint64_t random = 1;
    elements = must(malloc(ELEMENTS * sizeof *elements));
    for (int n = 0; n < ELEMENTS; n++) {
        char name[16];
        elements[n] = must(calloc(1, sizeof **elements));
        elements[n]->place = n;
        elements[n]->in = must(malloc(WIRES * sizeof *elements[n]->in));
        /* The netlist names its elements. */
        snprintf(name, sizeof name, "element%d", n);
        must(strdup(name));
    }
    for (int n = 0; n < ELEMENTS; n++)
        for (int w = 0; w < WIRES; w++) {
            struct element *e = elements[n], *other = elements[draw(&random) % ELEMENTS];
            e->in[e->ins++] = other;
            if (other->outs == other->room) {
                other->room = other->room ? 2 * other->room : 1;
                other->out = must(realloc(other->out, other->room * sizeof *other->out));
            }
            other->out[other->outs++] = e;
        }
    together(anneal);
}

/* dedup: a stream is cut where its content says so, pieces seen before are left out, and the others compressed, in
 * a pipeline whose stages hand the pieces on in queues. */

enum { STREAM = 24 << 20, PIECE_LOG2 = 12, PIECES_MAX = STREAM >> 8, BUCKETS = 1 << 14, CUTTERS = 5, HASHERS = 5, PACKERS = 5, PLACES = 64 };

struct piece {
    struct piece *next;
    uint64_t hash;
    size_t bytes, packed;
    unsigned char *data, *pack;
    int again;
};

static struct queue {
    pthread_mutex_t lock;
    pthread_cond_t more, less;
    struct piece *pieces[PLACES];
    int first, count, writers;
} queues[3];

static unsigned char *stream;
static struct piece *buckets[BUCKETS];
static pthread_mutex_t locks[64];

static void put(struct queue *q, struct piece *piece) {
    pthread_mutex_lock(&q->lock);
    while (q->count == PLACES)
        pthread_cond_wait(&q->less, &q->lock);
    q->pieces[(q->first + q->count++) % PLACES] = piece;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->lock);
}

static struct piece *take(struct queue *q) {
    struct piece *piece = NULL;
    pthread_mutex_lock(&q->lock);
    while (!q->count && q->writers)
        pthread_cond_wait(&q->more, &q->lock);
    if (q->count) {
        piece = q->pieces[q->first];
        q->first = (q->first + 1) % PLACES;
        q->count--;
        pthread_cond_signal(&q->less);
    }
    pthread_mutex_unlock(&q->lock);
    return piece;
}

static void leave(struct queue *q) {
    pthread_mutex_lock(&q->lock);
    q->writers--;
    pthread_cond_broadcast(&q->more);
    pthread_mutex_unlock(&q->lock);
}

/* Cuts a part of the stream by a hash of the last bytes. */
static void cut(int cutter) {
    size_t begun = (size_t)STREAM * cutter / CUTTERS, end = (size_t)STREAM * (cutter + 1) / CUTTERS;
    uint64_t hash = 0;
    for (size_t at = begun; at < end; at++) {
        hash = (hash << 1) + stream[at] * 0x9e3779b97f4a7c15ull;
        if (hash >> (64 - PIECE_LOG2) && at + 1 < end && at - begun < 1 << 16)
            continue;
        struct piece *piece = must(calloc(1, sizeof *piece));
        piece->bytes = at + 1 - begun;
        piece->data = must(malloc(piece->bytes));
        memcpy(piece->data, stream + begun, piece->bytes);
        begun = at + 1;
        put(&queues[0], piece);
    }
    leave(&queues[0]);
}

/* Looks a piece up by a hash of its content. */
static void look_up(void) {
    for (struct piece *piece; (piece = take(&queues[0]));) {
        piece->hash = 0xcbf29ce484222325ull;
        for (size_t n = 0; n < piece->bytes; n++)
            piece->hash = (piece->hash ^ piece->data[n]) * 0x100000001b3ull;
        unsigned bucket = piece->hash % BUCKETS;
        pthread_mutex_lock(&locks[bucket % 64]);
        struct piece *found = buckets[bucket];
        while (found && found->hash != piece->hash)
            found = found->next;
        piece->again = found != NULL;
        if (!found) {
            struct piece *entry = must(calloc(1, sizeof *entry));
            entry->hash = piece->hash;
            entry->next = buckets[bucket];
            buckets[bucket] = entry;
        }
        pthread_mutex_unlock(&locks[bucket % 64]);
        put(&queues[piece->again ? 2 : 1], piece);
    }
    leave(&queues[1]);
    leave(&queues[2]);
}

/* Replaces what came before by where it was, after a table of places of four bytes. */
static void compress(void) {
    for (struct piece *piece; (piece = take(&queues[1]));) {
        unsigned *places = must(calloc(1 << 14, sizeof *places));
        piece->pack = must(malloc(piece->bytes + piece->bytes / 8 + 16));
        for (size_t at = 0; at < piece->bytes;) {
            unsigned word = 0;
            size_t length = 0;
            if (at + 4 <= piece->bytes) {
                memcpy(&word, piece->data + at, 4);
                unsigned *place = &places[word * 2654435761u >> 18];
                size_t before = *place;
                *place = at + 1;
                while (before && length < 255 && at + length < piece->bytes && piece->data[before - 1 + length] == piece->data[at + length])
                    length++;
            }
            piece->pack[piece->packed++] = length >= 4 ? length : piece->data[at];
            at += length >= 4 ? length : 1;
        }
        free(places);
        free(piece->data);
        piece->data = NULL;
        put(&queues[2], piece);
    }
    leave(&queues[2]);
}

static void write_out(void) {
    FILE *to = must(fopen("packed", "wb"));
    for (struct piece *piece; (piece = take(&queues[2]));) {
        if (piece->again)
            fwrite(&piece->hash, sizeof piece->hash, 1, to);
        else
            fwrite(piece->pack, 1, piece->packed, to);
        free(piece->data);
        free(piece->pack);
        free(piece);
    }
    fclose(to);
}

static void *stage(void *index) {
    int thread = (intptr_t)index;
    if (thread < CUTTERS)
        cut(thread);
    else if (thread < CUTTERS + HASHERS)
        look_up();
    else if (thread < CUTTERS + HASHERS + PACKERS)
        compress();
    else
        write_out();
    return NULL;
}

static void dedup(void) {
    static const int writers[3] = { CUTTERS, HASHERS, HASHERS + PACKERS };
    uint64_t random = 1;
    stream = must(malloc(STREAM));
    /* Words of a small vocabulary; every third stretch of 64 KiB came before. */
    for (size_t at = 0; at < STREAM; at += 8) {
        size_t stretch = at >> 16;
        if (stretch > 8 && stretch % 3 == 0)
            memcpy(stream + at, stream + at - (7 << 16), 8);
        else
            snprintf((char *)stream + at, 8, "%06x", (unsigned)(draw(&random) % 5000) * 3331);
    }
    for (int n = 0; n < 3; n++) {
        pthread_mutex_init(&queues[n].lock, NULL);
        pthread_cond_init(&queues[n].more, NULL);
        pthread_cond_init(&queues[n].less, NULL);
        queues[n].writers = writers[n];
    }
    for (int n = 0; n < 64; n++)
        pthread_mutex_init(&locks[n], NULL);
    together(stage);
    free(stream);
}

/* fluidanimate: particles of a fluid in a grid of cells, whose partitions stand from the beginning. */

enum { PARTICLES = 60000, SIDE = 24, CELLS = SIDE * SIDE * SIDE, HELD = 16, FRAMES = 5 };

/* A cell's particles; those beyond its places are in further ones. */
struct cell {
    float at[HELD][3], speed[HELD][3], push[HELD][3], density[HELD];
    int count;
    struct cell *more;
};

static struct cell *cells, *moved;
static pthread_mutex_t cell_locks[CELLS];

static int cell_of(const float at[3]) {
    int of[3];
    for (int x = 0; x < 3; x++)
        of[x] = at[x] < 0 ? 0 : at[x] >= 1 ? SIDE - 1 : (int)(at[x] * SIDE);
    return of[0] + SIDE * (of[1] + SIDE * of[2]);
}

static void add(struct cell *cell, const float at[3], const float speed[3]) {
    while (cell->count == HELD) {
        if (!cell->more)
            cell->more = must(calloc(1, sizeof *cell));
        cell = cell->more;
    }
    memcpy(cell->at[cell->count], at, sizeof cell->at[0]);
    memcpy(cell->speed[cell->count++], speed, sizeof cell->speed[0]);
}

static void empty(struct cell *cell) {
    for (struct cell *more = cell->more, *next; more; more = next) {
        next = more->more;
        free(more);
    }
    memset(cell, 0, sizeof *cell);
}

/* Density or push of a cell's particles by those of its neighbours. */
static void interact(int number, int pushes) {
    const float reach = 1.0f / SIDE;
    int x = number % SIDE, y = number / SIDE % SIDE, z = number / SIDE / SIDE;
    for (struct cell *cell = &cells[number]; cell; cell = cell->more)
        for (int n = 0; n < cell->count; n++) {
            float sum[3] = { 0 }, density = 0;
            for (int near = 0; near < 27; near++) {
                int nx = x + near % 3 - 1, ny = y + near / 3 % 3 - 1, nz = z + near / 9 - 1;
                if (nx < 0 || ny < 0 || nz < 0 || nx >= SIDE || ny >= SIDE || nz >= SIDE)
                    continue;
                for (struct cell *other = &cells[nx + SIDE * (ny + SIDE * nz)]; other; other = other->more)
                    for (int m = 0; m < other->count; m++) {
                        float d[3], square = 0;
                        for (int a = 0; a < 3; a++) {
                            d[a] = cell->at[n][a] - other->at[m][a];
                            square += d[a] * d[a];
                        }
                        if (square >= reach * reach)
                            continue;
                        float left = reach * reach - square;
                        density += left * left * left;
                        for (int a = 0; pushes && a < 3; a++)
                            sum[a] += d[a] * left * (cell->density[n] + other->density[m]);
                    }
            }
            if (pushes)
                memcpy(cell->push[n], sum, sizeof sum);
            else
                cell->density[n] = density;
        }
}

static void *flow(void *index) {
    int thread = (intptr_t)index, begun = from(CELLS, thread), end = from(CELLS, thread + 1);
    for (int frame = 0; frame < FRAMES; frame++) {
        for (int n = begun; n < end; n++)
            empty(&moved[n]);
        for (int pushes = 0; pushes < 2; pushes++) {
            for (int n = begun; n < end; n++)
                interact(n, pushes);
            wait_for_all();
        }
        for (int n = begun; n < end; n++)
            for (struct cell *cell = &cells[n]; cell; cell = cell->more)
                for (int p = 0; p < cell->count; p++) {
                    for (int a = 0; a < 3; a++) {
                        cell->speed[p][a] += 0.001f * (cell->push[p][a] * 1e9f - (a == 1 ? 9.8f : 0));
                        cell->at[p][a] += 0.001f * cell->speed[p][a];
                        if (cell->at[p][a] < 0 || cell->at[p][a] > 1) {
                            cell->at[p][a] = cell->at[p][a] < 0 ? 0 : 1;
                            cell->speed[p][a] *= -0.5f;
                        }
                    }
                    int to = cell_of(cell->at[p]);
                    pthread_mutex_lock(&cell_locks[to]);
                    add(&moved[to], cell->at[p], cell->speed[p]);
                    pthread_mutex_unlock(&cell_locks[to]);
                }
        wait_for_all();
        if (thread == 0) {
            struct cell *before = cells;
            cells = moved;
            moved = before;
        }
        wait_for_all();
    }
    return NULL;
}

static void fluidanimate(void) {
    uint64_t random = 1;
    cells = must(calloc(CELLS, sizeof *cells));
    moved = must(calloc(CELLS, sizeof *moved));
    for (int n = 0; n < CELLS; n++)
        pthread_mutex_init(&cell_locks[n], NULL);
    for (int n = 0; n < PARTICLES; n++) {
        float at[3] = { share(&random), share(&random) / 2, share(&random) }, speed[3] = { 0 };
        add(&cells[cell_of(at)], at, speed);
    }
    together(flow);
}

/* freqmine: sets of items that are often in a transaction together, by trees of prefixes (FP-growth). */

enum { ITEMS = 400, TRANSACTIONS = 60000, LENGTH = 12, OFTEN = 120, SLAB = 1 << 16, DEPTH = 5 };

struct node {
    struct node *parent, *child, *sibling, *same;
    int item, count;
};

/* A tree with its header table; its nodes come from slabs. */
struct tree {
    struct node root, *same[ITEMS];
    int count[ITEMS];
    char *slab;
    size_t used;
};

static unsigned short (*transactions)[LENGTH];
static struct tree whole;
static _Atomic(int) next_item;
static _Atomic(long) sets;

static void insert(struct tree *tree, const int *items, int length, int count) {
    struct node *at = &tree->root;
    for (int n = 0; n < length; n++) {
        struct node *child = at->child;
        while (child && child->item != items[n])
            child = child->sibling;
        if (!child) {
            if (!tree->slab || tree->used + sizeof *child > SLAB) {
                char *slab = must(malloc(SLAB));
                *(char **)slab = tree->slab;
                tree->slab = slab;
                tree->used = sizeof slab;
            }
            child = (struct node *)(tree->slab + tree->used);
            tree->used += sizeof *child;
            *child = (struct node){ at, NULL, at->child, tree->same[items[n]], items[n], 0 };
            at->child = child;
            tree->same[items[n]] = child;
        }
        child->count += count;
        tree->count[items[n]] += count;
        at = child;
    }
}

static void drop_tree(struct tree *tree) {
    for (char *slab = tree->slab, *before; slab; slab = before) {
        before = *(char **)slab;
        free(slab);
    }
    free(tree);
}

/* Mines the tree of what stands before an item. */
static void mine(const struct tree *tree, int item, int depth) {
    sets++;
    if (depth == DEPTH)
        return;
    struct tree *before = must(calloc(1, sizeof *before));
    for (struct node *leaf = tree->same[item]; leaf; leaf = leaf->same) {
        int path[LENGTH], length = 0, items[LENGTH];
        for (struct node *at = leaf->parent; at->parent; at = at->parent)
            path[length++] = at->item;
        for (int n = 0; n < length; n++)
            items[n] = path[length - 1 - n];
        insert(before, items, length, leaf->count);
    }
    for (int other = 0; other < item; other++)
        if (before->count[other] >= OFTEN)
            mine(before, other, depth + 1);
    drop_tree(before);
}

static void *mine_items(void *index) {
    (void)index;
    for (int item; (item = next_item++) < ITEMS;)
        if (whole.count[ITEMS - 1 - item] >= OFTEN)
            mine(&whole, ITEMS - 1 - item, 1);
    return NULL;
}

static void freqmine(void) {
    uint64_t random = 1;
    transactions = must(malloc(TRANSACTIONS * sizeof *transactions));
    for (int t = 0; t < TRANSACTIONS; t++)
        for (int n = 0; n < LENGTH; n++)
            transactions[t][n] = (unsigned short)(ITEMS * pow(share(&random), 2.5));
    /* Items are numbered by how often they are, and stand so in the tree. */
    for (int t = 0; t < TRANSACTIONS; t++) {
        int items[LENGTH], length = 0;
        for (int n = 0; n < LENGTH; n++) {
            int item = transactions[t][n], at = length;
            int known = 0;
            for (int m = 0; m < length; m++)
                known |= items[m] == item;
            if (known)
                continue;
            for (; at > 0 && items[at - 1] > item; at--)
                items[at] = items[at - 1];
            items[at] = item;
            length++;
        }
        insert(&whole, items, length, 1);
    }
    together(mine_items);
}

static const struct {
    const char *name;
    void (*run)(void);
} programs[] = {
    { "bodytrack", bodytrack },
    { "blackscholes", blackscholes },
    { "canneal", canneal },
    { "dedup", dedup },
    { "ferret", ferret },
    { "fluidanimate", fluidanimate },
    { "freqmine", freqmine },
    { "streamcluster", streamcluster },
    { "swaptions", swaptions },
    { "vips", vips },
    { "x264", x264 },
};

int main(int argc, char **argv) {
    for (size_t n = 0; argc == 2 && n < sizeof programs / sizeof *programs; n++) {
        struct rusage use;
        if (strcmp(argv[1], programs[n].name))
            continue;
        pthread_barrier_init(&barrier, NULL, THREADS);
        programs[n].run();
        getrusage(RUSAGE_SELF, &use);
        long ms = (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000 + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1000;
        printf("%s %ld\n", argv[1], ms);
        return 0;
    }
    fputs("programs NAME\n", stderr);
    return 2;
}
