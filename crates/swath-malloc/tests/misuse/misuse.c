/*
 * One kind of misuse of the heap for each name: misuse KIND BYTES. Prints "not found" where the program goes on as
 * if nothing had happened, and nothing where it is ended, or the misuse does no harm. misuse list prints the kinds,
 * and 1 for those that depend on the length.
 *
 * The kinds are those of the security tests of mimalloc-bench, written anew from their names and descriptions.
 */
#include <alloca.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __cplusplus
#include <string>
#endif

static size_t bytes;
/* What the compiler may not look through. */
static void *(*volatile allocate)(size_t) = malloc;
static void *(*volatile reallocate)(void *, size_t) = realloc;
static void (*volatile release)(void *) = free;
static void *(*volatile copy)(void *, const void *, size_t) = memcpy;

enum { REUSES = 8192, MEGABYTE = 1 << 20 };

static char *block(void) { return (char *)allocate(bytes); }

static void churn(size_t size)
{
	for (int i = 0; i < REUSES; i++)
		release(allocate(size));
}

static void over(size_t more)
{
	volatile char *p = block();
	for (size_t i = 0; i < more; i++)
		p[bytes + i] ^= 'A';
	release((void *)p);
}

static void under(size_t less)
{
	volatile char *p = block();
	for (size_t i = 1; i <= less; i++)
		p[-(ptrdiff_t)i] ^= 'A';
	release((void *)p);
}

/* Copied by the library: nothing is freed after. */
static void copied_over(size_t more)
{
	static char from[2 * MEGABYTE];
	copy(block(), from, bytes + more);
}

static void copied_under(size_t less)
{
	static char from[2 * MEGABYTE];
	copy(block() - less, from, bytes + less);
}

static int one_byte_overflow(void) { over(1); return 1; }
static int some_bytes_overflow(void) { over(32); return 1; }
static int megabyte_overflow(void) { over(MEGABYTE); return 1; }
static int one_byte_underflow(void) { under(1); return 1; }
static int some_bytes_underflow(void) { under(32); return 1; }
static int megabyte_underflow(void) { under(MEGABYTE); return 1; }
static int one_byte_copied_over(void) { copied_over(1); return 1; }
static int some_bytes_copied_over(void) { copied_over(32); return 1; }
static int megabyte_copied_over(void) { copied_over(MEGABYTE); return 1; }
static int one_byte_copied_under(void) { copied_under(1); return 1; }
static int some_bytes_copied_under(void) { copied_under(32); return 1; }
static int megabyte_copied_under(void) { copied_under(MEGABYTE); return 1; }

static int double_free(void)
{
	char *p = block();
	release(p);
	release(p);
	return 1;
}

static int double_free_delayed(void)
{
	char *p = block();
	release(p);
	churn(bytes);
	release(p);
	return 1;
}

static int double_free_interleaved(void)
{
	char *p = block(), *q = block();
	release(p);
	release(q);
	release(p);
	return 1;
}

/* Another has the place by then: its block is freed. */
static int double_free_reuse(void)
{
	char *p = block();
	release(p);
	for (int i = 0; i < 1024; i++)
		block();
	release(p);
	return 1;
}

static int double_free_single_reuse(void)
{
	char *p = block();
	release(p);
	block();
	release(p);
	return 1;
}

static int invalid_free(void) { release((void *)(uintptr_t)0x123450); return 1; }
static int invalid_free_stack(void) { char here[64]; release(here); return 1; }
static int invalid_free_alloca(void) { char *here = (char *)alloca(bytes); here[0] = 1; release(here); return 1; }
static int invalid_free_close(void) { release(block() + 4096); return 1; }
static int invalid_free_far(void) { release(block() + 4 * MEGABYTE); return 1; }
static int invalid_free_unaligned(void) { release(block() + 1); return 1; }
static int invalid_free_aligned_inside(void) { release(block() + 16); return 1; }

static int invalid_free_unaligned_multiple(void)
{
	for (int i = 0; i < 256; i++)
		release(block() + 1 + i % 7);
	return 1;
}

static int reuse(void)
{
	char *p = block();
	uintptr_t was = (uintptr_t)p;
	release(p);
	return (uintptr_t)block() == was;
}

static int reuse_downsize(void)
{
	char *p = block();
	uintptr_t was = (uintptr_t)p;
	release(p);
	return (uintptr_t)allocate(bytes / 2) == was;
}

static int reuse_after_resize(void)
{
	char *p = block();
	uintptr_t was = (uintptr_t)p;
	if (!reallocate(p, 4 * bytes + 1024))
		return 0;
	return (uintptr_t)block() == was;
}

