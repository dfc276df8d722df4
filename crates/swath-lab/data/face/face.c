/* A face in motion, after the public description of facesim, a program of the PARSEC benchmarks (C. Bienia and others,
 * The PARSEC Benchmark Suite: Characterization and Architectural Implications, 2008): for each frame the state of rest is
 * sought in which a mesh of tetrahedra holds the forces of its muscles and of the jaw, by Newton's method. A step of it
 * updates the state of the mesh, adds the forces and the matrix of stiffness, and solves by conjugate gradient. The mesh is
 * partitioned among the threads from the beginning; what spans partitions is in each of them.
 *
 * face THREADS FRAMES FILE [ACROSS DOWN DEEP]; FILE is what pages.c records. Prints the milliseconds of all processors
 * that it took. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "mesh.h"
#include "pages.h"

/* Facesim's mesh has 80,598 nodes and 372,126 tetrahedra: 83,215 and 369,600 here. */
static int size[3] = { 85, 89, 11 };

/* Newton's method ends when the forces are down to a hundredth, or after so many steps; conjugate gradient likewise. */
enum { NEWTON_STEPS = 10, GRADIENT_STEPS = 200 };
static const double ENOUGH = 0.01;

/* Stiffness by shear and by volume, in units of the former. */
static const double MU = 1, LAMBDA = 4;

static struct face *face;
static int frames;

/* The sum of a partition's share over all of them, the same in each thread. `slot` is not that of the sum before. */
static double sum(int index, int slot, double mine) {
    double all = 0;
    face->part[index].sum[slot] = mine;
    pages_wait();
    for (int t = 0; t < face->threads; t++)
        all += face->part[t].sum[slot];
    return all;
}

/* Eigenvectors of a symmetric matrix by Jacobi's rotations, in the columns of v. */
static void eigenvectors(double m[9], double v[9]) {
    for (int n = 0; n < 9; n++)
        v[n] = n % 4 == 0;
    for (int sweep = 0; sweep < 6; sweep++)
        for (int p = 0; p < 2; p++)
            for (int q = p + 1; q < 3; q++) {
                double off = m[3 * p + q];
                if (fabs(off) < 1e-14)
                    continue;
                double theta = (m[4 * q] - m[4 * p]) / (2 * off);
                double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
                double c = 1 / sqrt(t * t + 1), s = t * c;
                for (int k = 0; k < 3; k++) {
                    double a = m[3 * k + p], b = m[3 * k + q];
                    m[3 * k + p] = c * a - s * b;
                    m[3 * k + q] = s * a + c * b;
                }
                for (int k = 0; k < 3; k++) {
                    double a = m[3 * p + k], b = m[3 * q + k];
                    m[3 * p + k] = c * a - s * b;
                    m[3 * q + k] = s * a + c * b;
                    a = v[3 * k + p], b = v[3 * k + q];
                    v[3 * k + p] = c * a - s * b;
                    v[3 * k + q] = s * a + c * b;
                }
            }
}

/* The edges of a tetrahedron as it stands, times the inverse of those at rest. */
static void deformation(const struct part *part, int n, double f[9]) {
    const int *nodes = part->nodes[n];
    const double *inverse = part->rest_inverse[n];
    for (int x = 0; x < 3; x++) {
        double base = face->at[nodes[0]][x], edge[3];
        for (int c = 0; c < 3; c++)
            edge[c] = face->at[nodes[c + 1]][x] - base;
        for (int y = 0; y < 3; y++)
            f[3 * x + y] = edge[0] * inverse[y] + edge[1] * inverse[3 + y] + edge[2] * inverse[6 + y];
    }
}

/* Deformation as two rotations and stretches, and the derivatives of stress, kept positive. */
static void update_state(struct part *part) {
    for (int n = 0; n < part->tets; n++) {
        double f[9], square[9], *u = part->u[n], *v = part->v[n], *stretch = part->stretch[n], *slope = part->slope[n];
        deformation(part, n, f);
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++)
                square[3 * i + j] = f[i] * f[j] + f[3 + i] * f[3 + j] + f[6 + i] * f[6 + j];
        eigenvectors(square, v);
        double trace = -3;
        for (int i = 0; i < 3; i++) {
            stretch[i] = fmax(sqrt(fabs(square[4 * i])), 0.05);
            trace += stretch[i];
            for (int x = 0; x < 3; x++)
                u[3 * x + i] = (f[3 * x] * v[i] + f[3 * x + 1] * v[3 + i] + f[3 * x + 2] * v[6 + i]) / stretch[i];
        }
        for (int i = 0; i < 3; i++) {
            int j = (i + 1) % 3;
            double twist = 2 * MU + 2 * (LAMBDA * trace - 2 * MU) / (stretch[i] + stretch[j]);
            slope[i] = 2 * MU + LAMBDA;
            slope[3 + i] = LAMBDA;
            slope[6 + i] = (2 * MU + fmax(twist, 0)) / 2;
            slope[9 + i] = (2 * MU - fmax(twist, 0)) / 2;
        }
    }
}

