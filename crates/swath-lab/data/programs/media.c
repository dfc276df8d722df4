/* The programs that work on images: bodytrack, ferret, vips and x264. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "programs.h"

/* bodytrack: a body is followed through the pictures of four cameras by particles, in annealed layers. */

enum { CAMERAS = 4, WIDE = 640, HIGH = 480, PICTURES = 4, LAYERS = 5, BODIES = 1000, ANGLES = 31 };

static unsigned char *pictures[CAMERAS];
static float *edges[CAMERAS];
static double (*bodies)[ANGLES], weights[BODIES];

/* Edges of a band of rows of each camera's picture, smoothed. */
static void find_edges(int thread) {
    for (int camera = 0; camera < CAMERAS; camera++) {
        const unsigned char *p = pictures[camera];
        for (int y = from(HIGH, thread); y < from(HIGH, thread + 1); y++)
            for (int x = 1; y > 0 && y < HIGH - 1 && x < WIDE - 1; x++) {
                int at = y * WIDE + x;
                int dx = p[at + 1] - p[at - 1], dy = p[at + WIDE] - p[at - WIDE];
                edges[camera][at] = dx * dx + dy * dy > 4000;
            }
    }
}

static void *track(void *index) {
    int thread = (intptr_t)index;
    uint64_t random = thread + 1;
    find_edges(thread);
    wait_for_all();
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int n = from(BODIES, thread); n < from(BODIES, thread + 1); n++) {
            double error = 0;
            for (int angle = 0; angle < ANGLES; angle++)
                bodies[n][angle] += (share(&random) - 0.5) / (1 << layer);
            for (int camera = 0; camera < CAMERAS; camera++)
                for (int limb = 0; limb < 10; limb++)
                    for (int sample = 0; sample < 40; sample++) {
                        double turn = bodies[n][3 * limb] + camera * M_PI / 2;
                        int x = WIDE / 2 + (int)(cos(turn) * (limb + 1) * sample / 2), y = HIGH / 2 + (int)(sin(turn) * (limb + 1) * sample / 2);
                        error += x < 0 || y < 0 || x >= WIDE || y >= HIGH ? 1 : 1 - edges[camera][y * WIDE + x];
                    }
            weights[n] = exp(-error / 100);
        }
        wait_for_all();
    }
    return NULL;
}

void bodytrack(void) {
    uint64_t random = 1;
    bodies = must(calloc(BODIES, sizeof *bodies));
    for (int picture = 0; picture < PICTURES; picture++) {
        for (int camera = 0; camera < CAMERAS; camera++) {
            pictures[camera] = must(malloc(WIDE * HIGH));
            edges[camera] = must(calloc(WIDE * HIGH, sizeof **edges));
            for (int n = 0; n < WIDE * HIGH; n++)
                pictures[camera][n] = draw(&random);
        }
        together(track);
        for (int camera = 0; camera < CAMERAS; camera++) {
            free(pictures[camera]);
            free(edges[camera]);
        }
    }
}

/* ferret: images like one that is asked for, by the parts that it is cut into, in tables of hashes. */

enum { IMAGES = 30000, PARTS = 8, FEATURES = 14, TABLES = 4, SLOTS = 1 << 13, QUERIES = 640, ASKED = 96 };

struct image {
    float parts[PARTS][FEATURES];
};

static struct image **images;
static struct entry {
    int image;
    struct entry *next;
} *tables[TABLES][SLOTS];

static unsigned slot(const float *features, int table) {
    unsigned hash = table + 1;
    for (int n = 0; n < 3; n++)
        hash = hash * 31 + (unsigned)(features[(table * 3 + n) % FEATURES] * 12);
    return hash * 2654435761u >> 19;
}