static int write_after_free(void)
{
	char *p = block();
	release(p);
	memset(p, 'A', bytes);
	return 1;
}

static int write_after_free_reuse(void)
{
	char *p = block();
	release(p);
	memset(p, 'A', bytes);
	churn(bytes);
	return 1;
}

static int zero_after_free(void)
{
	volatile char *p = block();
	memset((void *)p, 'A', bytes);
	release((void *)p);
	for (size_t i = 0; i < bytes; i++)
		if (p[i])
			return 1;
	return 0;
}

static int zero_on_malloc(void)
{
	volatile char *p = block();
	for (size_t i = 0; i < bytes; i++)
		if (p[i])
			return 1;
	return 0;
}

static int zero_size_read(void) { volatile char *p = (char *)allocate(0); (void)*p; return 1; }
static int zero_size_write(void) { volatile char *p = (char *)allocate(0); *p = 'A'; return 1; }

static int zero_size_read_free(void)
{
	volatile char *p = (char *)allocate(0);
	(void)*p;
	release((void *)p);
	return 1;
}

static int zero_size_write_free(void)
{
	volatile char *p = (char *)allocate(0);
	*p = 'A';
	release((void *)p);
	return 1;
}

static int executable(void)
{
	char *p = block();
	memcpy(p, "\x90\xc3", 2);
	((void (*)(void))p)();
	return 1;
}

static int impossibly_large(void) { return allocate(SIZE_MAX - 4096) != NULL; }

#ifdef __cplusplus
static int array_delete_of_one(void)
{
	char *volatile p = new char;
	delete[] p;
	return 1;
}

static int delete_of_array(void)
{
	char *volatile p = new char[bytes];
	delete p;
	return 1;
}

static int array_delete_of_string(void)
{
	std::string *volatile p = new std::string("text");
	delete[] p;
	return 1;
}

static int delete_of_string_array(void)
{
	std::string *volatile p = new std::string[bytes / 8];
	delete p;
	return 1;
}

struct Narrow { char it[16]; };
struct Wide { char it[4096]; };

static int delete_of_another_size(void)
{
	Narrow *volatile p = new Narrow;
	delete (Wide *)(void *)p;
	return 1;
}
#endif

static const struct kind {
	const char *name;
	int (*run)(void);
	/* It depends on the length. */
	int lengths;
} kinds[] = {
#define KIND(name) { #name, name, 1 }
#define KIND_ONCE(name) { #name, name, 0 }
	KIND(one_byte_overflow), KIND(some_bytes_overflow), KIND(megabyte_overflow),
	KIND(one_byte_underflow), KIND(some_bytes_underflow), KIND(megabyte_underflow),
	KIND(one_byte_copied_over), KIND(some_bytes_copied_over), KIND(megabyte_copied_over),
	KIND(one_byte_copied_under), KIND(some_bytes_copied_under), KIND(megabyte_copied_under),
	KIND(double_free), KIND(double_free_delayed), KIND(double_free_interleaved), KIND(double_free_reuse),
	KIND(double_free_single_reuse),
	KIND_ONCE(invalid_free), KIND_ONCE(invalid_free_stack), KIND(invalid_free_alloca), KIND(invalid_free_close),
	KIND(invalid_free_far), KIND(invalid_free_unaligned), KIND(invalid_free_aligned_inside),
	KIND(invalid_free_unaligned_multiple),
	KIND(reuse), KIND(reuse_downsize), KIND(reuse_after_resize),
	KIND(write_after_free), KIND(write_after_free_reuse), KIND(zero_after_free), KIND(zero_on_malloc),
	KIND_ONCE(zero_size_read), KIND_ONCE(zero_size_read_free), KIND_ONCE(zero_size_write),
	KIND_ONCE(zero_size_write_free),
	KIND(executable), KIND_ONCE(impossibly_large),
#ifdef __cplusplus
	KIND_ONCE(array_delete_of_one), KIND(delete_of_array), KIND_ONCE(array_delete_of_string),
	KIND(delete_of_string_array), KIND_ONCE(delete_of_another_size),
#endif
};

int main(int argc, char **argv)
{
	const size_t count = sizeof(kinds) / sizeof(*kinds);

	if (argc == 2 && !strcmp(argv[1], "list"))
		for (size_t i = 0; i < count; i++)
			printf("%s %d\n", kinds[i].name, kinds[i].lengths);
	if (argc < 3)
		return argc != 2;
	bytes = strtoull(argv[2], NULL, 0);
	for (size_t i = 0; i < count; i++)
		if (!strcmp(argv[1], kinds[i].name)) {
			if (kinds[i].run()) {
				puts("not found");
				fflush(stdout);
			}
			return 0;
		}
	return 1;
}
