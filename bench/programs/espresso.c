/* Sets of bits in lists, as a minimiser of logic makes them: covers of cubes that are copied, intersected,
 * merged and thrown away again, most of them at once. Many short blocks of a few lengths, most of which
 * live for a few calls.
 *
 * espresso VARIABLES ROUNDS */
#include "common.h"

struct cube {
    struct cube *next;
    unsigned words;
    uint64_t bits[];
};

static unsigned words;

static struct cube *make(struct cube *next, const uint64_t *bits) {
    struct cube *cube = must(malloc(sizeof *cube + words * sizeof *bits));
    cube->next = next;
    cube->words = words;
    memcpy(cube->bits, bits, words * sizeof *bits);
    return cube;
}

static void drop(struct cube *list) {
    while (list != NULL) {
        struct cube *next = list->next;
        free(list);
        list = next;
    }
}

/* The cubes that both have something of, each once in a row. */
static struct cube *intersect(const struct cube *a, const struct cube *b) {
    struct cube *list = NULL;
    for (; a != NULL; a = a->next)
        for (const struct cube *c = b; c != NULL; c = c->next) {
            uint64_t *both = must(malloc(words * sizeof *both)), any = 0;
            for (unsigned i = 0; i < words; i++) any |= both[i] = a->bits[i] & c->bits[i];
            if (any != 0 && (list == NULL || memcmp(list->bits, both, words * sizeof *both) != 0))
                list = make(list, both);
            free(both);
        }
    return list;
}

int main(int argc, char **argv) {
    unsigned long variables = argument(argc, argv, 1, 200);
    unsigned long rounds = argument(argc, argv, 2, 20000);
    words = (unsigned)(variables / 64 + 1);
    uint64_t random = 1, sum = 0, *bits = must(malloc(words * sizeof *bits));
    for (unsigned long round = 0; round < rounds; round++) {
        words = 1 + (unsigned)(round % (variables / 64 + 1));
        struct cube *covers[2] = {NULL, NULL};
        for (unsigned i = 0; i < 24; i++) {
            for (unsigned k = 0; k < words; k++)
                bits[k] = next_random(&random) & next_random(&random) & next_random(&random);
            covers[i % 2] = make(covers[i % 2], bits);
        }
        struct cube *both = intersect(covers[0], covers[1]);
        for (struct cube *cube = both; cube != NULL; cube = cube->next) sum += cube->bits[0];
        drop(covers[0]);
        drop(covers[1]);
        drop(both);
    }
    free(bits);
    report(sum);
    return 0;
}