static void *answer(void *index) {
    int thread = (intptr_t)index;
    for (int query = thread; query < QUERIES; query += THREADS) {
        uint64_t random = query + 1;
        /* The image is read, and cut into parts by its colours. */
        unsigned char *pixels = must(malloc(ASKED * ASKED * 3));
        int *part_of = must(malloc(ASKED * ASKED * sizeof *part_of));
        struct image *asked = must(calloc(1, sizeof *asked));
        float *scores = must(calloc(IMAGES, sizeof *scores));
        for (int n = 0; n < ASKED * ASKED * 3; n++)
            pixels[n] = draw(&random);
        for (int n = 0; n < ASKED * ASKED; n++) {
            part_of[n] = (pixels[3 * n] + pixels[3 * n + 1] + pixels[3 * n + 2]) * PARTS / 766;
            for (int f = 0; f < FEATURES; f++)
                asked->parts[part_of[n]][f] += pixels[3 * n + f % 3] / 255.0f / ASKED / ASKED * PARTS;
        }
        for (int part = 0; part < PARTS; part++)
            for (int table = 0; table < TABLES; table++)
                for (struct entry *e = tables[table][slot(asked->parts[part], table)]; e; e = e->next) {
                    /* The distance of all parts from all. */
                    float best = 0;
                    for (int a = 0; a < PARTS; a++)
                        for (int b = 0; b < PARTS; b++) {
                            float distance = 0;
                            for (int f = 0; f < FEATURES; f++)
                                distance += fabsf(asked->parts[a][f] - images[e->image]->parts[b][f]);
                            best += 1 / (1 + distance);
                        }
                    scores[e->image] = best;
                }
        free(scores);
        free(asked);
        free(part_of);
        free(pixels);
    }
    return NULL;
}

void ferret(void) {
    uint64_t random = 1;
    images = must(malloc(IMAGES * sizeof *images));
    for (int n = 0; n < IMAGES; n++) {
        images[n] = must(malloc(sizeof **images));
        for (int part = 0; part < PARTS; part++) {
            for (int f = 0; f < FEATURES; f++)
                images[n]->parts[part][f] = share(&random);
            struct entry *e = must(malloc(sizeof *e));
            struct entry **at = &tables[part % TABLES][slot(images[n]->parts[part], part % TABLES)];
            *e = (struct entry){ n, *at };
            *at = e;
        }
    }
    together(answer);
}

/* vips: a large image is cropped, shrunk, sharpened and written, strip by strip, each with buffers of its own. */

enum { ACROSS = 1600, DOWN = 1600, STRIP = 20, BANDS = 3 };

static unsigned char *image, *shrunk;
static _Atomic(int) next_strip;

static void *transform(void *index) {
    (void)index;
    for (int strip; (strip = next_strip++) < DOWN / STRIP;) {
        const int across = ACROSS * 9 / 10, bytes = across * BANDS;
        unsigned char *cropped = must(malloc((size_t)bytes * STRIP));
        float *scaled = must(malloc((size_t)bytes * STRIP * sizeof *scaled));
        float *sharp = must(malloc((size_t)bytes * STRIP * sizeof *sharp));
        for (int y = 0; y < STRIP; y++)
            memcpy(cropped + (size_t)y * bytes, image + ((size_t)(strip * STRIP + y) * ACROSS + ACROSS / 20) * BANDS, bytes);
        for (int y = 0; y < STRIP; y++)
            for (int x = 0; x < bytes; x++) {
                int right = x + BANDS < bytes ? x + BANDS : x;
                scaled[y * bytes + x] = 0.7f * cropped[y * bytes + x] + 0.3f * cropped[y * bytes + right];
            }
        for (int y = 0; y < STRIP; y++)
            for (int x = 0; x < bytes; x++) {
                float sum = 0;
                for (int dy = -1; dy <= 1; dy++)
                    for (int dx = -1; dx <= 1; dx++) {
                        int at = (y + dy < 0 || y + dy >= STRIP ? y : y + dy) * bytes + (x + BANDS * dx < 0 || x + BANDS * dx >= bytes ? x : x + BANDS * dx);
                        sum += scaled[at] * (dx || dy ? -1 : 16);
                    }
                sharp[y * bytes + x] = sum / 8;
            }
        for (int y = 0; y < STRIP; y++)
            for (int x = 0; x < bytes; x++) {
                float value = sharp[y * bytes + x];
                shrunk[(size_t)(strip * STRIP + y) * bytes + x] = value < 0 ? 0 : value > 255 ? 255 : (unsigned char)value;
            }
        free(sharp);
        free(scaled);
        free(cropped);
    }
    return NULL;
}