/* The block of the stiffness between corners of rotated gradients b and c. */
static void block(const double *u, const double *slope, const double b[3], const double c[3], double to[9]) {
    double hat[9], half[9];
    for (int i = 0; i < 3; i++) {
        int j = (i + 1) % 3, k = (i + 2) % 3;
        hat[4 * i] = slope[i] * b[i] * c[i] + slope[6 + i] * b[j] * c[j] + slope[6 + k] * b[k] * c[k];
        hat[3 * i + j] = slope[3 + i] * b[i] * c[j] + slope[9 + i] * b[j] * c[i];
        hat[3 * j + i] = slope[3 + i] * b[j] * c[i] + slope[9 + i] * b[i] * c[j];
    }
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            half[3 * i + j] = u[3 * i] * hat[j] + u[3 * i + 1] * hat[3 + j] + u[3 * i + 2] * hat[6 + j];
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            to[3 * i + j] = half[3 * i] * u[3 * j] + half[3 * i + 1] * u[3 * j + 1] + half[3 * i + 2] * u[3 * j + 2];
}

/* Forces on the partition's nodes, and its part of the matrix. */
static void add_forces(struct part *part, double tension) {
    static const int sides[6][2] = { { 0, 1 }, { 0, 2 }, { 0, 3 }, { 1, 2 }, { 1, 3 }, { 2, 3 } };
    const int from = part->node_from, to = part->node_to;
    for (int n = from; n < to; n++) {
        for (int x = 0; x < 3; x++)
            face->force[n][x] = 0;
        for (int x = 0; x < 9; x++)
            face->diagonal[n][x] = 0;
    }
    for (int n = 0; n < part->edges; n++)
        for (int x = 0; x < 9; x++)
            part->stiffness[n][x] = 0;
    for (int n = 0; n < part->tets; n++) {
        const int *nodes = part->nodes[n];
        const double *u = part->u[n], *v = part->v[n], *stretch = part->stretch[n], *normals = part->normals[n];
        double hat[3], stress[9], f[9], along[3], b[4][3], c[4][3], k[9];
        double trace = stretch[0] + stretch[1] + stretch[2] - 3;
        for (int i = 0; i < 3; i++)
            hat[i] = 2 * MU * (stretch[i] - 1) + LAMBDA * trace;
        for (int x = 0; x < 3; x++)
            for (int y = 0; y < 3; y++)
                stress[3 * x + y] = u[3 * x] * hat[0] * v[3 * y] + u[3 * x + 1] * hat[1] * v[3 * y + 1] + u[3 * x + 2] * hat[2] * v[3 * y + 2];
        if (part->strength[n] > 0) {
            const double *fibre = part->fibre[n], pull = tension * part->strength[n];
            deformation(part, n, f);
            for (int x = 0; x < 3; x++)
                along[x] = f[3 * x] * fibre[0] + f[3 * x + 1] * fibre[1] + f[3 * x + 2] * fibre[2];
            for (int x = 0; x < 3; x++)
                for (int y = 0; y < 3; y++)
                    stress[3 * x + y] += pull * along[x] * fibre[y];
        }
        const double *gradients = part->rest_inverse[n];
        for (int i = 0; i < 3; i++) {
            b[0][i] = c[0][i] = 0;
            for (int corner = 1; corner < 4; corner++) {
                const double *normal = normals + 3 * (corner - 1), *gradient = gradients + 3 * (corner - 1);
                b[corner][i] = v[i] * normal[0] + v[3 + i] * normal[1] + v[6 + i] * normal[2];
                c[corner][i] = v[i] * gradient[0] + v[3 + i] * gradient[1] + v[6 + i] * gradient[2];
                b[0][i] -= b[corner][i];
                c[0][i] -= c[corner][i];
            }
        }
        double first[3] = { 0 };
        for (int corner = 3; corner >= 0; corner--) {
            int node = nodes[corner];
            double push[3];
            for (int x = 0; x < 3; x++) {
                const double *normal = normals + 3 * (corner - 1);
                push[x] = corner ? -(stress[3 * x] * normal[0] + stress[3 * x + 1] * normal[1] + stress[3 * x + 2] * normal[2]) : first[x];
                first[x] -= push[x];
            }
            if (node < from || node >= to)
                continue;
            block(u, part->slope[n], b[corner], c[corner], k);
            for (int x = 0; x < 3; x++)
                face->force[node][x] += push[x];
            for (int x = 0; x < 9; x++)
                face->diagonal[node][x] += k[x];
        }
        for (int side = 0; side < 6; side++) {
            int edge = part->sides[n][side];
            if (edge < 0)
                continue;
            int left = sides[side][0], right = sides[side][1], swapped = part->ends[edge][0] != nodes[left];
            block(u, part->slope[n], swapped ? b[right] : b[left], swapped ? c[left] : c[right], k);
            for (int x = 0; x < 9; x++)
                part->stiffness[edge][x] += k[x];
        }
    }
}

