/* Makes the mesh of a face: a sheet of tissue over skull and jaw, in tetrahedra, divided among threads. */
#include "mesh.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pages.h"

/* The five tetrahedra of a cube by its corners (bit 0 across, 1 down, 2 deep), for even and odd ones. */
static const int FIVE[2][5][4] = {
    { { 0, 1, 2, 4 }, { 3, 2, 1, 7 }, { 5, 1, 4, 7 }, { 6, 2, 7, 4 }, { 1, 2, 4, 7 } },
    { { 1, 0, 5, 3 }, { 2, 0, 3, 6 }, { 4, 0, 6, 5 }, { 7, 3, 5, 6 }, { 0, 3, 6, 5 } },
};
static const int SIDES[6][2] = { { 0, 1 }, { 0, 2 }, { 0, 3 }, { 1, 2 }, { 1, 3 }, { 2, 3 } };

/* The partition of a place: the longest side is halved again and again. */
static int part_of(const int size[3], const int at[3], int threads) {
    int from[3] = { 0, 0, 0 }, to[3] = { size[0], size[1], size[2] }, part = 0;
    for (; threads > 1; threads /= 2) {
        int axis = 0;
        for (int a = 1; a < 3; a++)
            if (to[a] - from[a] > to[axis] - from[axis])
                axis = a;
        int middle = (from[axis] + to[axis]) / 2;
        int upper = at[axis] >= middle;
        *(upper ? &from[axis] : &to[axis]) = middle;
        part = 2 * part + upper;
    }
    return part;
}

/* Half an ellipsoid of 12 by 18 cm whose tissue is 2 cm thick. */
static void place(const int size[3], const int at[3], double to[3]) {
    double x = (at[0] / (size[0] - 1.0) - 0.5) * 2.4, y = (at[1] / (size[1] - 1.0) - 0.5) * 2.4;
    double r = 1 + 0.2 * at[2] / (size[2] - 1.0);
    to[0] = 6 * r * sin(x) * cos(y / 2);
    to[1] = 9 * r * sin(y);
    to[2] = 6 * r * cos(x) * cos(y);
}

static void invert(const double m[9], double to[9]) {
    double c[9];
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            int a = (i + 1) % 3, b = (i + 2) % 3, d = (j + 1) % 3, e = (j + 2) % 3;
            c[3 * j + i] = m[3 * a + d] * m[3 * b + e] - m[3 * a + e] * m[3 * b + d];
        }
    double det = m[0] * c[0] + m[1] * c[3] + m[2] * c[6];
    for (int n = 0; n < 9; n++)
        to[n] = c[n] / det;
}

static int ascending(const void *left, const void *right) {
    unsigned long a = *(const unsigned long *)left, b = *(const unsigned long *)right;
    return (a > b) - (a < b);
}

