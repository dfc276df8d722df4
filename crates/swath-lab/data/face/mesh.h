/* The mesh of a face, and the state of its simulation, as `mesh.c` lays them out and `face.c` works on them. */
#ifndef MESH_H
#define MESH_H

#include <stddef.h>

enum { THREADS_MAX = 16 };

/* A partition: its nodes, and every tetrahedron and edge that touches one of them. What spans partitions is in each. */
struct part {
    int node_from, node_to;
    int tets, edges;
    /* Of a tetrahedron: its nodes; the edges between them in the order 01 02 03 12 13 23; the inverse of its edges at
     * rest; its faces' normals by area; its fibre's direction; its muscle's strength. */
    int (*nodes)[4], (*sides)[6];
    double (*rest_inverse)[9], (*normals)[9], (*fibre)[3], *strength;
    /* Its state: the deformation as rotations and stretches, and the derivatives of stress by it. */
    double (*u)[9], (*v)[9], (*stretch)[3], (*slope)[12];
    /* Of an edge: its nodes, and the block of the stiffness matrix. */
    int (*ends)[2];
    double (*stiffness)[9];
    /* A sum that the partitions add up. */
    double sum[8];
};

struct face {
    int threads, nodes;
    struct part part[THREADS_MAX];
    /* Of a node: 0 free, 1 on the skull, 2 on the jaw. */
    unsigned char *bone;
    double (*rest)[3], (*at)[3], (*force)[3], (*diagonal)[9];
    /* The vectors of conjugate gradient. */
    double (*change)[3], (*residual)[3], (*direction)[3], (*product)[3];
};

/* A face of so many nodes across, down and deep, for as many threads: a power of two. */
struct face *face_make(const int size[3], int threads);

#endif