void vips(void) {
    uint64_t random = 1;
    const size_t bytes = (size_t)ACROSS * DOWN * BANDS, out = bytes * 9 / 10;
    image = must(malloc(bytes));
    shrunk = must(malloc(out));
    for (size_t n = 0; n < bytes; n++)
        image[n] = n % 7 ? (unsigned char)(image[n - 1] + 1) : (unsigned char)draw(&random);
    together(transform);
    FILE *to = must(fopen("image", "wb"));
    if (fwrite(shrunk, 1, out, to) != out || fclose(to))
        abort();
}

/* x264: pictures of a film are described by the one before, moved block by block; a thread has a picture, and waits for
 * the rows of the one before that it needs. */

enum { FILM = 48, COLUMNS = 640, ROWS = 352, EDGE = 16, REACH = 8 };

static unsigned char *film[FILM];
static _Atomic(int) rows_done[FILM];
static pthread_mutex_t film_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t film_more = PTHREAD_COND_INITIALIZER;
static long film_bytes[FILM];

static void encode(int picture) {
    unsigned char *rebuilt = must(malloc(COLUMNS * ROWS));
    short *rest = must(malloc(COLUMNS * ROWS * sizeof *rest));
    for (int y = 0; y < ROWS; y += EDGE) {
        int needed = y + EDGE + REACH < ROWS ? y + EDGE + REACH : ROWS;
        pthread_mutex_lock(&film_lock);
        while (picture && rows_done[picture - 1] < needed)
            pthread_cond_wait(&film_more, &film_lock);
        pthread_mutex_unlock(&film_lock);
        for (int x = 0; x < COLUMNS; x += EDGE) {
            long best = 1L << 40, best_at = y * COLUMNS + x;
            for (int dy = -REACH; picture && dy <= REACH; dy += 2)
                for (int dx = -REACH; dx <= REACH; dx += 2) {
                    long sum = 0;
                    if (y + dy < 0 || x + dx < 0 || y + dy + EDGE > ROWS || x + dx + EDGE > COLUMNS)
                        continue;
                    for (int n = 0; n < EDGE * EDGE; n++) {
                        int at = (y + n / EDGE) * COLUMNS + x + n % EDGE;
                        sum += abs(film[picture][at] - film[picture - 1][at + dy * COLUMNS + dx]);
                    }
                    if (sum < best) {
                        best = sum;
                        best_at = (y + dy) * COLUMNS + x + dx;
                    }
                }
            for (int n = 0; n < EDGE * EDGE; n++) {
                int at = (y + n / EDGE) * COLUMNS + x + n % EDGE;
                int guess = picture ? film[picture - 1][best_at + n / EDGE * COLUMNS + n % EDGE] : 128;
                rest[at] = (film[picture][at] - guess) / 8;
                rebuilt[at] = guess + rest[at] * 8;
                film_bytes[picture] += rest[at] != 0;
            }
        }
        pthread_mutex_lock(&film_lock);
        rows_done[picture] = y + EDGE;
        pthread_cond_broadcast(&film_more);
        pthread_mutex_unlock(&film_lock);
    }
    free(rest);
    free(rebuilt);
}

static void *encode_some(void *index) {
    for (int picture = (intptr_t)index; picture < FILM; picture += THREADS)
        encode(picture);
    return NULL;
}

void x264(void) {
    uint64_t random = 1;
    for (int picture = 0; picture < FILM; picture++) {
        film[picture] = must(malloc(COLUMNS * ROWS));
        for (int n = 0; n < COLUMNS * ROWS; n++)
            film[picture][n] = 128 + 60 * sin((n % COLUMNS + picture * 3) / 23.0) + 60 * cos(n / COLUMNS / 17.0) + draw(&random) % 8;
    }
    together(encode_some);
    for (int picture = 0; picture < FILM; picture++)
        free(film[picture]);
}
