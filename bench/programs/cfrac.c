/* Factors a number by continued fractions (Morrison and Brillhart, A Method of Factoring and
 * the Factorization of F7, 1975), every long number in a block of its own: very many small
 * blocks that live for one operation, in one thread.
 *
 * cfrac NUMBER */
#include "common.h"

/* A long number: never changed once made. Limbs from the lowest on; none is 0. */
typedef struct {
    uint32_t len;
    uint32_t limb[];
} number;

static number *fresh(uint32_t len) {
    number *n = must(malloc(sizeof *n + len * sizeof(uint32_t)));
    n->len = len;
    return n;
}

static number *trimmed(number *n) {
    while (n->len > 0 && n->limb[n->len - 1] == 0) n->len--;
    return n;
}

static number *small(uint32_t value) {
    number *n = fresh(1);
    n->limb[0] = value;
    return trimmed(n);
}

static int compare(const number *a, const number *b) {
    if (a->len != b->len) return a->len < b->len ? -1 : 1;
    for (uint32_t i = a->len; i-- > 0;)
        if (a->limb[i] != b->limb[i]) return a->limb[i] < b->limb[i] ? -1 : 1;
    return 0;
}

static number *add(const number *a, const number *b) {
    if (a->len < b->len) return add(b, a);
    number *sum = fresh(a->len + 1);
    uint64_t carry = 0;
    for (uint32_t i = 0; i < a->len; i++) {
        carry += (uint64_t)a->limb[i] + (i < b->len ? b->limb[i] : 0);
        sum->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    sum->limb[a->len] = (uint32_t)carry;
    return trimmed(sum);
}

/* a - b, and a is not less. */
static number *subtract(const number *a, const number *b) {
    number *rest = fresh(a->len);
    int64_t borrow = 0;
    for (uint32_t i = 0; i < a->len; i++) {
        borrow += (int64_t)a->limb[i] - (i < b->len ? b->limb[i] : 0);
        rest->limb[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    return trimmed(rest);
}

static number *multiply(const number *a, const number *b) {
    number *product = fresh(a->len + b->len);
    memset(product->limb, 0, product->len * sizeof(uint32_t));
    for (uint32_t i = 0; i < a->len; i++) {
        uint64_t carry = 0;
        for (uint32_t j = 0; j < b->len; j++) {
            carry += (uint64_t)a->limb[i] * b->limb[j] + product->limb[i + j];
            product->limb[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        product->limb[i + b->len] = (uint32_t)carry;
    }
    return trimmed(product);
}

static number *divide_small(const number *a, uint32_t by, uint32_t *rest) {
    number *quotient = fresh(a->len);
    uint64_t carry = 0;
    for (uint32_t i = a->len; i-- > 0;) {
        carry = carry << 32 | a->limb[i];
        quotient->limb[i] = (uint32_t)(carry / by);
        carry %= by;
    }
    *rest = (uint32_t)carry;
    return trimmed(quotient);
}

static number *shifted(const number *a, unsigned bits) {
    number *n = fresh(a->len + 1);
    uint64_t carry = 0;
    for (uint32_t i = 0; i < a->len; i++) {
        carry |= (uint64_t)a->limb[i] << bits;
        n->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    n->limb[a->len] = (uint32_t)carry;
    return n;
}

/* Long division (Knuth, volume 2, algorithm D); `rest` may be null. */
static number *divide(const number *a, const number *b, number **rest) {
    if (compare(a, b) < 0) {
        if (rest != NULL) *rest = add(a, &(number){0});
        return small(0);
    }
    if (b->len == 1) {
        uint32_t r;
        number *quotient = divide_small(a, b->limb[0], &r);
        if (rest != NULL) *rest = small(r);
        return quotient;
    }
    unsigned shift = (unsigned)__builtin_clz(b->limb[b->len - 1]);
    number *u = shifted(a, shift), *v = trimmed(shifted(b, shift));
    uint32_t n = v->len, m = u->len - n;
    number *quotient = fresh(m);
    for (uint32_t j = m; j-- > 0;) {
        uint64_t top = (uint64_t)u->limb[j + n] << 32 | u->limb[j + n - 1];
        uint64_t guess = top / v->limb[n - 1], left = top % v->limb[n - 1];
        while (guess >> 32 != 0 || guess * v->limb[n - 2] > (left << 32 | u->limb[j + n - 2])) {
            guess--;
            left += v->limb[n - 1];
            if (left >> 32 != 0) break;
        }
        int64_t borrow = 0;
        uint64_t carry = 0;
        for (uint32_t i = 0; i < n; i++) {
            carry += guess * v->limb[i];
            borrow += (int64_t)u->limb[i + j] - (uint32_t)carry;
            u->limb[i + j] = (uint32_t)borrow;
            borrow >>= 32;
            carry >>= 32;
        }
        borrow += (int64_t)u->limb[j + n] - (int64_t)carry;
        u->limb[j + n] = (uint32_t)borrow;
        if (borrow < 0) {
            guess--;
            uint64_t back = 0;
            for (uint32_t i = 0; i < n; i++) {
                back += (uint64_t)u->limb[i + j] + v->limb[i];
                u->limb[i + j] = (uint32_t)back;
                back >>= 32;
            }
            u->limb[j + n] += (uint32_t)back;
        }
        quotient->limb[j] = (uint32_t)guess;
    }
    if (rest != NULL) {
        number *r = fresh(n);
        for (uint32_t i = 0; i < n; i++) {
            uint64_t pair = (uint64_t)u->limb[i + 1] << 32 | u->limb[i];
            r->limb[i] = (uint32_t)(pair >> shift);
        }
        *rest = trimmed(r);
    }
    free(u);
    free(v);
    return trimmed(quotient);
}

static void set(number **place, number *value) {
    free(*place);
    *place = value;
}

static number *modulo(const number *a, const number *b) {
    number *rest;
    free(divide(a, b, &rest));
    return rest;
}

static number *times_modulo(const number *a, const number *b, const number *m) {
    number *product = multiply(a, b), *rest = modulo(product, m);
    free(product);
    return rest;
}

static number *root(const number *n) {
    /* Newton's iteration from above. */
    number *x = fresh(n->len / 2 + 2);
    memset(x->limb, 0, x->len * sizeof(uint32_t));
    x->limb[x->len - 1] = 1;
    for (;;) {
        number *quotient = divide(n, x, NULL), *sum = add(x, quotient);
        uint32_t odd;
        number *next = divide_small(sum, 2, &odd);
        free(quotient);
        free(sum);
        if (compare(next, x) >= 0) {
            free(next);
            return x;
        }
        set(&x, next);
    }
}

static number *common_divisor(const number *a, const number *b) {
    number *x = add(a, &(number){0}), *y = add(b, &(number){0});
    while (y->len != 0) {
        number *rest = modulo(x, y);
        free(x);
        x = y;
        y = rest;
    }
    free(y);
    return x;
}

static number *parse(const char *digits) {
    number *n = small(0);
    for (; *digits >= '0' && *digits <= '9'; digits++) {
        number *ten = small(10), *digit = small((uint32_t)(*digits - '0'));
        number *product = multiply(n, ten);
        set(&n, add(product, digit));
        free(product);
        free(ten);
        free(digit);
    }
    return n;
}

static uint32_t power_modulo(uint64_t base, uint32_t exponent, uint32_t m) {
    uint64_t result = 1;
    for (base %= m; exponent != 0; exponent >>= 1, base = base * base % m)
        if (exponent & 1) result = result * base % m;
    return (uint32_t)result;
}

/* The base: 2 and odd primes of which the number is a square. */
enum { BASE = 400, EXTRA = 24, RELATIONS = BASE + EXTRA, WORDS = (BASE + 1 + 63) / 64 };

static uint32_t base[BASE];

static void choose_base(const number *n) {
    base[0] = 2;
    uint32_t found = 1, rest;
    for (uint32_t p = 3; found < BASE; p += 2) {
        int prime = 1;
        for (uint32_t d = 3; d * d <= p && prime; d += 2) prime = p % d != 0;
        if (!prime) continue;
        free(divide_small(n, p, &rest));
        if (power_modulo(rest, (p - 1) / 2, p) <= 1) base[found++] = p;
    }
}

struct relation {
    number *root;               /* A, with A^2 = ±Q modulo the number */
    unsigned short power[BASE]; /* of Q's primes */
    uint64_t odd[WORDS];        /* whose power is odd; the last bit is the sign */
    uint64_t members[(RELATIONS + 63) / 64];
};

static struct relation *relations;

/* Whether `q` has primes of the base alone, which go to `to`. */
static int factors(const number *q, struct relation *to) {
    number *rest = add(q, &(number){0});
    memset(to->power, 0, sizeof to->power);
    for (uint32_t i = 0; i < BASE && !(rest->len == 1 && rest->limb[0] == 1); i++) {
        for (;;) {
            uint32_t r;
            number *quotient = divide_small(rest, base[i], &r);
            if (r != 0) {
                free(quotient);
                break;
            }
            set(&rest, quotient);
            to->power[i]++;
        }
    }
    int all = rest->len == 1 && rest->limb[0] == 1;
    free(rest);
    return all;
}

/* A divisor from relations whose product is a square, if it is a proper one. */
static number *try_square(const struct relation *row, const number *n) {
    unsigned long power[BASE] = {0};
    number *x = small(1), *y = small(1);
    for (uint32_t i = 0; i < RELATIONS; i++) {
        if (!(row->members[i / 64] >> (i % 64) & 1)) continue;
        set(&x, times_modulo(x, relations[i].root, n));
        for (uint32_t p = 0; p < BASE; p++) power[p] += relations[i].power[p];
    }
    for (uint32_t p = 0; p < BASE; p++)
        for (unsigned long k = 0; k < power[p] / 2; k++) {
            number *prime = small(base[p]);
            set(&y, times_modulo(y, prime, n));
            free(prime);
        }
    number *sum = add(x, y), *divisor = common_divisor(sum, n), *one = small(1);
    int proper = compare(divisor, one) > 0 && compare(divisor, n) < 0;
    free(sum);
    free(one);
    free(x);
    free(y);
    if (proper) return divisor;
    free(divisor);
    return NULL;
}

static number *eliminate(const number *n) {
    for (uint32_t i = 0; i < RELATIONS; i++) {
        memset(relations[i].members, 0, sizeof relations[i].members);
        relations[i].members[i / 64] |= (uint64_t)1 << (i % 64);
    }
    for (uint32_t i = 0; i < RELATIONS; i++) {
        int pivot = -1;
        for (int word = 0; word < WORDS && pivot < 0; word++)
            if (relations[i].odd[word] != 0)
                pivot = word * 64 + __builtin_ctzll(relations[i].odd[word]);
        if (pivot < 0) {
            number *divisor = try_square(&relations[i], n);
            if (divisor != NULL) return divisor;
            continue;
        }
        for (uint32_t j = i + 1; j < RELATIONS; j++) {
            if (!(relations[j].odd[pivot / 64] >> (pivot % 64) & 1)) continue;
            for (int word = 0; word < WORDS; word++) relations[j].odd[word] ^= relations[i].odd[word];
            for (size_t word = 0; word < sizeof relations[i].members / 8; word++)
                relations[j].members[word] ^= relations[i].members[word];
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    number *n = parse(argc > 1 ? argv[1] : "2100000000371300000000135861");
    relations = must(calloc(RELATIONS, sizeof *relations));
    choose_base(n);
    number *first = root(n), *p = small(0), *q = small(1), *a = add(first, &(number){0});
    number *before = small(1), *now = modulo(first, n);
    uint32_t found = 0;
    for (uint64_t step = 1; found < RELATIONS; step++) {
        /* P' = aQ - P, Q' = (n - P'^2) / Q, A' = a'A + A'' */
        number *product = multiply(a, q);
        set(&p, subtract(product, p));
        number *square = multiply(p, p), *rest = subtract(n, square);
        set(&q, divide(rest, q, NULL));
        number *sum = add(first, p);
        free(product);
        free(square);
        free(rest);
        if (q->len == 1 && q->limb[0] == 1) fail("the period is too short");
        struct relation *relation = &relations[found];
        if (factors(q, relation)) {
            memset(relation->odd, 0, sizeof relation->odd);
            for (uint32_t i = 0; i < BASE; i++)
                relation->odd[i / 64] |= (uint64_t)(relation->power[i] & 1) << (i % 64);
            relation->odd[BASE / 64] |= (step & 1) << (BASE % 64);
            relation->root = add(now, &(number){0});
            found++;
        }
        set(&a, divide(sum, q, NULL));
        free(sum);
        number *next = multiply(a, now), *both = add(next, before);
        free(next);
        free(before);
        before = now;
        now = modulo(both, n);
        free(both);
    }
    number *divisor = eliminate(n);
    if (divisor == NULL) fail("no divisor found");
    number *rest = modulo(n, divisor);
    if (rest->len != 0) fail("not a divisor");
    uint64_t sum = 0;
    for (uint32_t i = 0; i < divisor->len; i++) sum = sum << 32 | divisor->limb[i];
    for (uint32_t i = 0; i < RELATIONS; i++) free(relations[i].root);
    free(rest);
    free(divisor);
    free(relations);
    free(first);
    free(p);
    free(q);
    free(a);
    free(before);
    free(now);
    free(n);
    report(sum);
    return 0;
}