static void part_make(struct face *face, struct part *part, int (*tets)[4], int count) {
    int mine = 0;
    unsigned long *keys = malloc(6ul * count * sizeof *keys);
    for (int pass = 0; pass < 2; pass++) {
        mine = 0;
        for (int n = 0; n < count; n++) {
            int touches = 0;
            for (int c = 0; c < 4; c++)
                touches |= tets[n][c] >= part->node_from && tets[n][c] < part->node_to;
            if (!touches)
                continue;
            if (pass)
                memcpy(part->nodes[mine], tets[n], sizeof tets[n]);
            mine++;
        }
        if (!pass)
            part->nodes = pages_memory(mine * sizeof *part->nodes);
    }
    part->tets = mine;
    size_t edges = 0;
    for (int n = 0; n < mine; n++)
        for (int s = 0; s < 6; s++) {
            unsigned long a = part->nodes[n][SIDES[s][0]], b = part->nodes[n][SIDES[s][1]];
            keys[edges++] = a < b ? a << 32 | b : b << 32 | a;
        }
    qsort(keys, edges, sizeof *keys, ascending);
    size_t distinct = 0;
    for (size_t n = 0; n < edges; n++) {
        long a = keys[n] >> 32, b = keys[n] & 0xffffffff;
        int own = (a >= part->node_from && a < part->node_to) || (b >= part->node_from && b < part->node_to);
        if (own && (!distinct || keys[distinct - 1] != keys[n]))
            keys[distinct++] = keys[n];
    }
    part->edges = distinct;
    part->sides = pages_memory(mine * sizeof *part->sides);
    part->rest_inverse = pages_memory(mine * sizeof *part->rest_inverse);
    part->normals = pages_memory(mine * sizeof *part->normals);
    part->fibre = pages_memory(mine * sizeof *part->fibre);
    part->strength = pages_memory(mine * sizeof *part->strength);
    part->u = pages_memory(mine * sizeof *part->u);
    part->v = pages_memory(mine * sizeof *part->v);
    part->stretch = pages_memory(mine * sizeof *part->stretch);
    part->slope = pages_memory(mine * sizeof *part->slope);
    part->ends = pages_memory(distinct * sizeof *part->ends);
    part->stiffness = pages_memory(distinct * sizeof *part->stiffness);
    for (size_t n = 0; n < distinct; n++) {
        part->ends[n][0] = keys[n] >> 32;
        part->ends[n][1] = keys[n] & 0xffffffff;
    }
    for (int n = 0; n < mine; n++) {
        const int *nodes = part->nodes[n];
        for (int s = 0; s < 6; s++) {
            unsigned long a = nodes[SIDES[s][0]], b = nodes[SIDES[s][1]], key = a < b ? a << 32 | b : b << 32 | a;
            unsigned long *found = bsearch(&key, keys, distinct, sizeof *keys, ascending);
            part->sides[n][s] = found ? (int)(found - keys) : -1;
        }
        double edge[9], *inverse = part->rest_inverse[n], middle[3] = { 0 };
        for (int c = 0; c < 3; c++)
            for (int x = 0; x < 3; x++)
                edge[3 * x + c] = face->rest[nodes[c + 1]][x] - face->rest[nodes[0]][x];
        invert(edge, inverse);
        double volume = fabs(edge[0] * (edge[4] * edge[8] - edge[5] * edge[7]) + edge[1] * (edge[5] * edge[6] - edge[3] * edge[8])
                             + edge[2] * (edge[3] * edge[7] - edge[4] * edge[6])) / 6;
        /* Row c belongs to node c + 1: the gradient of its weight, by the volume. */
        for (int x = 0; x < 9; x++)
            part->normals[n][x] = volume * inverse[x];
        for (int c = 0; c < 4; c++)
            for (int x = 0; x < 3; x++)
                middle[x] += face->rest[nodes[c]][x] / 4;
        /* 32 muscles, in bands from the middle of the face outwards, half of the tissue. */
        double length = hypot(middle[0], middle[1]) + 1e-9;
        int band = (int)((atan2(middle[1], middle[0]) + M_PI) / (2 * M_PI) * 64);
        part->fibre[n][0] = middle[0] / length;
        part->fibre[n][1] = middle[1] / length;
        part->fibre[n][2] = 0;
        part->strength[n] = band % 2 ? 0.2 : 0;
    }
    free(keys);
}

struct face *face_make(const int size[3], int threads) {
    struct face *face = pages_memory(sizeof *face);
    int nodes = size[0] * size[1] * size[2], cells = (size[0] - 1) * (size[1] - 1) * (size[2] - 1);
    int *number = malloc(nodes * sizeof *number), (*tets)[4] = malloc(5ul * cells * sizeof *tets), count = 0, next = 0;
    face->threads = threads;
    face->nodes = nodes;
    face->bone = pages_memory(nodes);
    double (**vectors[])[3] = { &face->rest, &face->at, &face->force, &face->change, &face->residual, &face->direction, &face->product };
    for (size_t v = 0; v < sizeof vectors / sizeof *vectors; v++)
        *vectors[v] = pages_memory(nodes * sizeof **vectors[v]);
    face->diagonal = pages_memory(nodes * sizeof *face->diagonal);
    for (int p = 0; p < threads; p++) {
        face->part[p].node_from = next;
        for (int n = 0; n < nodes; n++) {
            int at[3] = { n % size[0], n / size[0] % size[1], n / size[0] / size[1] };
            if (part_of(size, at, threads) != p)
                continue;
            place(size, at, face->rest[next]);
            memcpy(face->at[next], face->rest[next], sizeof *face->at);
            /* The innermost layer grows on bone, its lower third on the jaw. */
            face->bone[next] = at[2] ? 0 : 3 * at[1] < size[1] ? 2 : 1;
            number[n] = next++;
        }
        face->part[p].node_to = next;
    }
    for (int n = 0; n < cells; n++) {
        int at[3] = { n % (size[0] - 1), n / (size[0] - 1) % (size[1] - 1), n / (size[0] - 1) / (size[1] - 1) };
        for (int t = 0; t < 5; t++, count++)
            for (int c = 0; c < 4; c++) {
                int corner = FIVE[(at[0] + at[1] + at[2]) % 2][t][c];
                int x = at[0] + corner % 2, y = at[1] + corner / 2 % 2, z = at[2] + corner / 4;
                tets[count][c] = number[x + size[0] * (y + size[1] * z)];
            }
    }
    for (int p = 0; p < threads; p++)
        part_make(face, &face->part[p], tets, count);
    free(number);
    free(tets);
    return face;
}