/* The product of the matrix and the direction for the partition's nodes; what grows on bone does not move. */
static double multiply(const struct part *part) {
    const int from = part->node_from, to = part->node_to;
    double (*s)[3] = face->direction, (*q)[3] = face->product, dot = 0;
    for (int n = from; n < to; n++)
        for (int x = 0; x < 3; x++) {
            const double *k = face->diagonal[n] + 3 * x;
            q[n][x] = k[0] * s[n][0] + k[1] * s[n][1] + k[2] * s[n][2];
        }
    for (int e = 0; e < part->edges; e++) {
        int a = part->ends[e][0], b = part->ends[e][1];
        const double *k = part->stiffness[e];
        if (a >= from && a < to)
            for (int x = 0; x < 3; x++)
                q[a][x] += k[3 * x] * s[b][0] + k[3 * x + 1] * s[b][1] + k[3 * x + 2] * s[b][2];
        if (b >= from && b < to)
            for (int x = 0; x < 3; x++)
                q[b][x] += k[x] * s[a][0] + k[3 + x] * s[a][1] + k[6 + x] * s[a][2];
    }
    for (int n = from; n < to; n++)
        for (int x = 0; x < 3; x++) {
            q[n][x] = face->bone[n] ? 0 : q[n][x];
            dot += q[n][x] * s[n][x];
        }
    return dot;
}

static int conjugate_gradient(int index) {
    struct part *part = &face->part[index];
    const int from = part->node_from, to = part->node_to;
    double rho = 0;
    for (int n = from; n < to; n++)
        for (int x = 0; x < 3; x++) {
            double r = face->bone[n] ? 0 : face->force[n][x];
            face->residual[n][x] = face->direction[n][x] = r;
            face->change[n][x] = 0;
            rho += r * r;
        }
    rho = sum(index, 0, rho);
    const double enough = ENOUGH * ENOUGH * rho;
    int step = 0;
    for (; step < GRADIENT_STEPS && rho > enough; step++) {
        double alpha = rho / sum(index, 1, multiply(part)), next = 0;
        for (int n = from; n < to; n++)
            for (int x = 0; x < 3; x++) {
                face->change[n][x] += alpha * face->direction[n][x];
                face->residual[n][x] -= alpha * face->product[n][x];
                next += face->residual[n][x] * face->residual[n][x];
            }
        next = sum(index, 2, next);
        for (int n = from; n < to; n++)
            for (int x = 0; x < 3; x++)
                face->direction[n][x] = face->residual[n][x] + next / rho * face->direction[n][x];
        rho = next;
        pages_wait();
    }
    return step;
}

/* The jaw opens by 15 degrees within a second and the muscles tighten, at 24 frames a second. */
static void move_jaw(const struct part *part, double seconds) {
    const double angle = 15 * M_PI / 180 * (1 - cos(M_PI * seconds)) / 2, c = cos(angle), s = sin(angle);
    for (int n = part->node_from; n < part->node_to; n++)
        if (face->bone[n] == 2) {
            const double *rest = face->rest[n];
            face->at[n][1] = c * rest[1] - s * rest[2];
            face->at[n][2] = s * rest[1] + c * rest[2];
        }
}

static void simulate(int index) {
    struct part *part = &face->part[index];
    for (int frame = 1; frame <= frames; frame++) {
        const double seconds = frame / 24.0;
        double begun = 0, left = 0;
        int steps = 0, gradient_steps = 0;
        move_jaw(part, seconds);
        pages_wait();
        for (; steps <= NEWTON_STEPS; steps++) {
            double mine = 0;
            update_state(part);
            pages_wait();
            add_forces(part, seconds);
            for (int n = part->node_from; n < part->node_to; n++)
                for (int x = 0; x < 3; x++)
                    mine += face->bone[n] ? 0 : face->force[n][x] * face->force[n][x];
            left = sqrt(sum(index, 3, mine));
            begun = steps ? begun : left;
            if (steps == NEWTON_STEPS || left <= ENOUGH * begun)
                break;
            gradient_steps += conjugate_gradient(index);
            for (int n = part->node_from; n < part->node_to; n++)
                for (int x = 0; x < 3; x++)
                    face->at[n][x] += face->change[n][x];
            pages_wait();
        }
        if (index == 0)
            fprintf(stderr, "frame %d: forces %.3g to %.3g, %d steps, %d of conjugate gradient\n", frame, begun, left, steps, gradient_steps);
    }
}

int main(int argc, char **argv) {
    if (argc != 4 && argc != 7) {
        fputs("face THREADS FRAMES FILE [ACROSS DOWN DEEP]\n", stderr);
        return 2;
    }
    int threads = atoi(argv[1]);
    for (int n = 4; n < argc; n++)
        size[n - 4] = atoi(argv[n]);
    frames = atoi(argv[2]);
    if (threads < 1 || threads > THREADS_MAX || threads & (threads - 1) || frames < 1)
        return 2;
    face = face_make(size, threads);
    pages_run(threads, simulate);
    fprintf(stderr, "%lu accesses\n", pages_accesses());
    pages_write(argv[3], "face");
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    printf("facesim %ld\n", (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000 + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1000);
    return 0;
}
